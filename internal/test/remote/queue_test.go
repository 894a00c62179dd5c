package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// A backoff whose waits are equal is read as such, and an update of one wait keeps the other.
func TestBackoffWithEqualWaitsIsKept(t *testing.T) {
	b := open(t)
	kit.MustAppend(t, b, "orders", "a")
	q := newClient(t, client.Options{Servers: []string{serve(t, b)}}).Queue("orders", "mail")
	wait := 10 * time.Second
	info, err := q.Create(t.Context(), seb.QueueUpdate{BackoffMin: &wait, BackoffMax: &wait}, seb.Earliest)
	if err != nil || info.Config.BackoffMin != wait || info.Config.BackoffMax != wait {
		t.Errorf("%+v, %v", info.Config, err)
	}
	info, err = q.Update(t.Context(), seb.QueueUpdate{BackoffMax: new(time.Minute)})
	if err != nil || info.Config.BackoffMin != wait || info.Config.BackoffMax != time.Minute {
		t.Errorf("%+v, %v", info.Config, err)
	}
}

// A write that needs to read first, and can't, was not sent.
func TestWriteWhoseReadFailsIsNotCommitted(t *testing.T) {
	wait := time.Minute
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"nobody answers": t.Context(), "canceled": ended} {
		c := newClient(t, client.Options{Servers: []string{closedURL(t)}, RetryFor: -1})
		q := c.Queue("orders", "mail")
		_, err := q.Update(ctx, seb.QueueUpdate{BackoffMax: &wait})
		kit.WantOutcome(t, err, seb.NotCommitted)
		_, err = q.Create(ctx, seb.QueueUpdate{BackoffMin: &wait}, seb.Earliest)
		kit.WantOutcome(t, err, seb.NotCommitted)
		_, _, err = q.Set(ctx, seb.QueueUpdate{BackoffMin: &wait}, seb.Earliest)
		kit.WantOutcome(t, err, seb.NotCommitted)
		_, _, err = c.Consumer("orders", "billing").Reset(ctx, seb.At(5))
		kit.WantOutcome(t, err, seb.NotCommitted)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = q.Update(ctx, seb.QueueUpdate{BackoffMax: &wait})
		kit.WantOutcome(t, err, seb.NotCommitted)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// JSON would change texts that are not UTF-8: two headers could get the same name, and a push the wrong secret.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	b := open(t)
	kit.MustAppend(t, b, "orders", "a")
	c := newClient(t, client.Options{Servers: []string{serve(t, b)}})
	rs := []seb.Record{{Value: []byte("b")}, {Value: []byte("c"), Headers: []seb.Header{{Name: "a\xff", Value: []byte("v")}}}}
	_, err := c.Append(t.Context(), "orders", rs)
	kit.WantCode(t, err, seb.CodeInvalidRequest)
	kit.WantOutcome(t, err, seb.NotCommitted)
	_, err = c.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{{Topic: "orders", Records: rs}}})
	kit.WantCode(t, err, seb.CodeInvalidRequest)
	kit.WantOutcome(t, err, seb.NotCommitted)
	kit.WantValues(t, b, "orders", "a")
	for _, u := range []seb.PushUpdate{
		{URL: new("https://192.0.2.1/\xff")}, {Secret: new("\xff")}, {Headers: map[string]string{"X-A": "\xff"}}, {Headers: map[string]string{"X-\xff": "a"}},
	} {
		_, _, _, err = c.Queue("orders", "mail").SetPush(t.Context(), u)
		kit.WantCode(t, err, seb.CodeInvalidRequest)
		kit.WantOutcome(t, err, seb.NotCommitted)
	}
	_, _, err = c.CreateKey(t.Context(), seb.KeyOptions{Name: "\xff", Scopes: seb.ScopeAdmin})
	kit.WantCode(t, err, seb.CodeInvalidRequest)
}
