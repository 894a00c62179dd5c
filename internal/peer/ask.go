package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// Ask makes a connection to a broker, on which HTTP is spoken, into one to the session of
// that key. Whoever else answers learns nothing but that somebody asks. It closes conn if
// it fails.
func (i *Identity) Ask(ctx context.Context, conn net.Conn, host string, owner Key) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends a read that goes on
	inner, err := i.ask(ctx, conn, host, owner)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // of whoever is there it is not known whether it listens
		return nil, err
	}
	return inner, nil
}

func (i *Identity) ask(ctx context.Context, conn net.Conn, host string, owner Key) (net.Conn, error) {
	upgrade := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: Path}, Host: host, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}},
	}
	if err := upgrade.Write(conn); err != nil {
		return nil, fmt.Errorf("ask for a connection between brokers: %w", err)
	}
	limited := newBounded(conn, answerBytesMax)
	answer, err := http.ReadResponse(bufio.NewReaderSize(limited, answerBytesMax), upgrade)
	if err != nil {
		return nil, fmt.Errorf("ask for a connection between brokers: %w", err)
	}
	_ = answer.Body.Close() // its bytes do not matter
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != protocol {
		return nil, fmt.Errorf("ask for a connection between brokers: the answer has status %d: the address is not that of a broker, or a proxy refuses the upgrade", answer.StatusCode)
	}
	// Nothing is lost with the reader: the other side speaks next when it is spoken to.
	limited.allow(handshakeBytesMax)
	inner := tls.Client(limited, i.asking(owner))
	if err := inner.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("prove sessions to each other: %w", err)
	}
	limited.allow(unbounded)
	return Abrupt(inner), nil
}
