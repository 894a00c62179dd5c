package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
)

const (
	queuesPath = "/v1/topics/orders/queues"
	mailPath   = queuesPath + "/mail"
)

// setQueue creates or changes a queue.
func (s *server) setQueue(name, body string, status int, header ...string) queueJSON {
	s.t.Helper()
	a := s.do("PUT", queuesPath+"/"+name, strings.NewReader(body), header...)
	a.want(s.t, status)
	var q queueJSON
	a.json(s.t, &q)
	return q
}

func (s *server) describeQueue(name string) (q queueJSON) {
	s.t.Helper()
	a := s.get(queuesPath + "/" + name)
	a.want(s.t, http.StatusOK)
	a.json(s.t, &q)
	return q
}

// wantCounts checks how many records a queue has ready, leased, delayed and dead.
func (s *server) wantCounts(name string, ready, leased, delayed, dead int64) {
	s.t.Helper()
	q := s.describeQueue(name)
	if q.Leased == nil || q.Ready != ready || *q.Leased != leased || q.Delayed != delayed || q.Dead != dead {
		s.t.Errorf("queue %s is %+v, want %d ready, %d leased, %d delayed, %d dead", name, q, ready, leased, delayed, dead)
	}
}

func newServerWithQueue(t *testing.T, records int, body string) *server {
	t.Helper()
	s := newServerWith(t, records)
	s.setQueue("mail", body, http.StatusCreated)
	return s
}

// Of several requests at the same time that only create a queue, one succeeds, and the others change nothing.
func TestQueueIsCreatedOnceWithIfNoneMatch(t *testing.T) {
	s := newServerWith(t, 1)
	const clients = 8
	answers := make([]answer, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			answers[i] = s.do("PUT", mailPath, strings.NewReader(fmt.Sprintf(`{"max_attempts":%d}`, i+1)), "If-None-Match", "*")
		})
	}
	wg.Wait()
	created := -1
	for i, a := range answers {
		if a.StatusCode == http.StatusCreated && created < 0 {
			created = i
			continue
		}
		if p := a.wantProblem(t, http.StatusConflict, seb.CodeQueueExists); p.Outcome != string(seb.NotCommitted) || !strings.Contains(p.Hint, "PATCH") {
			t.Errorf("%+v", p)
		}
	}
	if q := s.describeQueue("mail"); created < 0 || q.Config.MaxAttempts != created+1 {
		t.Errorf("request %d created %+v", created, q)
	}
	for _, value := range []string{`"2.1"`, "*, *", ""} {
		p := s.do("PUT", mailPath, strings.NewReader(`{"max_attempts":9}`), "If-None-Match", value).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		if !strings.Contains(p.Hint, "send *") {
			t.Errorf("%+v", p)
		}
	}
	s.setQueue("mail", `{"max_attempts":9}`, http.StatusOK)
}

func TestQueueIsCreatedWithDefaultsAndChangedFieldByField(t *testing.T) {
	s := newServerWith(t, 2)
	s.append("orders.dead", "x")
	want := queueConfigJSON{Lease: "30s", MaxAttempts: 5, Backoff: "1s..1h0m0s", Order: "none"}
	check := func(body string, status int) {
		t.Helper()
		got := s.setQueue("mail", body, status).Config
		topic := func(c queueConfigJSON) string {
			if c.DeadLetterTopic == nil {
				return ""
			}
			return *c.DeadLetterTopic
		}
		if topic(got) != topic(want) {
			t.Errorf("%s: the dead-letter topic is %q", body, topic(got))
		}
		if got.DeadLetterTopic = want.DeadLetterTopic; got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	check("", http.StatusCreated)
	check("{}", http.StatusOK)
	want.Lease = "1m30s"
	check(`{"lease":"90s"}`, http.StatusOK)
	want.MaxAttempts, want.Paused = 3, true
	check(`{"max_attempts":3,"paused":true,"lease":null}`, http.StatusOK)
	want.Backoff = "0s..10s"
	check(`{"backoff":"0s..10s"}`, http.StatusOK)
	want.Backoff = "5s..5s"
	check(`{"backoff":"5s"}`, http.StatusOK)
	want.DeadLetterTopic = new("orders.dead")
	check(`{"dead_letter_topic":"orders.dead","order":"none"}`, http.StatusOK)
	check(`{"dead_letter_topic":"orders.dead","from":"latest"}`, http.StatusOK)
	want.DeadLetterTopic = nil
	check(`{"dead_letter_topic":null}`, http.StatusOK)
	if q := s.describeQueue("mail"); q.Ready != 2 || q.Topic != "orders" || q.Name != "mail" || q.Created == "" || q.Oldest == nil || q.OldestAge == nil {
		t.Errorf("the queue is %+v", q)
	}
	s.setQueue("by-key", `{"order":"key"}`, http.StatusCreated)
	if a := s.get(queuesPath); strings.Count(a.body, `"name":`) != 2 || strings.Index(a.body, "by-key") > strings.Index(a.body, "mail") {
		t.Errorf("the list is %s", a.body)
	}
	s.do("DELETE", mailPath, nil).want(t, http.StatusNoContent)
	s.do("DELETE", mailPath, nil).wantProblem(t, http.StatusNotFound, seb.CodeQueueNotFound)
	s.get(mailPath).wantProblem(t, http.StatusNotFound, seb.CodeQueueNotFound)
}

func TestQueueBeginsAtItsStart(t *testing.T) {
	s := newServerWith(t, 3)
	for i, c := range []struct {
		from string
		want int64
	}{{`"earliest"`, 3}, {`"latest"`, 0}, {`{"offset":1}`, 2}, {`{"offset":3}`, 0}, {`null`, 3}} {
		if q := s.setQueue(fmt.Sprint("q", i), `{"from":`+c.from+`}`, http.StatusCreated); q.Ready != c.want {
			t.Errorf("from %s there are %d records", c.from, q.Ready)
		}
	}
}

func TestQueueRefusals(t *testing.T) {
	s := newServerWithQueue(t, 1, "")
	token := s.received("mail", "")[0].Token
	many := strings.TrimSuffix(strings.Repeat(`"t",`, 1001), ",")
	for _, c := range []struct {
		method, path, body string
		status             int
		code               seb.Code
		detail             string
	}{
		{"PUT", "", `{"ttl":"1s"}`, 400, seb.CodeInvalidRequest, "ttl"},
		{"PUT", "", `[]`, 400, seb.CodeInvalidRequest, "object"},
		{"PUT", "", `{"lease":"1s","lease":"2s"}`, 400, seb.CodeInvalidRequest, "twice"},
		{"PUT", "", `{"lease":30}`, 400, seb.CodeInvalidRequest, "lease"},
		{"PUT", "", `{"lease":"soon"}`, 400, seb.CodeInvalidRequest, "soon"},
		{"PUT", "", `{"lease":"13h"}`, 400, seb.CodeInvalidRequest, "12h"},
		{"PUT", "", `{"lease":"0s"}`, 400, seb.CodeInvalidRequest, "1s"},
		{"PUT", "", `{"max_attempts":0}`, 400, seb.CodeInvalidRequest, "max_attempts must be an integer from 1 to 1000"},
		{"PUT", "", `{"max_attempts":1001}`, 400, seb.CodeInvalidRequest, "1000"},
		{"PUT", "", `{"backoff":"1s-1h"}`, 400, seb.CodeInvalidRequest, "backoff"},
		{"PUT", "", `{"backoff":"1s...1h"}`, 400, seb.CodeInvalidRequest, "backoff"},
		{"PUT", "", `{"backoff":"1h..1s"}`, 400, seb.CodeInvalidRequest, "the first must not be longer than the second"},
		{"PUT", "", `{"backoff":"1s..25h"}`, 400, seb.CodeInvalidRequest, "24h"},
		{"PUT", "", `{"dead_letter_topic":"a b"}`, 400, seb.CodeInvalidRequest, "a b"},
		{"PUT", "", `{"dead_letter_topic":"orders"}`, 400, seb.CodeInvalidRequest, "its own"},
		{"PUT", "", `{"dead_letter_topic":"none"}`, 404, seb.CodeTopicNotFound, "none"},
		{"PUT", "", `{"order":"value"}`, 400, seb.CodeInvalidRequest, "none or key"},
		{"PUT", "", `{"order":"key"}`, 400, seb.CodeInvalidRequest, "can't change"},
		{"PUT", "", `{"paused":1}`, 400, seb.CodeInvalidRequest, "paused"},
		{"PUT", "", `{"from":"middle"}`, 400, seb.CodeInvalidRequest, "middle"},
		{"PUT", "", `{"from":{"offset":null}}`, 400, seb.CodeInvalidRequest, "offset"},
		{"PUT", "", `{"from":{"time":"2026-01-31T12:00:00Z"}}`, 400, seb.CodeInvalidRequest, "time"},
		{"POST", "/receive", `{"max":0}`, 400, seb.CodeInvalidRequest, "max"},
		{"POST", "/receive", `{"max":1001}`, 400, seb.CodeInvalidRequest, "1000"},
		{"POST", "/receive", `{"max_bytes":0}`, 400, seb.CodeInvalidRequest, "max_bytes"},
		{"POST", "/receive", `{"wait":"301s"}`, 400, seb.CodeInvalidRequest, "5m"},
		{"POST", "/receive", `{"wait":"-1s"}`, 400, seb.CodeInvalidRequest, "wait"},
		{"POST", "/receive", `{"wait":20}`, 400, seb.CodeInvalidRequest, "wait"},
		{"POST", "/receive", `{"lease":"0s"}`, 400, seb.CodeInvalidRequest, "lease"},
		{"POST", "/receive", `{"lease":"1ms"}`, 400, seb.CodeInvalidRequest, "lease"},
		{"POST", "/receive?wait=1s", ``, 400, seb.CodeInvalidRequest, "wait"},
		{"POST", "/ack", ``, 400, seb.CodeInvalidRequest, "no tokens"},
		{"POST", "/ack", `{"tokens":[]}`, 400, seb.CodeInvalidRequest, "no tokens"},
		{"POST", "/ack", `{"tokens":[null]}`, 400, seb.CodeInvalidRequest, "null"},
		{"POST", "/ack", `{"tokens":"t"}`, 400, seb.CodeInvalidRequest, "list"},
		{"POST", "/ack", `{"tokens":[` + many + `]}`, 400, seb.CodeInvalidRequest, "1000"},
		{"POST", "/ack", `{"tokens":["` + token + `","nonsense"]}`, 400, seb.CodeInvalidRequest, "nonsense"},
		{"POST", "/ack", `{"tokens":["` + strings.Replace(token, s.clusterTag(), "00000000", 1) + `"]}`, 400, seb.CodeInvalidRequest, "another store"},
		{"POST", "/ack", `{"tokens":["` + token + `"],"delay":"1s"}`, 400, seb.CodeInvalidRequest, "delay"},
		{"POST", "/nack", `{"tokens":["` + token + `"],"delay":"-1s"}`, 400, seb.CodeInvalidRequest, "delay"},
		{"POST", "/nack", `{"tokens":["` + token + `"],"delay":"8785h"}`, 400, seb.CodeInvalidRequest, "delay"},
		{"POST", "/nack", `{"tokens":["` + token + `"],"reason":"` + strings.Repeat("x", 1025) + `"}`, 400, seb.CodeInvalidRequest, "reason"},
		{"POST", "/extend", `{"tokens":["` + token + `"],"lease":"13h"}`, 400, seb.CodeInvalidRequest, "lease"},
		{"POST", "/extend", `{"tokens":["` + token + `"],"lease":"0s"}`, 400, seb.CodeInvalidRequest, "lease"},
		{"GET", "/dead?limit=0", ``, 400, seb.CodeInvalidRequest, "limit"},
		{"GET", "/dead?limit=1001", ``, 400, seb.CodeInvalidRequest, "1000"},
		{"GET", "/dead?next=41", ``, 400, seb.CodeInvalidRequest, "next"},
		{"POST", "/dead/redrive", `{"records":[]}`, 400, seb.CodeInvalidRequest, "empty"},
		{"POST", "/dead/redrive", `{"records":[{}]}`, 400, seb.CodeInvalidRequest, "offset"},
		{"POST", "/dead/redrive", `{"records":[{"offset":1}],"limit":1}`, 400, seb.CodeInvalidRequest, "limit"},
		{"POST", "/dead/redrive", `{"limit":10001}`, 400, seb.CodeInvalidRequest, "10000"},
		{"POST", "/pause", `{"for":"1h"}`, 400, seb.CodeInvalidRequest, "for"},
		{"POST", "/purge", `{"before":1}`, 400, seb.CodeInvalidRequest, "before"},
	} {
		p := s.do(c.method, mailPath+c.path, strings.NewReader(c.body)).wantProblem(t, c.status, c.code)
		if !strings.Contains(p.Detail+p.Hint, c.detail) {
			t.Errorf("%s %s %.80s: %+v does not tell of %s", c.method, c.path, c.body, p, c.detail)
		}
	}
	for _, what := range []string{"receive", "ack", "nack", "extend", "dead/redrive", "pause", "resume", "purge"} {
		body := ""
		if what == "ack" || what == "nack" || what == "extend" {
			body = fmt.Sprintf(`{"tokens":[%q]}`, token)
		}
		s.post(queuesPath+"/none/"+what, body).wantProblem(t, http.StatusNotFound, seb.CodeQueueNotFound)
		s.post("/v1/topics/none/queues/mail/"+what, body).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
		s.post(queuesPath+"/%20/"+what, body).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	s.get(queuesPath+"/none/dead").wantProblem(t, http.StatusNotFound, seb.CodeQueueNotFound)
	s.do("PUT", "/v1/topics/none/queues/mail", nil).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	s.wantCounts("mail", 0, 1, 0, 0)
}

func TestQueueLimit(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{Queues: 1, Delayed: 2}}, Options{Gatherer: prometheus.NewRegistry()})
	s.append("orders", "x")
	s.setQueue("mail", "", http.StatusCreated)
	p := s.do("PUT", queuesPath+"/more", nil).wantProblem(t, http.StatusConflict, seb.CodeTooManyQueues)
	if p.Limit != 1 || p.Outcome != string(seb.NotCommitted) {
		t.Errorf("the problem is %+v", p)
	}
	for range 2 {
		s.append("orders", "x", delayHeader, "1h")
	}
	p = s.post(ordersPath, "x", delayHeader, "1h").wantProblem(t, http.StatusTooManyRequests, seb.CodeTooManyDelayed)
	if p.Limit != 2 || p.Outcome != string(seb.NotCommitted) {
		t.Errorf("the problem is %+v", p)
	}
	s.append("orders", "x", delayHeader, "0s")
	s.append("orders", "x", deliverAtHeader, "2026-01-31T12:00:00Z")
}

func TestPausedQueueHandsOutNothing(t *testing.T) {
	s := newServerWithQueue(t, 3, "")
	out := s.received("mail", "")
	var q queueJSON
	a := s.post(mailPath+"/pause", "")
	a.json(t, &q)
	if !q.Config.Paused || q.Ready != 2 {
		t.Errorf("paused, it is %s", a.body)
	}
	if got := s.received("mail", ""); len(got) != 0 {
		t.Errorf("paused, it handed out %+v", got)
	}
	s.answered("ack", http.StatusOK, out...)
	s.post(mailPath+"/resume", "{}").want(t, http.StatusOK)
	if got := s.received("mail", `{"max":10}`); len(got) != 2 {
		t.Errorf("resumed, it handed out %+v", got)
	}
	if a := s.post(mailPath+"/purge", ""); a.body != `{"purged":2}`+"\n" {
		t.Errorf("purged: %s", a.body)
	}
	s.wantCounts("mail", 0, 0, 0, 0)
	if got := s.stored("orders", 0); len(got) != 3 {
		t.Errorf("the topic has %d records", len(got))
	}
}

// The caller that sets a dead-letter topic needs the scope write for it, since the broker appends to it on the
// caller's behalf.
func TestDeadLetterTopicMustBeOneThatTheKeyMayWrite(t *testing.T) {
	s := newServerWith(t, 1)
	s.append("orders.dead", "x")
	s.append("payroll", "x")
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, orders := newKey(t, s.broker, "orders", seb.ScopeAdmin, "orders", "orders.*")
	put := func(topic, key string) answer {
		return s.do("PUT", mailPath, strings.NewReader(fmt.Sprintf(`{"dead_letter_topic":%q}`, topic)), bearer(key)...)
	}
	put("payroll", orders).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	put("orders.dead", orders).want(t, http.StatusCreated)
	put("payroll", ops).want(t, http.StatusOK)
}

// Answers that describe a queue show its dead-letter topic only to keys with access to that topic.
func TestDeadLetterTopicIsShownToKeysForItOnly(t *testing.T) {
	s := newServerWith(t, 1)
	s.append("secret.dead", "x")
	s.setQueue("mail", `{"dead_letter_topic":"secret.dead"}`, http.StatusCreated)
	_, both := newKey(t, s.broker, "both", seb.ScopeAdmin|seb.ScopeRead)
	_, orders := newKey(t, s.broker, "orders", seb.ScopeAdmin|seb.ScopeRead, "orders")
	for _, x := range []struct{ method, path, body string }{
		{"GET", mailPath, ""}, {"GET", queuesPath, ""}, {"PUT", mailPath, `{"lease":"1m"}`}, {"POST", mailPath + "/pause", ""}, {"POST", mailPath + "/resume", ""},
	} {
		for key, want := range map[string]bool{both: true, orders: false} {
			a := s.do(x.method, x.path, strings.NewReader(x.body), bearer(key)...)
			a.want(t, http.StatusOK)
			if tells := strings.Contains(a.body, `"dead_letter_topic":"secret.dead"`); tells != want || !strings.Contains(a.body, `"dead_letter_topic":`) {
				t.Errorf("%s %s: tells %v, want %v: %s", x.method, x.path, tells, want, a.body)
			}
		}
	}
}

func TestAppendsOfEveryFormCanBeDelayed(t *testing.T) {
	forms := map[string]string{
		"":          "one",
		typeNDJSON:  "one\n",
		typeBatch:   string(batchBody("one")),
		typeRecords: `{"records":[{"value":"one"}]}`,
		typeEvent:   `{"specversion":"1.0","id":"1","source":"/shop","type":"t","data":"one"}`,
	}
	for mediaType, body := range forms {
		bubble(t, seb.Options{}, func(t *testing.T, s *server) {
			s.createOrders(1)
			s.setQueue("mail", `{"lease":"12h"}`, http.StatusCreated)
			var header []string
			if mediaType != "" {
				header = []string{"Content-Type", mediaType}
			}
			began := time.Now()
			s.append("orders", body, append(header, delayHeader, "10m")...)
			s.append("orders", body, append(header, deliverAtHeader, began.Add(20*time.Minute).Format(time.RFC3339))...)
			s.append("orders", body, header...)
			if got := s.stored("orders", 0); len(got) != 3 {
				t.Errorf("%s: readers see %d records", mediaType, len(got))
			}
			s.wantCountsOfAny("mail", 1, 2)
			for i, due := range []time.Duration{0, 10 * time.Minute, 20 * time.Minute} {
				for len(s.received("mail", `{"wait":"5m"}`)) == 0 && time.Since(began) < time.Hour { // fake time
				}
				if late := time.Since(began) - due; late < -time.Second || late > time.Second {
					t.Errorf("%s: record %d came after %v", mediaType, i, time.Since(began))
				}
			}
		})
	}
}

// wantCountsOfAny checks those counts of a queue that every broker knows.
func (s *server) wantCountsOfAny(name string, ready, delayed int64) {
	s.t.Helper()
	if q := s.describeQueue(name); q.Ready != ready || q.Delayed != delayed {
		s.t.Errorf("queue %s is %+v, want %d ready, %d delayed", name, q, ready, delayed)
	}
}
