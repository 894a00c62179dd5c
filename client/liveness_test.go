package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// frozen returns the URL of a server that accepts connections, and never answers.
func frozen(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String() // the kernel accepts, as for a stopped process
}

// impatient returns a client that takes little time to find out that a server is frozen.
func impatient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.silence = 50 * time.Millisecond
	return c
}

// live serves handler, and returns its URL, and how many requests it got.
func live(t *testing.T, handler http.HandlerFunc) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func describeTopic(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(requestIDHeader, "0123")
	_, _ = w.Write([]byte(`{"name":"orders","partitions":[{}]}`))
}

func TestRequestGoesToTheNextBrokerIfOneIsFrozen(t *testing.T) {
	url, _ := live(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			accept(w, r)
		case r.Header.Get("Accept") == eventsType:
			w.Header().Set("Content-Type", eventsType)
			w.Header().Set(requestIDHeader, "0123")
			_, _ = w.Write([]byte("id: " + seb.Bookmark{Cluster: "01234567", Topic: 1, Partition: seb.AllPartitions, Offsets: []seb.Offset{0}}.String() + "\n\n"))
		default:
			describeTopic(w, r)
		}
	})
	for name, send := range map[string]func(c *Client) error{
		"append": func(c *Client) error {
			_, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("a")}})
			return err
		},
		"read": func(c *Client) error {
			_, err := c.Topic(t.Context(), "orders")
			return err
		},
		"follower": func(c *Client) error {
			_, err := c.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Earliest)
			return err
		},
	} {
		began := time.Now()
		if err := send(impatient(t, Options{Servers: []string{frozen(t), url}})); err != nil || time.Since(began) > tryMin {
			t.Errorf("%s: %v after %v", name, err, time.Since(began))
		}
	}
}

// An append without an idempotency key may have reached the frozen broker. It is not repeated, but the next request
// goes to the other broker.
func TestAppendWithoutAKeyIsNotRepeatedIfABrokerIsFrozen(t *testing.T) {
	url, asked := live(t, accept)
	c := impatient(t, Options{Servers: []string{frozen(t), url}, NoIdempotencyKeys: true})
	_, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("a")}})
	if seb.CodeOf(err) != CodeUnreachable || seb.OutcomeOf(err) != seb.Unknown || !errors.Is(err, errSilent) || asked.Load() != 0 {
		t.Errorf("%v after %d requests to the other broker", err, asked.Load())
	}
	c.silence = silenceMax
	if _, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("b")}}); err != nil || asked.Load() != 1 {
		t.Errorf("%v after %d requests to the other broker", err, asked.Load())
	}
}

func TestSlowBrokerThatLivesIsWaitedFor(t *testing.T) {
	probed := make(chan struct{}, 100)
	slow, _ := live(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			probed <- struct{}{}
			return
		}
		for range 3 {
			<-probed
		}
		accept(w, r)
	})
	other, asked := live(t, accept)
	c := impatient(t, Options{Servers: []string{slow, other}})
	if _, err := c.Append(t.Context(), "orders", []seb.Record{{Value: []byte("a")}}); err != nil || asked.Load() != 0 {
		t.Errorf("%v after %d requests to the other broker", err, asked.Load())
	}
}

func TestTryIsBoundedByRetryFor(t *testing.T) {
	for _, test := range []struct{ retryFor, elapsed, wait, within, want time.Duration }{
		{time.Minute, 0, 0, 0, time.Minute},
		{time.Minute, 40 * time.Second, 0, 0, 20 * time.Second},
		{time.Minute, 55 * time.Second, 0, 0, tryMin},
		{5 * time.Second, 0, 0, 0, tryMin},
		{5 * time.Second, 0, time.Minute, 0, tryMin + time.Minute},
		{time.Hour, 0, time.Minute, 0, tryTimeout + time.Minute},
		{time.Minute, 0, 0, 2 * time.Second, 2 * time.Second},
		{-1, 0, 0, 0, tryTimeout},
	} {
		c := &Client{opts: Options{RetryFor: test.retryFor}}
		if got := c.within(&request{wait: test.wait, within: test.within}, test.elapsed); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// Calls with short deadlines end before the client can know that a broker is frozen. What they have waited counts together.
func TestSilenceCountsForTheNextCall(t *testing.T) {
	url, _ := live(t, accept)
	c := impatient(t, Options{Servers: []string{frozen(t), url}, NoIdempotencyKeys: true})
	c.silence = 200 * time.Millisecond
	began, calls := time.Now(), 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := c.Append(ctx, "orders", []seb.Record{{Value: []byte("a")}})
		cancel()
		if calls++; err == nil {
			break
		}
		if seb.CodeOf(err) != seb.CodeCanceled && !errors.Is(err, errSilent) || time.Since(began) > 10*time.Second {
			t.Fatalf("call %d, after %v: %v", calls, time.Since(began), err)
		}
	}
	if calls < 2 {
		t.Errorf("%d calls", calls)
	}
}

// A slow store holds up calls, whatever their deadlines, but not /livez.
func TestSlowBrokerThatLivesIsNotLeftByCallsWithShortDeadlines(t *testing.T) {
	probed := make(chan struct{}, 100)
	slow, _ := live(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			probed <- struct{}{}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	other, asked := live(t, accept)
	c := impatient(t, Options{Servers: []string{slow, other}})
	for probes := 0; probes < 3; {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := c.Append(ctx, "orders", []seb.Record{{Value: []byte("a")}})
		cancel()
		if seb.CodeOf(err) != seb.CodeCanceled || asked.Load() != 0 {
			t.Fatalf("%v after %d requests to the other broker", err, asked.Load())
		}
		select {
		case <-probed:
			probes++
		default:
		}
	}
}

// An extension that a frozen broker gets still reaches another broker while the lease lasts.
func TestExtendLeavesTimeForAnotherBroker(t *testing.T) {
	url, _ := live(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(requestIDHeader, "0123")
		_, _ = w.Write([]byte(`{"results":[{"token":"a","ok":true,"leased_until":"2026-01-31T12:00:00Z"}]}`))
	})
	c := impatient(t, Options{Servers: []string{frozen(t), url}})
	c.silence = 500 * time.Millisecond
	if _, err := c.Queue("orders", "mail").Extend(t.Context(), 3*time.Second, "a"); err != nil {
		t.Error(err)
	}
}

func TestPatienceLeavesTimeForAnotherBroker(t *testing.T) {
	c := &Client{silence: silenceMax}
	for left, want := range map[time.Duration][2]time.Duration{
		time.Minute: {5 * time.Second, 5 * time.Second}, 15 * time.Second: {5 * time.Second, 5 * time.Second},
		10 * time.Second: {2 * time.Second, 2 * time.Second}, 5 * time.Second: {time.Second, 2 * time.Second}, 0: {time.Second, 2 * time.Second},
	} {
		if silence, answer := c.patience(left); silence != want[0] || answer != want[1] {
			t.Errorf("%v: %v and %v", left, silence, answer)
		}
	}
}
