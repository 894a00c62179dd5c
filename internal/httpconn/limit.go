// Package httpconn bounds how many connections an HTTP server has, and for how long it has those of lost
// clients. It knows connections and their states: what is said on them, and how slowly a body may come, is its
// callers' business.
package httpconn

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// IdleMin is for how long an idle connection is kept even if others wait for
// its place. Clients that let go of theirs before that never send a request
// into a connection that is just being closed.
const IdleMin = 10 * time.Second

// Limit returns a listener for s to serve in place of l, which has at most n
// connections open at a time; n <= 0 means no limit. The handler, the ConnState and
// the ConnContext of s are wrapped, so they must be set before.
func Limit(s *http.Server, l net.Listener, n int) net.Listener {
	if n <= 0 {
		return l
	}
	limited := &limitListener{
		Listener: l,
		slots:    make(chan struct{}, n),
		closed:   make(chan struct{}),
		idle:     make(map[*limitedConn]time.Time),
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
	slots  chan struct{} // one element per open connection
	queued atomic.Int32  // connections that wait for a slot

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{}

	mu   sync.Mutex
	idle map[*limitedConn]time.Time // since when
}

// Accept waits for a connection, then for a free slot.
func (l *limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		_ = conn.Close() // nothing was said on it
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

// expireIdle ends the connection that has been idle longest, if that is long
// enough, and returns after what time there may be another.
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
	// As if its idle timeout were over: the server closes it, unless a request
	// has come meanwhile, which is then answered.
	_ = longest.SetReadDeadline(now) // or it is closed already
	return IdleMin
}

// observe is told by the server of a connection's state.
func (l *limitListener) observe(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return // of another listener of the same server
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

// busy takes a connection from those that may be ended.
func (l *limitListener) busy(c *limitedConn) {
	if !c.idle.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.idle, c)
	c.idle.Store(false)
}

// handOn lets connections end with their answer while others wait for a place.
func (l *limitListener) handOn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.queued.Load() > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

type limitKey struct{}

// PlaceWanted tells whether others wait for the place of ctx's connection.
func PlaceWanted(ctx context.Context) bool {
	l, ok := ctx.Value(limitKey{}).(*limitListener)
	return ok && l.queued.Load() > 0
}

// Close closes the listener and ends an Accept that waits for a slot.
// Connections that are open stay so.
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
	freeOnce sync.Once
}

// NetConn returns what lies below, as that of a [tls.Conn] does.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// Read reads from the connection. The server says that it isn't idle only once
// the header of the next request is complete; that is too late for one that
// comes in pieces.
func (c *limitedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.limit.busy(c)
	}
	return n, err
}

// Close closes the connection and frees its slot, once.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.freeOnce.Do(func() { <-c.limit.slots })
	return err
}

// CloseWrite tells the client that its answer is complete while it is still
// sending: to close at once could take from it what it has not read yet.
func (c *limitedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}
