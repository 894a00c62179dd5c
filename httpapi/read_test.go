package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// newServerWith returns a server whose topic orders has n records, with the values "0", "1" and so on.
func newServerWith(t testing.TB, n int) *server {
	t.Helper()
	s := newServer(t, seb.Options{}, Options{})
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "%d\n", i)
	}
	s.append("orders", lines.String(), "Content-Type", typeNDJSON, "Seb-Timestamp", "2026-01-31T12:00:00Z")
	return s
}

func line(offset int) string {
	return fmt.Sprintf(`{"partition":0,"offset":%d,"timestamp":"2026-01-31T12:00:00.000Z","value":"%d"}`, offset, offset)
}

var logTimes = regexp.MustCompile(`,"log_time":"[^"]*"`)

// withoutLogTimes returns a body without the log times of its records, which depend on when the test runs.
func withoutLogTimes(body string) string { return logTimes.ReplaceAllString(body, "") }

func lines(offsets ...int) string {
	var s strings.Builder
	for _, o := range offsets {
		s.WriteString(line(o) + "\n")
	}
	return s.String()
}

func TestReadNDJSON(t *testing.T) {
	s := newServerWith(t, 5)
	for _, c := range []struct {
		query, want, next string
	}{
		{"", lines(0, 1, 2, 3, 4), "5"},
		{"?offset=earliest&partition=0", lines(0, 1, 2, 3, 4), "5"},
		{"?offset=3", lines(3, 4), "5"},
		{"?offset=-2", lines(3, 4), "5"},
		{"?offset=-9", lines(0, 1, 2, 3, 4), "5"},
		{"?offset=1&limit=2", lines(1, 2), "3"},
		{"?offset=1&max_bytes=1", lines(1), "2"},
		{"?offset=latest", "", "5"},
		{"?offset=5", "", "5"},
		{"?offset=5&wait=1ms", "", "5"},
		{"?offset=4&wait=5m", lines(4), "5"},
		{"?offset=4&limit=9223372036854775807&max_bytes=9223372036854775807", lines(4), "5"},
		{"?offset=4&limit=99999999999999999999&max_bytes=99999999999999999999", lines(4), "5"},
	} {
		for _, accept := range []string{"", "*/*", "application/*;q=0.5", typeNDJSON} {
			a := s.get(ordersPath+c.query, "Accept", accept)
			a.want(t, http.StatusOK)
			if got := withoutLogTimes(a.body); got != c.want {
				t.Errorf("%s: got %s, want %s", c.query, got, c.want)
			}
			a.wantHeader(t, "Content-Type", typeNDJSON)
			a.wantHeader(t, "Seb-Next-Offset", c.next)
			a.wantHeader(t, "Seb-End-Offset", "5")
		}
	}
}

func TestReadFromATime(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, second := range []string{"03", "01", "05", "04.250"} {
		s.append("orders", second, "Seb-Timestamp", "2026-01-31T12:00:"+second+"Z")
	}
	for query, want := range map[string]string{
		"?time=2026-01-31T11:00:00Z":          "0",
		"?time=2026-01-31T12:00:03Z":          "0",
		"?time=2026-01-31T12:00:03.000001Z":   "2",
		"?time=2026-01-31T13:00:04%2B01:00":   "2",
		"?time=2026-01-31T12:00:05Z":          "2",
		"?time=2026-01-31T12:00:05.001Z":      "4",
		"?time=2026-01-31T12:00:06Z&wait=1ms": "4",
	} {
		a := s.get(ordersPath+query, "Accept", typeBatch)
		a.want(t, http.StatusOK)
		a.wantHeader(t, "Seb-Offset", want)
		a.wantHeader(t, "Seb-Next-Offset", "4")
	}
}

func TestReadJSON(t *testing.T) {
	s := newServerWith(t, 3)
	a := s.get(ordersPath+"?offset=1&limit=1", "Accept", "application/json")
	if want := `{"records":[` + line(1) + `],"next_offset":2,"end_offset":3}` + "\n"; withoutLogTimes(a.body) != want {
		t.Errorf("got %s, want %s", a.body, want)
	}
	a.wantHeader(t, "Content-Type", typeJSON)
	a = s.get(ordersPath+"?offset=1", "Accept", "text/html, application/json;q=0.9, */*;q=0.1")
	if want := `{"records":[` + line(1) + `,` + line(2) + `],"next_offset":3,"end_offset":3}` + "\n"; withoutLogTimes(a.body) != want {
		t.Errorf("got %s, want %s", a.body, want)
	}
	a = s.get(ordersPath+"?offset=latest", "Accept", "application/json")
	if want := `{"records":[],"next_offset":3,"end_offset":3}` + "\n"; a.body != want {
		t.Errorf("got %s, want %s", a.body, want)
	}
}

func TestReadBatch(t *testing.T) {
	s := newServerWith(t, 5)
	a := s.get(ordersPath+"?offset=-3", "Accept", typeBatch)
	if got, want := parseBatchBody(t, a.body), []string{"2", "3", "4"}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	a.wantHeader(t, "Seb-Offset", "2")
	a.wantHeader(t, "Seb-Next-Offset", "5")
	a.wantHeader(t, "Content-Length", fmt.Sprint(len(a.body)))
	a = s.get(ordersPath+"?offset=latest", "Accept", typeBatch)
	if len(parseBatchBody(t, a.body)) != 0 {
		t.Errorf("got %q at the end", a.body)
	}
	a.wantHeader(t, "Seb-Offset", "5")
}

// Records with any bytes can be read in all forms.
func TestReadShowsAnyBytes(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	times := 200_000
	if testing.Short() {
		times = 40_000
	}
	large := strings.Repeat("\x01\"\\é\n", times) // several chunks; some bytes are escaped as six
	_, err := s.broker.Append(t.Context(), "orders", []seb.Record{
		{Value: []byte("a \"quoted\" \\ \t\r\n\x00\x1f\x7f é 😀 </script>"), Key: []byte("k\"ey")},
		{Value: []byte("\xff\x00"), Key: []byte{0xfe}},
		{Value: []byte{}, Key: []byte{}},
		{Value: []byte(large)},
		{Value: []byte(large + "\xff")},
		{Value: []byte("h"), Headers: []seb.Header{
			{Name: "b", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "b", Value: []byte("\xff")},
			{Name: "b", Value: []byte("3")}, {Name: "c", Value: nil},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type record struct {
		Value, Key    *string
		ValueBase64   []byte `json:"value_base64"`
		KeyBase64     []byte `json:"key_base64"`
		Headers       map[string]any
		HeadersBase64 map[string]any `json:"headers_base64"`
	}
	var got struct{ Records []record }
	s.get(ordersPath+"?max_bytes=8000000", "Accept", typeJSON).json(t, &got)
	p := func(s string) *string { return &s }
	want := []record{
		{Value: p("a \"quoted\" \\ \t\r\n\x00\x1f\x7f é 😀 </script>"), Key: p("k\"ey")},
		{ValueBase64: []byte("\xff\x00"), KeyBase64: []byte{0xfe}},
		{Value: p(""), Key: p("")},
		{Value: p(large)},
		{ValueBase64: []byte(large + "\xff")},
		{
			Value: p("h"), Headers: map[string]any{"a": "2", "b": []any{"1", "3"}, "c": ""},
			HeadersBase64: map[string]any{"b": "/w=="},
		},
	}
	if !cmp.Equal(got.Records, want) {
		for i := range got.Records {
			if !cmp.Equal(got.Records[i], want[i]) {
				t.Errorf("record %d differs: %.500s", i, cmp.Diff(want[i], got.Records[i]))
			}
		}
	}
	batch := parseBatchBody(t, s.get(ordersPath+"?max_bytes=8000000", "Accept", typeBatch).body)
	if batch[3] != large || batch[4] != large+"\xff" {
		t.Error("the compact form alters large values")
	}
}

// The JSON of a read can be sent as the body of an append, which appends the same records.
func TestReadAndAppendAreInverse(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	records := []seb.Record{
		{Value: []byte("text"), Key: []byte("k"), Timestamp: time.UnixMilli(1_700_000_000_123)},
		{Value: []byte("\xff"), Key: []byte("\xff"), Headers: []seb.Header{{Name: "a", Value: []byte("x")}, {Name: "b", Value: []byte("\xff")}}, Timestamp: time.UnixMilli(0)},
	}
	if _, err := s.broker.Append(t.Context(), "orders", records); err != nil {
		t.Fatal(err)
	}
	var list struct{ Records []map[string]any }
	s.get(ordersPath, "Accept", typeJSON).json(t, &list)
	for i := range list.Records {
		delete(list.Records[i], "offset")
		delete(list.Records[i], "log_time")
	}
	body := mustJSON(t, map[string]any{"records": list.Records})
	s.append("copy", body, "Content-Type", typeRecords)
	if diff := cmp.Diff(s.stored("orders", 0), s.stored("copy", 0), cmpopts.IgnoreFields(seb.Record{}, "LogTime")); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
}

// All forms but the compact one and the original's show when a record was committed.
func TestRecordsAreShownWithTheirLogTimes(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		for i := range 2 {
			time.Sleep(time.Second)
			s.append("orders", fmt.Sprint(i), "Seb-Timestamp", "2026-01-31T12:00:00Z")
		}
		var want []string
		for _, r := range s.stored("orders", 0) {
			want = append(want, `"timestamp":"2026-01-31T12:00:00.000Z","log_time":"`+r.LogTime.Format("2006-01-02T15:04:05.000000Z")+`","value":"`+string(r.Value)+`"`)
		}
		s.setQueue("mail", "", http.StatusCreated)
		f := s.follow("?offset=0")
		f.begin()
		events := f.next().data + f.next().data
		f.resp.Body.Close()
		for what, body := range map[string]string{
			"lines": s.get(ordersPath).body, "JSON": s.get(ordersPath, "Accept", typeJSON).body, "events": events,
			"a consumer's read": s.unread("c", "").body, "messages": s.post(mailPath+"/receive", `{"max":2}`).body,
		} {
			if !strings.Contains(body, want[0]) || !strings.Contains(body, want[1]) || want[0] == want[1] {
				t.Errorf("%s: got %s, want %q in it", what, body, want)
			}
		}
	})
}

// A log below level 6 keeps no log times.
func TestLogTimesThatAreNotKnownAreLeftOut(t *testing.T) {
	s := newServer(t, seb.Options{HoldFormat: true}, Options{})
	s.append("orders", "x")
	if a := s.get(ordersPath); strings.Contains(a.body, "log_time") {
		t.Errorf("got %s", a.body)
	}
	s.get(ordersPath+"/0").wantHeader(t, "Seb-Log-Time", "")
}

func TestReadRefusals(t *testing.T) {
	s := newServerWith(t, 3)
	for _, c := range []struct {
		name, path, accept string
		status             int
		code               seb.Code
		detail             string
	}{
		{"no topic", "/v1/topics/none/records", "", 404, seb.CodeTopicNotFound, ""},
		{"no topic name", "/v1/topics/%20/records", "", 400, seb.CodeInvalidTopicName, ""},
		{"no partition", ordersPath + "?partition=1", "", 404, seb.CodePartitionNotFound, ""},
		{"unknown parameter", ordersPath + "?from=1", "", 400, seb.CodeInvalidRequest, `"from"`},
		{"no time", ordersPath + "?time=yesterday", "", 400, seb.CodeInvalidRequest, "yesterday"},
		{"an empty time", ordersPath + "?time=", "", 400, seb.CodeInvalidRequest, "time"},
		{"a time as an offset", ordersPath + "?offset=2026-01-31T12:00:00Z", "", 400, seb.CodeInvalidRequest, "time="},
		{"an empty offset", ordersPath + "?offset=", "", 400, seb.CodeInvalidRequest, "invalid offset"},
		{"a date", ordersPath + "?time=2026-01-31", "", 400, seb.CodeInvalidRequest, "RFC 3339"},
		{"a time before 1970", ordersPath + "?time=1969-12-31T23:59:59Z", "", 400, seb.CodeInvalidRequest, "1970"},
		{"a time with a bare plus", ordersPath + "?time=2026-01-31T12:00:00+01:00", "", 400, seb.CodeInvalidRequest, "time"},
		{"time and offset", ordersPath + "?time=2026-01-31T12:00:00Z&offset=1", "", 400, seb.CodeInvalidRequest, "both"},
		{"no offset", ordersPath + "?offset=first", "", 400, seb.CodeInvalidRequest, "first"},
		{"no limit", ordersPath + "?limit=0", "", 400, seb.CodeInvalidRequest, "limit"},
		{"no bytes", ordersPath + "?max_bytes=-1", "", 400, seb.CodeInvalidRequest, "max_bytes"},
		{"fewer than no records", ordersPath + "?limit=-99999999999999999999", "", 400, seb.CodeInvalidRequest, "limit"},
		{"wait without unit", ordersPath + "?wait=3", "", 400, seb.CodeInvalidRequest, "wait"},
		{"wait below zero", ordersPath + "?wait=-3s", "", 400, seb.CodeInvalidRequest, "wait"},
		{"wait too long", ordersPath + "?wait=301s", "", 400, seb.CodeInvalidRequest, "5m"},
		{"pages", ordersPath, "text/html", 406, codeNotAcceptable, "text/html"},
		{"nothing", ordersPath, "*/*;q=0", 406, codeNotAcceptable, ""},
		{"one: no topic", "/v1/topics/none/records/0", "", 404, seb.CodeTopicNotFound, ""},
		{"one: no partition", ordersPath + "/0?partition=9", "", 404, seb.CodePartitionNotFound, ""},
		{"one: no offset", ordersPath + "/latest", "", 400, seb.CodeInvalidRequest, "latest"},
		{"one: below zero", ordersPath + "/-1", "", 400, seb.CodeInvalidRequest, "-1"},
		{"one: unknown parameter", ordersPath + "/0?wait=1s", "", 400, seb.CodeInvalidRequest, "wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.get(c.path, "Accept", c.accept).wantProblem(t, c.status, c.code)
			if !strings.Contains(p.Detail, c.detail) && !strings.Contains(p.Hint, c.detail) {
				t.Errorf("problem %+v does not tell of %s", p, c.detail)
			}
			if p.Outcome != "" {
				t.Errorf("a read has outcome %q", p.Outcome)
			}
		})
	}
	s.get("/v1/topics/none").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound) // a read creates no topic
	for _, path := range []string{ordersPath + "?offset=4", ordersPath + "/3", ordersPath + "/4"} {
		p := s.get(path).wantProblem(t, http.StatusRequestedRangeNotSatisfiable, seb.CodeOffsetOutOfRange)
		if p.StartOffset == nil || *p.StartOffset != 0 || p.EndOffset == nil || *p.EndOffset != 3 {
			t.Errorf("%s: the bounds are not told: %+v", path, p)
		}
	}
}

func TestReadAtEndWaitsForARecord(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		for i, query := range []string{"?offset=latest&wait=1m", "?offset=2&wait=1m", "?offset=-9&wait=1m"} {
			got := make(chan answer)
			go func() { got <- s.get(ordersPath + query) }()
			synctest.Wait()
			if i == 2 {
				(<-got).wantHeader(t, "Seb-Next-Offset", "3") // there was a record at once
				break
			}
			s.append("orders", "new")
			a := <-got
			a.want(t, http.StatusOK)
			a.wantHeader(t, "Seb-Next-Offset", fmt.Sprint(2+i))
			if !strings.Contains(a.body, fmt.Sprintf(`"offset":%d`, 1+i)) || !strings.Contains(a.body, `"new"`) {
				t.Errorf("%s: got %q", query, a.body)
			}
		}
	})
}

func TestReadAtEndWaitsNoLongerThanAsked(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		a := s.get(ordersPath+"?offset=latest&wait=42s", "Accept", typeJSON)
		if want := `{"records":[],"next_offset":1,"end_offset":1}` + "\n"; a.StatusCode != http.StatusOK || a.body != want {
			t.Errorf("got %d %s, want %s", a.StatusCode, a.body, want)
		}
		if took := time.Since(start); took != 42*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDrainEndsWaits(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		start := time.Now()
		got := make(chan answer)
		go func() { got <- s.get(ordersPath+"?offset=1&wait=5m", "Accept", typeJSON) }()
		synctest.Wait()
		s.handler.Drain()
		a := <-got
		a.want(t, http.StatusOK)
		if want := `{"records":[],"next_offset":1,"end_offset":1}` + "\n"; a.body != want {
			t.Errorf("got %s, want %s", a.body, want)
		}
		s.get(ordersPath+"?offset=1&wait=5m").want(t, http.StatusOK)
		if took := time.Since(start); took != 0 {
			t.Errorf("drained reads took %v", took)
		}
		s.append("orders", "still served")
	})
}

func TestReadEndsWithItsClient(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "old")
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", s.url+ordersPath+"?offset=1&wait=5m", nil)
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
			t.Error("the client got an answer")
		}
		synctest.Wait()
		if got := testutil.ToFloat64(s.handler.metrics.requests.WithLabelValues("/v1/topics/{topic}/records", "GET", "499")); got != 1 {
			t.Errorf("%v requests counted as left", got)
		}
	})
}

func TestReadOneRecord(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "<html>", "Content-Type", "text/html; charset=utf-8", "Seb-Key", "clé",
		"Seb-Header-A", "1", "Seb-Header-A", "2", "Seb-Timestamp", "2026-01-31T12:00:00Z")
	a := s.get(ordersPath + "/0?partition=0")
	a.want(t, http.StatusOK)
	if a.body != "<html>" {
		t.Errorf("value is %q", a.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Length": "6", "Seb-Key": "clé",
		"Seb-Timestamp": "2026-01-31T12:00:00.000Z", "Cache-Control": "private, no-cache",
		"X-Content-Type-Options": "nosniff", "Seb-Omitted-Headers": "",
	} {
		a.wantHeader(t, name, want)
	}
	if got := a.Header.Values("Seb-Header-A"); !cmp.Equal(got, []string{"1", "2"}) {
		t.Errorf("header a is %q", got)
	}

	if got, want := a.Header.Get("Seb-Log-Time"), s.stored("orders", 0)[0].LogTime.Format("2006-01-02T15:04:05.000000Z"); got != want {
		t.Errorf("its log time is %q, want %q", got, want)
	}

	tag := a.Header.Get("ETag")
	if cached := s.get(ordersPath+"/0", "If-None-Match", `"x", W/`+tag); cached.StatusCode != http.StatusNotModified || cached.body != "" {
		t.Errorf("with its tag: %d %q", cached.StatusCode, cached.body)
	}
	s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
	s.append("orders", "new")
	if again := s.get(ordersPath+"/0", "If-None-Match", tag); again.StatusCode != http.StatusOK || again.body != "new" {
		t.Errorf("the tag of a topic that was deleted: %d %q", again.StatusCode, again.body)
	}
}

func TestReadOneRecordOfAPartition(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(2)
	s.appendTo(0, "zero's")
	s.appendTo(1, "one's")
	tags := map[string]bool{}
	for query, want := range map[string]string{"": "zero's", "?partition=0": "zero's", "?partition=1": "one's"} {
		a := s.get(ordersPath + "/0" + query)
		if a.want(t, http.StatusOK); a.body != want {
			t.Errorf("%q reads %q, want %q", query, a.body, want)
		}
		tags[a.Header.Get("ETag")] = true
	}
	if len(tags) != 2 {
		t.Errorf("two records have the tags %v", tags)
	}
}

// If the store stops answering during a read, the records that were read are answered, and the next
// request reads the rest.
func TestReadDeliversWhatWasReadBeforeATimeout(t *testing.T) {
	var faulty *storetest.Faulty
	open := func(t *testing.T) (s *server) { s, faulty = coldServer(t); return s }
	bubbleAround(t, open, 0, func(t *testing.T, s *server) {
		release := faulty.On(objstore.VerbGet, "log/00000000000000000003", hang)
		a := s.get(ordersPath)
		a.want(t, http.StatusOK)
		a.wantHeader(t, "Seb-Next-Offset", "1")
		if !strings.Contains(a.body, `"one"`) || strings.Contains(a.body, `"two"`) {
			t.Errorf("got %s", a.body)
		}
		release()
		s.get(ordersPath+"?offset=1").wantHeader(t, "Seb-Next-Offset", "3")
	})
}

// A read that names no offset gets no error about a deleted offset, even if it has waited. In each round
// it is random whether the broker applies both changes at once or one after the other.
func TestReadThatWaitsFromTheStartMovesUpWithIt(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		for round := range 10 {
			topic := fmt.Sprint("orders-", round)
			s.do("PUT", "/v1/topics/"+topic, nil).want(t, http.StatusCreated)
			var reads []chan answer
			for _, from := range []string{"offset=earliest", "offset=latest", "offset=-3", "time=2001-01-01T00:00:00Z"} {
				done := make(chan answer)
				reads = append(reads, done)
				go func() { done <- s.get("/v1/topics/" + topic + "/records?wait=1m&" + from) }()
			}
			synctest.Wait()
			if _, err := other.Append(t.Context(), topic, []seb.Record{{Value: []byte("gone")}, {Value: []byte("here")}}); err != nil {
				t.Error(err)
			}
			if _, err := other.DeleteRecords(t.Context(), topic, 0, 1); err != nil {
				t.Error(err)
			}
			for i, done := range reads {
				if a := <-done; a.StatusCode != http.StatusOK || !strings.Contains(a.body, `"here"`) {
					t.Errorf("round %d, read %d: %d, %s", round, i, a.StatusCode, a.body)
				}
			}
		}
	})
}

func TestReadOneRecordWithWhatHeadersCantCarry(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	_, err := s.broker.Append(t.Context(), "orders", []seb.Record{{
		Key: []byte("a\r\nSeb-Evil: 1"), Value: []byte{0xff},
		Headers: []seb.Header{
			{Name: "content-type", Value: []byte("text/html\r\nSeb-Evil: 1")}, {Name: "a b", Value: []byte("1")},
			{Name: "c", Value: []byte(" padded")}, {Name: "", Value: []byte("1")}, {Name: "fine", Value: []byte("1")},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := s.get(ordersPath + "/0")
	a.want(t, http.StatusOK)
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Seb-Key": "", "Seb-Key-Base64": "YQ0KU2ViLUV2aWw6IDE=",
		"Seb-Evil": "", "Seb-Omitted-Headers": "4", "Seb-Header-Fine": "1",
	} {
		a.wantHeader(t, name, want)
	}
}
