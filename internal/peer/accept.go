package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// Path is where brokers ask each other for a connection.
	Path = "/v1/peer"

	protocol = "seb-peer/1"
)

// Asks tells whether a request asks for a connection between brokers.
func Asks(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Upgrade") == protocol &&
		slices.ContainsFunc(strings.Split(r.Header.Get("Connection"), ","), func(token string) bool {
			return strings.EqualFold(strings.TrimSpace(token), "Upgrade")
		})
}

// Accept makes the connection of a request that [Asks] for it into one to the session that
// asks. The handshake is yet to be made: by whoever serves it.
func (i *Identity) Accept(w http.ResponseWriter) (*tls.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	if buffered.Reader.Buffered() > 0 {
		_ = conn.Close() // nothing was said on it
		return nil, errors.New("take over the connection: its client has not waited for the answer")
	}
	_ = conn.SetDeadline(time.Time{}) // as with the writes below, what is closed fails later
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	return tls.Server(conn, i.Accepting()), nil
}
