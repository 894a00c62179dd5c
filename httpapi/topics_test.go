package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

func TestTopicLifecycle(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const path = "/v1/topics/orders"
	put := func(body string) answer { return s.do("PUT", path, strings.NewReader(body)) }

	s.get(path).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	put(`{"partitions":2,"config":{}}`).want(t, http.StatusCreated)
	put(`{"partitions":2}`).want(t, http.StatusOK)
	put(`{"partitions":3}`).wantProblem(t, http.StatusConflict, seb.CodeTopicExists)
	put("").wantProblem(t, http.StatusConflict, seb.CodeTopicExists)

	const empty = `{"partition":0,"start_offset":0,"end_offset":0,"bytes":0,"last_timestamp":null}`
	made, err := s.broker.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"orders","topic_id":"` + s.broker.TopicTag(made.ID) + `","created":"` + made.Created.Format(timestampLayout) + `","partitions":[` + empty + `,` + strings.Replace(empty, ":0", ":1", 1) + `],"config":{"retention":null,"retention_bytes":null,"retention_past_queues":false}}` + "\n"
	if got := s.get(path); got.body != want {
		t.Errorf("topic is %s, want %s", got.body, want)
	}

	patch := func(body string) answer { return s.do("PATCH", path, strings.NewReader(body)) }
	grown := patch(`{"partitions":3}`)
	grown.want(t, http.StatusOK)
	var topic topicJSON
	if grown.json(t, &topic); len(topic.Partitions) != 3 {
		t.Errorf("patched topic has %d partitions, want 3", len(topic.Partitions))
	}
	patch(`{"partitions":1}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	patch(`{}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)

	s.do("DELETE", path, nil).want(t, http.StatusNoContent)
	s.do("DELETE", path, nil).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	patch(`{"partitions":4}`).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
}

func TestTopicShowsWhatItHolds(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "one", "Seb-Timestamp", "2026-01-31T12:00:00.25Z")
	var topic topicJSON
	s.get("/v1/topics/orders").json(t, &topic)
	p := topic.Partitions[0]
	if p.EndOffset != 1 || p.Bytes == 0 || p.LastTimestamp == nil || *p.LastTimestamp != "2026-01-31T12:00:00.250Z" {
		t.Errorf("partition is %+v", p)
	}
}

func TestTopicList(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	if got := s.get("/v1/topics").body; got != `{"topics":[],"next":null}`+"\n" {
		t.Errorf("empty list is %s", got)
	}
	for _, name := range []string{"b", "a"} {
		s.do("PUT", "/v1/topics/"+name, nil).want(t, http.StatusCreated)
	}
	var list struct{ Topics []topicJSON }
	a := s.get("/v1/topics")
	a.json(t, &list)
	if len(list.Topics) != 2 || list.Topics[0].Name != "a" || list.Topics[1].Name != "b" || len(list.Topics[0].Partitions) != 1 {
		t.Errorf("list is %s", a.body)
	}
}

func TestTopicRefusals(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{Topics: 1, Partitions: 4}}, Options{})
	for _, c := range []struct {
		name, path, body string
		status           int
		code             seb.Code
		detail           string
	}{
		{"an invalid name", "/v1/topics/a%20b", "", 400, seb.CodeInvalidTopicName, ""},
		{"a name with a slash", "/v1/topics/a%2Fb", "", 400, seb.CodeInvalidTopicName, ""},
		{"an unknown field", "/v1/topics/a", `{"partition":1}`, 400, seb.CodeInvalidRequest, `"partition"`},
		{"a field twice", "/v1/topics/a", `{"partitions":1,"partitions":2}`, 400, seb.CodeInvalidRequest, "twice"},
		{"a field in capitals", "/v1/topics/a", `{"Partitions":1}`, 400, seb.CodeInvalidRequest, `"Partitions"`},
		{"an unknown config key", "/v1/topics/a", `{"config":{"retain":"1h"}}`, 400, seb.CodeInvalidRequest, `"retain"`},
		{"a retention that is no duration", "/v1/topics/a", `{"config":{"retention":"a week"}}`, 400, seb.CodeInvalidRequest, "a week"},
		{"a retention without a unit", "/v1/topics/a", `{"config":{"retention":"7"}}`, 400, seb.CodeInvalidRequest, `"7"`},
		{"a retention that is a number", "/v1/topics/a", `{"config":{"retention":7}}`, 400, seb.CodeInvalidRequest, "retention"},
		{"a negative retention", "/v1/topics/a", `{"config":{"retention":"-1h"}}`, 400, seb.CodeInvalidRequest, "-1h"},
		{"negative bytes", "/v1/topics/a", `{"config":{"retention_bytes":-1}}`, 400, seb.CodeInvalidRequest, "retention_bytes"},
		{"a config that is no object", "/v1/topics/a", `{"config":1}`, 400, seb.CodeInvalidRequest, "config"},
		{"no partitions", "/v1/topics/a", `{"partitions":0}`, 400, seb.CodeInvalidRequest, "partitions"},
		{"partitions that are no number", "/v1/topics/a", `{"partitions":"1"}`, 400, seb.CodeInvalidRequest, "partitions"},
		{"broken JSON", "/v1/topics/a", `{"partitions":1`, 400, seb.CodeInvalidRequest, "byte 15"},
		{"JSON that goes on", "/v1/topics/a", `{} {}`, 400, seb.CodeInvalidRequest, "byte"},
		{"a list", "/v1/topics/a", `[]`, 400, seb.CodeInvalidRequest, "object"},
		{"a query", "/v1/topics/a?partitions=2", "", 400, seb.CodeInvalidRequest, `"partitions"`},
		{"too many partitions", "/v1/topics/a", `{"partitions":5}`, 400, seb.CodeTooManyPartitions, ""},
		{"a body too large", "/v1/topics/a", strings.Repeat(" ", topicBodyBytesMax+1), 413, seb.CodeRequestTooLarge, "65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.do("PUT", c.path, strings.NewReader(c.body)).wantProblem(t, c.status, c.code)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("detail %q does not tell of %s", p.Detail, c.detail)
			}
		})
	}
	s.do("PUT", "/v1/topics/a", strings.NewReader(`{"partitions":null,"config":null}`)).want(t, http.StatusCreated)
	s.do("PUT", "/v1/topics/b", nil).wantProblem(t, http.StatusConflict, seb.CodeTooManyTopics)
}

func TestTopicConfigIsStoredAndChanged(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const path = "/v1/topics/orders"
	config := func(method, body string, status int) string {
		t.Helper()
		a := s.do(method, path, strings.NewReader(body))
		a.want(t, status)
		_, after, _ := strings.Cut(a.body, `"config":`)
		config, progress, ok := strings.Cut(strings.TrimSuffix(after, "}\n"), `,"retention":`)
		if want := `{"oldest":null,"next":null,"held_by_queue":null,"waits":null}`; !ok || progress != want {
			t.Errorf("%s %s: the progress of retention is %s, want %s", method, body, progress, want)
		}
		return config
	}
	for _, c := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"PUT", `{"config":{"retention":"168h","retention_bytes":1000}}`, 201, `{"retention":"168h0m0s","retention_bytes":1000,"retention_past_queues":false}`},
		{"PUT", `{"config":{"retention":"168h"}}`, 200, `{"retention":"168h0m0s","retention_bytes":1000,"retention_past_queues":false}`},
		{"PUT", ``, 200, `{"retention":"168h0m0s","retention_bytes":1000,"retention_past_queues":false}`},
		{"PATCH", `{"config":{"retention_bytes":null}}`, 200, `{"retention":"168h0m0s","retention_bytes":null,"retention_past_queues":false}`},
		{"PATCH", `{"partitions":2,"config":{"retention":"90m"}}`, 200, `{"retention":"1h30m0s","retention_bytes":null,"retention_past_queues":false}`},
		{"GET", ``, 200, `{"retention":"1h30m0s","retention_bytes":null,"retention_past_queues":false}`},
	} {
		if got := config(c.method, c.body, c.status); got != c.want {
			t.Errorf("%s %s: the config is %s, want %s", c.method, c.body, got, c.want)
		}
	}
	s.do("PUT", path, strings.NewReader(`{"partitions":2,"config":{"retention":"1h"}}`)).wantProblem(t, http.StatusConflict, seb.CodeTopicExists)
	s.do("PATCH", path, strings.NewReader(`{"config":{}}`)).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

func TestDeleteRecords(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "0\n1\n2\n", "Content-Type", typeNDJSON)
	del := func(query string) answer { return s.do("DELETE", ordersPath+query, nil) }
	for _, query := range []string{"", "?before=1", "?partition=0", "?partition=0&before=", "?partition=0&before=-1", "?partition=0&before=latest", "?partition=0&before=1&after=2"} {
		del(query).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	p := del("?partition=0&before=4").wantProblem(t, http.StatusRequestedRangeNotSatisfiable, seb.CodeOffsetOutOfRange)
	if *p.StartOffset != 0 || *p.EndOffset != 3 {
		t.Errorf("the problem is %+v", p)
	}
	del("?partition=1&before=0").wantProblem(t, http.StatusNotFound, seb.CodePartitionNotFound)
	s.do("DELETE", "/v1/topics/none/records?partition=0&before=0", nil).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)

	for range 2 {
		a := del("?partition=0&before=2")
		a.want(t, http.StatusOK)
		var left partitionJSON
		if a.json(t, &left); left.StartOffset != 2 || left.EndOffset != 3 {
			t.Errorf("left is %+v", left)
		}
	}
	for _, path := range []string{ordersPath + "/1", ordersPath + "?offset=1"} {
		p := s.get(path).wantProblem(t, http.StatusRequestedRangeNotSatisfiable, seb.CodeOffsetOutOfRange)
		if *p.StartOffset != 2 || *p.EndOffset != 3 {
			t.Errorf("%s: the problem is %+v", path, p)
		}
	}
	if got := s.get(ordersPath).body; strings.Count(got, "\n") != 1 || !strings.Contains(got, `"offset":2`) {
		t.Errorf("what is left is read as %s", got)
	}
}

func TestTopicNamesAreKafkas(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, name := range []string{"a", "Orders.2026_v-1", "...", "-", strings.Repeat("x", 249)} {
		s.do("PUT", "/v1/topics/"+name, nil).want(t, http.StatusCreated)
		s.append(name, "v")
	}
	for _, name := range []string{"%2e", "%2e%2e", "a%20b", "a:b", "a*", "a%2Fb", "%C3%A9", "a%00", strings.Repeat("x", 250)} {
		for _, a := range []answer{
			s.do("PUT", "/v1/topics/"+name, nil), s.get("/v1/topics/" + name), s.do("DELETE", "/v1/topics/"+name, nil),
			s.post("/v1/topics/"+name+"/records", "v"), s.get("/v1/topics/" + name + "/records"),
		} {
			a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidTopicName)
		}
	}
}

func TestTopicOfTheSameNameSharesNothing(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", strings.NewReader(`{"partitions":3,"config":{"retention":"1h"}}`)).want(t, http.StatusCreated)
	s.post(ordersPath+"?partition=0", "old", "Idempotency-Key", "k").want(t, http.StatusCreated)
	s.do("DELETE", "/v1/topics/orders", nil).want(t, http.StatusNoContent)
	s.get(ordersPath).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)

	a := s.append("orders", "new", "Idempotency-Key", "k")
	a.wantHeader(t, "Idempotency-Replayed", "")
	if !strings.Contains(a.body, `"partition":0,"offset":0,`) {
		t.Errorf("the first append is answered %s", a.body)
	}
	if got := s.get(ordersPath).body; strings.Count(got, "\n") != 1 || !strings.Contains(got, `"new"`) {
		t.Errorf("it has %s", got)
	}
	var topic topicJSON
	if s.get("/v1/topics/orders").json(t, &topic); len(topic.Partitions) != 1 || topic.Config.Retention != nil {
		t.Errorf("it is %+v", topic)
	}
}

// The answer to the deletion of a dead-letter topic names the queue that uses it, unless the caller may not see that
// queue.
func TestDeletingADeadLetterTopicWarns(t *testing.T) {
	for _, test := range []struct{ topics, want string }{{"*", "dead is still the dead-letter topic of queue mail of orders"}, {"dead", ""}} {
		s := newServerWithQueue(t, 1, "")
		s.append("dead", "x")
		s.setQueue("mail", `{"dead_letter_topic":"dead"}`, http.StatusOK)
		newKey(t, s.broker, "all", seb.ScopeAdmin)
		_, key := newKey(t, s.broker, "deleter", seb.ScopeAdmin, test.topics)
		a := s.do("DELETE", "/v1/topics/dead", nil, bearer(key)...)
		a.want(t, http.StatusNoContent)
		if got := a.Header.Get(warningHeader); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("for %s: %q", test.topics, got)
		}
	}
}
