package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
)

// callerHeader says for whom another broker asks: "key 7", or "anyone" where the log has no
// keys. It counts only on a connection whose other side has proved to be a broker of the log.
const callerHeader = "Seb-Caller"

const callerAnyone = "anyone"

// identityOf returns what proves a broker's session.
func identityOf(b *seb.Broker) *peer.Identity {
	identity, err := peer.NewIdentity(b.SessionSigner())
	if err != nil {
		panic(err) // it depends on nothing but the key, which is good
	}
	return identity
}

// newPeerServer returns what serves requests that other brokers pass on.
func (h *Handler) newPeerServer() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(h.servePeer),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       2 * ownerIdle, // the broker that asks lets go before that
		MaxHeaderBytes:    headerBytesMax,
		// Anybody may begin a handshake: that one fails is no news.
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext: func(l net.Listener) context.Context { return l.(*peerConn).base },
	}
}

// peerConn is a listener for one connection of another broker.
type peerConn struct {
	net.Conn
	base  context.Context //nolint:containedctx // what was known of the connection before; its server takes it from here
	given bool
}

func (c *peerConn) Accept() (net.Conn, error) {
	if c.given {
		return nil, net.ErrClosed
	}
	c.given = true
	return c.Conn, nil
}

func (c *peerConn) Close() error   { return nil } // of the listener: the connection is its server's
func (c *peerConn) Addr() net.Addr { return c.LocalAddr() }

// acceptPeer turns the connection of a request into one between brokers. Nothing is known of
// the other side yet.
func (h *Handler) acceptPeer(w *response, r *http.Request) {
	if h.drained() {
		h.fail(w, r, &seb.Error{Code: seb.CodeBrokerClosed, Detail: "the broker is going", RetryAfter: time.Second})
		return
	}
	w.status = http.StatusSwitchingProtocols
	conn, err := h.peers.identity.Accept(w.ResponseWriter)
	if err != nil {
		panic(http.ErrAbortHandler) // its client is gone, or speaks out of turn: there is nobody to tell
	}
	l := &peerConn{Conn: conn, base: context.WithoutCancel(r.Context())}
	_ = h.peerServer.Serve(l) // returns as soon as the server has the connection, or because it takes none
	if !l.given {
		_ = conn.Close()
	}
}

// peerKey is of a request's context: the session that passed it on, proved, but not yet known
// to be of this log.
type peerKey struct{}

// passedOn tells whether a request came on a connection between brokers.
func passedOn(r *http.Request) bool { return r.Context().Value(peerKey{}) != nil }

func (h *Handler) servePeer(rw http.ResponseWriter, r *http.Request) {
	if placeWanted(r.Context()) {
		rw.Header().Set("Connection", "close")
	}
	key, err := peer.KeyOf(*r.TLS)
	if err != nil {
		panic(http.ErrAbortHandler) // the handshake has refused it
	}
	r.TLS = nil // it says nothing about the caller
	h.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), peerKey{}, seb.SessionKey(key))))
}

// fromPeer tells whether another broker of this log has passed r on, and then for which API
// key: 0 for none. It takes the mark of that off r. Of a session that the log does not name it
// is an error; whoever else sends the mark is refused for it as for any header that is unknown.
func (h *Handler) fromPeer(r *http.Request) (proven bool, key uint64, err error) {
	session, ok := r.Context().Value(peerKey{}).(seb.SessionKey)
	if !ok {
		return false, 0, nil
	}
	known, err := h.broker.KnowsSession(r.Context(), session)
	if err != nil {
		return false, 0, fmt.Errorf("look for the session of the broker that asks: %w", err)
	}
	if !known {
		return false, 0, &seb.Error{Code: seb.CodeQueueElsewhere, Detail: "the request is from a broker of another log", RetryAfter: time.Second}
	}
	caller := r.Header.Values(callerHeader)
	r.Header.Del(callerHeader)
	if len(caller) == 1 && r.Header.Get(forwardedHeader) != "" {
		if caller[0] == callerAnyone {
			return true, 0, nil
		}
		id, err := strconv.ParseUint(strings.TrimPrefix(caller[0], "key "), 10, 64)
		if err == nil && id > 0 && strings.HasPrefix(caller[0], "key ") {
			return true, id, nil
		}
	}
	return false, 0, invalid("brokers send them to each other", "%s and %s don't say for whom a broker asks", forwardedHeader, callerHeader)
}

// callerOf is what [Handler.fromPeer] of another broker reads.
func callerOf(a seb.Access) string {
	if a.Open() {
		return callerAnyone
	}
	return "key " + strconv.FormatUint(a.Key.ID, 10)
}

// Shutdown drains h, and waits until requests that other brokers have passed on are answered.
// An [http.Server] knows nothing of these: call it beside the server's Shutdown.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.Drain()
	return h.peerServer.Shutdown(ctx) //nolint:wrapcheck // as the server's own
}

// Close ends connections with other brokers, as [http.Server.Close] ends those with clients.
func (h *Handler) Close() error {
	return h.peerServer.Close() //nolint:wrapcheck // as the server's own
}
