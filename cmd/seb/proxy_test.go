package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// harm is what a proxy does to a connection once a number of bytes went through in one direction.
type harm int

const (
	reset     harm = iota // both ends see a reset
	halfClose             // the receiver sees the end of the stream, and may answer
	stall                 // nothing moves for a while, then both ends see a reset
	delay                 // nothing moves for a while, then the connection continues
	harms
)

const (
	nearBytesMax = 64 << 10
	farBytesMax  = 64 << 20
	stallMax     = time.Second
)

// proxy passes connections on. Unless it is gentle, it harms each connection sooner or later.
type proxy struct {
	address  string // where clients connect
	upstream string
	gentle   atomic.Bool
	count    [2][harms]atomic.Int64 // harmed connections, by direction (requests, answers) and harm

	mu   sync.Mutex
	open map[net.Conn]bool // nil once the proxy has ended

	listener net.Listener
	running  sync.WaitGroup
}

func startProxy(t *testing.T, upstream string) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), upstream: upstream, open: make(map[net.Conn]bool), listener: listener}
	p.running.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

// harmed is how many connections were cut, in one direction or both.
func (p *proxy) harmed() int64 {
	var n int64
	for _, kind := range []harm{reset, halfClose, stall} {
		n += p.count[0][kind].Load() + p.count[1][kind].Load()
	}
	return n
}

func (p *proxy) end() {
	_ = p.listener.Close() // ends accept
	p.mu.Lock()
	for c := range p.open {
		_ = c.Close() // ends its copying
	}
	p.open = nil
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // the proxy has ended
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve connects one client. If the target can't be reached, the client sees a reset.
func (p *proxy) serve(client *net.TCPConn) {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		cut(client)
		return
	}
	server := conn.(*net.TCPConn)
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.copy(0, server, client) })
	both.Go(func() { p.copy(1, client, server) })
	both.Wait()
}

// keep registers connections that end will close; after end it closes them at once, and returns false.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.open == nil {
			_ = c.Close() // the proxy has ended
			continue
		}
		p.open[c] = true
	}
	return p.open != nil
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // all was copied, or the connection was cut
		delete(p.open, c)
	}
}

// copy copies one direction of a connection until it ends or is harmed.
func (p *proxy) copy(direction int, to, from *net.TCPConn) {
	for {
		if _, err := io.CopyN(to, from, anyBytes()); err != nil {
			finish(to, from, err)
			return
		}
		if p.gentle.Load() {
			continue
		}
		kind := harm(rand.IntN(int(harms)))
		p.count[direction][kind].Add(1)
		switch kind {
		case delay:
			<-time.After(rand.N(stallMax))
			continue
		case halfClose:
			_ = to.CloseWrite()              // it may have ended
			_, _ = io.Copy(io.Discard, from) // the sender notices nothing
			return
		case stall:
			<-time.After(rand.N(stallMax))
		case reset, harms:
		}
		cut(to)
		cut(from)
		return
	}
}

// anyBytes returns after how many bytes to harm a connection: the head of a request or answer is as likely
// as the middle of a large body. A broker that lost the answer to an upload of 5 MiB must send the object
// and read it back without harm to either, so every third attempt or so at each must succeed: a broker that
// uploads for minutes meets no other harm in that time.
func anyBytes() int64 {
	if rand.IntN(2) > 0 {
		return int64(math.Pow(nearBytesMax, rand.Float64()))
	}
	return nearBytesMax + rand.Int64N(farBytesMax)
}

// finish passes on how one direction ended: with the end of the stream, or a reset.
func finish(to, from *net.TCPConn, err error) {
	if errors.Is(err, io.EOF) {
		_ = to.CloseWrite() // it may have ended
		return
	}
	cut(to)
	cut(from)
}

// cut closes a connection so that the other side sees a reset.
func cut(c *net.TCPConn) {
	_ = c.SetLinger(0) // it may be closed already
	_ = c.Close()
}

// told returns how many connections met each harm.
func (p *proxy) told(direction int) string {
	n := &p.count[direction]
	return fmt.Sprintf("%d reset, %d half closed, %d stalled, %d delayed",
		n[reset].Load(), n[halfClose].Load(), n[stall].Load(), n[delay].Load())
}
