package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// The next record of a key is handed out, to any worker, only after the one before is acknowledged or a dead letter.
func TestRecordsOfAKeyComeOneByOne(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.append("orders", `{"records":[{"key":"a","value":"0"},{"key":"a","value":"1"},{"key":"b","value":"2"},{"key":"a","value":"3"},{"value":"4"},{"value":"5"}]}`,
			"Content-Type", typeRecords)
		s.setQueue("mail", `{"order":"key","backoff":"0s","max_attempts":2,"lease":"10s"}`, http.StatusCreated)
		ms := s.wantHanded(`{"max":10}`, "0#1 2#1 4#1 5#1")
		s.wantHanded(`{"max":10}`, "")
		s.answered("ack", 200, ms[1:]...) // records of other keys
		s.wantHanded(`{"max":10}`, "")
		s.answered("nack", 200, ms[0])
		s.answered("ack", 200, s.wantHanded(`{"max":10,"wait":"1s"}`, "0#2")...)
		s.wantHanded(`{"max":10,"wait":"1s"}`, "1#1") // the worker goes silent, twice
		began := time.Now()
		s.wantHanded(`{"max":10,"wait":"1m"}`, "1#2")
		s.wantHanded(`{"max":10,"wait":"1m"}`, "3#1")
		if took := time.Since(began); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("the record behind a parked one came after %v, want 20s", took)
		}
		s.wantCounts("mail", 0, 1, 0, 1)
	})
}
