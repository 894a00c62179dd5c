package main

import (
	"context"
	"net"
	"sync"
)

// gate forwards TCP connections to a broker or a store. While it is shut, it forwards no byte in either direction, but breaks
// no connection, like a network that loses all packets.
type gate struct {
	listener net.Listener
	mu       sync.Mutex
	target   string
	open     chan struct{} // closed while the gate is open
}

func newGate(ctx context.Context, target string) (*gate, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{listener: listener, target: target, open: make(chan struct{})}
	close(g.open)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // end has closed the listener
			}
			go g.forward(ctx, conn)
		}
	}()
	return g, nil
}

func (g *gate) address() string { return g.listener.Addr().String() }

// leadTo sets where further connections lead.
func (g *gate) leadTo(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
}

// shut stops all bytes until the func that it returns is called.
func (g *gate) shut() (reopen func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.open = closed
	return func() { close(closed) }
}

func (g *gate) end() { _ = g.listener.Close() } // an error does not matter: nobody connects any longer

// await waits until the gate is open, and returns where it leads.
func (g *gate) await() string {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.target
}

func (g *gate) forward(ctx context.Context, from net.Conn) {
	to, err := new(net.Dialer).DialContext(ctx, "tcp", g.await())
	if err != nil { // nobody listens there: a broker that was killed
		_ = from.Close() // nobody needs the connection any longer
		return
	}
	go g.copy(to, from)
	g.copy(from, to)
}

// copy forwards bytes until one of the connections breaks, and then breaks both.
func (g *gate) copy(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		g.await()
		if _, broken := to.Write(buf[:n]); err != nil || broken != nil {
			_, _ = to.Close(), from.Close() // they may be closed already
			return
		}
	}
}
