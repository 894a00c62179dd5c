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
	limited := &bounded{Conn: conn, left: answerBytesMax}
	answer, err := http.ReadResponse(bufio.NewReaderSize(limited, answerBytesMax), upgrade)
	if err != nil {
		return nil, fmt.Errorf("ask for a connection between brokers: %w", err)
	}
	_ = answer.Body.Close() // there is none that matters
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != protocol {
		return nil, fmt.Errorf("ask for a connection between brokers: what answers there with %d is no broker, or does not let one through", answer.StatusCode)
	}
	// Nothing is lost with the reader: the other side speaks next when it is spoken to.
	inner := tls.Client(conn, i.asking(owner))
	if err := inner.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("prove sessions to each other: %w", err)
	}
	return Abrupt(inner), nil
}

// answerBytesMax is what the header of an answer may have.
const answerBytesMax = 8 << 10

// bounded is a connection of which no more than so much is read.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", answerBytesMax)
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err //nolint:wrapcheck // a reader's errors are its callers'
}
