package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// stream is a client of an event stream.
type stream struct {
	t    testing.TB
	resp *http.Response
	in   *bufio.Reader
}

// event is a block of a stream; all is the block's whole text.
type event struct {
	id, name, data, all string
}

// follow opens a stream of topic orders. The answer must be a stream. header has names and
// values in turn.
func (s *server) follow(query string, header ...string) *stream {
	s.t.Helper()
	return s.followAt(ordersPath+query, header...)
}

func (s *server) followAt(path string, header ...string) *stream {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Accept", typeEvents)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != typeEvents {
		s.t.Fatalf("status %d, type %s", resp.StatusCode, got)
	}
	return &stream{s.t, resp, bufio.NewReader(resp.Body)}
}

// block reads up to the next empty line; io.EOF means the clean end of the answer.
func (f *stream) block() (event, error) {
	var e event
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			if line != "" || e.all != "" {
				f.t.Errorf("the stream ends within %q", e.all+line)
			}
			return e, err
		}
		e.all += line
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "":
			return e, nil
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		}
	}
}

// next returns the next block, which must exist.
func (f *stream) next() event {
	f.t.Helper()
	e, err := f.block()
	if err != nil {
		f.t.Fatalf("read the next event: %v", err)
	}
	return e
}

// begin reads the first block, and returns its id: a client that has received nothing else
// continues there.
func (f *stream) begin() string {
	f.t.Helper()
	e := f.next()
	if !strings.HasPrefix(e.all, "retry: ") || e.id == "" || e.data != "" {
		f.t.Fatalf("the stream begins with %q", e.all)
	}
	return e.id
}

// records reads n events and returns "partition/offset=value" of each, and the ids.
func (f *stream) records(n int) (got, ids []string) {
	f.t.Helper()
	for range n {
		e := f.next()
		var r struct {
			Partition, Offset int
			Value             string
		}
		if err := json.Unmarshal([]byte(e.data), &r); err != nil || e.name != "" {
			f.t.Fatalf("the event %q is no record: %v", e.all, err)
		}
		got, ids = append(got, fmt.Sprintf("%d/%d=%s", r.Partition, r.Offset, r.Value)), append(ids, e.id)
	}
	return got, ids
}

func (f *stream) want(want ...string) (ids []string) {
	f.t.Helper()
	got, ids := f.records(len(want))
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("events (-want +got):\n%s", diff)
	}
	return ids
}

// wantEnd reads the end of the stream, which must be a clean end of the answer.
func (f *stream) wantEnd() {
	f.t.Helper()
	if e, err := f.block(); !errors.Is(err, io.EOF) {
		f.t.Fatalf("there is %q, %v where the stream should end", e.all, err)
	}
}

// wantError reads an error event and then the end of the stream.
func (f *stream) wantError(code seb.Code) wireProblem {
	f.t.Helper()
	e := f.next()
	var p wireProblem
	if err := json.Unmarshal([]byte(e.data), &p); err != nil || e.name != "error" || p.Code != string(code) {
		f.t.Errorf("got %q, want an error %s", e.all, code)
	}
	f.wantEnd()
	return p
}

func (s *server) createOrders(partitions int) {
	s.t.Helper()
	s.do("PUT", "/v1/topics/orders", strings.NewReader(fmt.Sprintf(`{"partitions":%d}`, partitions))).want(s.t, http.StatusCreated)
}

func (s *server) appendTo(partition int, values ...string) {
	s.t.Helper()
	a := s.post(fmt.Sprintf("%s?partition=%d", ordersPath, partition), strings.Join(values, "\n"), "Content-Type", typeNDJSON)
	a.want(s.t, http.StatusCreated)
}

func TestEventsOfAllPartitions(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(3)
	s.appendTo(1, "a", "b")
	s.appendTo(2, "c")
	f := s.follow("")
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Length": ""} {
		if got := f.resp.Header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	cluster := s.broker.Status().ClusterID[:8]
	if got, want := f.begin(), cluster+".1:0,0,0"; got != want {
		t.Errorf("the first id is %s, want %s", got, want)
	}
	ids := f.want("1/0=a", "1/1=b", "2/0=c")
	if want := []string{cluster + ".1:0,1,0", cluster + ".1:0,2,0", cluster + ".1:0,2,1"}; !cmp.Equal(ids, want) {
		t.Errorf("ids are %q, want %q", ids, want)
	}
	s.appendTo(0, "d")
	f.want("0/0=d")
	// A partition that was added later is followed from its first record on.
	s.do("PATCH", "/v1/topics/orders", strings.NewReader(`{"partitions":5}`)).want(t, http.StatusOK)
	s.appendTo(4, "e")
	if ids := f.want("4/0=e"); ids[0] != cluster+".1:1,2,1,0,1" {
		t.Errorf("the id is %s", ids[0])
	}
}

// The data of an event is one line, as in NDJSON, whatever bytes the record has.
func TestEventsHoldAnyBytes(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	large := strings.Repeat("\x01\"\\é\n\r\n", 200_000) // more than a burst
	_, err := s.broker.Append(t.Context(), "orders", []seb.Record{
		{Value: []byte("a\nb\r\nc\rd\n\ndata: x\n\n"), Key: []byte("k\n")}, {Value: []byte{0xff, '\n'}}, {Value: []byte(large)},
		{Value: []byte("h"), Headers: []seb.Header{{Name: "a\nb", Value: []byte("c\n")}}}, {},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.SplitAfter(s.get(ordersPath+"?max_bytes=8000000").body, "\n")
	f := s.follow("")
	f.begin()
	for i := range 5 {
		if got := f.next().data; got+"\n" != want[i] {
			t.Errorf("record %d: %.200q, want %.200q", i, got, want[i])
		}
	}
	s.wantNothingReservedSoon()
}

// wantNothingReservedSoon is wantNothingReserved for a test whose client has read an answer that the
// server may not have finished yet.
func (s *server) wantNothingReservedSoon() {
	s.t.Helper()
	release, err := s.broker.Reserve(s.t.Context(), s.adapterBytes()) // possible if nothing else is reserved; the call waits for some seconds
	if err != nil {
		s.t.Errorf("memory is still reserved: %v", err)
		return
	}
	release()
}

func TestEventsBeginWhereTheQuerySays(t *testing.T) {
	for query, want := range map[string][]string{
		"":                                       {"0/0=a", "0/1=b", "0/2=c", "1/0=d", "1/1=e", "1/2=f"},
		"?offset=earliest&partition=1":           {"1/0=d", "1/1=e", "1/2=f"},
		"?offset=latest":                         {},
		"?offset=-1":                             {"0/2=c", "1/2=f"},
		"?partition=0&offset=1":                  {"0/1=b", "0/2=c"},
		"?partition=0&offset=3":                  {},
		"?time=2026-01-31T12:00:01.5Z":           {"0/2=c", "1/2=f"},
		"?partition=0&time=2027-01-01T00:00:00Z": {},
		"?partition=1&last_event_id=":            {"1/0=d", "1/1=e", "1/2=f"},
	} {
		t.Run(query, func(t *testing.T) {
			s := newServer(t, seb.Options{}, Options{})
			s.createOrders(2)
			for i, v := range []string{"a", "b", "c", "d", "e", "f"} {
				path := fmt.Sprintf("%s?partition=%d", ordersPath, i/3)
				s.post(path, v, "Seb-Timestamp", fmt.Sprintf("2026-01-31T12:00:0%dZ", i%3)).want(t, 201)
			}
			f := s.follow(query)
			f.begin()
			for _, w := range want {
				f.want(w)
			}
			s.appendTo(0, "new")
			s.appendTo(1, "new")
			if !strings.Contains(query, "partition=1") {
				f.want("0/3=new")
			} else {
				f.want("1/3=new")
			}
		})
	}
}

// From each id a client continues with exactly the records that it has not received: through the
// same broker, through another, and after a restart.
func TestLastEventIDResumesExactly(t *testing.T) {
	store := objstore.NewMemory()
	s, other := newServerOn(t, store, seb.Options{}, Options{}), newServerOn(t, store, seb.Options{}, Options{})
	s.createOrders(3)
	all := map[string]bool{}
	for i := range 4 {
		for p := range 3 {
			s.appendTo(p, fmt.Sprint(i))
			all[fmt.Sprintf("%d/%d=%d", p, i, i)] = true
		}
	}
	first := s.follow("")
	ids := []string{first.begin()}
	got, more := first.records(len(all))
	ids = append(ids, more...)
	restarted := newServerOn(t, store, seb.Options{}, Options{})
	for i, id := range ids {
		for name, f := range map[string]*stream{
			"header":             s.follow("?offset=latest", "Last-Event-ID", id),
			"query":              s.follow("?last_event_id=" + url.QueryEscape(id)),
			"header over query":  s.follow("?last_event_id="+url.QueryEscape(ids[0]), "Last-Event-ID", id),
			"another broker":     other.follow("", "Last-Event-ID", id),
			"a restarted broker": restarted.follow("", "Last-Event-ID", id),
		} {
			if begins := f.begin(); begins != id {
				t.Errorf("%s: the stream after %s begins at %s", name, id, begins)
			}
			rest, _ := f.records(len(all) - i)
			for _, r := range rest {
				if !all[r] {
					t.Errorf("%s: %s came that never was", name, r)
				}
			}
			both := map[string]bool{}
			for _, r := range append(append([]string{}, got[:i]...), rest...) {
				if both[r] {
					t.Errorf("%s: %s came twice around %s", name, r, id)
				}
				both[r] = true
			}
			if err := f.resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStreamOfOnePartitionResumes(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(2)
	s.appendTo(0, "not this")
	s.appendTo(1, "a", "b", "c")
	cluster := s.broker.Status().ClusterID[:8]
	f := s.follow("?partition=1")
	if got, want := f.begin(), cluster+".1/1:0"; got != want {
		t.Errorf("the first id is %s, want %s", got, want)
	}
	id := f.want("1/0=a", "1/1=b")[1]
	if want := cluster + ".1/1:2"; id != want {
		t.Errorf("the id is %s, want %s", id, want)
	}
	f = s.follow("?partition=1&last_event_id=" + url.QueryEscape(id))
	f.begin()
	f.want("1/2=c")
}

// A broker that has not seen the latest commits syncs before it refuses an id that it
// does not know.
func TestLastEventIDAheadOfABroker(t *testing.T) {
	store := objstore.NewMemory()
	behind := seb.Options{StaleMax: time.Hour}
	s, other := newServerOn(t, store, seb.Options{}, Options{}), newServerOn(t, store, behind, Options{})
	s.append("orders", "a")
	other.get(ordersPath).want(t, 200)
	s.append("orders", "b")
	s.do("PATCH", "/v1/topics/orders", strings.NewReader(`{"partitions":2}`)).want(t, 200)
	s.appendTo(1, "c")
	f := s.follow("")
	f.begin()
	_, ids := f.records(3)
	resumed := other.follow("", "Last-Event-ID", ids[2])
	resumed.begin()

	s.do("DELETE", "/v1/topics/orders", nil).want(t, 204)
	s.append("orders", "new")
	f = s.follow("")
	f.begin()
	ids = f.want("0/0=new")
	newServerOn(t, store, behind, Options{}).follow("", "Last-Event-ID", ids[0]).begin()
	resumed.wantError(seb.CodeTopicNotFound)
}

func TestFollowRefusals(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(2)
	s.appendTo(0, "a", "b")
	f := s.follow("")
	f.begin()
	_, ids := f.records(2)
	id := ids[1]
	cluster := id[:8]
	for _, c := range []struct {
		name, query, id string
		status          int
		code            seb.Code
		detail          string
	}{
		{"limit", "?limit=1", "", 400, seb.CodeInvalidRequest, `"limit"`},
		{"wait", "?wait=1s", "", 400, seb.CodeInvalidRequest, `"wait"`},
		{"time and offset", "?time=2026-01-31T12:00:00Z&offset=1", "", 400, seb.CodeInvalidRequest, "both"},
		{"an offset in all partitions", "?offset=1", "", 400, seb.CodeInvalidRequest, "2 partitions"},
		{"an offset beyond the end", "?offset=3&partition=0", "", 416, seb.CodeOffsetOutOfRange, "3"},
		{"no such partition", "?partition=2", "", 404, seb.CodePartitionNotFound, ""},
		{"an invalid id", "", "41", 400, seb.CodeInvalidRequest, `"41"`},
		{"a long invalid id", "", strings.Repeat("9", 40000), 400, seb.CodeInvalidRequest, "..."},
		{"an invalid id in the query", "?last_event_id=x", "", 400, seb.CodeInvalidRequest, `"x"`},
		{"an id beyond the end", "", cluster + ".1:3,0", 416, seb.CodeOffsetOutOfRange, "3"},
		{"an id of more partitions", "", cluster + ".1:0,0,0", 404, seb.CodePartitionNotFound, "2"},
		{"an id of one partition for all", "", cluster + ".1/0:1", 400, seb.CodeInvalidRequest, "all partitions"},
		{"an id of all for one partition", "?partition=0", id, 400, seb.CodeInvalidRequest, "partition 0"},
		{"an id of another partition", "?partition=0", cluster + ".1/1:0", 400, seb.CodeInvalidRequest, "partition 0"},
		{"an id of another topic", "", cluster + ".7:0,0", 410, seb.CodeTopicRecreated, "created again since you began to read it"},
		{"an id of another bucket", "", "00000000.1:0,0", 410, seb.CodeTopicRecreated, "created again since you began to read it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := []string{"Accept", typeEvents}
			if c.id != "" {
				header = append(header, "Last-Event-ID", c.id)
			}
			p := s.get(ordersPath+c.query, header...).wantProblem(t, c.status, c.code)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("problem %+v does not tell of %s", p, c.detail)
			}
			if p.Outcome != "" {
				t.Errorf("a read has outcome %q", p.Outcome)
			}
		})
	}
	s.get("/v1/topics/none/records", "Accept", typeEvents).wantProblem(t, 404, seb.CodeTopicNotFound)
	if got := len(mustTopics(t, s)); got != 1 {
		t.Errorf("there are %d topics: following creates none", got)
	}
}

func mustTopics(t *testing.T, s *server) []seb.Topic {
	t.Helper()
	topics, err := seb.Collect(s.broker.Topics(t.Context(), seb.ListOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

func TestFollowHead(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "a")
	a := s.do("HEAD", ordersPath, nil, "Accept", typeEvents)
	a.want(t, http.StatusOK)
	a.wantHeader(t, "Content-Type", typeEvents)
}

func TestStreamEndsWithItsTopic(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "a")
	f := s.follow("")
	f.begin()
	id := f.want("0/0=a")[0]
	s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
	if p := f.wantError(seb.CodeTopicNotFound); p.Status != 404 || p.Outcome != "" {
		t.Errorf("the problem is %+v", p)
	}
	s.get(ordersPath, "Accept", typeEvents, "Last-Event-ID", id).wantProblem(t, 404, seb.CodeTopicNotFound)
	s.append("orders", "another topic's")
	s.get(ordersPath, "Accept", typeEvents, "Last-Event-ID", id).wantProblem(t, 410, seb.CodeTopicRecreated)
}

func TestQuietStreamIsKeptOpen(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "a")
		f := s.follow("")
		f.begin()
		f.want("0/0=a")
		for range 20 {
			start := time.Now()
			if e := f.next(); e.all != ":\n\n" || time.Since(start) != 15*time.Second {
				t.Fatalf("%q came after %v", e.all, time.Since(start))
			}
		}
		s.append("orders", "b")
		f.want("0/1=b")
	})
}

func TestDrainEndsStreamsCleanly(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "a")
		f := s.follow("")
		f.begin()
		f.want("0/0=a")
		time.Sleep(14 * time.Second) // the deadline of the last write has passed
		start := time.Now()
		stopped := make(chan struct{})
		go func() { defer close(stopped); s.stop() }()
		f.wantEnd()
		<-stopped
		if took := time.Since(start); took > time.Second {
			t.Errorf("the server took %v to end", took)
		}
	})
}

func TestClosedBrokerEndsStreamsCleanly(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "a")
	f := s.follow("?offset=latest")
	f.begin()
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	f.wantEnd()
}

// A stream goes on after failures of the store.
func TestStreamGoesOnAfterTheStoreFailed(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		writer, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate()})
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		large := strings.Repeat("x", 5<<20) // in a data object, which applying the commit does not fetch
		if _, err := writer.Append(t.Context(), "orders", []seb.Record{{Value: []byte(large)}}); err != nil {
			t.Fatal(err)
		}
		f := s.follow("?offset=latest")
		f.begin()
		remove := store.On(objstore.VerbGet, "data/", storetest.Fail)
		if _, err := writer.Append(t.Context(), "orders", []seb.Record{{Value: []byte(large)}}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if e := f.next(); e.all != ":\n\n" {
				t.Fatalf("%.100q came while the store was down", e.all)
			}
		}
		remove()
		for {
			if e := f.next(); e.data != "" {
				if len(e.data) < len(large) {
					t.Errorf("got %.100q", e.all)
				}
				break
			}
		}
		if err := f.resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStreamReportsLostData(t *testing.T) {
	store := objstore.NewMemory()
	s := newServerOn(t, store, seb.Options{}, Options{})
	s.append("orders", "a")
	s.append("orders", strings.Repeat("x", 5<<20)) // in a data object
	page, err := store.List(t.Context(), "data/", "", 10)
	if err != nil || len(page.Keys) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if _, err := store.Delete(t.Context(), page.Keys[0]); err != nil {
		t.Fatal(err)
	}
	f := newServerOn(t, store, seb.Options{}, Options{}).follow("")
	f.begin()
	f.want("0/0=a")
	if p := f.wantError(seb.CodeDataLost); p.Status != 500 || !strings.Contains(p.Detail, page.Keys[0]) {
		t.Errorf("the problem is %+v", p)
	}
}

// If unread records are deleted during a stream, the client gets an error. The events before it are
// complete.
func TestStreamReportsRecordsThatAreNoLongerHeld(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		for _, v := range []string{"a", "b", "c"} {
			s.append("orders", strings.Repeat(v, 1<<20))
		}
		f := s.follow("")
		f.begin()
		synctest.Wait() // the first record is being sent
		s.do("DELETE", ordersPath+"?partition=0&before=3", nil).want(t, http.StatusOK)
		if e := f.next(); len(e.data) < 1<<20 {
			t.Errorf("got %.100q", e.all)
		}
		p := f.wantError(seb.CodeOffsetOutOfRange)
		if p.Status != 416 || p.StartOffset == nil || *p.StartOffset != 3 {
			t.Errorf("the problem is %+v", p)
		}
	})
}

func TestStreamReportsThatItsBrokerHasStopped(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.append("orders", "a")
		f := s.follow("?offset=latest")
		f.begin()
		store.On("", "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrStopped
		})
		s.post(ordersPath, "b").want(t, http.StatusServiceUnavailable)
		if p := f.wantError(seb.CodeBrokerStopped); p.Status != 503 {
			t.Errorf("the problem is %+v", p)
		}
		s.get("/readyz").wantProblem(t, http.StatusServiceUnavailable, seb.CodeBrokerStopped)
	})
}

func TestSlowFollowerIsCutOff(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "a")
		for range 4 {
			s.dial("GET " + ordersPath + "?offset=latest HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
		}
		time.Sleep(11 * time.Second) // fake time
		synctest.Wait()
		if got := testutil.ToFloat64(s.handler.metrics.inFlight); got != 0 {
			t.Errorf("%v streams wait for clients that take nothing", got)
		}
		s.wantNothingReserved()
	})
}

// Each burst has its own time limit, whatever was sent before.
func TestOldStreamMayTakeItsTime(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "a")
		f := s.follow("?offset=latest")
		f.begin()
		for range 8 {
			f.next()
		}
		s.append("orders", strings.Repeat("x", 4<<20))
		time.Sleep(5 * time.Second) // less than the longest silence
		if e := f.next(); len(e.data) < 4<<20 {
			t.Errorf("got %d bytes", len(e.all))
		}
	})
}

func TestQuietStreamsHoldNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		var streams []*stream
		for range 50 {
			f := s.follow("?offset=latest")
			f.begin()
			streams = append(streams, f)
		}
		synctest.Wait()
		s.wantNothingReserved()
		s.append("orders", strings.Repeat("y", 1<<20))
		var all sync.WaitGroup
		for _, f := range streams { // at the same time: together the answers exceed the memory for answers
			all.Go(func() {
				if e := f.next(); len(e.data) < 1<<20 {
					t.Errorf("got %.100q", e.all)
				}
				go func() { _, _ = f.block() }() // reads the rest from the pipe
			})
		}
		all.Wait()
		synctest.Wait()
		s.wantNothingReserved()
	})
}

// A stream for which there is no memory waits, and goes on when there is memory.
func TestStreamWaitsForMemory(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.append("orders", "x")
		f := s.follow("?offset=latest")
		f.begin()
		s.append("orders", "y")
		f.want("0/1=y")
		release := s.reserveAll()
		if _, err := s.broker.Append(t.Context(), "orders", []seb.Record{{Value: []byte("z")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		release()
		for {
			if e := f.next(); e.data != "" {
				if !strings.Contains(e.data, `"z"`) {
					t.Errorf("got %q", e.all)
				}
				break
			}
		}
	})
}

func TestOldStreamGivesWayToWhoWaitsForAConnection(t *testing.T) {
	bubbleOf(t, seb.Options{}, 1, func(t *testing.T, s *server) {
		if _, err := s.broker.Append(t.Context(), "orders", []seb.Record{{Value: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		f := s.follow("?offset=latest")
		f.begin()
		ended := make(chan error)
		go func() { // reads the stream, so that it is not cut off
			_, err := io.Copy(io.Discard, f.in)
			ended <- err
		}()
		s.get(ordersPath).want(t, http.StatusOK) // the request waits for the only connection
		if took := time.Since(start); took < 5*time.Minute || took > 5*time.Minute+30*time.Second {
			t.Errorf("it waited %v", took)
		}
		if err := <-ended; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
