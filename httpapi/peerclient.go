package httpapi

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
)

// peerClient sends requests to other brokers, at their advertised address and without a proxy. At the start
// of a connection, the other broker proves that it is the intended session.
type peerClient struct {
	identity *peer.Identity
	outer    *tls.Config // for addresses that are https
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	http     *http.Transport
}

func newPeerClient(identity *peer.Identity, opts Options) *peerClient {
	p := &peerClient{identity: identity, outer: opts.PeerTLS, dial: opts.DialPeer}
	if p.dial == nil {
		p.dial = (&net.Dialer{}).DialContext
	}
	p.http = &http.Transport{
		DialContext:            p.connect,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        ownerIdle,
		MaxResponseHeaderBytes: headerBytesMax,
	}
	return p
}

const (
	ownerDialMax = 2 * time.Second
	// ownerConnectMax is how long the handshakes of a connection may take after the connection was
	// dialled: a broker that already has as many connections as it allows accepts a new connection late.
	ownerConnectMax = 12 * time.Second
)

// Keys of values in a request's context: the address of the broker to ask, and a function that is
// called when a new connection reaches that broker.
type (
	addressKey struct{}
	reachedKey struct{}
)

// urlOf returns the URL of a request to the owner's session, and a context that holds the owner's
// address. The URL's host is the session's public key, so that the transport never sends a request for one
// session on a connection to another session.
func urlOf(ctx context.Context, owner *seb.Error, path string) (context.Context, string) {
	return context.WithValue(ctx, addressKey{}, owner.Address), "http://" + hex.EncodeToString(owner.Session[:]) + path
}

// connect returns a connection to a session. The host is the session's public key or its id, in hex, and a port.
func (p *peerClient) connect(ctx context.Context, network, host string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	check := checkOf(name)
	address, ok := ctx.Value(addressKey{}).(string)
	if check == nil || !ok {
		return nil, errors.New("connect to a broker: the session's key is missing")
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	dialing, stop := context.WithTimeout(ctx, ownerDialMax)
	conn, err := p.dial(dialing, network, hostPort(u))
	stop()
	if err != nil {
		return nil, err //nolint:wrapcheck // the error says what was tried
	}
	if reached, ok := ctx.Value(reachedKey{}).(func()); ok {
		reached()
	}
	ctx, cancel := context.WithTimeout(ctx, ownerConnectMax)
	defer cancel()
	if u.Scheme == "https" {
		if conn, err = p.secure(ctx, conn, u.Hostname()); err != nil {
			return nil, err
		}
	}
	return p.identity.Ask(ctx, conn, u.Host, check) //nolint:wrapcheck // the error says what was tried
}

// checkOf returns a function that checks the public key of a session. name is the expected key, or the id of the
// expected session, in hex. If name is neither, checkOf returns nil.
func checkOf(name string) func(peer.Key) error {
	b, err := hex.DecodeString(name)
	switch {
	case err == nil && len(b) == len(peer.Key{}):
		return peer.Key(b).Is
	case err == nil && len(b) == len(seb.SessionID{}):
		return func(got peer.Key) error {
			if id := seb.SessionKey(got).ID(); id != seb.SessionID(b) {
				return fmt.Errorf("%w: its id is %v, not %x", peer.ErrOtherSession, id, b)
			}
			return nil
		}
	}
	return nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// secure returns a TLS connection over conn, for a broker whose address is https. The other side may be
// a proxy in front of the broker.
func (p *peerClient) secure(ctx context.Context, conn net.Conn, name string) (net.Conn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.outer != nil {
		config = p.outer.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = name
	}
	config.NextProtos = []string{"http/1.1"}
	outer := tls.Client(conn, config)
	if err := outer.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	return peer.Abrupt(outer), nil
}
