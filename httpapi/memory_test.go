package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
)

// reserveAll reserves all memory that requests may have, until release is called.
func (s *server) reserveAll() (release func()) {
	s.t.Helper()
	var held []func()
	for _, share := range []seb.Share{seb.ShareSmall, seb.ShareBodies, seb.ShareAnswers} {
		_, n := s.broker.ShareBytes(share)
		r := s.broker.NewReservation(share, seb.Holder{}, nil)
		if err := r.Grow(s.t.Context(), n); err != nil {
			s.t.Fatal(err)
		}
		held = append(held, func() { r.Shrink(n) })
	}
	return func() {
		for _, release := range held {
			release()
		}
	}
}

// adapterBytes returns half the budget, the most that requests of adapters such as this package can hold.
func (s *server) adapterBytes() int64 { return 2 * int64(s.broker.Limits().RequestBytes) }

// wantNothingReserved checks that no memory is reserved.
func (s *server) wantNothingReserved() {
	s.t.Helper()
	release, err := s.broker.Reserve(s.t.Context(), s.adapterBytes())
	if err != nil {
		s.t.Errorf("memory is still reserved: %v", err)
		return
	}
	release()
}

// wantReserved checks that free bytes of memory can be reserved, but not more.
func (s *server) wantReserved(free int64) {
	s.t.Helper()
	release, err := s.broker.Reserve(s.t.Context(), free)
	if err != nil {
		s.t.Errorf("less than %d bytes are free: %v", free, err)
		return
	}
	release()
	if release, err := s.broker.Reserve(s.t.Context(), free+1); err == nil {
		release()
		s.t.Errorf("more than %d bytes are free", free)
	}
}

func TestRequestsPastTheMemoryBudgetArePushedBack(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		release := s.reserveAll()
		p := s.post(ordersPath, "y").wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("outcome is %q", p.Outcome)
		}
		p = s.get(ordersPath).wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
		if p.Outcome != "" {
			t.Errorf("a read has outcome %q", p.Outcome)
		}
		s.get("/readyz").want(t, http.StatusOK)

		// A request that waits for memory is served as soon as there is some.
		got := make(chan answer)
		go func() { got <- s.post(ordersPath, "z") }()
		synctest.Wait()
		release()
		(<-got).want(t, http.StatusCreated)
	})
}

// A Content-Length alone reserves nothing: memory is reserved as the body comes.
func TestBodyIsReservedAsItComes(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		conn := s.dial(postHead + "Content-Length: 8388608\r\n\r\n")
		for _, step := range []struct{ come, most int64 }{{0, 64 << 10}, {64 << 10, 256 << 10}, {1 << 20, 4 << 20}, {4 << 20, 8 << 20}} {
			if _, err := io.WriteString(conn, strings.Repeat("x", int(step.come))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			used, _ := s.broker.ShareBytes(seb.ShareBodies)
			if used < step.come || used > step.most {
				t.Errorf("%d bytes are reserved when %d more have come, want %d at most", used, step.come, step.most)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.wantNothingReserved()
	})
}

// While an append waits for its commit, its records are held only once, in the batch.
func TestWaitingAppendHoldsNoBody(t *testing.T) {
	lazy := seb.Options{Batching: seb.Timed(time.Hour, 1<<40), AppendTimeout: 2 * time.Hour}
	bubble(t, lazy, func(t *testing.T, s *server) {
		s.do("PUT", "/v1/topics/orders", nil).want(t, http.StatusCreated)
		const size = 4 << 20
		got := make(chan answer)
		go func() { got <- s.post(ordersPath, strings.Repeat("x", size)) }()
		synctest.Wait()
		release, err := s.broker.Reserve(t.Context(), s.adapterBytes()-size-1000)
		if err != nil {
			t.Errorf("the append holds more than its batch: %v", err)
		} else {
			release()
		}
		(<-got).want(t, http.StatusCreated)
	})
}

// An ack or nack of a thousand tokens takes more memory than its body, until its answer is
// written.
func TestTokensAreReservedUntilTheyAreAnswered(t *testing.T) {
	lazy := seb.Options{Batching: seb.Timed(time.Minute, 1<<40), AppendTimeout: 2 * time.Hour}
	for _, action := range []string{"ack", "nack"} {
		bubble(t, lazy, func(t *testing.T, s *server) {
			s.append("orders", "x")
			s.setQueue("mail", "", http.StatusCreated)
			tokens := strings.Repeat(fmt.Sprintf(",%q", s.received("mail", "")[0].Token), 1000)[1:]
			got := make(chan answer)
			go func() { got <- s.post(queuesPath+"/mail/"+action, `{"tokens":[`+tokens+`]}`) }()
			synctest.Wait()
			s.wantReserved(s.adapterBytes() - 1000*answerBytes)
			(<-got).want(t, http.StatusOK)
			s.wantNothingReserved()
			s.post(queuesPath+"/mail/"+action, `{"tokens":["nonsense"]}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
			s.wantNothingReserved()
		})
	}
}

func TestWaitingReadsHoldNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		got := make(chan answer)
		const readers = 50
		for range readers {
			go func() { got <- s.get(ordersPath + "?offset=latest&wait=1m&max_bytes=8388608") }()
		}
		synctest.Wait()
		s.wantNothingReserved()
		s.append("orders", "y")
		for range readers {
			if a := <-got; a.StatusCode != http.StatusOK || !strings.Contains(a.body, `"y"`) {
				t.Errorf("a reader got %d %s", a.StatusCode, a.body)
			}
		}
		s.wantNothingReserved()
	})
}

func TestReservationsOfRefusedRequestsComeBack(t *testing.T) {
	s := newServer(t, seb.Options{Memory: 8 << 20, NoAutoCreate: true}, Options{})
	large := strings.Repeat("x", 1<<20)
	for range 4 {
		s.handler.refused = newRefusedBodies() // else large bodies would get 429
		s.post(ordersPath, large).wantProblem(t, 404, seb.CodeTopicNotFound)
		s.post(ordersPath, large, "Content-Type", typeBatch).wantProblem(t, 400, seb.CodeInvalidRequest)
		s.post(ordersPath, large, "Content-Type", typeRecords).wantProblem(t, 400, seb.CodeInvalidRequest)
		s.post(ordersPath, large, "Content-Encoding", "zstd").wantProblem(t, 400, seb.CodeInvalidRequest)
		s.post(ordersPath, strings.Repeat("\n", 1<<20), "Content-Type", typeNDJSON).wantProblem(t, 413, seb.CodeRequestTooLarge)
		s.post(ordersPath, `{"records":[`+strings.Repeat(`{"value":""},`, 5000)+`{}]}`, "Content-Type", typeRecords).wantProblem(t, 400, seb.CodeInvalidRequest)
		s.get(ordersPath).wantProblem(t, 404, seb.CodeTopicNotFound)
	}
	s.wantNothingReserved()
}

// The largest request of each form fits into an otherwise empty budget.
func TestLargestRequestsFit(t *testing.T) {
	s := newServer(t, seb.Options{Memory: 8 << 20}, Options{})
	limit := s.broker.Limits().RequestBytes
	line := strings.Repeat("x", 999) + "\n"
	text := strings.Repeat(line, limit/len(line))
	s.append("a", text, "Content-Type", typeNDJSON)
	s.append("b", strings.Repeat("\n", s.handler.recordsMax()), "Content-Type", typeNDJSON)
	s.append("c", string(gzipped(t, []byte(text))), "Content-Type", typeNDJSON, "Content-Encoding", "gzip")
	record := fmt.Sprintf(`{"value":"%s"},`, line[:900])
	records := strings.Repeat(record, (limit/2-20)/len(record))
	s.append("d", `{"records":[`+records[:len(records)-1]+`]}`, "Content-Type", typeRecords)
	short := strings.Repeat(`{"value":""},`, s.handler.recordsMax())
	s.append("e", `{"records":[`+short[:len(short)-1]+`]}`, "Content-Type", typeRecords)
	s.wantNothingReserved()
}
