package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = time.Minute
	headerBytesMax    = 64 << 10
)

// NewServer returns a server for h with the timeouts that keep idle and
// half-open clients from holding connections, and with log (nil: none) for what
// net/http has to say about them. Its Shutdown ends waiting reads of h at once,
// with the answers they have, so that only appends under way are waited for.
//
// Time limits on bodies are h's own, since they depend on size.
func NewServer(h *Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	s.RegisterOnShutdown(h.Drain)
	return s
}

// LimitListener returns a listener that has at most n connections open at a
// time. While n are open Accept waits, so that further clients queue in the
// kernel's backlog and are served, late, instead of being refused; idle
// connections make room by the server's idle timeout. n <= 0 means no limit.
func LimitListener(l net.Listener, n int) net.Listener {
	if n <= 0 {
		return l
	}
	return &limitListener{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	slots chan struct{} // one element per open connection

	closeOnce sync.Once
	closeErr  error
	closed    chan struct{}
}

// Accept waits for a free slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, free: func() { <-l.slots }}, nil
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
	freeOnce sync.Once
	free     func()
}

// Close closes the connection and frees its slot, once.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.freeOnce.Do(c.free)
	return err
}
