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

// Ask turns an HTTP connection to a broker into a connection to a session whose public key passes check, such as [Key.Is].
// If a server without the private key of such a session answers, the server learns only that a broker asks. If
// Ask returns an error, it has closed conn.
func (i *Identity) Ask(ctx context.Context, conn net.Conn, host string, check func(Key) error) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // closing the connection ends a read or a write that waits
	inner, err := i.ask(ctx, conn, host, check)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the connection is of no use, so nothing is lost if Close fails
		return nil, err
	}
	return inner, nil
}

func (i *Identity) ask(ctx context.Context, conn net.Conn, host string, check func(Key) error) (net.Conn, error) {
	upgrade := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: Path}, Host: host, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}},
	}
	if err := upgrade.Write(conn); err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	limited := newBounded(conn, answerBytesMax)
	answer, err := http.ReadResponse(bufio.NewReaderSize(limited, answerBytesMax), upgrade)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	_ = answer.Body.Close() // the body of the answer is not used
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != protocol {
		return nil, fmt.Errorf("connect to the broker: the response has status %d: the address is not that of a broker, or a proxy refuses the upgrade", answer.StatusCode)
	}
	// The bufio.Reader has buffered nothing: after the answer, the other side sends nothing until the
	// handshake below begins.
	limited.allow(handshakeBytesMax)
	inner := tls.Client(limited, i.asking(check))
	if err := inner.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake between sessions: %w", err)
	}
	limited.allow(unbounded)
	return Abrupt(inner), nil
}
