package httpapi

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httpconn"
)

func TestLimitListenerQueuesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := newPipeListener()
		l := LimitConnections(&http.Server{}, pipes, 2)
		accepted := make(chan net.Conn, 4)
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
		for range 4 {
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
		for range 2 { // the second Close must not free the slot of another connection
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(accepted) != 2 {
			t.Fatalf("%d connections are open, want 2", len(accepted))
		}
		// The fourth connection waits for a slot; Close ends the wait.
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

func TestNoLimitOfConnections(t *testing.T) {
	l := newPipeListener()
	if LimitConnections(&http.Server{}, l, 0) != net.Listener(l) {
		t.Error("no limit is not no listener")
	}
}

// client is one connection of a client that reads its answers.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (s *server) newClient(t *testing.T) *client {
	t.Helper()
	conn := s.dial("")
	return &client{t, conn, bufio.NewReader(conn)}
}

// get sends a request and returns the status of the answer, and whether the
// connection ends with the answer.
func (c *client) get(path string) (status int, closes bool) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, resp.Close
}

// wantServed checks that a new client is served once the duration after has passed.
func (s *server) wantServed(t *testing.T, after time.Duration) {
	t.Helper()
	start := time.Now()
	status, closes := s.newClient(t).get("/livez")
	if took := time.Since(start); status != http.StatusOK || closes || took != after {
		t.Errorf("status %d after %v, want 200 after %v; closes: %v", status, took, after, closes)
	}
}

// The connection that was idle longest is closed for a client that waits, but only after the time for
// which clients may rely on an idle connection.
func TestIdleConnectionGivesWay(t *testing.T) {
	bubbleOf(t, seb.Options{}, 2, func(t *testing.T, s *server) {
		first, second := s.newClient(t), s.newClient(t)
		second.get("/livez")
		first.get("/livez")
		time.Sleep(3 * time.Second)
		second.get("/livez")
		time.Sleep(2 * time.Second)
		s.wantServed(t, httpconn.IdleMin-5*time.Second)
		if _, err := first.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the longest idle connection is open: %v", err)
		}
		if status, _ := second.get("/livez"); status != http.StatusOK {
			t.Errorf("the other one got %d", status)
		}
	})
}

// No connection is closed as long as no client waits.
func TestIdleConnectionsStayIfThereIsRoom(t *testing.T) {
	bubbleOf(t, seb.Options{}, 2, func(t *testing.T, s *server) {
		first := s.newClient(t)
		first.get("/livez")
		time.Sleep(idleTimeout - time.Second)
		s.wantServed(t, 0)
		if status, closes := first.get("/livez"); status != http.StatusOK || closes {
			t.Errorf("status %d, closes: %v", status, closes)
		}
	})
}

// While a client waits, a connection that is never idle for long is closed after an answer.
func TestBusyConnectionGivesWay(t *testing.T) {
	bubbleOf(t, seb.Options{}, 1, func(t *testing.T, s *server) {
		busy := s.newClient(t)
		busy.get("/livez")
		served := make(chan struct{})
		go func() { defer close(served); s.wantServed(t, 2*time.Second) }()
		time.Sleep(2 * time.Second)
		if status, closes := busy.get("/livez"); status != http.StatusOK || !closes {
			t.Errorf("status %d, closes: %v", status, closes)
		}
		<-served
	})
}

// A client that waits for a place waits for requests under way, however long they take.
func TestWaitingReadKeepsItsPlace(t *testing.T) {
	bubbleOf(t, seb.Options{}, 1, func(t *testing.T, s *server) {
		if _, _, err := s.broker.CreateTopic(t.Context(), "orders", seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		reader := s.newClient(t)
		read := make(chan struct{})
		go func() {
			defer close(read)
			if status, _ := reader.get(ordersPath + "?wait=40s"); status != http.StatusOK {
				t.Errorf("the read got %d", status)
			}
		}()
		synctest.Wait()
		s.wantServed(t, 40*time.Second+httpconn.IdleMin)
		<-read
	})
}

// A connection with half a header, or without any, blocks other clients no longer than a header may take.
func TestConnectionsWithoutARequestGiveWay(t *testing.T) {
	bubbleOf(t, seb.Options{}, 3, func(t *testing.T, s *server) {
		s.dial("")
		s.dial("GET /livez HTTP/1.1\r\n")
		trickle := s.dial("GET /livez HTTP/1.1\r\n")
		cutOff := make(chan struct{})
		go func() {
			defer close(cutOff)
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(trickle, "X-Slow: 1\r\n"); err != nil {
					return
				}
			}
		}()
		s.wantServed(t, readHeaderTimeout)
		<-cutOff
		if _, err := trickle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
	})
}

// A connection on which half a request has come is not idle.
func TestHalfARequestKeepsItsPlace(t *testing.T) {
	bubbleOf(t, seb.Options{}, 1, func(t *testing.T, s *server) {
		first := s.newClient(t)
		first.get("/livez")
		time.Sleep(httpconn.IdleMin + time.Second)
		if _, err := io.WriteString(first.conn, "GET /livez HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		served := make(chan struct{})
		go func() { defer close(served); s.wantServed(t, time.Second) }()
		time.Sleep(time.Second)
		if _, err := io.WriteString(first.conn, "Host: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(first.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK || !resp.Close {
			t.Errorf("status %d, closes: %v, %v", resp.StatusCode, resp.Close, err)
		}
		<-served
	})
}

// Under TLS, the server reports the TLS connection that wraps the limited one.
func TestIdleConnectionUnderTLSGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes, s := newPipeListener(), &http.Server{}
		l := LimitConnections(s, pipes, 1)
		for range 2 {
			go func() {
				if _, err := pipes.dial(); err != nil {
					t.Errorf("dial: %v", err)
				}
			}()
		}
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		secure := tls.Server(first, &tls.Config{MinVersion: tls.VersionTLS12})
		s.ConnState(secure, http.StateIdle)
		go func() { // as the server does between requests
			if _, err := secure.Read(make([]byte, 1)); err != nil {
				_ = first.Close()
			}
		}()
		second := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			second <- err
		}()
		time.Sleep(httpconn.IdleMin)
		synctest.Wait()
		if len(second) != 1 {
			t.Error("who waits gets no place")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			_ = first.Close() // ends the read
		}
		if err := <-second; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
