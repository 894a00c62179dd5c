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

// peerClient reaches other brokers: directly, and no other way than their address says. On
// a connection of it the session that is meant answers, and nobody else.
type peerClient struct {
	identity *peer.Identity
	outer    *tls.Config // where an address is https
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
	// ownerConnectMax is how long a broker that is reached may take for the rest: at its limit on
	// connections it takes a new one late.
	ownerConnectMax = 12 * time.Second
)

// Of a request's context: the address of the broker that it is for, and what is called
// when that is reached by a new connection.
type (
	addressKey struct{}
	reachedKey struct{}
)

// urlOf returns where a session is asked. Its key stands for the host, so that a connection to
// one is never used for another; the context says how the first one comes about.
func urlOf(ctx context.Context, owner *seb.Error, path string) (context.Context, string) {
	return context.WithValue(ctx, addressKey{}, owner.Address), "http://" + hex.EncodeToString(owner.Session[:]) + path
}

// connect returns a connection to the session whose key stands for the host.
func (p *peerClient) connect(ctx context.Context, network, host string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, fmt.Errorf("connect to a broker: %w", err)
	}
	key, err := hex.DecodeString(name)
	address, ok := ctx.Value(addressKey{}).(string)
	if err != nil || len(key) != len(peer.Key{}) || !ok {
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
		return nil, err //nolint:wrapcheck // it says what was tried
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
	return p.identity.Ask(ctx, conn, u.Host, peer.Key(key)) //nolint:wrapcheck // it says what was tried
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

// secure has the TLS of a broker's address, which may end before the broker.
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
