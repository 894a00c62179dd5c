package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

func TestAppendIfOffset(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.post(ordersPath+"?if_offset=0", "a").want(t, http.StatusCreated)
	p := s.post(ordersPath+"?if_offset=0", "b").wantProblem(t, http.StatusPreconditionFailed, seb.CodeOffsetConflict)
	if p.EndOffset == nil || *p.EndOffset != 1 || p.Outcome != string(seb.NotCommitted) || p.Hint == "" {
		t.Errorf("the problem is %+v", p)
	}
	s.post(ordersPath+"?if_offset=1", "b\nc\n", "Content-Type", typeNDJSON).want(t, http.StatusCreated)
	s.post(ordersPath+"?if_offset=9", "d").wantProblem(t, http.StatusPreconditionFailed, seb.CodeOffsetConflict)

	s.do("PUT", "/v1/topics/wide", strings.NewReader(`{"partitions":4}`)).want(t, http.StatusCreated)
	wide := "/v1/topics/wide/records?if_offset=0"
	s.post(wide+"&partition=2", "x").want(t, http.StatusCreated)
	s.post(wide+"&partition=2", "x").wantProblem(t, http.StatusPreconditionFailed, seb.CodeOffsetConflict)
	s.post(wide+"&partition=3", "x").want(t, http.StatusCreated)
	s.post(wide, "x").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.post(wide, `{"records":[{"value":"1","partition":0},{"value":"2","partition":1}]}`, "Content-Type", typeRecords).
		wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

func TestIdempotencyKey(t *testing.T) {
	store := objstore.NewMemory()
	open := func(opts seb.Options) *server {
		opts.Batching = seb.Immediate()
		b, err := seb.Open(t.Context(), store, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return serve(t, b, Options{})
	}
	s, other := open(seb.Options{}), open(seb.Options{Limits: seb.Limits{IdempotencyKeys: 1}})
	first := s.append("orders", "a", "Idempotency-Key", "k")
	first.wantHeader(t, "Idempotency-Replayed", "")
	for _, s := range []*server{s, other} {
		again := s.append("orders", "a", "Idempotency-Key", "k")
		again.wantHeader(t, "Idempotency-Replayed", "true")
		if again.body != first.body {
			t.Errorf("the retry is answered %s, the first %s", again.body, first.body)
		}
		p := s.post(ordersPath, "b", "Idempotency-Key", "k").wantProblem(t, http.StatusUnprocessableEntity, seb.CodeIdempotencyKeyReused)
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("the outcome is %q", p.Outcome)
		}
	}
	p := other.post(ordersPath, "b", "Idempotency-Key", "new").wantProblem(t, http.StatusTooManyRequests, seb.CodeIdempotencyKeysFull)
	if p.Limit != 1 {
		t.Errorf("the limit is %d", p.Limit)
	}
	other.append("orders", "a", "Idempotency-Key", "k").wantHeader(t, "Idempotency-Replayed", "true") // the key is still stored: no other key has displaced it
	restarted := open(seb.Options{}).append("orders", "a", "Idempotency-Key", "k")
	if restarted.wantHeader(t, "Idempotency-Replayed", "true"); restarted.body != first.body {
		t.Errorf("after a restart the retry is answered %s, the first %s", restarted.body, first.body)
	}
	for _, mediaType := range []string{typeNDJSON, typeBatch, typeRecords} { // the key belongs to the records, in any form
		body := map[string]string{typeNDJSON: "a\n", typeBatch: string(batchBody("a")), typeRecords: `{"records":[{"value":"a"}]}`}[mediaType]
		s.append("orders", body, "Idempotency-Key", "k", "Content-Type", mediaType).wantHeader(t, "Idempotency-Replayed", "true")
	}
	if got := values(s.stored("orders", 0)); len(got) != 1 {
		t.Errorf("the log holds %q", got)
	}
}

// A second request with the idempotency key of an undecided request waits for that request.
func TestIdempotentRequestJoinsTheFirst(t *testing.T) {
	bubble(t, seb.Options{Batching: seb.Timed(time.Minute, 1<<20), AppendTimeout: time.Hour}, func(t *testing.T, s *server) {
		if _, _, err := s.broker.CreateTopic(t.Context(), "orders", seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		answers := make(chan answer, 2)
		for range 2 {
			go func() { answers <- s.post(ordersPath, "a", "Idempotency-Key", "k") }()
		}
		one, two := <-answers, <-answers
		if one.StatusCode != 201 || two.StatusCode != 201 || one.body != two.body {
			t.Errorf("%s, %s", one.body, two.body)
		}
		if one.Header.Get("Idempotency-Replayed")+two.Header.Get("Idempotency-Replayed") != "true" {
			t.Error("not exactly one is said to be replayed")
		}
		if got := values(s.stored("orders", 0)); len(got) != 1 {
			t.Errorf("the log holds %q", got)
		}
	})
}
