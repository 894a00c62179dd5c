package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// wireMessage is a message as a worker sees it.
type wireMessage struct {
	Token       string
	Attempt     int
	LeasedUntil string `json:"leased_until"`
	Partition   int32
	Offset      seb.Offset
	Timestamp   string
	Key, Value  *string
	ValueBase64 *string `json:"value_base64"`
}

// received sends a receive to a queue of topic orders, which must succeed.
func (s *server) received(name, body string, header ...string) []wireMessage {
	s.t.Helper()
	a := s.post(queuesPath+"/"+name+"/receive", body, header...)
	a.want(s.t, http.StatusOK)
	return a.messages(s.t)
}

func (a answer) messages(t testing.TB) []wireMessage {
	t.Helper()
	var got struct{ Messages []wireMessage }
	a.json(t, &got)
	return got.Messages
}

// answered acks, nacks or extends messages of queue mail.
func (s *server) answered(how string, status int, ms ...wireMessage) answer {
	s.t.Helper()
	a := s.post(mailPath+"/"+how, `{"tokens":`+tokensOf(s.t, ms)+`}`)
	a.want(s.t, status)
	return a
}

func tokensOf(t testing.TB, ms []wireMessage) string {
	t.Helper()
	list := []string{}
	for _, m := range ms {
		list = append(list, m.Token)
	}
	return mustJSON(t, list)
}

// handed returns "offset#attempt" of messages.
func handed(ms []wireMessage) string {
	list := []string{}
	for _, m := range ms {
		list = append(list, fmt.Sprintf("%d#%d", m.Offset, m.Attempt))
	}
	return strings.Join(list, " ")
}

func (s *server) wantHanded(body, want string) []wireMessage {
	s.t.Helper()
	got := s.received("mail", body)
	if handed(got) != want {
		s.t.Errorf("%s: handed out %q, want %q", body, handed(got), want)
	}
	return got
}

func TestMessagesAreRecordsAsReadsShowThem(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "\xff", "Seb-Key", "k", "Seb-Header-A", "1", "Seb-Timestamp", "2026-01-31T12:00:00Z")
	s.setQueue("mail", "", http.StatusCreated)
	a := s.post(mailPath+"/receive", `{"lease":"1m"}`)
	m := a.messages(t)[0]
	want := `{"messages":[{"token":"` + m.Token + `","attempt":1,"leased_until":"` + m.LeasedUntil + `",` +
		`"partition":0,"offset":0,"timestamp":"2026-01-31T12:00:00.000Z","key":"k","value_base64":"/w==","headers":{"a":"1"}}]}` + "\n"
	if withoutLogTimes(a.body) != want {
		t.Errorf("got  %swant %s", a.body, want)
	}
	until, err := time.Parse(timestampLayout, m.LeasedUntil)
	if left := time.Until(until); err != nil || left < 50*time.Second || left > time.Minute {
		t.Errorf("it is leased until %s: %v", m.LeasedUntil, err)
	}
	if a := s.post(mailPath+"/receive", ""); a.body != `{"messages":[]}`+"\n" {
		t.Errorf("nothing is told as %s", a.body)
	}
}

func TestWorkIsDoneOrHandedOutAgain(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "0\n1\n2\n3\n", "Content-Type", typeNDJSON)
		s.setQueue("mail", `{"backoff":"10s"}`, http.StatusCreated)
		ms := s.wantHanded(`{"max":4}`, "0#1 1#1 2#1 3#1")
		s.wantCounts("mail", 0, 4, 0, 0)
		if a := s.answered("ack", 200, ms[0]); a.body != fmt.Sprintf(`{"results":[{"token":%q,"ok":true}]}`+"\n", ms[0].Token) {
			t.Errorf("acknowledged: %s", a.body)
		}
		s.answered("ack", 200, ms[0]) // again, as after a lost answer
		s.post(mailPath+"/nack", `{"tokens":`+tokensOf(t, ms[1:2])+`,"delay":"2s"}`).want(t, 200)
		s.answered("nack", 200, ms[2])
		extended := s.post(mailPath+"/extend", `{"tokens":`+tokensOf(t, ms[3:])+`,"lease":"5m"}`)
		extended.want(t, 200)
		if until := time.Now().Add(5 * time.Minute).UTC().Format(timestampLayout); !strings.Contains(extended.body, until) {
			t.Errorf("extended to %s: %s", until, extended.body)
		}
		began := time.Now()
		again := s.wantHanded(`{"max":4,"wait":"1m"}`, "1#2")
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("it came after %v, want 2s", took)
		}
		later := s.wantHanded(`{"max":4,"wait":"1m"}`, "2#2")
		if took := time.Since(began); took < 4*time.Second || took > 11*time.Second {
			t.Errorf("it came after %v, want 5s to 10s", took)
		}
		s.answered("ack", 200, again[0], later[0])
		s.wantHanded(`{"max":4,"wait":"4m"}`, "")
		s.wantHanded(`{"max":4,"wait":"1m"}`, "3#2")
	})
}

// Records that fail at the same time are not handed out again at the same time.
func TestBackoffDoublesUpToItsLongestAndVaries(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		const records = 8
		s.queueOf(records, `{"backoff":"8s..30s","max_attempts":10,"lease":"1h"}`)
		out := s.received("mail", fmt.Sprintf(`{"max":%d}`, records))
		varied := false
		for _, longest := range []time.Duration{8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
			s.answered("nack", 200, out...)
			began := time.Now()
			first, last := time.Duration(0), time.Duration(0)
			for out = nil; len(out) < records; last = time.Since(began) {
				ms := s.received("mail", `{"max":1,"wait":"1m"}`)
				if len(ms) == 0 {
					t.Fatalf("%d of %d came back", len(out), records)
				}
				if out = append(out, ms...); len(out) == 1 {
					first = time.Since(began)
				}
			}
			if first < longest/2 || last > longest+time.Second {
				t.Errorf("they came after %v to %v, want %v to %v", first, last, longest/2, longest)
			}
			varied = varied || last-first > longest/8
		}
		if !varied {
			t.Error("they came together each time")
		}
	})
}

// Once an ack or nack is answered, every broker that starts later knows it.
func TestAnswersOfWorkersAreDurable(t *testing.T) {
	store := objstore.NewMemory()
	s := newServerOn(t, store, seb.Options{}, Options{})
	s.append("orders", "0\n1\n2\n3\n", "Content-Type", typeNDJSON)
	s.setQueue("mail", `{"max_attempts":1,"backoff":"1h"}`, http.StatusCreated)
	ms := s.received("mail", `{"max":3}`)
	for i, step := range []struct {
		how, config  string
		ready, later int64
		dead         int64
	}{{"ack", "{}", 3, 0, 0}, {"nack", "{}", 2, 0, 1}, {"nack", `{"max_attempts":5}`, 1, 1, 1}} {
		s.setQueue("mail", step.config, http.StatusOK)
		s.answered(step.how, 200, ms[i])
		another := newServerOn(t, store, seb.Options{}, Options{})
		if q := another.describeQueue("mail"); q.Ready != step.ready || q.Delayed != step.later || q.Dead != step.dead {
			t.Errorf("after %s of %d another broker knows %+v", step.how, i, q)
		}
	}
}

// 200 means that every token was accepted; else the problem has the result of each.
func TestEachTokenIsAnsweredForItself(t *testing.T) {
	for _, how := range []string{"ack", "nack", "extend"} {
		bubble(t, seb.Options{}, func(t *testing.T, s *server) {
			s.append("orders", "0\n1\n2\n", "Content-Type", typeNDJSON)
			s.setQueue("mail", "", http.StatusCreated)
			old := s.wantHanded(`{"lease":"1s"}`, "0#1")
			time.Sleep(2 * time.Second) // fake time
			ms := append(old, s.wantHanded(`{"max":2}`, "1#1 2#1")...)
			s.wantHanded(`{"wait":"1m"}`, "0#2")
			one := s.answered(how, http.StatusConflict, old...)
			if p := one.wantProblem(t, http.StatusConflict, seb.CodeLeaseLost); !strings.Contains(p.Detail, old[0].Token) || strings.Contains(p.Detail, "others") {
				t.Errorf("%s: the problem is %+v", how, p)
			}
			a := s.answered(how, http.StatusConflict, ms...)
			p := a.wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
			if p.Outcome != "" || !strings.HasPrefix(p.Detail, "1 of 3 tokens were refused") {
				t.Errorf("%s: the problem is %+v", how, p)
			}
			var told struct{ Results []tokenResult }
			a.json(t, &told)
			for i, r := range told.Results {
				if r.Token != ms[i].Token || r.OK != (i > 0) || (r.Code == seb.CodeLeaseLost) != (i == 0) || (r.Detail == "") != r.OK {
					t.Errorf("%s: result %d is %+v", how, i, r)
				}
				if (r.LeasedUntil != "") != (how == "extend" && i > 0) {
					t.Errorf("%s: result %d is %+v", how, i, r)
				}
			}
			if how == "ack" {
				s.wantCounts("mail", 0, 1, 0, 0)
			}
		})
	}
}

// A token of another queue has a different hint than a lost lease, which says to leave the record alone:
// here nobody else has the record.
func TestTokenOfAnotherQueueIsNotALostLease(t *testing.T) {
	s := newServerWithQueue(t, 1, "")
	s.setQueue("other", "", http.StatusCreated)
	s.received("other", "") // so that this broker hands out its records
	ms := s.received("mail", "")
	for _, how := range []string{"ack", "nack", "extend"} {
		p := s.post(queuesPath+"/other/"+how, `{"tokens":`+tokensOf(t, ms)+`}`).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
		if !strings.HasSuffix(p.Detail, "belongs to another queue") || !strings.Contains(p.Hint, "send the token to the queue") {
			t.Errorf("%s: %+v", how, p)
		}
	}
	body := `{"acks":[{"topic":"orders","queue":"other","tokens":` + tokensOf(t, ms) + `}]}`
	if p := s.post(commitsPath, body).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost); !strings.HasSuffix(p.Detail, "belongs to another queue") {
		t.Errorf("a commit: %+v", p)
	}
	before := map[string]wireProblem{}
	for _, how := range []string{"ack", "nack", "extend"} {
		before[how] = s.post(queuesPath+"/other/"+how, `{"tokens":`+tokensOf(t, ms)+`}`).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
	}
	s.answered("ack", 200, ms...)
	s.do("DELETE", mailPath, nil).want(t, http.StatusNoContent)
	// A caller learns nothing about queues that it may not see: the answer is the same whether the queue exists.
	for how, p := range before {
		if now := s.post(queuesPath+"/other/"+how, `{"tokens":`+tokensOf(t, ms)+`}`).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost); now != p || !strings.Contains(now.Hint, "drop the record") {
			t.Errorf("%s: when its queue is gone: %+v, not as before: %+v", how, now, p)
		}
	}
}

func TestDeadLettersAreShownPageByPageAndRedriven(t *testing.T) {
	s := newServerWithQueue(t, 5, `{"max_attempts":1}`)
	ms := s.received("mail", `{"max":5}`)
	s.post(mailPath+"/nack", `{"tokens":`+tokensOf(t, ms)+`,"reason":"no \"such\" address"}`).want(t, 200)
	s.wantCounts("mail", 0, 0, 0, 5)
	var got []seb.Offset
	for path := mailPath + "/dead?limit=2"; ; {
		var page struct {
			Messages []struct {
				Attempts       int
				Parked, Reason string
				Offset         seb.Offset
				Value          *string
			}
			Next *string
		}
		a := s.get(path)
		a.want(t, 200)
		a.json(t, &page)
		for _, m := range page.Messages {
			if m.Attempts != 1 || m.Reason != `no "such" address` || m.Value == nil || m.Parked == "" {
				t.Errorf("shown as %s", a.body)
			}
			got = append(got, m.Offset)
		}
		if page.Next == nil {
			break
		}
		path = mailPath + "/dead?limit=2&next=" + *page.Next
	}
	if fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("parked are %v", got)
	}
	for _, c := range []struct{ body, want string }{
		{`{"records":[{"partition":0,"offset":3},{"partition":0,"offset":3},{"partition":7,"offset":1}]}`, `1,"remaining":4`},
		{`{"limit":2}`, `2,"remaining":2`},
		{``, `2,"remaining":0`},
		{`{}`, `0,"remaining":0`},
	} {
		if a := s.post(mailPath+"/dead/redrive", c.body); a.body != `{"redriven":`+c.want+"}\n" {
			t.Errorf("%s: %s", c.body, a.body)
		}
	}
	if got := s.received("mail", `{"max":10,"wait":"5s"}`); len(got) != 5 || got[0].Attempt != 1 {
		t.Errorf("handed out again: %s", handed(got))
	}
}

// A dead letter whose record was deleted is shown without the record's contents.
func TestDeadRecordThatIsGoneIsShownWithoutContents(t *testing.T) {
	var c chunks
	c.deadMessage(&seb.DeadMessage{Record: seb.Record{Partition: 1, Offset: 2}, Attempts: 3, Reason: "\xff", Parked: time.UnixMilli(0).UTC()})
	want := `{"attempts":3,"parked":"1970-01-01T00:00:00.000Z","reason":"` + "\uFFFD" + `","partition":1,"offset":2}`
	if string(c.buf) != want {
		t.Errorf("got %s, want %s", c.buf, want)
	}
}

func TestReceiveWaitsAsLongAsAsked(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		for _, wait := range []time.Duration{0, 42 * time.Second, 5 * time.Minute} {
			start := time.Now()
			s.wantHanded(fmt.Sprintf(`{"wait":%q}`, wait), "")
			if took := time.Since(start); took != wait {
				t.Errorf("it took %v, want %v", took, wait)
			}
		}
		got := make(chan answer)
		go func() { got <- s.post(mailPath+"/receive", `{"wait":"1m"}`) }()
		synctest.Wait()
		start := time.Now()
		s.append("orders", "x")
		if ms := (<-got).messages(t); handed(ms) != "0#1" || time.Since(start) > time.Second {
			t.Errorf("got %s after %v", handed(ms), time.Since(start))
		}
	})
}

func TestDrainEndsReceives(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		got := make(chan answer)
		go func() { got <- s.post(mailPath+"/receive", `{"wait":"5m"}`) }()
		synctest.Wait()
		start := time.Now()
		s.handler.Drain()
		if a := <-got; a.StatusCode != 200 || a.body != `{"messages":[]}`+"\n" || time.Since(start) > 0 {
			t.Errorf("drained: %d %s after %v", a.StatusCode, a.body, time.Since(start))
		}
	})
}

// When the broker shuts down, a receive that waits for memory for a large record is answered like any other receive.
func TestDrainEndsReceiveThatWaitsForMemory(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		_, answers := s.broker.ShareBytes(seb.ShareAnswers)
		others := s.broker.NewReservation(seb.ShareAnswers, seb.Holder{}, nil)
		if err := others.Grow(t.Context(), answers); err != nil {
			t.Fatal(err)
		}
		got := make(chan answer)
		go func() {
			defer close(got)
			got <- s.post(mailPath+"/receive", `{"wait":"5m","max_bytes":1}`)
		}()
		synctest.Wait()
		s.append("orders", strings.Repeat("x", 200<<10))
		synctest.Wait()
		s.handler.Drain()
		if a, ok := <-got; !ok || a.StatusCode != 200 || a.body != `{"messages":[]}`+"\n" {
			t.Errorf("drained: %+v", a)
		}
		others.Shrink(answers)
		s.wantHanded(`{"max_bytes":1}`, "0#1")
		s.wantNothingReserved()
	})
}

func TestQueueShowsItsProgress(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(6, `{"max_attempts":1}`)
		s.append("orders", "x", delayHeader, "1h")
		time.Sleep(10 * time.Second) // fake time
		ms := s.wantHanded(`{"max":4}`, "0#1 1#1 2#1 3#1")
		s.answered("ack", 200, ms[0], ms[1])
		s.answered("nack", 200, ms[2])
		time.Sleep(10 * time.Second) // fake time
		s.wantCounts("mail", 2, 1, 1, 1)
		q := s.describeQueue("mail")
		if age, err := time.ParseDuration(*q.OldestAge); err != nil || age.Round(time.Second) != 20*time.Second {
			t.Errorf("the oldest is %s old: %v", *q.OldestAge, err)
		}
		if *q.Received <= 0 || *q.Acknowledged <= 0 || *q.Received != 2**q.Acknowledged {
			t.Errorf("it hands out %v and has acknowledged %v a second", *q.Received, *q.Acknowledged)
		}
		time.Sleep(2 * time.Minute) // fake time
		if q := s.describeQueue("mail"); *q.Received != 0 || *q.Acknowledged != 0 {
			t.Errorf("idle, it hands out %v and has acknowledged %v a second", *q.Received, *q.Acknowledged)
		}
	})
}

// A record for a client that has left goes to the next worker, as its first attempt.
func TestReceiveEndsWithItsClient(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", s.url+mailPath+"/receive", strings.NewReader(`{"wait":"5m"}`))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			resp, err := s.client.Do(req)
			if err == nil {
				err = resp.Body.Close()
			}
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			t.Error("it was answered")
		}
		synctest.Wait()
		s.append("orders", "x")
		s.wantHanded("", "0#1")
		s.wantNothingReserved()
	})
}

func TestReceiveEndsWithItsKey(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		worker, secret := newKey(t, s.broker, "worker", seb.ScopeRead)
		got := make(chan answer)
		go func() { got <- s.post(mailPath+"/receive", `{"wait":"5m"}`, bearer(secret)...) }()
		synctest.Wait()
		s.do("DELETE", fmt.Sprint("/v1/keys/", worker.ID), nil, bearer(ops)...).want(t, http.StatusNoContent)
		(<-got).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
	})
}

func TestWaitingReceiversHoldNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		s.setQueue("mail", "", http.StatusCreated)
		got := make(chan answer)
		const workers = 50
		for range workers {
			go func() { got <- s.post(mailPath+"/receive", `{"max":1,"wait":"1m","max_bytes":8388608}`) }()
		}
		synctest.Wait()
		s.wantNothingReserved()
		s.append("orders", strings.Repeat("y\n", workers), "Content-Type", typeNDJSON)
		seen := map[string]bool{}
		for range workers {
			seen[handed((<-got).messages(t))] = true
		}
		if len(seen) != workers || seen[""] {
			t.Errorf("handed out were %v", seen)
		}
		s.wantNothingReserved()
	})
}

// A record is handed out whatever its size. If there is no memory for it now, that is not an attempt.
func TestRecordThatThereIsNoMemoryForIsNoAttempt(t *testing.T) {
	const large = 2 << 20
	limits := seb.Limits{RecordBytes: large, RequestBytes: large}
	bubble(t, seb.Options{Limits: limits, Memory: 4 * large}, func(t *testing.T, s *server) {
		headers := make([]seb.Header, 100)
		for i := range headers {
			headers[i].Name = "h"
		}
		record := seb.Record{Value: make([]byte, large-2000), Headers: headers}
		if _, err := s.broker.Append(t.Context(), "orders", []seb.Record{record}); err != nil {
			t.Fatal(err)
		}
		s.setQueue("mail", "", http.StatusCreated)
		_, answers := s.broker.ShareBytes(seb.ShareAnswers)
		others := s.broker.NewReservation(seb.ShareAnswers, seb.Holder{}, nil)
		if err := others.Grow(t.Context(), answers); err != nil {
			t.Fatal(err)
		}
		s.post(mailPath+"/receive", `{"max_bytes":1}`).wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
		others.Shrink(answers)
		s.wantHanded(`{"max_bytes":1}`, "0#1")
		s.wantNothingReserved()
	})
}

func TestReceiveAcknowledgesFirst(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "0\n1\n2\n", "Content-Type", typeNDJSON)
		s.setQueue("mail", "", http.StatusCreated)
		first := s.wantHanded(`{"ack":[]}`, "0#1")
		second := s.wantHanded(`{"ack":`+tokensOf(t, first)+`}`, "1#1")
		s.wantCounts("mail", 1, 1, 0, 0)
		s.wantHanded(`{"max":2,"wait":"2m","ack":`+tokensOf(t, append(first, second...))+`}`, "2#1") // with the first tokens again
		s.wantCounts("mail", 0, 1, 0, 0)
	})
}

// If a token that comes with a receive is refused, the answer is like that of an ack, and no record is
// handed out.
func TestReceiveAfterARefusedAckHandsOutNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "0\n1\n", "Content-Type", typeNDJSON)
		s.setQueue("mail", "", http.StatusCreated)
		old := s.wantHanded(`{"lease":"1s"}`, "0#1")
		time.Sleep(2 * time.Second) // fake time
		ms := append(old, s.wantHanded(`{}`, "1#1")...)
		s.wantHanded(`{"wait":"1m"}`, "0#2")
		s.append("orders", "2")
		a := s.post(mailPath+"/receive", `{"max":2,"ack":`+tokensOf(t, ms)+`}`)
		p := a.wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
		if !strings.Contains(p.Detail, old[0].Token) || !strings.Contains(a.body, `"ok":true`) {
			t.Errorf("it says %s", a.body)
		}
		s.wantCounts("mail", 1, 1, 0, 0) // record 1 is done, record 2 was not handed out
		s.post(mailPath+"/receive", `{"ack":["x"]}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		s.post(mailPath+"/receive", `{"ack":[null]}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		s.wantHanded(`{}`, "2#1")
		s.wantNothingReserved()
	})
}
