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
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestOriginalRead(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for i := range 12 {
		s.append("orders", fmt.Sprintf("%c%c", 'a'+i, 'a'+i))
	}
	for _, test := range []struct{ name, query, sizes, records string }{
		{"ten records unless told", "offset=0", "[2,2,2,2,2,2,2,2,2,2]", "aabbccddeeffgghhiijj"},
		{"from an offset", "offset=10", "[2,2]", "kkll"},
		{"so many records", "offset=1&max-records=3", "[2,2,2]", "bbccdd"},
		{"no number of records", "offset=1&max-records=0&max-bytes=0", "[2,2,2,2,2,2,2,2,2,2]", "bbccddeeffgghhiijjkk"},
		{"so many bytes", "offset=0&max-bytes=5", "[2,2]", "aabb"},
		{"one record at least", "offset=3&max-bytes=1", "[2]", "dd"},
		{"what makes no sense counts for nothing", "offset=11&max-records=many&max-bytes=-1&timeout=soon&colour=red", "[2]", "ll"},
		{"the first of two", "offset=11&offset=0", "[2]", "ll"},
		{"no time", "offset=11&timeout=0s", "[2]", "ll"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.exchange(originalGet("/records?topic-name=orders&"+test.query, typeForm))
			a.wantForm(t, http.StatusOK, "sizes="+test.sizes, "records="+test.records)
		})
	}
	s.wantNothingReserved()
}

// The test compares every byte of an answer that the original's client parses.
func TestOriginalReadOnTheWire(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "one")
	s.append("orders", "", "Content-Type", "application/octet-stream")
	s.append("orders", "\xff\r\n--")
	a := s.exchange(originalGet("/records?topic-name=orders&offset=0", "*/*"))
	a.want(t, http.StatusOK)
	boundary, ok := strings.CutPrefix(a.Header.Get("Content-Type"), "multipart/form-data; boundary=")
	if !ok || boundary == "" {
		t.Fatalf("Content-Type is %q", a.Header.Get("Content-Type"))
	}
	want := "--B\r\nContent-Disposition: form-data; name=\"sizes\"\r\n\r\n[3,0,5]\r\n" +
		"--B\r\nContent-Disposition: form-data; name=\"records\"\r\n\r\none\xff\r\n--\r\n--B--\r\n"
	if got := strings.ReplaceAll(a.body, boundary, "B"); got != want {
		t.Errorf("answer is\n%q, want\n%q", got, want)
	}
}

func TestOriginalReadsRefuse(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "one")
	for _, test := range []struct {
		name, path, accept string
		status             int
		text               string
	}{
		{"records of no topic", "/records?topic-name=other&offset=0&timeout=0s", typeForm, 404, "topic not found"},
		{"record of no topic", "/record?topic-name=other&offset=0", "", 404, "topic not found"},
		{"no topic", "/topic?topic-name=other", "", 404, "topic not found"},
		{"record at the end", "/record?topic-name=orders&offset=1", "", 404, "offset out of bounds"},
		{"record past the end", "/record?topic-name=orders&offset=18446744073709551615", "", 404, "offset out of bounds"},
		{"no Accept", "/records?topic-name=orders&offset=0", "", 406, typeForm},
		{"invalid Accept", "/records?topic-name=orders&offset=0", ";;", 406, typeForm},
		{"two types", "/records?topic-name=orders&offset=0", "text/html, */*", 406, typeForm},
		{"another type", "/records?topic-name=orders&offset=0", "application/json", 300, typeForm},
		{"the Accept header comes first", "/records", "", 406, typeForm},
		{"no topic-name", "/records?offset=0", typeForm, 400, "topic-name"},
		{"no offset", "/records?topic-name=orders", typeForm, 400, "offset"},
		{"negative offset", "/records?topic-name=orders&offset=-1", typeForm, 400, "offset"},
		{"offset past 64 bits", "/records?topic-name=orders&offset=18446744073709551616", typeForm, 400, "offset"},
		{"record without topic-name", "/record?offset=0", "", 400, "topic-name"},
		{"record without offset", "/record?topic-name=orders", "", 400, "offset"},
		{"topic without topic-name", "/topic", "", 400, "topic-name"},
		{"unusable name", "/topic?topic-name=a%2Fb", "", 400, "not a valid topic name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.exchange(originalGet(test.path, test.accept))
			a.wantText(t, test.status, test.text)
			if test.status == 404 && a.body != test.text {
				t.Errorf("says %q, want exactly %q", a.body, test.text)
			}
		})
	}
	if topics, err := seb.Collect(s.broker.Topics(t.Context(), seb.ListOptions{})); err != nil || len(topics) != 1 {
		t.Errorf("topics are %v, %v: a read created one", topics, err)
	}
}

func TestOriginalReadOne(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "<script>")
	s.append("orders", "\x00\xff")
	s.append("orders", "", "Content-Type", "application/octet-stream")
	for offset, want := range []struct{ value, contentType string }{
		{"<script>", "text/html; charset=utf-8"}, {"\x00\xff", "application/octet-stream"}, {"", "text/plain; charset=utf-8"},
	} {
		a := s.exchange(originalGet(fmt.Sprintf("/record?topic-name=orders&offset=%d", offset), ""))
		a.want(t, http.StatusOK)
		a.wantHeader(t, "Content-Type", want.contentType)
		a.wantHeader(t, "Content-Security-Policy", "default-src 'none'; sandbox")
		if a.body != want.value {
			t.Errorf("record %d is %q, want %q", offset, a.body, want.value)
		}
	}
	s.wantNothingReserved()
}

func TestOriginalTopic(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", nil).want(t, http.StatusCreated)
	a := s.exchange(originalGet("/topic?topic-name=orders", ""))
	a.want(t, http.StatusOK)
	a.wantHeader(t, "Content-Type", "application/json")
	if want := `{"next_offset":0,"latest_commit_at":"0001-01-01T00:00:00Z"}` + "\n"; a.body != want {
		t.Errorf("answer is %s, want %s", a.body, want)
	}
	// latest_commit_at is the latest time of the records in the last batch.
	for _, step := range []struct{ records, want string }{
		{`{"value":"1","timestamp":"2026-01-31T12:00:00.250Z"}`, `{"next_offset":1,"latest_commit_at":"2026-01-31T12:00:00.25Z"}`},
		{`{"value":"2","timestamp":"2026-01-31T12:00:09Z"},{"value":"3","timestamp":"2026-01-31T12:00:05Z"}`, `{"next_offset":3,"latest_commit_at":"2026-01-31T12:00:09Z"}`},
		{`{"value":"4","timestamp":"2026-01-31T12:00:01Z"}`, `{"next_offset":4,"latest_commit_at":"2026-01-31T12:00:01Z"}`},
	} {
		s.append("orders", `{"records":[`+step.records+`]}`, "Content-Type", typeRecords)
		if a := s.exchange(originalGet("/topic?topic-name=orders", "")); a.body != step.want+"\n" {
			t.Errorf("answer is %s, want %s", a.body, step.want)
		}
	}
}

// A read that finds no record in time gets 206, and a complete form without fields.
func TestOriginalReadTimesOut(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "one")
		for _, test := range []struct {
			query string
			wait  time.Duration
		}{
			{"offset=1", 10 * time.Second},
			{"offset=1&timeout=250ms", 250 * time.Millisecond},
			{"offset=1&timeout=0s", 0},
			{"offset=1&timeout=-5s", 0},
			{"offset=7&timeout=3s", 3 * time.Second}, // beyond the end
			{"offset=18446744073709551615&timeout=1s", time.Second},
			{"offset=1&timeout=24h", readWaitMax},
		} {
			start := time.Now()
			a := s.exchange(originalGet("/records?topic-name=orders&"+test.query, typeForm))
			a.wantForm(t, http.StatusPartialContent)
			if took := time.Since(start); took != test.wait {
				t.Errorf("%s: it took %v, want %v", test.query, took, test.wait)
			}
		}
		s.wantNothingReserved()
	})
}

func TestOriginalReadWaitsForARecord(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "zero")
		start := time.Now()
		next, later := make(chan answer), make(chan answer)
		go func() { next <- s.exchange(originalGet("/records?topic-name=orders&offset=1", typeForm)) }()
		go func() {
			later <- s.exchange(originalGet("/records?topic-name=orders&offset=3&timeout=1m", typeForm))
		}()
		synctest.Wait()
		s.wantNothingReserved() // the reads hold no memory while they wait
		time.Sleep(4 * time.Second)
		s.append("orders", "one")
		(<-next).wantForm(t, http.StatusOK, "sizes=[3]", "records=one")
		s.append("orders", "two")
		synctest.Wait()
		select {
		case a := <-later:
			t.Fatalf("answered before there is a record: %d %q", a.StatusCode, a.body)
		default:
		}
		time.Sleep(30 * time.Second)
		s.append("orders", "three")
		(<-later).wantForm(t, http.StatusOK, "sizes=[5]", "records=three")
		if took := time.Since(start); took != 34*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestOriginalReadEndsWhenTheServerDrains(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		got := make(chan answer)
		go func() { got <- s.exchange(originalGet("/records?topic-name=orders&offset=5&timeout=5m", typeForm)) }()
		synctest.Wait()
		s.handler.Drain()
		(<-got).wantForm(t, http.StatusPartialContent)
		if took := time.Since(start); took != 0 {
			t.Errorf("the waiting read took %v", took)
		}
	})
}

// A read ends when its key is revoked, with an error that says so, whether it waits
// for a record or for the store.
func TestOriginalReadEndsWithItsKey(t *testing.T) {
	var faulty *storetest.Faulty
	open := func(t *testing.T) (s *server) { s, faulty = coldServer(t); return s }
	for offset, waitsFor := range map[int]string{3: "a record", 0: "the store"} {
		t.Run(waitsFor, func(t *testing.T) {
			bubbleAround(t, open, 0, func(t *testing.T, s *server) {
				newKey(t, s.broker, "ops", seb.ScopeAdmin)
				_, secret, err := s.broker.CreateKey(t.Context(), seb.KeyOptions{Name: "brief", Scopes: seb.ScopeRead, Expires: time.Now().Add(3 * time.Second)})
				if err != nil {
					t.Fatal(err)
				}
				defer faulty.On(objstore.VerbGet, "log/00000000000000000002", hang)()
				request := originalGet(fmt.Sprintf("/records?topic-name=orders&offset=%d", offset), typeForm)
				s.exchange(request).wantText(t, http.StatusUnauthorized, "")
				start := time.Now()
				s.exchange(strings.Replace(request, "api-key", secret, 1)).wantText(t, http.StatusUnauthorized, "expired")
				if took := time.Since(start); took > 3*time.Second+goneFor {
					t.Errorf("the read went on for %v", took)
				}
			})
		})
	}
}

// coldServer returns a server whose broker has just started on a log with three batches of one
// record each, and the faults of its store.
func coldServer(t *testing.T) (*server, *storetest.Faulty) {
	t.Helper()
	store := objstore.NewMemory()
	before := openOn(t, store)
	for _, value := range []string{"one", "two", "three"} {
		if _, err := before.Append(t.Context(), "orders", []seb.Record{{Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	faulty := storetest.NewFaulty(store)
	return serve(t, openOn(t, faulty), Options{}), faulty
}

func openOn(t *testing.T, store objstore.Store) *seb.Broker {
	t.Helper()
	b, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil && seb.CodeOf(err) != seb.CodeBrokerClosed {
			t.Errorf("close broker: %v", err)
		}
	})
	return b
}

// hang is a fault that does not answer until the caller gives up.
func hang(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
	<-ctx.Done()
	return storetest.Answer{}, ctx.Err()
}

// A read of existing records answers after a second with the records that were read by then, or with 206 if
// there are none.
func TestOriginalReadDeliversWhatWasRead(t *testing.T) {
	var faulty *storetest.Faulty
	open := func(t *testing.T) (s *server) { s, faulty = coldServer(t); return s }
	bubbleAround(t, open, 0, func(t *testing.T, s *server) {
		defer faulty.On(objstore.VerbGet, "log/00000000000000000003", hang)()
		start := time.Now()
		a := s.exchange(originalGet("/records?topic-name=orders&offset=0&timeout=2s", typeForm))
		a.wantForm(t, http.StatusOK, "sizes=[3]", "records=one")
		a = s.exchange(originalGet("/records?topic-name=orders&offset=1&timeout=2s", typeForm))
		a.wantForm(t, http.StatusPartialContent)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		s.wantNothingReserved()
	})
}

// A reader whose timeout is too short for the store gets records nevertheless.
func TestOriginalReadWithShortTimeoutGetsOn(t *testing.T) {
	var faulty *storetest.Faulty
	open := func(t *testing.T) (s *server) { s, faulty = coldServer(t); return s }
	bubbleAround(t, open, 0, func(t *testing.T, s *server) {
		defer faulty.On(objstore.VerbGet, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			time.Sleep(100 * time.Millisecond)
			return next(ctx, r)
		})()
		a := s.exchange(originalGet("/records?topic-name=orders&offset=0&timeout=1ms", typeForm))
		a.wantForm(t, http.StatusOK, "sizes=[3,3,5]", "records=onetwothree")
	})
}

func TestOriginalErrorsOfTheBrokerArePlainText(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		release := s.reserveAll()
		a := s.exchange(originalPost("/records?topic-name=orders", formBody("[1]", "a")))
		a.wantText(t, http.StatusTooManyRequests, "not_committed")
		if a.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		release()
	})
	var faulty *storetest.Faulty
	open := func(t *testing.T) (s *server) { s, faulty = coldServer(t); return s }
	bubbleAround(t, open, 0, func(t *testing.T, s *server) {
		faulty.SetDown(true)
		defer faulty.SetDown(false)
		for _, path := range []string{"/records?topic-name=orders&offset=0", "/record?topic-name=orders&offset=0", "/topic?topic-name=other"} {
			s.exchange(originalGet(path, typeForm)).wantText(t, http.StatusServiceUnavailable, "could not be read")
		}
		s.exchange(originalPost("/records?topic-name=orders", formBody("[1]", "a"))).wantText(t, http.StatusServiceUnavailable, "(outcome: unknown)")
	})
}
