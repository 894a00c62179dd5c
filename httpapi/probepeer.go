package httpapi

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
)

// PeerProbe is what [ProbePeer] has found.
type PeerProbe struct {
	Reached   bool          // a connection to the address was made
	Proven    bool          // the broker there has proved that it has the session
	RoundTrip time.Duration // how long the connection took; 0 if it was not made
	Err       error         // why the broker was not reached, or not proven
}

// ProbePeer connects to the broker at an address, as another broker does, and checks that it has a session. It sends no request.
func ProbePeer(ctx context.Context, address string, session seb.SessionID) (p PeerProbe) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return PeerProbe{Err: fmt.Errorf("make a key pair: %w", err)}
	}
	identity, err := peer.NewIdentity(private)
	if err != nil {
		return PeerProbe{Err: err}
	}
	begun := time.Now()
	ctx = context.WithValue(ctx, addressKey{}, address)
	ctx = context.WithValue(ctx, reachedKey{}, func() { p.Reached, p.RoundTrip = true, time.Since(begun) })
	conn, err := newPeerClient(identity, Options{}).connect(ctx, "tcp", net.JoinHostPort(hex.EncodeToString(session[:]), "80"))
	if err != nil {
		p.Err = err
		return p
	}
	p.Proven = true
	if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		p.Err = fmt.Errorf("end the connection: %w", err)
	}
	return p
}
