package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// wireCut is a cut as clients see it. They send Topics as it is.
type wireCut struct {
	LogTime      string          `json:"log_time"`
	StoreTime    string          `json:"store_time"`
	StoreTimeAge string          `json:"store_time_age"`
	Topics       json.RawMessage `json:"topics"`
}

func (s *server) cut(query string) (c wireCut) {
	s.t.Helper()
	a := s.get("/v1/cut" + query)
	a.want(s.t, http.StatusOK)
	a.json(s.t, &c)
	return c
}

func TestCutOverHTTP(t *testing.T) {
	s := newCommitServer(t, seb.Options{})
	cut := s.cut("?topic=payments&topic=orders")
	want := fmt.Sprintf(`[{"topic":"payments","id":%q,"ends":{"0":0,"1":0}},{"topic":"orders","id":%q,"ends":{"0":3}}]`,
		s.broker.TopicTag(2), s.broker.TopicTag(1))
	if string(cut.Topics) != want {
		t.Errorf("the cut is %s, want %s", cut.Topics, want)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`).MatchString(cut.LogTime) {
		t.Errorf("the log time is %q", cut.LogTime)
	}
	for query, code := range map[string]seb.Code{
		"":                           seb.CodeInvalidRequest,
		"?topic=":                    seb.CodeInvalidTopicName,
		"?topic=orders&topic=orders": seb.CodeInvalidRequest,
		"?topic=orders&partition=0":  seb.CodeInvalidRequest,
		"?topic=orders&topic=none":   seb.CodeTopicNotFound,
	} {
		s.get("/v1/cut"+query).wantProblem(t, statuses[code], code)
	}
	s.get("/v1/cut?topic=orders", "Seb-Key", "k").wantProblem(t, 400, seb.CodeInvalidRequest)
	s.wantNothingReserved()
}

// A cut with later waits for a commit, up to wait, and answers in any case. While it waits, it costs no request to the store.
func TestCutLaterOverHTTP(t *testing.T) {
	s := newCommitServer(t, seb.Options{})
	cut := s.cut("?topic=orders")
	if at, err := time.Parse(time.RFC3339, cut.StoreTime); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("the store's time is %q", cut.StoreTime)
	}
	if age, err := time.ParseDuration(cut.StoreTimeAge); err != nil || age < 0 || age > time.Minute {
		t.Errorf("the store's time is of an answer that is %q old", cut.StoreTimeAge)
	}
	for _, wait := range []string{"", "&wait=0s", "&wait=20ms"} {
		if again := s.cut("?topic=orders&later=" + cut.LogTime + wait); again.LogTime != cut.LogTime || string(again.Topics) != string(cut.Topics) {
			t.Errorf("%s: %+v", wait, again)
		}
	}
	done := make(chan wireCut)
	go func() { done <- s.cut("?topic=payments&topic=orders&wait=5m&later=" + cut.LogTime) }()
	s.append("orders", "another")
	if later := <-done; later.LogTime <= cut.LogTime || !strings.Contains(string(later.Topics), `"ends":{"0":4}`) {
		t.Errorf("%+v", later)
	}
	for _, query := range []string{"later=", "later=yesterday", "later=1969-12-31T23:59:59Z", "wait=1s", "later=2026-01-31T12:00:00Z&wait=6m",
		"later=2026-01-31T12:00:00Z&wait=1s&wait=2s"} {
		s.get("/v1/cut?topic=orders&"+query).wantProblem(t, 400, seb.CodeInvalidRequest)
	}
	s.get("/v1/cut?topic=none&later=2099-01-31T12:00:00Z&wait=5m").wantProblem(t, 404, seb.CodeTopicNotFound)
	s.wantNothingReserved()
}

// A cut that waits is answered when its broker begins to shut down, and when one of its topics is deleted.
func TestCutLaterEndsOverHTTP(t *testing.T) {
	for name, test := range map[string]struct {
		act  func(s *server)
		want int
	}{
		"drain":  {func(s *server) { s.handler.drain() }, http.StatusOK},
		"delete": {func(s *server) { s.do("DELETE", "/v1/topics/orders", nil).want(s.t, http.StatusNoContent) }, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCommitServer(t, seb.Options{})
			cut := s.cut("?topic=orders")
			done := make(chan answer)
			go func() { done <- s.get("/v1/cut?topic=orders&wait=5m&later=" + cut.LogTime) }()
			test.act(s)
			a := <-done
			a.want(t, test.want)
			s.wantNothingReserved()
		})
	}
}

func TestCutOfManyPartitions(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/wide", strings.NewReader(`{"partitions":1000}`)).want(t, http.StatusCreated)
	var topics []struct{ Ends map[string]int }
	if err := json.Unmarshal(s.cut("?topic=wide").Topics, &topics); err != nil || len(topics[0].Ends) != 1000 {
		t.Errorf("%v, %v", topics, err)
	}
	s.wantNothingReserved()
}

func TestConditionsOverHTTP(t *testing.T) {
	s := newCommitServer(t, seb.Options{Limits: seb.Limits{CommitParts: 4}})
	s.append("reminders", "first")
	cut := s.cut("?topic=payments&topic=orders")
	body := func(ends, after string) string {
		return fmt.Sprintf(`{"ends":%s,"after":%s,"appends":[{"topic":"reminders","records":[{"value":"r"}]}]}`, ends, after)
	}
	ends, after := string(cut.Topics), `"`+cut.LogTime+`"`
	s.post(commitsPath, body(ends, after)).want(t, http.StatusOK)
	s.post(commitsPath, body(ends, "null")).want(t, http.StatusOK)
	s.post(commitsPath, body("[]", after)).want(t, http.StatusOK)
	later := `"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano) + `"`
	for name, c := range map[string]struct {
		ends, after string
		status      int
		code        seb.Code
		part        string
	}{
		"later":             {ends, later, 412, seb.CodeTooEarly, "after"},
		"another end":       {strings.Replace(ends, `"0":3`, `"0":2`, 1), after, 412, seb.CodeEndsConflict, "ends/1"},
		"another id":        {strings.Replace(ends, s.broker.TopicTag(1), s.broker.TopicTag(7), 1), after, 412, seb.CodeEndsConflict, "ends/1"},
		"too few":           {strings.Replace(ends, `,"1":0`, ``, 1), after, 412, seb.CodeEndsConflict, "ends/0"},
		"no id":             {`[{"topic":"orders","ends":{"0":3}}]`, after, 400, seb.CodeInvalidRequest, "ends/0"},
		"no ends":           {`[{"topic":"orders","id":"0123abcd.1"}]`, after, 400, seb.CodeInvalidRequest, "ends/0"},
		"no topic":          {`[{"id":"0123abcd.1","ends":{"0":3}}]`, after, 400, seb.CodeInvalidTopicName, "ends/0"},
		"unknown field":     {`[{"topic":"orders","id":"0123abcd.1","offsets":{"0":3}}]`, after, 400, seb.CodeInvalidRequest, "ends/0"},
		"null end":          {`[{"topic":"orders","id":"0123abcd.1","ends":{"0":null}}]`, after, 400, seb.CodeInvalidRequest, "ends/0"},
		"no list":           {"null", after, 400, seb.CodeInvalidRequest, ""},
		"number":            {ends, "1", 400, seb.CodeInvalidRequest, "after"},
		"no time":           {ends, `"tomorrow"`, 400, seb.CodeInvalidRequest, "after"},
		"before 1970":       {ends, `"1969-12-31T23:59:59Z"`, 400, seb.CodeInvalidRequest, "after"},
		"beyond RFC 3339":   {ends, `"9999-12-31T23:59:59-01:00"`, 400, seb.CodeInvalidRequest, "after"},
		"too many of these": {strings.TrimSuffix(ends, "]") + `,{"topic":"a"},{"topic":"b"}]`, after, 413, seb.CodeRequestTooLarge, ""},
	} {
		p := s.post(commitsPath, body(c.ends, c.after)).wantProblem(t, c.status, c.code)
		if p.Part != c.part || p.Outcome != string(seb.NotCommitted) || p.Hint == "" {
			t.Errorf("%s: the problem is %+v, want it of part %q", name, p, c.part)
		}
	}
	s.append("orders", "3")
	s.post(commitsPath, body(ends, after)).wantProblem(t, 412, seb.CodeEndsConflict)
	if got := s.values("reminders", 0); got != "first r r r" {
		t.Errorf("reminders holds %s", got)
	}
	s.wantNothingReserved()
}

func TestCutNeedsReadForEachTopic(t *testing.T) {
	s := newCommitServer(t, seb.Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, reader := newKey(t, s.broker, "reader", seb.ScopeRead, "orders")
	_, writer := newKey(t, s.broker, "writer", seb.ScopeWrite, "*")
	_, both := newKey(t, s.broker, "both", seb.ScopeRead|seb.ScopeWrite, "orders")
	s.get("/v1/cut?topic=orders&topic=payments", bearer(ops)...).want(t, http.StatusOK)
	s.get("/v1/cut?topic=orders", bearer(reader)...).want(t, http.StatusOK)
	for _, query := range []string{"?topic=orders&topic=payments", "?topic=payments", "?topic=none", "?topic=payments&topic=orders"} {
		s.get("/v1/cut"+query, bearer(reader)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	}
	s.get("/v1/cut?topic=orders", bearer(writer)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	s.get("/v1/cut?topic=orders").wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)

	body := func(topic string) string {
		return fmt.Sprintf(`{"appends":[{"topic":"orders","records":[{"value":"o"}]}],"ends":[{"topic":%q,"id":%q,"ends":{"0":0,"1":0}}]}`,
			topic, s.broker.TopicTag(2))
	}
	for _, topic := range []string{"payments", "none"} { // a caller must not learn where a topic ends, or whether it exists
		if p := s.post(commitsPath, body(topic), bearer(both)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden); p.Part != "ends/0" {
			t.Errorf("the problem is %+v", p)
		}
	}
	s.post(commitsPath, body("orders"), bearer(both)...).wantProblem(t, http.StatusPreconditionFailed, seb.CodeEndsConflict)
	s.post(commitsPath, body("payments"), bearer(ops)...).want(t, http.StatusOK)
	nameless := strings.Replace(body("payments"), `"topic":"payments",`, "", 1)
	s.post(commitsPath, nameless, bearer(both)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
}
