package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// A client that shuts down its sending side after its request, as `nc -N` does,
// gets an answer. Its append is withdrawn, since the broker can't tell it from a client that has
// left, and the answer says so.
func TestHalfClosedClientIsAnswered(t *testing.T) {
	s := newServer(t, seb.Options{Batching: seb.Timed(200*time.Millisecond, 1<<20)}, Options{})
	s.append("orders", "x")
	for text, want := range map[string]int{
		"GET /v1/topics HTTP/1.1\r\nHost: x\r\n\r\n":                                             http.StatusOK,
		"GET " + ordersPath + " HTTP/1.1\r\nHost: x\r\n\r\n":                                     http.StatusOK,
		"GET " + ordersPath + "/0 HTTP/1.0\r\n\r\n":                                              http.StatusOK,
		"PUT /v1/topics/other HTTP/1.1\r\nHost: x\r\n\r\n":                                       http.StatusCreated,
		"POST " + ordersPath + " HTTP/1.1\r\nHost: x\r\nSeb-Key: k\r\nContent-Length: 0\r\n\r\n": http.StatusServiceUnavailable,
		postHead + "Content-Length: 2\r\n\r\ny\n":                                                http.StatusServiceUnavailable,
		postHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nz\n\r\n0\r\n\r\n":                     http.StatusServiceUnavailable,
		postHead + "Connection: close\r\nContent-Length: 2\r\n\r\nw\n":                           http.StatusServiceUnavailable,
		"DELETE /v1/topics/none HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                http.StatusNotFound,
	} {
		conn := s.dial(text)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		a, _ := answerOn(t, conn)
		if a.StatusCode != want {
			t.Errorf("%q: status %d, want %d: %s", text, a.StatusCode, want, a.body)
		}
		if want == http.StatusServiceUnavailable && !strings.Contains(a.body, `"outcome":"not_committed"`) {
			t.Errorf("%q: it is not told what became of it: %s", text, a.body)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%q: after the answer: %v", text, err)
		}
	}
	if got := s.stored("orders", 0); len(got) != 1 {
		t.Errorf("%d records are stored, want the one", len(got))
	}
	s.wantNothingReserved()
}

// A client that has shut down its receiving side holds no memory.
func TestClientThatReceivesNothingIsForgotten(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", strings.Repeat("x", 4<<20))
	for range 4 {
		conn := s.dial("").(*net.TCPConn)
		if err := conn.CloseRead(); err != nil {
			t.Fatal(err)
		}
		request := "GET " + ordersPath + "/0 HTTP/1.1\r\nHost: x\r\n\r\n"
		if _, err := io.WriteString(conn, request+request); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.stop() // returns when all requests have ended
	s.wantNothingReserved()
}

// Soon after its client has left, a request holds nothing. A client that is only silent is answered.
func TestRequestEndsSoonAfterItsClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, left := context.WithCancel(t.Context())
		ctx, leave := linger(client)
		time.Sleep(time.Hour)
		left()
		time.Sleep(goneFor - time.Millisecond)
		if err := ctx.Err(); err != nil {
			t.Errorf("shortly before: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
		if ctx.Err() == nil {
			t.Error("it goes on for ever")
		}
		leave()
		ctx, leave = linger(t.Context())
		leave()
		if ctx.Err() == nil {
			t.Error("it goes on after its answer")
		}
	})
}
