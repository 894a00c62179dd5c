// Package httpconn bounds the number of an HTTP server's connections and the memory of request headers, ends
// connections whose clients are lost, and recognises clients of other protocols. It knows connections and their
// states, and where a header ends, but not the requests on them. A slot here is the permission for
// one connection to be open: a server with n slots has at most n open connections.
package httpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// IdleMin is how long an idle connection stays open even if a new connection waits for a slot. A
// client that closes its connections when they have been idle for a shorter time never sends a request on a
// connection that the server is closing.
const IdleMin = 10 * time.Second

// Limit returns a listener; the caller lets s serve this listener instead of l. At most n of the listener's
// connections are open at a time; n <= 0 means no limit. Limit wraps the Handler, ConnState and ConnContext
// of s, so the caller sets these fields before it calls Limit.
//
// If strange is not nil, and the first bytes of a client belong to another protocol than s serves, the listener
// calls strange with the name of the protocol and the address of the client. The server then answers 400 and
// ends the connection, without waiting for further bytes. strange must be quick and safe for concurrent use.
func Limit(s *http.Server, l net.Listener, n int, strange func(Protocol, net.Addr)) net.Listener {
	if n <= 0 {
		return l
	}
	limited := &limitListener{
		Listener: l,
		slots:    make(chan struct{}, n),
		closed:   make(chan struct{}),
		idle:     make(map[*limitedConn]time.Time),
		strange:  strange,
	}
	if s.Handler == nil {
		s.Handler = http.DefaultServeMux
	}
	s.Handler = limited.handOn(s.Handler)
	before := s.ConnState
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		limited.observe(conn, state)
		if before != nil {
			before(conn, state)
		}
	}
	outer := s.ConnContext
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if outer != nil {
			ctx = outer(ctx, conn)
		}
		return context.WithValue(ctx, limitKey{}, limited)
	}
	return limited
}

type limitListener struct {
	net.Listener
	slots   chan struct{}            // one element per open connection
	queued  atomic.Int32             // connections that wait for a slot
	strange func(Protocol, net.Addr) // see Limit

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{}

	mu   sync.Mutex
	idle map[*limitedConn]time.Time // idle connections, with the time when each became idle
}

// Accept waits for a connection, then for a free slot.
func (l *limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		_ = conn.Close() // nothing was sent on the connection
		return nil, err
	}
	return &limitedConn{Conn: conn, limit: l}, nil
}

// enter waits for a slot.
func (l *limitListener) enter() error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	l.queued.Add(1)
	defer l.queued.Add(-1)
	for {
		again := time.NewTimer(l.expireIdle(time.Now()))
		select {
		case l.slots <- struct{}{}:
			again.Stop()
			return nil
		case <-l.closed:
			again.Stop()
			return net.ErrClosed
		case <-again.C:
		}
	}
}

// expireIdle ends the connection that has been idle longest, if it has been idle for IdleMin. It
// returns how long to wait until another connection may have been idle for IdleMin.
func (l *limitListener) expireIdle(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest *limitedConn
	since := now
	for conn, at := range l.idle {
		if at.Before(since) {
			longest, since = conn, at
		}
	}
	if left := IdleMin - now.Sub(since); left > 0 {
		return left
	}
	delete(l.idle, longest)
	// This deadline works like an idle timeout: the server closes the connection. If a
	// request has come in the meantime, the server answers the request first.
	_ = longest.SetReadDeadline(now) // fails only if the connection is already closed
	return IdleMin
}

// observe is the server's ConnState hook.
func (l *limitListener) observe(conn net.Conn, state http.ConnState) {
	secure := false
	c, ok := conn.(*limitedConn)
	for !ok { // with TLS, or with Headers, conn wraps the limitedConn
		over, wraps := conn.(interface{ NetConn() net.Conn })
		if !wraps {
			return // a connection of another listener of the same server
		}
		if _, isSecure := conn.(*tls.Conn); isSecure {
			secure = true
		}
		conn = over.NetConn()
		c, ok = conn.(*limitedConn)
	}
	if secure && state == http.StateNew { // nothing was read yet
		c.secure.Store(true)
	}
	if state != http.StateIdle {
		l.busy(c)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle[c] = time.Now()
	c.idle.Store(true)
}

// busy notes that a connection is no longer idle.
func (l *limitListener) busy(c *limitedConn) {
	if !c.idle.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.idle, c)
	c.idle.Store(false)
}

// handOn wraps h: while new connections wait for a slot, an open connection ends after its next
// answer.
func (l *limitListener) handOn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.queued.Load() > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

type limitKey struct{}

// PlaceWanted tells whether a new connection waits for a slot. If so, the request whose context is
// ctx should end, to free the slot of the request's connection.
func PlaceWanted(ctx context.Context) bool {
	l, ok := ctx.Value(limitKey{}).(*limitListener)
	return ok && l.queued.Load() > 0
}

// Close closes the listener and ends an Accept that waits for a slot.
// Open connections stay open.
func (l *limitListener) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.closeErr = l.Listener.Close()
	})
	return l.closeErr
}

type limitedConn struct {
	net.Conn
	limit    *limitListener
	idle     atomic.Bool
	begun    atomic.Bool // the client has sent its first bytes
	secure   atomic.Bool // the server speaks TLS on the connection
	freeOnce sync.Once
}

// NetConn returns the underlying connection, like [tls.Conn.NetConn].
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// Read reads from the connection, and marks the connection as busy. The server itself reports that a
// connection is no longer idle only when the next request's header is complete. If the header comes slowly,
// that report would come too late: by then, expireIdle could have ended the connection.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.limit.busy(c)
		if !c.begun.Load() && c.begun.CompareAndSwap(false, true) && c.isStrange(b[:n]) {
			return 0, errStrange
		}
	}
	return n, err
}

// errStrange ends a connection whose client speaks another protocol.
var errStrange = errors.New("the client speaks another protocol than HTTP")

// isStrange reports a client whose first bytes belong to another protocol than the server serves.
func (c *limitedConn) isStrange(first []byte) bool {
	if c.limit.strange == nil {
		return false
	}
	p := protocolOf(first)
	if p == HTTP || p == TLS && c.secure.Load() {
		return false
	}
	c.limit.strange(p, c.RemoteAddr())
	return true
}

// Close closes the connection and frees its slot, once.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.freeOnce.Do(func() { <-c.limit.slots })
	return err
}

// CloseWrite shuts down the sending side. The server calls it if the client is still sending when
// the answer is complete. Close could destroy bytes of the answer that the client has not read yet.
func (c *limitedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}
