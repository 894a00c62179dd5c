package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
)

// The copy of a dead letter says where the record comes from and why it is there. The same commit makes
// the copy and the dead letter.
func TestDeadLetterIsCopiedWithItsHistory(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "42", "Seb-Key", "k", "Seb-Header-App", "shop", "Seb-Timestamp", "2026-01-31T12:00:00Z")
		s.do("PUT", "/v1/topics/orders.dead", nil).want(t, http.StatusCreated)
		s.setQueue("mail", `{"max_attempts":2,"backoff":"1s","dead_letter_topic":"orders.dead"}`, http.StatusCreated)
		s.answered("nack", 200, s.wantHanded("", "0#1")...)
		last := s.wantHanded(`{"wait":"2s"}`, "0#2")
		if got := s.stored("orders.dead", 0); len(got) != 0 {
			t.Errorf("before the last attempt there is %+v", got)
		}
		synctest.Wait() // a receiver is answered a moment before the status shows the commit
		before := s.broker.Status().Applied
		s.post(mailPath+"/nack", `{"tokens":`+tokensOf(t, last)+`,"reason":"no such address"}`).want(t, 200)
		if slots := s.broker.Status().Applied - before; slots != 1 {
			t.Errorf("parking took %d slots", slots)
		}
		copied := s.stored("orders.dead", 0)
		if len(copied) != 1 || string(copied[0].Value) != "42" || string(copied[0].Key) != "k" {
			t.Fatalf("copied are %+v", copied)
		}
		got := map[string]string{}
		for _, h := range copied[0].Headers {
			got[h.Name] += string(h.Value)
		}
		if diff := cmp.Diff(map[string]string{
			"app": "shop", "Seb-Dead-Topic": "orders", "Seb-Dead-Partition": "0", "Seb-Dead-Offset": "0", "Seb-Dead-Timestamp": "2026-01-31T12:00:00Z",
			"Seb-Dead-Queue": "mail", "Seb-Dead-Attempts": "2", "Seb-Dead-Reason": "no such address",
		}, got); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if a := s.post(mailPath+"/dead/redrive", `{"records":[{"partition":0,"offset":0}]}`); a.body != `{"redriven":1,"remaining":0}`+"\n" {
			t.Errorf("redriven: %s", a.body)
		}
		again := s.wantHanded(`{"wait":"2s"}`, "0#1") // attempts are counted from 1 again
		s.answered("nack", http.StatusConflict, last...).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
		s.answered("ack", 200, again...)
	})
}

// If a record lease ends without an answer on the last attempt, the record becomes a dead letter.
func TestSilentWorkersMakeADeadLetter(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		s.setQueue("mail", `{"max_attempts":2,"backoff":"0s","lease":"10s"}`, http.StatusCreated)
		for attempt := range 2 {
			s.wantHanded(`{"wait":"1m"}`, fmt.Sprintf("0#%d", attempt+1))
		}
		began := time.Now()
		s.wantHanded(`{"wait":"1m"}`, "")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it waited %v", took)
		}
		s.wantCounts("mail", 0, 0, 0, 1)
		var dead struct{ Messages []struct{ Reason string } }
		s.get(mailPath+"/dead").json(t, &dead)
		if len(dead.Messages) != 1 || dead.Messages[0].Reason != "its lease ran out" {
			t.Errorf("parked are %+v", dead)
		}
	})
}

// Two queues whose dead-letter topics are each other's topic pass a record that always fails back
// and forth, until a copy would have more headers than a record may have. Then it stays a dead letter.
func TestCircleOfDeadLetterTopicsEnds(t *testing.T) {
	s := newServer(t, seb.Options{Batching: seb.Immediate()}, Options{})
	s.append("orders", "x", "Seb-Header-App", "shop")
	s.do("PUT", "/v1/topics/orders.dead", nil).want(t, http.StatusCreated)
	set := func(path, into string) {
		s.do("PUT", path, strings.NewReader(`{"max_attempts":1,"dead_letter_topic":"`+into+`"}`)).want(t, http.StatusCreated)
	}
	refused := s.do("PUT", mailPath, strings.NewReader(`{"dead_letter_topic":"orders"}`)).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	if !strings.Contains(refused.Hint, "another topic") {
		t.Errorf("the hint is %q", refused.Hint)
	}
	const deadPath = "/v1/topics/orders.dead/queues/mail"
	set(mailPath, "orders.dead")
	set(deadPath, "orders")

	queues, laps := []string{mailPath, deadPath}, 0
	for ; laps < 1000; laps++ {
		path := queues[laps%2]
		a := s.post(path+"/receive", "")
		if a.want(t, http.StatusOK); len(a.messages(t)) == 0 {
			break
		}
		s.post(path+"/nack", `{"tokens":`+tokensOf(t, a.messages(t))+`,"reason":"no"}`).want(t, http.StatusOK)
	}
	const headers, ofCopy = 100, 7 // the most headers of a record, and how many each copy adds
	if want := 2 + (headers-1)/ofCopy; laps != want {
		t.Errorf("it was parked %d times, want %d", laps, want)
	}
	parked := 0
	for _, path := range queues {
		var q queueJSON
		a := s.get(path)
		if a.json(t, &q); q.Ready != 0 {
			t.Errorf("%s is %s", path, a.body)
		}
		parked += int(q.Dead)
	}
	if parked != laps {
		t.Errorf("%d are parked, want %d", parked, laps)
	}
	for _, topic := range []string{"orders", "orders.dead"} {
		for _, r := range s.stored(topic, 0) {
			if len(r.Headers) > headers+ofCopy || string(r.Value) != "x" {
				t.Errorf("%s has %q with %d headers", topic, r.Value, len(r.Headers))
			}
		}
	}
}
