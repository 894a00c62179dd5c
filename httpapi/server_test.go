package httpapi

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func TestLimitListenerQueuesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := newPipeListener()
		l := LimitListener(pipes, 2)
		accepted := make(chan net.Conn, 3)
		ended := make(chan error)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		for range 3 {
			go func() {
				if _, err := pipes.dial(); err != nil {
					t.Errorf("dial: %v", err)
				}
			}()
		}
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections were accepted, want 2", len(accepted))
		}
		first := <-accepted
		for range 2 { // the second Close must not free another's slot
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections are open, want 2", len(accepted))
		}
		// Accept waits for a slot again; Close ends that.
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept ended with %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

func TestLimitListenerWithoutLimit(t *testing.T) {
	l := newPipeListener()
	if LimitListener(l, 0) != net.Listener(l) {
		t.Error("no limit is not no listener")
	}
}

func TestServerShutdownEndsWaitingReads(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		got := make(chan answer)
		go func() { got <- s.get(ordersPath + "?offset=1&wait=5m") }()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.stop() }()
		(<-got).want(t, http.StatusOK)
		if took := time.Since(start); took != 0 {
			t.Errorf("the waiting read took %v", took)
		}
		<-stopped
	})
}

func TestServerBoundsHeaders(t *testing.T) {
	srv := NewServer(newServer(t, seb.Options{}, Options{}).handler, nil)
	if srv.ReadHeaderTimeout <= 0 || srv.IdleTimeout <= 0 || srv.MaxHeaderBytes <= 0 || srv.ReadTimeout != 0 || srv.WriteTimeout != 0 {
		t.Errorf("limits are %+v", srv)
	}
}
