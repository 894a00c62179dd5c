package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/simple-event-broker/seb"
)

// answers returns a client of a server that answers the nth request by answers[n]. asked returns how many requests
// came.
func answers(t *testing.T, answers ...http.HandlerFunc) (c *Client, asked func() int) {
	t.Helper()
	next := make(chan http.HandlerFunc, len(answers))
	for _, answer := range answers {
		next <- answer
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (<-next)(w, r) }))
	t.Cleanup(server.Close)
	c, err := New(Options{Servers: []string{server.URL}, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() int { return len(answers) - len(next) }
}

func accept(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(requestIDHeader, "0123")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"topic":"orders","count":1,"ranges":[{"partition":0,"offset":0,"count":1}]}`))
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func tooLarge(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestEntityTooLarge)
	_, _ = w.Write([]byte(`{"code":"record_too_large","outcome":"not_committed"}`))
}

// Package http repeats no request by itself, not even one with an idempotency key on a connection that was in
// use before: the client must know of each try.
func TestEachTryIsOneRequest(t *testing.T) {
	c, asked := answers(t, accept, hangUp, tooLarge)
	if _, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("a")}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("b")}})
	if seb.OutcomeOf(err) != seb.Unknown || asked() != 2 {
		t.Errorf("%v after %d requests", err, asked())
	}
}

// A request that is on a connection may have been carried out, also over HTTP/2, where one connection has many
// requests. A request that ended before it had a connection was not sent.
func TestOutcomeIsUnknownOnceARequestHasAConnection(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		came := make(chan string, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came <- r.Proto
			_, _ = io.Copy(io.Discard, r.Body) // package http watches the connection once the body is read
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a response could still reach the client
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		c, err := New(Options{Servers: []string{server.URL}, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig, NoIdempotencyKeys: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // on a new connection, and on the same one
			ctx, cancel := context.WithCancel(t.Context())
			var proto string
			go func() {
				proto = <-came
				cancel()
			}()
			_, err = c.Append(ctx, "orders", []seb.Record{{Value: []byte("a")}})
			if seb.CodeOf(err) != seb.CodeCanceled || seb.OutcomeOf(err) != seb.Unknown || (proto == "HTTP/2.0") != http2 {
				t.Errorf("%s: %v, %s", proto, err, seb.OutcomeOf(err))
			}
			_, err = c.Append(ctx, "orders", []seb.Record{{Value: []byte("a")}})
			if seb.CodeOf(err) != seb.CodeCanceled || seb.OutcomeOf(err) != seb.NotCommitted {
				t.Errorf("canceled before: %v, %s", err, seb.OutcomeOf(err))
			}
		}
	}
}
