package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// Path is the path at which brokers ask each other for a connection.
	Path = "/v1/peer"

	protocol = "seb-peer/1"
)

// Asks reports whether r asks for a connection between brokers.
func Asks(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Upgrade") == protocol &&
		slices.ContainsFunc(strings.Split(r.Header.Get("Connection"), ","), func(token string) bool {
			return strings.EqualFold(strings.TrimSpace(token), "Upgrade")
		})
}

// Conn is a connection to a session that has proved its identity. Conn is not a [*tls.Conn], so
// that net/http's server does not take the session's certificate for a client certificate.
type Conn struct {
	*tls.Conn
	raw     *bounded
	session Key
}

// Session returns the public key of the session on the other side.
func (c *Conn) Session() Key { return c.session }

// Close ends the connection without a TLS alert: see [Abrupt] for the reason.
func (c *Conn) Close() error { return c.raw.Close() }

// Trust removes the limit on the bytes that the other side may send. Before Trust is called, the other side
// may send only the header of one request. The caller calls Trust after it has found the session in the log.
func (c *Conn) Trust() { c.raw.allow(unbounded) }

// Accept turns the connection of a request into a connection to the session that asks. The caller must first
// check with [Asks] that the request asks for such a connection. The handshake ends when ctx ends. Until the
// caller calls [Conn.Trust], the connection reads only as many bytes as a handshake and the header of one
// request need.
func (i *Identity) Accept(ctx context.Context, w http.ResponseWriter) (*Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	if buffered.Reader.Buffered() > 0 {
		_ = conn.Close() // this broker has sent nothing yet, so nothing is lost if Close fails
		return nil, errors.New("take over the connection: the client sent data before it had the response")
	}
	_ = conn.SetDeadline(time.Time{}) // an error may be ignored: it means that the connection is closed, and then the write below fails
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\nX-Content-Type-Options: nosniff\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	if outer, ok := conn.(*tls.Conn); ok {
		conn = Abrupt(outer)
	}
	c := &Conn{raw: newBounded(conn, handshakeBytesMax)}
	c.Conn = tls.Server(c.raw, i.accepting())
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake between sessions: %w", err)
	}
	if c.session, err = keyOf(c.ConnectionState()); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.raw.allow(requestBytesMax)
	return c, nil
}
