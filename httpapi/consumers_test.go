package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

const consumersPath = "/v1/topics/orders/consumers"

// setConsumer creates or resets a consumer. body may be empty.
func (s *server) setConsumer(name, body string, status int) answer {
	s.t.Helper()
	a := s.do("PUT", consumersPath+"/"+name, strings.NewReader(body))
	a.want(s.t, status)
	return a
}

// commit commits offsets, such as {"0":41}. It must succeed.
func (s *server) commit(name, offsets string, header ...string) answer {
	s.t.Helper()
	a := s.post(consumersPath+"/"+name+"/commit", `{"offsets":`+offsets+`}`, header...)
	a.want(s.t, http.StatusOK)
	return a
}

// wantConsumer checks a consumer's offsets by partition, and returns the whole answer.
func (s *server) wantConsumer(name string, offsets ...seb.Offset) (c consumerJSON, etag string) {
	s.t.Helper()
	a := s.get(consumersPath + "/" + name)
	a.want(s.t, http.StatusOK)
	a.json(s.t, &c)
	if got := c.offsets(); !slices.Equal(got, offsets) || c.Name != name || c.Topic != "orders" {
		s.t.Errorf("consumer %s is at %v, want %v: %s", name, got, offsets, a.body)
	}
	return c, a.Header.Get("ETag")
}

func (c consumerJSON) offsets() []seb.Offset {
	var offsets []seb.Offset
	for _, p := range c.Positions {
		offsets = append(offsets, p.Offset)
	}
	return offsets
}

// newServerWithTimes returns a server whose topic has two partitions, with one record per second from 0 s on. One
// of the records was deleted.
func newServerWithTimes(t *testing.T) *server {
	t.Helper()
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(2)
	for i := range 4 {
		for p := range 2 {
			s.post(fmt.Sprintf("%s?partition=%d", ordersPath, p), fmt.Sprint(i), "Seb-Timestamp", fmt.Sprintf("2026-01-31T12:00:0%dZ", i)).want(t, 201)
		}
	}
	s.do("DELETE", ordersPath+"?partition=1&before=1", nil).want(t, http.StatusOK)
	return s
}

func TestConsumerIsCreatedAndResetToEveryPlace(t *testing.T) {
	s := newServerWithTimes(t)
	for i, c := range []struct {
		body string
		want []seb.Offset
	}{
		{`{"from":"earliest"}`, []seb.Offset{0, 1}},
		{`{"from":"latest"}`, []seb.Offset{4, 4}},
		{`{"from":{"time":"2026-01-31T12:00:01.5Z"}}`, []seb.Offset{2, 2}},
		{`{"from":{"time":"2026-01-31T13:00:00+01:00"}}`, []seb.Offset{0, 1}},
		{`{"from":{"time":"2027-01-01T00:00:00Z"}}`, []seb.Offset{4, 4}},
		{` {"from" : {"offsets" : {"1" : 3, "0" : 0}}} `, []seb.Offset{0, 3}},
		{`{"from":{"offsets":{"0":4,"1":4}}}`, []seb.Offset{4, 4}},
	} {
		name := fmt.Sprint("created", i)
		created := s.setConsumer(name, c.body, http.StatusCreated)
		told, etag := s.wantConsumer(name, c.want...)
		var answered consumerJSON
		created.json(t, &answered)
		if diff := cmp.Diff(told, answered); diff != "" || created.Header.Get("ETag") != etag || etag == "" {
			t.Errorf("%s: created as %s with ETag %s, then %+v with %s", c.body, created.body, created.Header.Get("ETag"), told, etag)
		}
		before := s.setConsumer("reset", `{"from":{"offsets":{"0":1,"1":1}}}`, http.StatusCreated+min(i, 1)*(http.StatusOK-http.StatusCreated))
		reset := s.setConsumer("reset", c.body, http.StatusOK)
		if _, etag := s.wantConsumer("reset", c.want...); reset.Header.Get("ETag") != etag || etag == before.Header.Get("ETag") {
			t.Errorf("%s: the ETag was %s, is %s after the reset, and then %s", c.body, before.Header.Get("ETag"), reset.Header.Get("ETag"), etag)
		}
	}
	// A partition that the body does not name keeps its position, or begins at its start.
	s.setConsumer("reset", `{"from":"latest"}`, http.StatusOK)
	s.setConsumer("reset", `{"from":{"offsets":{"1":2}}}`, http.StatusOK)
	s.wantConsumer("reset", 4, 2)
	s.setConsumer("half", `{"from":{"offsets":{"0":2}}}`, http.StatusCreated)
	s.wantConsumer("half", 2, 1)
	// Without a position, an existing consumer keeps its position, and a new one begins at the start.
	for i, body := range []string{"", "{}", " \n"} {
		_, before := s.wantConsumer("reset", 4, 2)
		s.setConsumer("reset", body, http.StatusOK)
		if _, etag := s.wantConsumer("reset", 4, 2); etag != before {
			t.Errorf("%q: the ETag was %s and is %s", body, before, etag)
		}
		s.setConsumer(fmt.Sprint("bare", i), body, http.StatusCreated)
		s.wantConsumer(fmt.Sprint("bare", i), 0, 1)
	}
}

func TestConsumersAreListedWithPositionsAndLag(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		if a := s.get("/v1/topics/orders/consumers"); a.StatusCode != http.StatusNotFound {
			t.Errorf("consumers of no topic: %s", a.body)
		}
		s.createOrders(2)
		if a := s.get(consumersPath); a.body != `{"consumers":[],"next":null}`+"\n" {
			t.Errorf("none are listed as %s", a.body)
		}
		var z, first consumerJSON
		s.setConsumer("z", "", http.StatusCreated).json(t, &z)
		s.setConsumer("a", "", http.StatusCreated).json(t, &first)
		began := time.Now()
		s.append("other", "x")
		s.do("PUT", "/v1/topics/other/consumers/b", nil).want(t, http.StatusCreated)
		s.appendTo(0, "0", "1", "2")
		s.appendTo(1, "0", "1")
		time.Sleep(time.Hour) // fake time
		s.commit("a", `{"0":2,"1":2}`)
		s.do("DELETE", ordersPath+"?partition=0&before=1", nil).want(t, http.StatusOK)
		a := s.get(consumersPath)
		a.want(t, http.StatusOK)
		now, _ := s.wantConsumer("a", 2, 2)
		moved, err := time.Parse(timestampLayout, now.LastActivity)
		if late := moved.Sub(began) - time.Hour; err != nil || late < -time.Second || late > time.Second {
			t.Errorf("it was moved at %s, %v after it should: %v", now.LastActivity, late, err)
		}
		want := `{"consumers":[{"topic":"orders","name":"a","created":"` + first.Created + `","last_activity":"` + now.LastActivity + `","lag":1,` +
			`"positions":[{"partition":0,"offset":2,"start_offset":1,"end_offset":3,"lag":1,"missed":0},{"partition":1,"offset":2,"start_offset":0,"end_offset":2,"lag":0,"missed":0}]},` +
			`{"topic":"orders","name":"z","created":"` + z.Created + `","last_activity":"` + z.Created + `","lag":4,` +
			`"positions":[{"partition":0,"offset":0,"start_offset":1,"end_offset":3,"lag":2,"missed":1},{"partition":1,"offset":0,"start_offset":0,"end_offset":2,"lag":2,"missed":0}]}],"next":null}` + "\n"
		if a.body != want {
			t.Errorf("got  %swant %s", a.body, want)
		}
	})
}

func TestConsumerIsForgotten(t *testing.T) {
	s := newServerWith(t, 3)
	first := s.setConsumer("c", `{"from":"latest"}`, http.StatusCreated)
	s.do("DELETE", consumersPath+"/c", nil).want(t, http.StatusNoContent)
	for _, a := range []answer{s.get(consumersPath + "/c"), s.do("DELETE", consumersPath+"/c", nil), s.post(consumersPath+"/c/commit", `{"offsets":{"0":1}}`)} {
		p := a.wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound)
		if get := a.Request.Method == "GET"; (p.Outcome == "") != get || p.Hint == "" {
			t.Errorf("%s: %+v", a.Request.Method, p)
		}
	}
	if a := s.get(consumersPath); a.body != `{"consumers":[],"next":null}`+"\n" {
		t.Errorf("it is listed: %s", a.body)
	}
	again := s.setConsumer("c", "", http.StatusCreated)
	s.wantConsumer("c", 0)
	if again.Header.Get("ETag") == first.Header.Get("ETag") {
		t.Error("another consumer has the same ETag")
	}
	if a := s.get(ordersPath); withoutLogTimes(a.body) != lines(0, 1, 2) {
		t.Errorf("of the records there are %s", a.body)
	}
}

// Once a commit is answered, every broker that starts later knows it.
func TestCommitIsDurableWhenItAnswers(t *testing.T) {
	store := objstore.NewMemory()
	s := newServerOn(t, store, seb.Options{}, Options{})
	s.createOrders(2)
	s.appendTo(0, "a", "b", "c")
	s.appendTo(1, "d")
	s.setConsumer("c", `{"from":"latest"}`, http.StatusCreated)
	for _, offsets := range []string{`{"0":0,"1":0}`, `{"0":2}`, `{"1":1}`, `{"0":1}`} { // a position may also move back
		a := s.commit("c", offsets)
		if want := `{"offsets":` + offsets + "}\n"; a.body != want {
			t.Errorf("got %s, want %s", a.body, want)
		}
		_, etag := s.wantConsumer("c", s.positionsOf("c")...)
		a.wantHeader(t, "ETag", etag)
		another := newServerOn(t, store, seb.Options{}, Options{})
		another.wantConsumer("c", s.positionsOf("c")...)
	}
	s.wantConsumer("c", 1, 1)
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	again := newServerOn(t, store, seb.Options{}, Options{})
	again.wantConsumer("c", 1, 1)
	if a := again.get(consumersPath + "/c/records"); a.Header.Get("Seb-Next-Offsets") != `{"0":3}` {
		t.Errorf("it reads %s", a.body)
	}
}

func (s *server) positionsOf(name string) []seb.Offset {
	s.t.Helper()
	info, err := s.broker.Consumer("orders", name).Describe(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var offsets []seb.Offset
	for _, p := range info.Positions {
		offsets = append(offsets, p.Next)
	}
	return offsets
}

func TestCommitIfMatch(t *testing.T) {
	store, alert := objstore.NewMemory(), seb.Options{StaleMax: time.Nanosecond}
	one, two := newServerOn(t, store, alert, Options{}), newServerOn(t, store, alert, Options{})
	one.append("orders", "a\nb\nc\n", "Content-Type", typeNDJSON)
	etag := one.setConsumer("c", "", http.StatusCreated).Header.Get("ETag")
	moved := two.commit("c", `{"0":1}`, "If-Match", etag)
	for _, s := range []*server{one, two} {
		p := s.post(consumersPath+"/c/commit", `{"offsets":{"0":2}}`, "If-Match", etag).wantProblem(t, http.StatusPreconditionFailed, seb.CodePositionConflict)
		if p.Outcome != string(seb.NotCommitted) || p.Hint == "" {
			t.Errorf("the problem is %+v", p)
		}
		s.wantConsumer("c", 1)
	}
	etag = one.commit("c", `{"0":2}`, "If-Match", moved.Header.Get("ETag")).Header.Get("ETag")
	if _, now := two.wantConsumer("c", 2); now != etag {
		t.Errorf("the ETag is %s, the commit's was %s", now, etag)
	}
	one.commit("c", `{"0":3}`, "If-Match", "*")
	for _, header := range []string{"7.3", `W/"7.3"`, `"1.1", "1.2"`, `""`, "`1.1`", `'1.1'`, "", " "} {
		one.post(consumersPath+"/c/commit", `{"offsets":{"0":2}}`, "If-Match", header).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	for _, header := range [][]string{{"If-Match", etag}, {"If-Match", ""}, {"If-None-Match", "*"}} {
		one.do("PUT", consumersPath+"/c", strings.NewReader(`{"from":"earliest"}`), header...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		one.do("DELETE", consumersPath+"/c", nil, header...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	one.wantConsumer("c", 3)
}

// If several callers commit with the same If-Match at the same time, through any brokers, exactly one succeeds.
func TestCommitIfMatchIsWonByOne(t *testing.T) {
	store := objstore.NewMemory()
	servers := []*server{newServerOn(t, store, seb.Options{}, Options{}), newServerOn(t, store, seb.Options{}, Options{})}
	servers[0].append("orders", "a\nb\nc\nd\n", "Content-Type", typeNDJSON)
	etag := servers[0].setConsumer("c", "", http.StatusCreated).Header.Get("ETag")
	var wg sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		wg.Go(func() {
			statuses[i] = servers[i%2].post(consumersPath+"/c/commit", fmt.Sprintf(`{"offsets":{"0":%d}}`, i%4), "If-Match", etag).StatusCode
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	if want := []int{200, 412, 412, 412, 412, 412, 412, 412}; !slices.Equal(statuses, want) {
		t.Errorf("the answers are %v", statuses)
	}
}

func TestConsumerRequestsThatMakeNoSense(t *testing.T) {
	s := newServerWithTimes(t)
	s.setConsumer("c", `{"from":{"offsets":{"0":1,"1":1}}}`, http.StatusCreated)
	put, commit := "PUT "+consumersPath+"/c", "POST "+consumersPath+"/c/commit"
	for _, c := range []struct {
		request, body string
		status        int
		code          seb.Code
		detail        string
	}{
		{put, `[]`, 400, seb.CodeInvalidRequest, ""},
		{put, `{`, 400, seb.CodeInvalidRequest, ""},
		{put, `{} {}`, 400, seb.CodeInvalidRequest, ""},
		{put, `null`, 400, seb.CodeInvalidRequest, ""},
		{put, `{"to":"latest"}`, 400, seb.CodeInvalidRequest, `"to"`},
		{put, `{"from":"yesterday"}`, 400, seb.CodeInvalidRequest, "yesterday"},
		{put, `{"from":null}`, 400, seb.CodeInvalidRequest, "from"},
		{put, `{"from":41}`, 400, seb.CodeInvalidRequest, "from"},
		{put, `{"from":{}}`, 400, seb.CodeInvalidRequest, "either time or offsets"},
		{put, `{"from":{"time":"2026-01-31T12:00:00Z","offsets":{"0":1}}}`, 400, seb.CodeInvalidRequest, "either time or offsets"},
		{put, `{"from":{"time":"noon"}}`, 400, seb.CodeInvalidRequest, "noon"},
		{put, `{"from":{"time":null}}`, 400, seb.CodeInvalidRequest, "time"},
		{put, `{"from":{"offset":41}}`, 400, seb.CodeInvalidRequest, `"offset"`},
		{put, `{"from":{"offsets":{}}}`, 400, seb.CodeInvalidRequest, "no offsets"},
		{put, `{"from":{"offsets":{"0":null}}}`, 400, seb.CodeInvalidRequest, "null"},
		{put, `{"from":{"offsets":{"0":1,"0":2}}}`, 400, seb.CodeInvalidRequest, ""},
		{put, `{"from":{"offsets":{"0":-1}}}`, 400, seb.CodeInvalidRequest, "an offset"},
		{put, `{"from":{"offsets":{"0":1.5}}}`, 400, seb.CodeInvalidRequest, "an offset"},
		{put, `{"from":{"offsets":{"00":1}}}`, 400, seb.CodeInvalidRequest, `"00"`},
		{put, `{"from":{"offsets":{"-1":1}}}`, 400, seb.CodeInvalidRequest, `"-1"`},
		{put, `{"from":{"offsets":{"2147483648":1}}}`, 400, seb.CodeInvalidRequest, "2147483648"},
		{put, `{"from":{"offsets":{"0":5}}}`, 416, seb.CodeOffsetOutOfRange, "5 is outside"},
		{put, `{"from":{"offsets":{"1":0}}}`, 416, seb.CodeOffsetOutOfRange, "0 is outside"},
		{put, `{"from":{"offsets":{"2":0}}}`, 404, seb.CodePartitionNotFound, "partition 2"},
		{put + "?from=latest", ``, 400, seb.CodeInvalidRequest, "from"},
		{commit, ``, 400, seb.CodeInvalidRequest, ""},
		{commit, `{}`, 400, seb.CodeInvalidRequest, "no offsets"},
		{commit, `{"offsets":null}`, 400, seb.CodeInvalidRequest, "offsets"},
		{commit, `{"offsets":{}}`, 400, seb.CodeInvalidRequest, "no offsets"},
		{commit, `{"offsets":[2]}`, 400, seb.CodeInvalidRequest, "offsets"},
		{commit, `{"offsets":{"0":"2"}}`, 400, seb.CodeInvalidRequest, "an offset"},
		{commit, `{"offsets":{"0":9223372036854775808}}`, 400, seb.CodeInvalidRequest, "an offset"},
		{commit, `{"offsets":{"zero":1}}`, 400, seb.CodeInvalidRequest, `"zero"`},
		{commit, `{"offset":{"0":2}}`, 400, seb.CodeInvalidRequest, `"offset"`},
		{commit, `{"offsets":{"0":2,"1":5}}`, 416, seb.CodeOffsetOutOfRange, "5 is outside"},
		{commit, `{"offsets":{"0":2,"2":0}}`, 404, seb.CodePartitionNotFound, "partition 2"},
		{"POST " + consumersPath + "/nobody/commit", `{"offsets":{"0":2}}`, 404, seb.CodeConsumerNotFound, "nobody"},
		{"POST /v1/topics/nothing/consumers/c/commit", `{"offsets":{"0":2}}`, 404, seb.CodeTopicNotFound, "nothing"},
		{"PUT /v1/topics/nothing/consumers/c", ``, 404, seb.CodeTopicNotFound, "nothing"},
		{"PUT /v1/topics/nothing/consumers/c", `{"from":{"time":"2026-01-31T12:00:00Z"}}`, 404, seb.CodeTopicNotFound, "nothing"},
		{"DELETE /v1/topics/nothing/consumers/c", ``, 404, seb.CodeTopicNotFound, "nothing"},
		{"PUT " + consumersPath + "/a%2Fb", ``, 400, seb.CodeInvalidRequest, "a/b"},
		{"PUT " + consumersPath + "/" + strings.Repeat("x", 250), ``, 400, seb.CodeInvalidRequest, "xxx"},
		{"DELETE " + consumersPath + "/a%20b", ``, 400, seb.CodeInvalidRequest, "a b"},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		p := s.do(method, path, strings.NewReader(c.body)).wantProblem(t, c.status, c.code)
		if !strings.Contains(p.Detail, c.detail) || p.Hint == "" || c.status != 400 && p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%s %s: %+v", c.request, c.body, p)
		}
		if c.status == 416 && (p.StartOffset == nil || *p.EndOffset != 4) {
			t.Errorf("%s %s: it does not tell the bounds: %+v", c.request, c.body, p)
		}
	}
	s.wantConsumer("c", 1, 1)
	s.get(consumersPath+"/nobody").wantProblem(t, 404, seb.CodeConsumerNotFound)
	s.get("/v1/topics/nothing/consumers/c").wantProblem(t, 404, seb.CodeTopicNotFound)
	s.get(consumersPath+"/a%20b").wantProblem(t, 400, seb.CodeInvalidRequest)
	s.post(consumersPath+"/c", `{}`).wantProblem(t, 405, codeMethodNotAllowed)
	s.post(consumersPath+"/c/records", `{}`).wantProblem(t, 405, codeMethodNotAllowed)
}

func TestConsumersAreLimited(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{Consumers: 2}}, Options{})
	s.append("orders", "x")
	s.setConsumer("a", "", http.StatusCreated)
	s.get(consumersPath+"/b/records").want(t, http.StatusOK)
	p := s.do("PUT", consumersPath+"/c", nil).wantProblem(t, http.StatusConflict, seb.CodeTooManyConsumers)
	if p.Limit != 2 || p.Outcome != string(seb.NotCommitted) || !strings.Contains(p.Hint, "--consumers-max") {
		t.Errorf("the problem is %+v", p)
	}
	if p := s.get(consumersPath+"/c/records").wantProblem(t, http.StatusConflict, seb.CodeTooManyConsumers); p.Outcome != "" {
		t.Errorf("a read says of its outcome %q", p.Outcome)
	}
	s.setConsumer("a", `{"from":"latest"}`, http.StatusOK)
	s.do("DELETE", consumersPath+"/a", nil).want(t, http.StatusNoContent)
	s.setConsumer("c", "", http.StatusCreated)
}

// A topic that is created again has none of the old topic's consumers, on any broker.
func TestConsumersGoWithTheirTopic(t *testing.T) {
	store := objstore.NewMemory()
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		other := openBroker(t, store, seb.Options{})
		s.append("orders", "a\nb\nc\n", "Content-Type", typeNDJSON)
		etag := s.setConsumer("c", `{"from":"latest"}`, http.StatusCreated).Header.Get("ETag")
		if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		s.post(consumersPath+"/c/commit", `{"offsets":{"0":1}}`).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
		if _, err := other.Append(t.Context(), "orders", []seb.Record{{Value: []byte("new")}, {Value: []byte("newer")}}); err != nil {
			t.Fatal(err)
		}
		s.post(consumersPath+"/c/commit", `{"offsets":{"0":1}}`, "If-Match", etag).wantProblem(t, http.StatusNotFound, seb.CodeConsumerNotFound)
		if a := s.get(consumersPath + "/c/records"); !strings.Contains(a.body, `"new"`) || a.Header.Get("Seb-Next-Offsets") != `{"0":2}` {
			t.Errorf("the new topic is read as %s", a.body)
		}
		s.post(consumersPath+"/c/commit", `{"offsets":{"0":1}}`, "If-Match", etag).wantProblem(t, http.StatusPreconditionFailed, seb.CodePositionConflict)
	})
}

// The error of a failed commit says whether it may have been committed. The commit can be sent again.
func TestCommitSaysWhatBecameOfItWhenTheStoreIsAway(t *testing.T) {
	store := &brokenStore{Store: objstore.NewMemory()}
	bubbleOn(t, store, seb.Options{AppendTimeout: time.Minute}, Options{}, 0, func(t *testing.T, s *server) {
		defer store.down.Store(false)
		s.append("orders", "a\nb\n", "Content-Type", typeNDJSON)
		s.setConsumer("c", "", http.StatusCreated)
		store.down.Store(true)
		p := s.post(consumersPath+"/c/commit", `{"offsets":{"0":1}}`).wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
		if p.Outcome != string(seb.Unknown) {
			t.Errorf("the problem is %+v", p)
		}
		time.Sleep(30 * time.Second) // fake time; by then the last sync is old
		for _, a := range []answer{
			s.do("PUT", consumersPath+"/d", nil), s.get(consumersPath + "/d/records"), s.do("DELETE", consumersPath+"/c", nil),
		} {
			p := a.wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
			if want := map[bool]string{true: "", false: string(seb.NotCommitted)}[a.Request.Method == "GET"]; p.Outcome != want {
				t.Errorf("%s %s: %+v", a.Request.Method, a.Request.URL, p)
			}
		}
		for _, path := range []string{"", "/c", "/c/records"} { // the known state is still shown
			s.get(consumersPath+path).want(t, http.StatusOK)
		}
		store.down.Store(false)
		time.Sleep(30 * time.Second) // fake time; an idle connection is closed after a minute
		s.commit("c", `{"0":1}`)
		s.wantConsumer("c", 1)
		synctest.Wait()
	})
}
