package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// The numbers in this file are those of the documentation, not constants of the code.

// wantRead reads from the beginning and checks how many records come.
func (s *server) wantRead(topic, query string, records int) {
	s.t.Helper()
	a := s.get("/v1/topics/" + topic + "/records" + query)
	a.want(s.t, http.StatusOK)
	if got := strings.Count(a.body, "\n"); got != records {
		s.t.Errorf("%s%s: %d records, want %d", topic, query, got, records)
	}
	a.wantHeader(s.t, "Seb-Next-Offset", fmt.Sprint(records))
}

func TestReadTakesAThousandRecordsOrAMebibyteByDefault(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("many", strings.Repeat("x\n", 1001), "Content-Type", typeNDJSON)
	s.wantRead("many", "", 1000)
	s.wantRead("many", "?limit=1001", 1001)

	half := strings.Repeat("x", 512<<10) + "\n"
	s.append("exact", half+half+half, "Content-Type", typeNDJSON)
	s.wantRead("exact", "", 2)
	s.wantRead("exact", "?max_bytes=1572864", 3)
	s.append("over", half+"x"+half, "Content-Type", typeNDJSON)
	s.wantRead("over", "", 1)
	s.append("large", strings.Repeat("x", 1<<20+1)+"\nx\n", "Content-Type", typeNDJSON)
	s.wantRead("large", "", 1) // an answer has at least one record, whatever its size
}

// An answer is bounded, whatever the caller asks for.
func TestReadTakesNoMoreThanItsMost(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("many", strings.Repeat("\n", 65_537), "Content-Type", typeNDJSON)
	s.wantRead("many", "?limit=100000", 65_536)
	s.append("large", strings.Repeat(strings.Repeat("x", 1<<20)+"\n", 9), "Content-Type", typeNDJSON)
	s.wantRead("large", "?max_bytes=100000000", 8)

	for query, want := range map[string]int{"topic-name=many&max-records=100000": 65_536, "topic-name=large&max-bytes=100000000": 8} {
		a := s.exchange(originalGet("/records?offset=0&"+query, typeForm))
		a.want(t, http.StatusOK)
		if got := strings.Count(a.form(t)[0], ",") + 1; got != want {
			t.Errorf("%s: %d records, want %d", query, got, want)
		}
	}
}

func TestReadDoesNotWaitUnlessAsked(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		s.get(ordersPath+"?offset=latest").wantHeader(t, "Seb-Next-Offset", "1")
		if took := time.Since(start); took != 0 {
			t.Errorf("it waited for %v", took)
		}
		s.get(ordersPath+"?offset=latest&wait=5m").wantHeader(t, "Seb-Next-Offset", "1")
		if took := time.Since(start); took != 5*time.Minute {
			t.Errorf("the longest wait took %v", took)
		}
	})
}

func TestLimitsThatAreDocumented(t *testing.T) {
	got := newServer(t, seb.Options{}, Options{}).broker.Limits()
	want := seb.Limits{
		RecordBytes: 8 << 20, RequestBytes: 32 << 20, RecordHeaders: 100,
		Topics: 10_000, Partitions: 1000, CommitParts: 1000, Consumers: 100_000, Queues: 10_000, Delayed: 1_000_000, Keys: 1000, IdempotencyKeys: 1_000_000,
	}
	if got != want {
		t.Errorf("the limits are %+v, want %+v", got, want)
	}
}
