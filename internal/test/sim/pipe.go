package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

var errNobody = errors.New("connection refused")

// listener accepts connections made of net.Pipe. With real sockets, virtual time would stand still while a
// goroutine waits for a socket.
type listener struct {
	conns chan net.Conn

	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	open []net.Conn // the clients' ends of the connections
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// hangUp breaks every connection at once.
func (l *listener) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close() // closing a pipe never fails
	}
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "pipe" }

// dial connects to the listener. The connection breaks once it has carried the given number of bytes, both
// directions together. If bytes is 0, the connection never breaks.
func (l *listener) dial(ctx context.Context, bytes int) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
	case <-l.closed:
		return nil, errors.Join(errNobody, ours.Close(), theirs.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), ours.Close(), theirs.Close())
	}
	l.mu.Lock()
	l.open = append(l.open, ours)
	l.mu.Unlock()
	if bytes <= 0 {
		return ours, nil
	}
	return &brittle{Conn: ours, left: bytes}, nil
}

// brittle is a connection that breaks after a number of bytes.
type brittle struct {
	net.Conn

	mu   sync.Mutex
	left int
}

// take returns how many of n bytes may still pass, and counts these bytes as passed.
func (b *brittle) take(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

// Read implements [net.Conn].
func (b *brittle) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if passed := b.take(n); passed < n {
		return passed, errors.Join(io.ErrUnexpectedEOF, b.Close())
	}
	return n, err
}

// Write implements [net.Conn].
func (b *brittle) Write(p []byte) (int, error) {
	passed := b.take(len(p))
	n, err := b.Conn.Write(p[:passed])
	if err == nil && passed < len(p) {
		err = errors.Join(io.ErrClosedPipe, b.Close())
	}
	return n, err
}

// sluggish is a connection whose bytes take a time in each direction, until all faults end. Close ends the wait for them: the caller may hold a
// mutex until a Read has returned, and in a bubble no time passes while a goroutine waits for a mutex.
type sluggish struct {
	net.Conn
	delay  time.Duration
	healed func() bool
	closed context.Context //nolint:containedctx // ends when Close is called
	end    context.CancelFunc
}

func newSluggish(conn net.Conn, delay time.Duration, healed func() bool) *sluggish {
	closed, end := context.WithCancel(context.Background())
	return &sluggish{conn, delay, healed, closed, end}
}

// Read implements [net.Conn].
func (s *sluggish) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.wait()
	return n, err
}

// Write implements [net.Conn].
func (s *sluggish) Write(p []byte) (int, error) {
	s.wait()
	return s.Conn.Write(p)
}

func (s *sluggish) wait() {
	if s.healed() {
		return
	}
	select {
	case <-time.After(s.delay):
	case <-s.closed.Done():
	}
}

// Close implements [net.Conn].
func (s *sluggish) Close() error {
	s.end()
	return s.Conn.Close()
}
