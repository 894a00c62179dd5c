package seb_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/objstore"
)

// pushing runs a pusher of q until stop is called, which returns the error of the pusher's Run.
func pushing(t *testing.T, b *seb.Broker, q *seb.Queue, url string) (stop func() error) {
	t.Helper()
	topic, err := b.Topic(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	networks := push.Networks{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	p, err := push.New(push.Target{URL: url, Secret: push.NewSecret()}, seb.PushQueue(q),
		push.Options{Topic: "t", TopicID: b.TopicTag(topic.ID), Queue: "work", Networks: networks})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func TestPushedRecordsAreDoneOnceTheTargetTookThem(t *testing.T) {
	const records = 40
	took := make(chan string, 10*records)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			return
		case string(body) == "poison":
			http.Error(w, "I can't take poison", http.StatusUnprocessableEntity)
		case r.Header.Get("Seb-Attempt") == "1" && strings.HasSuffix(string(body), "7"):
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		took <- string(body) + "#" + r.Header.Get("Seb-Attempt")
	}))
	defer server.Close()
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{MaxAttempts: new(2), BackoffMin: new(time.Duration(0)), BackoffMax: new(time.Millisecond)})
	want := map[string]bool{"poison#1": true, "poison#2": true}
	batch := []seb.Record{{Value: []byte("poison")}}
	for i := range records {
		value := "record " + string(rune('0'+i/10)) + string(rune('0'+i%10))
		batch = append(batch, seb.Record{Value: []byte(value)})
		attempt := "#1"
		if strings.HasSuffix(value, "7") {
			attempt = "#2"
		}
		want[value+attempt] = true
	}
	if _, err := b.Append(t.Context(), "t", batch); err != nil {
		t.Fatal(err)
	}
	stop := pushing(t, b, q, server.URL)
	for len(want) > 0 {
		select {
		case one := <-took:
			if !want[one] {
				t.Fatalf("%s came", one)
			}
			delete(want, one)
		case <-time.After(20 * time.Second):
			t.Fatalf("%d did not come: %v", len(want), want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	info, err := q.Describe(t.Context())
	if err != nil || info.Ready != 0 || info.Leased != 0 || info.Delayed != 0 || info.Dead != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	dead, _, _, err := q.Dead(t.Context(), seb.DeadOptions{})
	if err != nil || len(dead) != 1 || dead[0].Reason != "HTTP 422 Unprocessable Entity: I can't take poison" {
		t.Errorf("%+v, %v", dead, err)
	}
}

func TestPusherEndsWithItsQueue(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	if err := pushing(t, b, b.Queue("t", "work"), server.URL)(); err != nil && !errors.Is(err, push.ErrNoQueue) {
		t.Error(err)
	}
	if _, err := seb.PushQueue(b.Queue("t", "work")).Receive(t.Context(), 1); !errors.Is(err, push.ErrNoQueue) {
		t.Errorf("received from a queue that isn't there: %v", err)
	}
}

// If a target asks for a wait, the record waits for the longer of that and the queue's backoff.
func TestPusherPutsBackForTheLongerTime(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	q := b.Queue("t", "work")
	mustSet(t, q, seb.QueueUpdate{BackoffMin: new(time.Hour)})
	appendTo(t, b, 0, 2)
	work := seb.PushQueue(q)
	got, err := work.Receive(t.Context(), 2)
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := work.Return(got[1].Token); err != nil {
		t.Fatal(err)
	}
	again, err := work.Receive(t.Context(), 2)
	if err != nil || len(again) != 1 || again[0].Offset != got[1].Offset || again[0].Attempt != 1 {
		t.Fatalf("one was returned, and received were %v, %v", again, err)
	}
	got[1] = again[0]
	if until, err := work.Extend(t.Context(), got[0].Token); err != nil || time.Until(until) < 20*time.Second {
		t.Errorf("extended until %v, %v", until, err)
	}
	for i, atLeast := range []time.Duration{2 * time.Hour, time.Second} {
		if err := work.Nack(t.Context(), got[i].Token, atLeast, "no"); err != nil {
			t.Fatal(err)
		}
	}
	if err := work.Return(got[0].Token); err != nil { // too late, and harmless
		t.Error(err)
	}
	if err := work.Ack(t.Context(), got[0].Token+"x"); !errors.Is(err, push.ErrLost) {
		t.Errorf("a token that is none: %v", err)
	}
	wait := seb.NotBefore(q)
	if wait[0] < 119*time.Minute || wait[1] < 29*time.Minute || wait[1] > time.Hour {
		t.Errorf("put back for %v", wait)
	}
}

// If pushers relied on the wall clock, they would extend leases too late, or not at all, when that clock
// is changed.
func TestLeasesOfPushedRecordsDoNotGoByTheWallClock(t *testing.T) {
	_, q := openQueue(t, 1, seb.QueueUpdate{})
	of := seb.PushQueue(q)
	ms, err := of.Receive(t.Context(), 1)
	if err != nil || len(ms) != 1 {
		t.Fatalf("%+v, %v", ms, err)
	}
	defer ms[0].Release()
	until, err := of.Extend(t.Context(), ms[0].Token)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{ms[0].LeasedUntil, until} {
		if left := time.Until(at); !strings.Contains(at.String(), " m=") || left < 20*time.Second || left > 30*time.Second {
			t.Errorf("it is leased until %v, for %v", at, left)
		}
	}
}
