package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// calls are calls of a client, most of them writes, with something to be done by each.
func calls(ctx context.Context, c *client.Client) (writes, reads map[string]func() error) {
	q, consumer := c.Queue("orders", "mail"), c.Consumer("orders", "billing")
	one := kit.Values("a")
	return map[string]func() error{
			"Append": func() error { _, err := c.Append(ctx, "orders", one); return err },
			"AppendEncoded": func() error {
				_, err := c.AppendEncoded(ctx, "orders", client.List, []byte(`{"records":[{"value":"a"}]}`))
				return err
			},
			"Commit": func() error {
				_, err := c.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "orders", Records: one}}})
				return err
			},
			"Commit of acks": func() error {
				_, err := c.Commit(ctx, seb.Commit{Acks: []seb.CommitAcks{{Topic: "orders", Queue: "mail", Tokens: []string{"token"}}}})
				return err
			},
			"CreateTopic":   func() error { _, _, err := c.CreateTopic(ctx, "orders", seb.TopicOptions{}); return err },
			"UpdateTopic":   func() error { _, err := c.UpdateTopic(ctx, "orders", seb.TopicUpdate{}); return err },
			"DeleteTopic":   func() error { return c.DeleteTopic(ctx, "orders") },
			"DeleteRecords": func() error { _, err := c.DeleteRecords(ctx, "orders", 0, 0); return err },
			"CreateKey": func() error {
				_, _, err := c.CreateKey(ctx, seb.KeyOptions{Name: "ops", Scopes: seb.ScopeAdmin})
				return err
			},
			"RevokeKey":       func() error { _, err := c.RevokeKey(ctx, 4); return err },
			"Consumer.Create": func() error { _, _, err := consumer.Create(ctx); return err },
			"Consumer.Commit": func() error { _, err := consumer.Commit(ctx, seb.Offsets{0: 5}); return err },
			"Consumer.Delete": func() error { return consumer.Delete(ctx) },
			"Queue.Set":       func() error { _, _, err := q.Set(ctx, seb.QueueUpdate{}, seb.Earliest); return err },
			"Queue.Update":    func() error { _, err := q.Update(ctx, seb.QueueUpdate{}); return err },
			"Queue.Delete":    func() error { return q.Delete(ctx) },
			"Ack":             func() error { return q.Ack(ctx, "token") },
			"Nack":            func() error { return q.Nack(ctx, seb.NackOptions{}, "token") },
			"Purge":           func() error { _, err := q.Purge(ctx); return err },
			"Redrive":         func() error { _, err := q.Redrive(ctx, seb.RedriveOptions{}); return err },
			"SetPush":         func() error { _, _, _, err := q.SetPush(ctx, seb.PushUpdate{}); return err },
			"ResumePush":      func() error { _, err := q.ResumePush(ctx); return err },
			"RemovePush":      func() error { return q.RemovePush(ctx) },
		}, map[string]func() error{
			"Topic":       func() error { _, err := c.Topic(ctx, "orders"); return err },
			"Cut":         func() error { _, err := c.Cut(ctx, []string{"orders"}, seb.CutOptions{}); return err },
			"TaggedTopic": func() error { _, _, err := c.TaggedTopic(ctx, "orders"); return err },
			"Topics": func() error {
				for _, err := range c.Topics(ctx, seb.ListOptions{}) {
					return err
				}
				return nil
			},
			"Keys": func() error {
				for _, err := range c.Keys(ctx, 0) {
					return err
				}
				return nil
			},
			"Consumers": func() error {
				for _, err := range c.Consumers(ctx, "orders", seb.ListOptions{}) {
					return err
				}
				return nil
			},
			"Queues": func() error {
				for _, err := range c.Queues(ctx, "orders", seb.ListOptions{}) {
					return err
				}
				return nil
			},
			"Fetch":             func() error { _, err := c.Fetch(ctx, "orders", 0, seb.At(3), seb.FetchOptions{}); return err },
			"NewFollower":       func() error { _, err := c.NewFollower(ctx, "orders", 0, seb.Earliest); return err },
			"Consumer.Describe": func() error { _, err := consumer.Describe(ctx); return err },
			"Queue.Describe":    func() error { _, err := q.Describe(ctx); return err },
			"Receive":           func() error { _, err := q.Receive(ctx, seb.ReceiveOptions{}); return err },
			"Extend":            func() error { _, err := q.Extend(ctx, time.Minute, "token"); return err },
			"Dead":              func() error { _, _, _, err := q.Dead(ctx, seb.DeadOptions{}); return err },
			"Push":              func() error { _, err := q.Push(ctx); return err },
			"Ready":             func() error { return c.Ready(ctx) },
			"Bill":              func() error { _, err := c.Bill(ctx); return err },
			"Peers":             func() error { _, err := c.Peers(ctx); return err },
		}
}

// A login page of a network, or another server, answers everything with 200. And what looks like a broker's response, since
// it has all headers, still lacks what a broker says about each request.
func TestAnswerOfAServerThatIsNoBrokerIsNoSuccess(t *testing.T) {
	for name, body := range map[string]string{
		"html": "<html><body>Log in</body></html>", "object": "{}", "null": "null", "ok": `{"ok":true}`, "empty": "", "list": "[]",
	} {
		for _, header := range []string{"", "Seb-Request-Id"} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if header != "" {
					w.Header().Set(header, "0123")
				}
				_, _ = io.WriteString(w, body)
			}))
			t.Cleanup(server.Close)
			writes, reads := calls(t.Context(), newClient(t, client.Options{Servers: []string{server.URL}, RetryFor: -1}))
			for call, do := range writes {
				if err := do(); seb.CodeOf(err) != client.CodeUnexpectedResponse || seb.OutcomeOf(err) != seb.Unknown {
					t.Errorf("%s after %s, header %q: %v, outcome %q", call, name, header, err, seb.OutcomeOf(err))
				}
			}
			for call, do := range reads {
				if err := do(); seb.CodeOf(err) != client.CodeUnexpectedResponse {
					t.Errorf("%s after %s, header %q: %v", call, name, header, err)
				}
			}
		}
	}
}

// A broker's answer to another request is no success either.
func TestAnswerThatDoesNotFitTheRequestIsNoSuccess(t *testing.T) {
	ranges := func(list string) string { return `{"topic":"orders","count":2,"ranges":[` + list + `]}` }
	two := kit.Values("a", "b")
	for _, test := range []struct {
		name, body string
		call       func(c *client.Client) error
	}{
		{"too few records", ranges(`{"partition":0,"offset":0,"count":1}`), func(c *client.Client) error {
			_, err := c.Append(t.Context(), "orders", two)
			return err
		}},
		{"another count", ranges(`{"partition":0,"offset":0,"count":2}`), func(c *client.Client) error {
			_, err := c.Append(t.Context(), "orders", two[:1])
			return err
		}},
		{"another topic", ranges(`{"partition":0,"offset":0,"count":2}`), func(c *client.Client) error {
			_, err := c.Append(t.Context(), "bills", two)
			return err
		}},
		{"negative offset", ranges(`{"partition":0,"offset":-1,"count":2}`), func(c *client.Client) error {
			_, err := c.Append(t.Context(), "orders", two)
			return err
		}},
		{"too few appends", `{"appends":[]}`, func(c *client.Client) error {
			_, err := c.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{{Topic: "orders", Records: two}}})
			return err
		}},
		{"one result for two tokens", `{"results":[{"token":"a","ok":true}]}`, func(c *client.Client) error {
			return c.Queue("orders", "mail").Ack(t.Context(), "a", "b")
		}},
		{"results of other tokens", `{"results":[{"token":"b","ok":true}]}`, func(c *client.Client) error {
			return c.Queue("orders", "mail").Nack(t.Context(), seb.NackOptions{}, "a")
		}},
		{"a token that is not ok", `{"results":[{"token":"a"}]}`, func(c *client.Client) error {
			return c.Queue("orders", "mail").Ack(t.Context(), "a")
		}},
		{"a partition that begins earlier", `{"partition":0,"start_offset":3,"end_offset":9}`, func(c *client.Client) error {
			_, err := c.DeleteRecords(t.Context(), "orders", 0, 5)
			return err
		}},
		{"other positions", `{"offsets":{"0":4}}`, func(c *client.Client) error {
			_, err := c.Consumer("orders", "billing").Commit(t.Context(), seb.Offsets{0: 5})
			return err
		}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Seb-Request-Id", "0123")
			w.Header().Set("ETag", `"1"`)
			_, _ = io.WriteString(w, test.body)
		}))
		t.Cleanup(server.Close)
		err := test.call(newClient(t, client.Options{Servers: []string{server.URL}}))
		var broken *json.SyntaxError
		if seb.CodeOf(err) != client.CodeUnexpectedResponse || seb.OutcomeOf(err) != seb.Unknown || errors.As(err, &broken) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A commit that rides may wait for hours, so a client sends none.
func TestClientSendsNoCommitThatRides(t *testing.T) {
	c := newClient(t, client.Options{Servers: []string{"http://127.0.0.1:1"}, RetryFor: -1})
	_, err := c.Commit(t.Context(), seb.Commit{Rides: true, Appends: []seb.CommitAppend{{Topic: "orders", Records: kit.Values("a")}}})
	if seb.CodeOf(err) != seb.CodeInvalidRequest || seb.OutcomeOf(err) != seb.NotCommitted {
		t.Errorf("%v, outcome %q", err, seb.OutcomeOf(err))
	}
}
