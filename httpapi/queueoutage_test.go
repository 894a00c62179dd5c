package httpapi

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A worker waits for a record whose lease ends during an outage of the store. It gets an error that says so,
// with Retry-After, and it gets the record when the store is back.
func TestReceiveThatEndsForWantOfTheStoreSaysWhenToComeBack(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, store, seb.Options{Batching: seb.Immediate()}, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders", "x")
		s.setQueue("mail", "", http.StatusCreated)
		s.wantHanded("", "0#1")
		time.AfterFunc(15*time.Second, func() { store.SetDown(true) })
		began := time.Now()
		a := s.post(mailPath+"/receive", `{"wait":"5m"}`)
		p := a.wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		if took := time.Since(began); p.Hint != hints[seb.CodeStoreUnavailable] || p.Outcome != "" || took > time.Minute {
			t.Errorf("after %v: %s", took, a.body)
		}
		again := func() answer {
			seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if err != nil || seconds < 1 || seconds > 10 {
				t.Fatalf("Retry-After is %q", a.Header.Get("Retry-After"))
			}
			<-time.After(time.Duration(seconds) * time.Second) // fake time
			return s.post(mailPath+"/receive", `{"wait":"5m"}`)
		}
		a = again()
		a.wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		store.SetDown(false)
		if a = again(); handed(a.messages(t)) != "0#2" {
			t.Errorf("handed out is %s", a.body)
		}
	})
}
