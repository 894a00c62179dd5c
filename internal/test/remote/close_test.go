package remote_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// What waits when a client or a broker in the process is closed ends, and so does what comes later.
func TestCloseEndsWaitsAndLaterCalls(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) client.API{
		"embedded": func(t *testing.T) client.API { return client.Embedded(open(t)) },
		"remote": func(t *testing.T) client.API {
			return newClient(t, client.Options{Servers: []string{serve(t, open(t))}})
		},
		"remote that repeats nothing": func(t *testing.T) client.API {
			return newClient(t, client.Options{Servers: []string{serve(t, open(t))}, RetryFor: -1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := open(t)
			if _, err := api.Append(t.Context(), "orders", kit.Values("v")); err != nil {
				t.Fatal(err)
			}
			q := api.Queue("orders", "work")
			if _, err := q.Create(t.Context(), seb.QueueUpdate{}, seb.Latest); err != nil {
				t.Fatal(err)
			}
			f, err := api.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Latest)
			if err != nil {
				t.Fatal(err)
			}
			began, waits := make(chan struct{}), make(chan error)
			go func() {
				var err error
				for _, err = range api.Follow(t.Context(), "orders", 0, seb.Earliest) {
					if err == nil {
						close(began)
					}
				}
				waits <- err
			}()
			go func() {
				_, err := f.Next(t.Context(), seb.FetchOptions{Wait: time.Minute})
				waits <- err
			}()
			go func() {
				_, err := q.Receive(t.Context(), seb.ReceiveOptions{Wait: 20 * time.Second})
				waits <- err
			}()
			<-began
			start := time.Now()
			if err := api.Close(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				kit.WantCode(t, <-waits, seb.CodeBrokerClosed)
			}
			_, err = api.Append(t.Context(), "orders", kit.Values("v"))
			kit.WantCode(t, err, seb.CodeBrokerClosed)
			kit.WantOutcome(t, err, seb.NotCommitted)
			_, err = api.Topic(t.Context(), "orders")
			kit.WantCode(t, err, seb.CodeBrokerClosed)
			_, err = api.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Latest)
			kit.WantCode(t, err, seb.CodeBrokerClosed)
			_, err = f.Next(t.Context(), seb.FetchOptions{Wait: time.Minute})
			kit.WantCode(t, err, seb.CodeBrokerClosed)
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

func TestCloseEndsRetries(t *testing.T) {
	var c *client.Client
	c = newClient(t, client.Options{Servers: []string{closedURL(t)}, RetryFor: time.Hour, OnRetry: func(*seb.Error, time.Duration) { _ = c.Close() }})
	_, err := c.Append(t.Context(), "orders", kit.Values("v"))
	kit.WantCode(t, err, seb.CodeBrokerClosed)
	kit.WantOutcome(t, err, seb.NotCommitted)
}

// The outcome of a write would be unknown if Close ended it.
func TestCloseLetsAWriteEnd(t *testing.T) {
	b := open(t)
	h := httpapi.New(b, httpapi.Options{})
	var c *client.Client
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = c.Close()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	c = newClient(t, client.Options{Servers: []string{ts.URL}})
	if _, err := c.Append(t.Context(), "orders", kit.Values("v")); err != nil {
		t.Error(err)
	}
	kit.WantValues(t, b, "orders", "v")
}
