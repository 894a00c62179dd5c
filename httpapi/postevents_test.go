package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/trigger"
)

// The records of events are what triggers make the same events of.
func TestPostedEventsAreRecordsThatTriggersRead(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.post("/v1/events", `[
		{"event":"signed_up","entity_id":"42","data":{"plan":"te\u0061m","n":9007199254740993}},
		{"entity_id":-7, "\u0065vent":"logged\u0020in"},
		{"event":"left","entity_id":"\u00e9","data":null}
	]`)
	a.want(t, http.StatusCreated)
	if want := `{"topic":"events","count":3,"partition":0,"offset":0,"ranges":[{"partition":0,"offset":0,"count":3}]}` + "\n"; a.body != want {
		t.Errorf("the answer is %s", a.body)
	}
	for i, want := range []struct{ value, key, name, entity string }{
		{`{"event":"signed_up","entity_id":"42","data":{"plan":"te\u0061m","n":9007199254740993}}`, "42", "signed_up", "42"},
		{`{"event":"logged\u0020in","entity_id":-7}`, "-7", "logged in", "-7"},
		{`{"event":"left","entity_id":"\u00e9","data":null}`, "é", "left", "é"},
	} {
		r := s.stored("events", 0)[i]
		e := trigger.EventOf("events", &r)
		if string(r.Value) != want.value || string(r.Key) != want.key || e.Name != want.name || e.Entity != want.entity {
			t.Errorf("record %d is %s: %s, event %q of %q", i, r.Key, r.Value, e.Name, e.Entity)
		}
		if len(r.Headers) != 1 || r.Headers[0].Name != contentTypeHeader || string(r.Headers[0].Value) != typeJSON {
			t.Errorf("record %d has the headers %v", i, r.Headers)
		}
	}
	first := s.stored("events", 0)[0]
	if e := trigger.EventOf("events", &first); e.Data.(map[string]any)["n"] != int64(9007199254740993) {
		t.Errorf("the data is %v", e.Data)
	}
}

func TestPostedEventsGoToATopicOnce(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const event = `{"event":"paid","entity_id":42}`
	for i := range 2 {
		a := s.post("/v1/events?topic=orders", event, "Idempotency-Key", "one")
		a.want(t, http.StatusCreated)
		if replayed := a.Header.Get("Idempotency-Replayed") != ""; replayed != (i == 1) {
			t.Errorf("request %d: replayed: %v", i, replayed)
		}
	}
	s.post("/v1/events?topic=orders", strings.Replace(event, "42", "43", 1), "Idempotency-Key", "one").wantProblem(t, http.StatusUnprocessableEntity, seb.CodeIdempotencyKeyReused)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(event))
	_ = w.Close()
	s.do("POST", "/v1/events?topic=orders", &b, "Content-Encoding", "gzip", "Content-Type", typeEvent).want(t, http.StatusCreated)
	if got := s.stored("orders", 0); len(got) != 2 {
		t.Errorf("the topic has %d records", len(got))
	}
}

// A list is appended as a whole, or not at all.
func TestWrongEventsAreRefused(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for body, detail := range map[string]string{
		``: "the body is empty", `[]`: "the request has no records", `x`: "must be an object", `{}`: "event is missing",
		`{"event":"","entity_id":"1"}`: "event is missing", `{"event":1,"entity_id":"1"}`: "event must be a string, not a number",
		`{"event":"a"}`: "entity_id is missing", `{"event":"a","entity_id":""}`: "entity_id is missing",
		`{"event":"a","entity_id":null}`: "entity_id must be a string or an integer, not null", `{"event":"a","entity_id":1.5}`: "must be an integer of 64 bits",
		`{"event":"a","entity_id":9223372036854775808}`: "must be an integer of 64 bits",
		`{"event":"a","entity_id":"1","time":"x"}`:      `unknown field "time"`, `{"event":"a","entity_id":"1"} {}`: "more text follows",
		`[{"event":"a","entity_id":"1"},{"event":"a"}]`: "record 1: entity_id is missing", `{"event":"a","event":"b","entity_id":"1"}`: "twice",
		`{"event":"a","entity_id":"1","data":}`: "malformed JSON",
	} {
		p := s.post("/v1/events", body).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		if !strings.Contains(p.Detail, detail) || p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%s: %+v", body, p)
		}
	}
	s.post("/v1/events?topic=", `{"event":"a","entity_id":"1"}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidTopicName)
	s.post("/v1/events?topic=$", `{"event":"a","entity_id":"1"}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidTopicName)
	s.post("/v1/events", `{"event":"a","entity_id":"1"}`, keyHeader, "k").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.get("/v1/topics/events").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
}

// A key needs the scope write for the topic that the events go to.
func TestEventsNeedWriteForTheirTopic(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, writer := newKey(t, s.broker, "writer", seb.ScopeWrite, "orders")
	const event = `{"event":"a","entity_id":"1"}`
	s.post("/v1/events", event, bearer(writer)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	s.post("/v1/events?topic=events&topic=orders", event, bearer(writer)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	s.post("/v1/events?topic=orders&topic=events", event, bearer(writer)...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.post("/v1/events?topic=orders", event, bearer(writer)...).want(t, http.StatusCreated)
}

// Whatever is accepted is an event to triggers, of the entity that is the record's key.
func FuzzPostedEvents(f *testing.F) {
	f.Add([]byte(`{"event":"a","entity_id":"1","data":{"n":1e300}}`))
	f.Add([]byte(`[{"event":"\ud83d\ude00","entity_id":-0},{"entity_id":9223372036854775807,"\u0065vent":"a","data":[]}]`))
	f.Add([]byte(`{"event":" ","entity_id":"\u0000"}`))
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := h.postedEventsOf(t.Context(), &appendSpec{events: true, partition: -1}, body)
		if err != nil {
			return
		}
		defer l.free()
		for i := range l.list {
			r := &l.list[i]
			e := trigger.EventOf("events", r)
			var value struct{ Event string }
			if err := json.Unmarshal(r.Value, &value); err != nil {
				t.Fatalf("%q is no JSON: %v", r.Value, err)
			}
			if json.Unmarshal(r.Value, new(any)) != nil {
				continue // a number that no double holds: to triggers, the record is text
			}
			if value.Event == "" || e.Name != value.Event || e.Entity == "" || e.Entity != string(r.Key) {
				t.Fatalf("%q of %q: the event %q of %q", r.Value, r.Key, e.Name, e.Entity)
			}
		}
	})
}
