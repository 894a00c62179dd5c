package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// unread reads records with a consumer; query begins with ? or is empty.
func (s *server) unread(name, query string, header ...string) answer {
	s.t.Helper()
	a := s.get(consumersPath+"/"+name+"/records"+query, header...)
	a.want(s.t, http.StatusOK)
	return a
}

func TestReadOfConsumerInEveryForm(t *testing.T) {
	s := newServerWith(t, 5)
	id := s.get("/v1/topics/orders").Header.Get(topicIDHeader)
	s.setConsumer("c", `{"from":{"offsets":{"0":2}}}`, http.StatusCreated)
	for accept, want := range map[string]string{
		"": lines(2, 3), "*/*": lines(2, 3), typeNDJSON: lines(2, 3), typeBatch: string(batchBody("2", "3")),
		typeJSON: `{"records":[` + line(2) + `,` + line(3) + `],"next_offsets":{"0":4}}` + "\n",
	} {
		a := s.unread("c", "?limit=2", "Accept", accept)
		if got := withoutLogTimes(a.body); got != want {
			t.Errorf("as %q it reads %q, want %q", accept, got, want)
		}
		a.wantHeader(t, "Seb-Next-Offsets", `{"0":4}`)
		a.wantHeader(t, topicIDHeader, id)
		first := map[bool][2]string{true: {"0", "2"}}[accept == typeBatch]
		a.wantHeader(t, "Seb-Partition", first[0])
		a.wantHeader(t, "Seb-Offset", first[1])
	}
	s.get(consumersPath+"/c/records", "Accept", "text/html").wantProblem(t, http.StatusNotAcceptable, codeNotAcceptable)
	s.wantConsumer("c", 2) // a read does not move the consumer

	next := s.unread("c", "").Header.Get("Seb-Next-Offsets")
	s.commit("c", next)
	for accept, want := range map[string]string{typeNDJSON: "", typeBatch: string(batchBody()), typeJSON: `{"records":[],"next_offsets":{}}` + "\n"} {
		a := s.unread("c", "", "Accept", accept)
		if a.body != want {
			t.Errorf("at the end it reads as %s %q, want %q", accept, a.body, want)
		}
		a.wantHeader(t, "Seb-Next-Offsets", "{}")
		a.wantHeader(t, "Seb-Offset", "")
	}
}

func TestReadOfConsumerIsBounded(t *testing.T) {
	s := newServerWith(t, 5)
	for query, want := range map[string]string{
		"": lines(0, 1, 2, 3, 4), "?limit=3": lines(0, 1, 2), "?max_bytes=1": lines(0), "?max_bytes=2": lines(0, 1),
		"?limit=9223372036854775807&max_bytes=9223372036854775807&wait=5m&partition=0": lines(0, 1, 2, 3, 4),
	} {
		if a := s.unread("c", query); withoutLogTimes(a.body) != want {
			t.Errorf("%s: %s, want %s", query, a.body, want)
		}
	}
	for _, query := range []string{"limit=0", "max_bytes=0", "wait=6m", "wait=-1s", "partition=-1", "offset=1", "time=2026-01-31T12:00:00Z", "topic_id=x", "last_event_id=x"} {
		s.get(consumersPath+"/new/records?"+query).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	s.get(consumersPath+"/new/records?partition=1").wantProblem(t, http.StatusNotFound, seb.CodePartitionNotFound)
	s.get(consumersPath+"/new/records", "Accept", "text/html").wantProblem(t, http.StatusNotAcceptable, codeNotAcceptable)
	s.get(consumersPath+"/a%2Fb/records").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.get("/v1/topics/nothing/consumers/new/records").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	if a := s.get("/v1/topics"); strings.Contains(a.body, "nothing") {
		t.Error("reading created a topic")
	}
	s.get(consumersPath+"/new").wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound) // a refused request creates no consumer

	// An answer has at least one record, whatever its size, and its memory is freed.
	s.append("orders", strings.Repeat("x", 2<<20))
	s.setConsumer("c", `{"from":{"offsets":{"0":5}}}`, http.StatusOK)
	if a := s.unread("c", "?max_bytes=1", "Accept", typeBatch); len(a.body) != 2<<20+8 {
		t.Errorf("a large record comes as %d bytes", len(a.body))
	}
	s.wantNothingReservedSoon()
}

// Before a new consumer gets its first record, its creation must be durable.
func TestConsumerIsDurableBeforeItsFirstRecord(t *testing.T) {
	store := &brokenStore{Store: objstore.NewMemory()}
	bubbleOn(t, store, seb.Options{AppendTimeout: time.Minute}, Options{}, 0, func(t *testing.T, s *server) {
		defer store.down.Store(false)
		s.createOrders(2)
		s.appendTo(0, "a", "b")
		store.down.Store(true)
		p := s.get(consumersPath+"/c/records").wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		if p.Outcome != "" {
			t.Errorf("a read says of its outcome %q", p.Outcome)
		}
		s.get(consumersPath+"/c/records", "Accept", typeEvents).wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		store.down.Store(false)
		time.Sleep(time.Minute) // fake time
		for name, read := range map[string]func(name string){
			"one":    func(name string) { s.unread(name, "") },
			"single": func(name string) { s.unread(name, "?partition=1") },
			"stream": func(name string) { s.followAt(consumersPath + "/" + name + "/records").begin() },
		} {
			s.get(consumersPath+"/"+name).wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound)
			read(name)
			other := openBroker(t, store, seb.Options{})
			if info, err := other.Consumer("orders", name).Describe(t.Context()); err != nil || info.Positions[0].Next != 0 || info.Positions[1].Next != 0 {
				t.Errorf("consumer %s is %+v, %v to another broker", name, info, err)
			}
		}
		// A new consumer begins at the partition's start, which need not be 0.
		s.do("DELETE", ordersPath+"?partition=0&before=1", nil).want(t, http.StatusOK)
		if a := s.unread("later", ""); !strings.Contains(a.body, `"offset":1`) || strings.Contains(a.body, `"offset":0`) {
			t.Errorf("it begins with %s", a.body)
		}
	})
}

func TestReadOfConsumerWaitsForTheFirstRecord(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		s.createOrders(2)
		s.setConsumer("c", "", http.StatusCreated)
		began := time.Now()
		if a := s.unread("c", "?wait=20s"); a.body != "" || time.Since(began) != 20*time.Second {
			t.Errorf("with nothing there it reads %q after %v", a.body, time.Since(began))
		}
		if a := s.unread("c", ""); a.body != "" || time.Since(began) != 20*time.Second {
			t.Errorf("without a wait it reads %q after %v", a.body, time.Since(began))
		}
		for _, c := range []struct {
			query  string
			append func()
			within time.Duration
		}{
			{"?wait=5m", func() { s.appendTo(1, "v") }, 0},
			{"?wait=5m&partition=0", func() { s.appendTo(1, "w"); s.appendTo(0, "v") }, 0},
			{"?wait=5m", func() {
				if _, err := other.Append(t.Context(), "orders", []seb.Record{{Value: []byte("v")}}); err != nil {
					t.Error(err)
				}
			}, 10 * time.Second},
		} {
			s.setConsumer("c", `{"from":"latest"}`, http.StatusOK)
			got := make(chan answer)
			go func() { got <- s.unread("c", c.query) }()
			synctest.Wait()
			time.Sleep(time.Minute) // fake time
			began := time.Now()
			c.append()
			a := <-got
			if took := time.Since(began); !strings.Contains(a.body, `"v"`) || strings.Contains(a.body, `"w"`) || took > c.within {
				t.Errorf("%s: %q after %v", c.query, a.body, took)
			}
		}
		s.wantNothingReserved()
	})
}

func TestReadOfConsumerThatWaitsHoldsNoMemory(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		got := make(chan answer)
		go func() { got <- s.unread("c", "?wait=1m") }()
		synctest.Wait()
		s.wantNothingReserved()
		s.handler.Drain()
		if a := <-got; a.body != "" {
			t.Errorf("got %s", a.body)
		}
		began := time.Now()
		if a := s.unread("c", "?wait=1m"); a.body != "" || time.Since(began) > 0 {
			t.Errorf("a drained handler waits for %v", time.Since(began))
		}
	})
}

func TestReadOfConsumerThatWaitsEndsWithItsTopic(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.createOrders(1)
		got := make(chan answer)
		go func() { got <- s.get(consumersPath + "/c/records?wait=1m") }()
		synctest.Wait()
		s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
		(<-got).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	})
}

// drainConsumer reads and commits until no record is left, through the servers in
// turn, and returns "partition/offset" of every record in the order in which they came.
func drainConsumer(t *testing.T, name, query string, servers ...*server) (got []string) {
	t.Helper()
	for i := 0; ; i++ {
		a := servers[i%len(servers)].unread(name, query, "Accept", typeJSON)
		var answer struct {
			Records []struct {
				Partition int32
				Offset    seb.Offset
			}
			Next json.RawMessage `json:"next_offsets"`
		}
		a.json(t, &answer)
		if len(answer.Records) == 0 {
			return got
		}
		for _, r := range answer.Records {
			if r.Partition != answer.Records[0].Partition {
				t.Errorf("an answer has records of several partitions: %s", a.body)
			}
			got = append(got, fmt.Sprintf("%d/%d", r.Partition, r.Offset))
		}
		servers[i%len(servers)].commit(name, string(answer.Next))
	}
}

// A consumer gets records of all partitions, even if reads and appends of others alternate with its own.
func TestReadOfConsumerGetsToAllPartitions(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(3)
	var want []string
	for p := range 3 {
		s.appendTo(p, slices.Repeat([]string{"v"}, 40)...)
		for o := range 40 {
			want = append(want, fmt.Sprintf("%d/%d", p, o))
		}
	}
	seen := map[string]int{}
	for range 60 {
		for _, name := range []string{"a", "b"} { // each read of b follows one of a
			a := s.unread(name, "?limit=1")
			seen[name+a.body[:len(`{"partition":0`)]]++
		}
		s.append("other", "x") // also takes a turn of the round robin
	}
	if len(seen) != 6 {
		t.Errorf("sixty reads of two consumers got %v", seen)
	}
	got := drainConsumer(t, "a", "?limit=7", s)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if got := drainConsumer(t, "b", "?partition=1&limit=30", s); len(got) != 40 || got[39] != "1/39" {
		t.Errorf("of partition 1 it reads %v", got)
	}
	s.wantConsumer("b", 0, 40, 0)
	// A partition that was added later is read from its first record on.
	s.do("PATCH", "/v1/topics/orders", strings.NewReader(`{"partitions":4}`)).want(t, http.StatusOK)
	s.appendTo(3, "new")
	if got := drainConsumer(t, "a", "", s); !slices.Equal(got, []string{"3/0"}) {
		t.Errorf("after a partition was added it reads %v", got)
	}
}

// Records that were committed through one broker are not read again through another, once the other
// has synced.
func TestConsumerIsReadThroughAnyBroker(t *testing.T) {
	store, alert := objstore.NewMemory(), seb.Options{StaleMax: time.Nanosecond}
	one, two := newServerOn(t, store, alert, Options{}), newServerOn(t, store, alert, Options{})
	one.createOrders(2)
	for p := range 2 {
		one.appendTo(p, slices.Repeat([]string{"v"}, 20)...)
	}
	got := drainConsumer(t, "c", "?limit=3", one, two)
	slices.Sort(got)
	if len(got) != 40 || len(slices.Compact(got)) != 40 {
		t.Errorf("%d records were read, want each of 40 once: %v", len(got), got)
	}
}

// If retention has deleted unread records, a consumer gets an error, not the later records, until it is
// reset.
func TestReadOfConsumerBelowTheStartIsRefused(t *testing.T) {
	s := newServerWith(t, 5)
	s.setConsumer("c", "", http.StatusCreated)
	s.do("DELETE", ordersPath+"?partition=0&before=3", nil).want(t, http.StatusOK)
	for _, accept := range []string{typeNDJSON, typeEvents} {
		p := s.get(consumersPath+"/c/records", "Accept", accept).wantProblem(t, http.StatusRequestedRangeNotSatisfiable, seb.CodeOffsetOutOfRange)
		if *p.StartOffset != 3 || *p.EndOffset != 5 || !strings.Contains(p.Hint, "reset the consumer to earliest") {
			t.Errorf("the problem is %+v", p)
		}
	}
	if c, _ := s.wantConsumer("c", 0); c.Positions[0].Missed != 3 || c.Lag != 2 {
		t.Errorf("it is shown as %+v", c)
	}
	s.commit("c", `{"0":2}`) // a position that was read before the deletion
	s.get(consumersPath+"/c/records").wantProblem(t, http.StatusRequestedRangeNotSatisfiable, seb.CodeOffsetOutOfRange)
	s.setConsumer("c", `{"from":"earliest"}`, http.StatusOK)
	if a := s.unread("c", ""); withoutLogTimes(a.body) != lines(3, 4) {
		t.Errorf("after the reset it reads %s", a.body)
	}
}

func TestEventsOfConsumer(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(2)
	s.appendTo(0, "a", "b", "c")
	s.setConsumer("c", `{"from":{"offsets":{"0":1}}}`, http.StatusCreated)
	path := consumersPath + "/c/records"
	f := s.followAt(path)
	if id := f.begin(); !strings.HasSuffix(id, ":1,0") {
		t.Errorf("the stream begins at %s", id)
	}
	ids := f.want("0/1=b", "0/2=c")
	s.commit("c", `{"0":2}`) // during the stream
	s.appendTo(1, "d")
	ids = append(ids, f.want("1/0=d")...)
	f.resp.Body.Close()

	// A client that sends the last id continues exactly there, others at the consumer's position.
	f = s.followAt(path, lastEventIDHeader, ids[0])
	f.begin()
	f.want("0/2=c", "1/0=d")
	f = s.followAt(path + "?last_event_id=" + ids[1])
	f.begin()
	f.want("1/0=d")
	f = s.followAt(path + "?partition=0")
	f.begin()
	one := f.want("0/2=c")
	f = s.followAt(path+"?partition=0", lastEventIDHeader, one[0])
	f.begin()
	s.appendTo(0, "e")
	f.want("0/3=e")
	s.wantConsumer("c", 2, 0)

	// A stream that is resumed after its consumer was deleted creates the consumer again.
	s.do("DELETE", consumersPath+"/c", nil).want(t, http.StatusNoContent)
	f = s.followAt(path, lastEventIDHeader, ids[2])
	f.begin()
	f.want("0/3=e")
	s.commit("c", `{"0":4,"1":1}`)

	for _, query := range []string{"?limit=1", "?wait=1s", "?max_bytes=1", "?offset=1", "?last_event_id=x", "?partition=0&last_event_id=" + ids[0]} {
		s.get(path+query, "Accept", typeEvents).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	s.get(path+"?partition=2", "Accept", typeEvents).wantProblem(t, http.StatusNotFound, seb.CodePartitionNotFound)
	s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
	s.createOrders(2)
	s.get(path, "Accept", typeEvents, lastEventIDHeader, ids[0]).wantProblem(t, http.StatusGone, seb.CodeTopicRecreated)
}

// If a topic has too many partitions for the id of an event, reads with a consumer still cover all partitions.
func TestReadOfConsumerGoesRoundVeryManyPartitions(t *testing.T) {
	const partitions = seb.FollowPartitionsMax + 500
	s := newServer(t, seb.Options{Limits: seb.Limits{Partitions: partitions}}, Options{})
	s.createOrders(partitions)
	var want []string
	for _, p := range []int{0, 1023, 1024, partitions - 1} {
		s.appendTo(p, "a", "b")
		want = append(want, fmt.Sprintf("%d/0", p), fmt.Sprintf("%d/1", p))
	}
	s.get(consumersPath+"/a/records", "Accept", typeEvents).wantProblem(t, http.StatusBadRequest, seb.CodeTooManyPartitions)
	s.get(consumersPath+"/a").wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound) // a refused stream creates no consumer
	got := drainConsumer(t, "a", "?limit=1", s)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if got := drainConsumer(t, "b", "?partition=1024", s); len(got) != 2 {
		t.Errorf("of one partition it reads %v", got)
	}
	s.wantNothingReserved()
}
