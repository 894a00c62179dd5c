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
	"github.com/simple-event-broker/seb/internal/httpconn"
	"github.com/simple-event-broker/seb/internal/peer"
)

// callerHeader names the caller for whom another broker asks: "key 7", or "anyone" where the log has no
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
		h.fail(w, r, &seb.Error{Code: seb.CodeBrokerClosed, Detail: "the broker is shutting down", RetryAfter: time.Second})
		return
	}
	w.status = http.StatusSwitchingProtocols
	ctx, cancel := context.WithTimeout(h.draining, readHeaderTimeout)
	defer cancel()
	conn, err := h.peers.identity.Accept(ctx, w.ResponseWriter)
	if err != nil {
		panic(http.ErrAbortHandler) // its client is gone, or proves no session: there is nobody to tell
	}
	l := &peerConn{Conn: conn, base: context.WithValue(context.WithoutCancel(r.Context()), peerKey{}, conn)}
	_ = h.peerServer.Serve(l) // returns as soon as the server has the connection, or because it takes none
	if !l.given {
		_ = conn.Close()
	}
}

// peerKey is of a request's context: the [peer.Conn] on which another broker forwarded it.
type peerKey struct{}

// peerOf returns the connection between brokers on which a request came, nil if it came on none.
func peerOf(r *http.Request) *peer.Conn {
	conn, _ := r.Context().Value(peerKey{}).(*peer.Conn)
	return conn
}

func (h *Handler) servePeer(rw http.ResponseWriter, r *http.Request) {
	if httpconn.PlaceWanted(r.Context()) {
		rw.Header().Set("Connection", "close")
	}
	h.ServeHTTP(rw, r)
}

// checkPeer refuses requests on a connection between brokers whose session the log does not
// name, and has the connection end with the answer: a stranger holds none for long.
func (h *Handler) checkPeer(w *response, r *http.Request) error {
	conn := peerOf(r)
	if conn == nil {
		return nil
	}
	if r.Header.Get(callerHeader) != "" {
		w.sign() // before anything that may take long, as a sync that finds the session
	}
	known, err := h.broker.KnowsSession(r.Context(), seb.SessionKey(conn.Session()))
	if known {
		conn.Trust()
		return nil
	}
	w.Header().Set("Connection", "close")
	if err != nil {
		return fmt.Errorf("find the session of the requesting broker: %w", err)
	}
	return &seb.Error{Code: codeBrokerUnknown, Detail: "the log does not name the session of the requesting broker"}
}

// fromPeer tells whether another broker of this log has passed r on, and then for which API
// key: 0 for none. It takes the mark of that off r. Whoever else sends the mark is refused for
// it as for any header that is unknown.
func fromPeer(r *http.Request) (proven bool, key uint64, err error) {
	if peerOf(r) == nil {
		return false, 0, nil
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
	return false, 0, invalid("only brokers send them, to each other", `%s must be "key N" or %q, together with %s`, callerHeader, callerAnyone, forwardedHeader)
}

// callerOf is what [fromPeer] of another broker reads.
func callerOf(a seb.Access) string {
	if a.Open() {
		return callerAnyone
	}
	return "key " + strconv.FormatUint(a.Key.ID, 10)
}

// Shutdown drains h, and waits until the requests that other brokers have forwarded are answered.
// An [http.Server] knows nothing of these: call it beside the server's Shutdown.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.Drain()
	return h.peerServer.Shutdown(ctx) //nolint:wrapcheck // as the server's own
}

// Close ends connections with other brokers, as [http.Server.Close] ends those with clients.
func (h *Handler) Close() error {
	return h.peerServer.Close() //nolint:wrapcheck // as the server's own
}
