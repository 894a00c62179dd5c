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

// callerHeader names the caller whose request another broker forwards: "key 7", or "anyone" if the log has
// no API keys. The header is valid only on a connection whose other side has proved that it is a broker of the
// log.
const callerHeader = "Seb-Caller"

const callerAnyone = "anyone"

// identityOf returns the identity with which a broker proves its session to other brokers.
func identityOf(b *seb.Broker) *peer.Identity {
	identity, err := peer.NewIdentity(b.SessionSigner())
	if err != nil {
		panic(err) // fails only for an invalid key; the session's key is valid
	}
	return identity
}

// newPeerServer returns the server of requests that other brokers forward.
func (h *Handler) newPeerServer() *http.Server {
	s := &http.Server{
		Handler:           http.HandlerFunc(h.servePeer),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       2 * ownerIdle, // the forwarding broker closes a connection earlier, after it was idle for ownerIdle
		MaxHeaderBytes:    headerBytesMax,
		// Anyone may begin a handshake, so a failed handshake is not worth a log line.
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext: func(l net.Listener) context.Context { return l.(*peerConn).base },
	}
	h.headers.Watch(s)
	return s
}

// peerConn is a listener for one connection of another broker.
type peerConn struct {
	net.Conn
	base  context.Context //nolint:containedctx // has the values of the connection's first request; the server of the connection derives its contexts from base
	given bool
}

func (c *peerConn) Accept() (net.Conn, error) {
	if c.given {
		return nil, net.ErrClosed
	}
	c.given = true
	return c.Conn, nil
}

func (c *peerConn) Close() error   { return nil } // closes the listener only: the server closes the connection
func (c *peerConn) Addr() net.Addr { return c.LocalAddr() }

// acceptPeer turns the connection of a request into a connection between brokers. It does not check whether
// the log names the other side's session: checkPeer checks that for each request.
func (h *Handler) acceptPeer(w *response, r *http.Request) {
	if h.drained() {
		h.fail(w, r, errShuttingDown())
		return
	}
	w.status = http.StatusSwitchingProtocols
	ctx, cancel := context.WithTimeout(h.draining, readHeaderTimeout)
	defer cancel()
	conn, err := h.peers.identity.Accept(ctx, w.ResponseWriter)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has left, or did not prove a session: no answer is possible
	}
	l := &peerConn{Conn: h.headers.Wrap(conn), base: context.WithValue(context.WithoutCancel(r.Context()), peerKey{}, conn)}
	_ = h.peerServer.Serve(l) // returns once the server has accepted the connection, or at once if the server is shut down
	if !l.given {
		_ = conn.Close()
	}
}

// peerKey is the context key of the [peer.Conn] on which another broker forwarded a request.
type peerKey struct{}

// peerOf returns the connection between brokers on which a request came, or nil if a client sent the request.
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

// checkPeer refuses requests on a connection between brokers if the log does not name the other
// side's session, unless the request introduces that session. After such a refusal the connection is closed, so that no stranger keeps a connection for
// long.
func (h *Handler) checkPeer(w *response, r *http.Request) error {
	conn := peerOf(r)
	if conn == nil {
		return nil
	}
	introduction := ""
	if r.URL.Path == meshPath {
		if !h.meshes { // first, since a broker that is told that it is unknown would name itself in the log for nothing
			w.Header().Set("Connection", "close")
			return errNoRoute(r)
		}
		introduction = r.Header.Get(introductionHeader)
	}
	known, err := h.broker.KnowsSession(r.Context(), seb.SessionKey(conn.Session()), introduction)
	if known {
		conn.Trust()
		if r.Header.Get(callerHeader) != "" {
			w.sign() // sent now, since the sync that finds the caller's key may take long
		}
		return nil
	}
	w.Header().Set("Connection", "close")
	if err != nil {
		return fmt.Errorf("find the session of the requesting broker: %w", err)
	}
	return &seb.Error{Code: codeBrokerUnknown, Detail: "the log does not name the session of the requesting broker"}
}

// fromPeer tells whether another broker of this log has forwarded r, and returns the id of the caller's API
// key. The id is 0 if the log has no keys. fromPeer removes callerHeader from such a request. If a client sends
// that header, the action refuses the request, as it does for any unknown header.
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
	return false, 0, invalid("leave these headers out: only brokers send them, to each other", `the header %s must be "key N" or %q, together with %s`, callerHeader, callerAnyone, forwardedHeader)
}

// callerOf returns the value of callerHeader for a caller with the access a. The other broker reads this value
// with fromPeer.
func callerOf(a seb.Access) string {
	if a.Open() {
		return callerAnyone
	}
	return "key " + strconv.FormatUint(uint64(a.Key.ID), 10)
}

// Shutdown calls [Handler.Drain], and waits until the requests that other brokers have forwarded are answered.
// [http.Server.Shutdown] waits only for requests of clients, so the caller calls both.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.Drain()
	return h.peerServer.Shutdown(ctx) //nolint:wrapcheck // the server's error, unchanged
}

// Close ends connections with other brokers, as [http.Server.Close] ends connections with clients.
func (h *Handler) Close() error {
	return h.peerServer.Close() //nolint:wrapcheck // the server's error, unchanged
}

func errShuttingDown() *seb.Error {
	return &seb.Error{Code: seb.CodeBrokerClosed, Detail: "the broker is shutting down", RetryAfter: time.Second}
}
