package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// receiving opens a stream of queue mail. The answer must be a stream.
func (s *server) receiving(query string, header ...string) *stream {
	s.t.Helper()
	f := s.followAt(mailPath+"/receive"+query, header...)
	if e := f.next(); !strings.HasPrefix(e.all, "retry: ") || e.id != "" || e.data != "" {
		s.t.Fatalf("the stream begins with %q", e.all)
	}
	return f
}

// message skips comments and reads the next event, which must be a message.
func (f *stream) message() wireMessage {
	f.t.Helper()
	for {
		e := f.next()
		if e.all == ":\n\n" || strings.HasPrefix(e.all, "retry: ") {
			continue
		}
		var m wireMessage
		if err := json.Unmarshal([]byte(e.data), &m); err != nil || e.name != "" || e.id != m.Token {
			f.t.Fatalf("the event %q is no message: %v", e.all, err)
		}
		return m
	}
}

// wantMessages reads the next messages, such as "0#1 1#1".
func (f *stream) wantMessages(want string) (ms []wireMessage) {
	f.t.Helper()
	for range strings.Fields(want) {
		ms = append(ms, f.message())
	}
	if got := handed(ms); got != want {
		f.t.Fatalf("handed out %s, want %s", got, want)
	}
	return ms
}

// wantComment reads a comment.
func (f *stream) wantComment() {
	f.t.Helper()
	if e := f.next(); e.all != ":\n\n" {
		f.t.Fatalf("there is %q where nothing should come", e.all)
	}
}

func (s *server) queueOf(records int, body string) {
	s.t.Helper()
	s.createOrders(1)
	s.setQueue("mail", body, http.StatusCreated)
	if records > 0 {
		s.append("orders", strings.Repeat("x\n", records), "Content-Type", typeNDJSON)
	}
}

func TestEventsOfAQueueAreItsMessages(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "\xff", "Seb-Key", "k", "Seb-Header-A", "1", "Seb-Timestamp", "2026-01-31T12:00:00Z")
		s.setQueue("mail", "", http.StatusCreated)
		f := s.receiving("?lease=1m")
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Length": ""} {
			if got := f.resp.Header.Get(name); got != want {
				t.Errorf("header %s is %q, want %q", name, got, want)
			}
		}
		until := time.Now().Add(time.Minute).UTC().Format(timestampLayout)
		e := f.next()
		want := `{"token":"` + e.id + `","attempt":1,"leased_until":"` + until + `",` +
			`"partition":0,"offset":0,"timestamp":"2026-01-31T12:00:00.000Z","key":"k","value_base64":"/w==","headers":{"a":"1"}}`
		if e.id == "" || withoutLogTimes(e.data) != want {
			t.Errorf("got  %swant %s", e.all, want)
		}
	})
}

// A worker gets up to max_in_flight records, and one more for each that it acks or nacks.
func TestStreamOfAQueueSendsWhatTheWorkerHasRoomFor(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(30, `{"lease":"10m"}`)
		f := s.receiving("")
		f.wantMessages("0#1 1#1 2#1 3#1 4#1 5#1 6#1 7#1 8#1 9#1") // max_in_flight is 10 by default
		f.wantComment()
		two := s.receiving("?max_in_flight=2&lease=1h")
		ms := two.wantMessages("10#1 11#1")
		two.wantComment()
		began := time.Now()
		s.answered("ack", 200, ms[0])
		two.wantMessages("12#1")
		s.answered("nack", 200, ms[1])
		two.wantMessages("13#1")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		two.wantComment()
		s.wantCounts("mail", 17, 12, 0, 0)
	})
}

func TestLeaseThatRunsOutMakesRoomInAStream(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(2, `{"backoff":"1h"}`)
		f := s.receiving("?max_in_flight=1&lease=5s")
		began := time.Now()
		f.wantMessages("0#1")
		f.message()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the next one came after %v", took)
		}
	})
}

func TestStreamOfAQueueWaitsWhileThatIsPaused(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(1, `{"paused":true}`)
		f := s.receiving("")
		began := time.Now()
		f.wantComment()
		f.wantComment()
		if took := time.Since(began); took != 2*commentInterval {
			t.Errorf("two comments came within %v", took)
		}
		s.post(mailPath+"/resume", "").want(t, 200)
		f.wantMessages("0#1")
		s.post(mailPath+"/pause", "").want(t, 200)
		s.append("orders", "y")
		f.wantComment()
		s.post(mailPath+"/resume", "").want(t, 200)
		f.wantMessages("1#1")
	})
}

// A record that was not sent to a worker that has left goes to the next worker, as its first attempt.
func TestStreamOfAQueueEndsWithItsClient(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(1, "")
		f := s.receiving("?max_in_flight=3")
		f.wantMessages("0#1")
		if err := f.resp.Body.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.append("orders", "y")
		s.answered("ack", 200, s.wantHanded(`{"max":10}`, "1#1")...)
		s.wantHanded(`{"max":10,"wait":"1m"}`, "0#2") // the record was sent to the worker that has left
		s.wantNothingReserved()
		if n := testutil.ToFloat64(s.handler.metrics.streams); n != 0 {
			t.Errorf("%v streams are open", n)
		}
	})
}

func TestStreamOfAQueueEndsWithItsKey(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(0, "")
		_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
		worker, secret := newKey(t, s.broker, "worker", seb.ScopeRead)
		f := s.receiving("", bearer(secret)...)
		s.do("DELETE", fmt.Sprint("/v1/keys/", worker.ID), nil, bearer(ops)...).want(t, http.StatusNoContent)
		f.wantError(seb.CodeUnauthorized)
	})
}

func TestStreamOfAQueueEndsWithThat(t *testing.T) {
	for path, code := range map[string]seb.Code{mailPath: seb.CodeQueueNotFound, "/v1/topics/orders": seb.CodeTopicNotFound} {
		bubble(t, seb.Options{}, func(t *testing.T, s *server) {
			s.queueOf(1, "")
			f := s.receiving("?max_in_flight=1")
			f.wantMessages("0#1")
			s.do("DELETE", path, nil).want(t, http.StatusNoContent)
			f.wantError(code)
		})
	}
}

func TestDrainEndsStreamsOfAQueue(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(0, "")
		f := s.receiving("")
		synctest.Wait()
		s.handler.Drain()
		f.wantEnd()
		if a := s.get(mailPath+"/receive", "Accept", typeEvents); a.StatusCode != 200 || !strings.HasPrefix(a.body, "retry: ") {
			t.Errorf("drained: %d %s", a.StatusCode, a.body)
		}
	})
}

func TestStreamOfAQueueGoesOnWhenTheStoreIsBack(t *testing.T) {
	broken := &brokenStore{Store: objstore.NewMemory()}
	bubbleOn(t, broken, seb.Options{AppendTimeout: time.Second}, Options{}, 0, func(t *testing.T, s *server) {
		s.queueOf(0, "")
		f := s.receiving("")
		broken.down.Store(true)
		for range 5 {
			f.wantComment()
		}
		broken.down.Store(false)
		for range 4 { // until the broker has noticed
			f.wantComment()
		}
		s.append("orders", "x")
		f.wantMessages("0#1")
	})
}

func TestWaitingStreamsOfAQueueHoldNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.queueOf(0, "")
		const workers = 20
		got := make(chan string)
		for range workers {
			f := s.receiving("?max_in_flight=1000")
			go func() { got <- handed([]wireMessage{f.message()}) }()
		}
		synctest.Wait()
		s.wantNothingReserved()
		var seen []string
		for range workers {
			s.append("orders", "x")
			seen = append(seen, <-got)
		}
		slices.Sort(seen)
		if len(slices.Compact(seen)) != workers {
			t.Errorf("handed out were %v", seen)
		}
		s.wantNothingReserved()
	})
}

func TestStreamOfAQueueIsRefused(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.queueOf(1, "")
	for _, c := range []struct {
		query  string
		header []string
		status int
		code   seb.Code
	}{
		{"", nil, 406, codeNotAcceptable},
		{"", []string{"Accept", "*/*"}, 406, codeNotAcceptable}, // for example a browser that loads an image
		{"", []string{"Accept", "text/html,*/*;q=0.8"}, 406, codeNotAcceptable},
		{"", []string{"Accept", "text/event-stream;q=0, */*"}, 406, codeNotAcceptable},
		{"", []string{"Accept", typeEvents, "Sec-Fetch-Site", "cross-site"}, 403, codeCrossOrigin}, // the page could not read the records, but would use up attempts
		{"", []string{"Accept", typeEvents, "Origin", "https://evil.example"}, 403, codeCrossOrigin},
		{"?max_in_flight=0", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?max_in_flight=1001", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?lease=0s", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?lease=999ms", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?lease=13h", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?last_event_id=x", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"?wait=1s", []string{"Accept", typeEvents}, 400, seb.CodeInvalidRequest},
		{"", []string{"Accept", typeEvents, "Seb-Key", "k"}, 400, seb.CodeInvalidRequest},
	} {
		s.get(mailPath+"/receive"+c.query, c.header...).wantProblem(t, c.status, c.code)
	}
	s.get(queuesPath+"/none/receive", "Accept", typeEvents).wantProblem(t, 404, seb.CodeQueueNotFound)
	head := s.do("HEAD", mailPath+"/receive", nil, "Accept", typeEvents)
	head.want(t, 200)
	head.wantHeader(t, "Content-Type", typeEvents)
	s.do("HEAD", queuesPath+"/none/receive", nil, "Accept", typeEvents).want(t, 404)
	s.receiving("", "Sec-Fetch-Site", "same-origin", lastEventIDHeader, "anything").wantMessages("0#1")
}

// breakingWriter is a ResponseWriter that fails after so many writes.
type breakingWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (w *breakingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("the connection is broken")
	}
	return w.ResponseRecorder.Write(b)
}

// Messages that were not written go to the next worker, as the same attempt. Messages that the worker may
// have seen do not.
func TestMessagesThatWereNotWrittenGoBack(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.queueOf(5, "")
	q := s.broker.Queue("orders", "mail")
	ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: 5})
	if err != nil || len(ms) != 5 {
		t.Fatalf("received %d: %v", len(ms), err)
	}
	rw := &breakingWriter{httptest.NewRecorder(), 3} // the first block of the stream, and two messages
	w := &response{ResponseWriter: rw, conn: http.NewResponseController(rw), slowLimit: s.handler.slowLimit}
	stream := &queueStream{eventWriter: eventWriter{h: s.handler, w: w}, r: httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), queue: q}
	if err := stream.hand(t.Context(), ms); err == nil {
		t.Error("there was no error")
	}
	s.wantHanded(`{"max":5}`, "3#1 4#1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stream.hand(over, ms[3:]); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.wantHanded(`{"max":5}`, "3#1 4#1")
}

func TestStreamOfEventsIsFollowedEventByEvent(t *testing.T) {
	for text, want := range map[string]struct{ within, failed bool }{
		"":                                      {},
		"retry: 1\n\n":                          {},
		"id: a\ndata: {}\n\n":                   {},
		"id: a\ndata: {}\n":                     {true, false},
		"id: a\ndata: {}\n\ni":                  {true, false},
		":\n\n:\n":                              {true, false},
		"event: error\ndata: {}\n\n":            {false, true},
		"event: error\ndata: {}\n":              {true, false},
		"event: error\ndata: {}\n\nid: a\n\n":   {},
		"data: event: error\n\n":                {},
		":\n\nid: a\n\nevent: error\nid: a\n\n": {false, true},
	} {
		for cut := range len(text) + 1 {
			var p eventsPassed
			p.note([]byte(text[:cut]))
			p.note([]byte(text[cut:]))
			if p.within != want.within || p.failed() != want.failed {
				t.Errorf("%q, cut at %d: within %v, failed %v", text, cut, p.within, p.failed())
			}
		}
	}
}

// wantCut reads until the connection is cut.
func (f *stream) wantCut() {
	f.t.Helper()
	if rest, err := io.ReadAll(f.in); !errors.Is(err, io.ErrUnexpectedEOF) {
		f.t.Errorf("the stream goes on with %q and ends with %v", rest, err)
	}
}
