package peer

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionClosesWithoutWaitingForTheOtherSide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, _ := newIdentity(t)
		owns, owner := newIdentity(t)
		near, far := net.Pipe() // a write blocks until the other end reads
		defer func() { _ = far.Close() }()
		served := make(chan error, 1)
		go func() { served <- tls.Server(far, owns.accepting()).HandshakeContext(t.Context()) }()
		conn := tls.Client(near, asks.asking(owner.Is))
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := Abrupt(conn).Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("closing took %v", took)
		}
	})
}
