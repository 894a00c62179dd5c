// Package meshtest has connections in memory between brokers, for tests.
package meshtest

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Pipe is one end of a connection. It implements mesh.Conn.
type Pipe struct {
	in, out chan []byte
	closed  chan struct{}
	close   func()
	muted   atomic.Bool
	delay   atomic.Int64
}

// NewPipe returns both ends of a connection, which holds up to buffer messages in each direction.
func NewPipe(buffer int) (one, two *Pipe) {
	a, b, closed := make(chan []byte, buffer), make(chan []byte, buffer), make(chan struct{})
	once := sync.OnceFunc(func() { close(closed) })
	return &Pipe{in: a, out: b, closed: closed, close: once}, &Pipe{in: b, out: a, closed: closed, close: once}
}

// Receive implements mesh.Conn.
func (p *Pipe) Receive(ctx context.Context) ([]byte, error) {
	select {
	case b := <-p.in:
		return b, p.late(ctx)
	case <-p.closed:
		select {
		case b := <-p.in: // as over TCP, what was sent before the end arrives
			return b, p.late(ctx)
		default:
			return nil, io.EOF
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// late waits for as long as a message that has been received comes late.
func (p *Pipe) late(ctx context.Context) error {
	d := time.Duration(p.delay.Load())
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Send implements mesh.Conn.
func (p *Pipe) Send(ctx context.Context, b []byte) error {
	if p.muted.Load() {
		return nil
	}
	select {
	case p.out <- b:
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mute makes all messages that are sent from this end get lost, or no longer.
func (p *Pipe) Mute(muted bool) { p.muted.Store(muted) }

// Delay makes all messages that this end receives come later.
func (p *Pipe) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Close implements mesh.Conn.
func (p *Pipe) Close() { p.close() }
