package httpapi

import (
	"bytes"
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
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const commitsPath = "/v1/commits"

// newCommitServer returns a server with topic orders, which has three records, consumer billing at the
// first of them, and topic payments with two partitions.
func newCommitServer(t testing.TB, opts seb.Options) *server {
	t.Helper()
	s := newServer(t, opts, Options{})
	s.prepareCommits()
	return s
}

func (s *server) prepareCommits() {
	s.t.Helper()
	s.append("orders", "0\n1\n2\n", "Content-Type", typeNDJSON)
	s.setConsumer("billing", "", http.StatusCreated)
	s.do("PUT", "/v1/topics/payments", strings.NewReader(`{"partitions":2}`)).want(s.t, http.StatusCreated)
}

// values returns the values in a partition, from its start on.
func (s *server) values(topic string, partition int) string {
	s.t.Helper()
	a := s.get(fmt.Sprintf("/v1/topics/%s/records?partition=%d", topic, partition), "Accept", "application/json")
	a.want(s.t, http.StatusOK)
	var got struct{ Records []struct{ Value string } }
	a.json(s.t, &got)
	vs := []string{}
	for _, r := range got.Records {
		vs = append(vs, r.Value)
	}
	return strings.Join(vs, " ")
}

func TestCommitOverHTTP(t *testing.T) {
	for name, header := range map[string][]string{"as it is": nil, "gzip": {"Content-Encoding", "gzip"}} {
		t.Run(name, func(t *testing.T) {
			s := newCommitServer(t, seb.Options{})
			body := ` {"positions": [{"offsets":{"0":2},"consumer":"billing","expect":{"0":0},"topic":"orders"}], "appends": [
				{"records":[{"value":"a"},{"value_base64":"Yg==","partition":0},{"value_json":{"c":1}}],"partition":1,"topic":"payments"},
				{"topic":"totals","if_offset":0,"records":[{"value":"d","key":"k","headers":{"h":"\u0041"},"timestamp":"2026-01-31T12:00:00Z"}]},
				{"topic":"payments","if_offset":1,"records":[{"value":"e"}],"partition":0}]} `
			if header != nil {
				body = string(gzipped(t, []byte(body)))
			}
			before := s.broker.Status().Applied
			a := s.post(commitsPath, body, header...)
			a.want(t, http.StatusOK)
			want := `{"appends":[{"topic":"payments","count":3,"ranges":[{"partition":0,"offset":0,"count":1},{"partition":1,"offset":0,"count":2}]},` +
				`{"topic":"totals","count":1,"partition":0,"offset":0,"ranges":[{"partition":0,"offset":0,"count":1}]},` +
				`{"topic":"payments","count":1,"partition":0,"offset":1,"ranges":[{"partition":0,"offset":1,"count":1}]}]}` + "\n"
			if a.body != want {
				t.Errorf("the answer is %s, want %s", a.body, want)
			}
			if slots := s.broker.Status().Applied - before; slots != 2 { // one of them creates totals
				t.Errorf("it took %d slots", slots)
			}
			s.wantConsumer("billing", 2)
			if got := s.values("payments", 0) + "|" + s.values("payments", 1); got != `b e|a {"c":1}` {
				t.Errorf("payments holds %s", got)
			}
			if got := withoutLogTimes(s.get("/v1/topics/totals/records").body); got != `{"partition":0,"offset":0,"timestamp":"2026-01-31T12:00:00.000Z","key":"k","value":"d","headers":{"h":"A"}}`+"\n" {
				t.Errorf("totals holds %s", got)
			}
		})
	}
}

// Each of these commits is refused with the expected status and code, names the part at fault, and
// does nothing.
func TestCommitOverHTTPIsRefusedAsAWhole(t *testing.T) {
	const moved, appended = `{"topic":"orders","consumer":"billing","expect":{"0":0},"offsets":{"0":2}}`, `{"topic":"payments","records":[{"value":"no"}]}`
	s := newCommitServer(t, seb.Options{Limits: seb.Limits{CommitParts: 5, RecordBytes: 1000, RequestBytes: 100_000, RecordHeaders: 1}})
	before := s.broker.Status().Applied
	for name, c := range map[string]struct {
		appends, positions string // together with one that would be accepted
		status             int
		code               seb.Code
		part               string
	}{
		"elsewhere":           {"", `{"topic":"orders","consumer":"billing","expect":{"0":1},"offsets":{"0":2}}`, 412, seb.CodePositionConflict, "positions/0"},
		"nobody":              {"", `{"topic":"orders","consumer":"nobody","offsets":{"0":2}}`, 404, seb.CodeConsumerNotFound, "positions/0"},
		"no topic":            {"", `{"topic":"none","consumer":"billing","offsets":{"0":2}}`, 404, seb.CodeTopicNotFound, "positions/0"},
		"no partition":        {"", `{"topic":"orders","consumer":"billing","offsets":{"0":1,"7":2}}`, 404, seb.CodePartitionNotFound, "positions/0"},
		"beyond the end":      {"", `{"topic":"orders","consumer":"billing","offsets":{"0":4}}`, 416, seb.CodeOffsetOutOfRange, "positions/0"},
		"no offsets":          {"", `{"topic":"orders","consumer":"billing","offsets":{}}`, 400, seb.CodeInvalidRequest, "positions/0"},
		"offsets left out":    {"", `{"topic":"orders","consumer":"billing"}`, 400, seb.CodeInvalidRequest, "positions/0"},
		"no consumer":         {"", `{"topic":"orders","offsets":{"0":2}}`, 400, seb.CodeInvalidRequest, "positions/0"},
		"null offset":         {"", `{"topic":"orders","consumer":"billing","offsets":{"0":null}}`, 400, seb.CodeInvalidRequest, "positions/0"},
		"twice":               {"", moved + "," + moved, 400, seb.CodeInvalidRequest, "positions/1"},
		"unknown in position": {"", `{"topic":"orders","consumer":"billing","offset":2}`, 400, seb.CodeInvalidRequest, "positions/0"},
		"a long name":         {"", `{"topic":"orders","consumer":"` + strings.Repeat("n", 300) + `","offsets":{"0":2}}`, 400, seb.CodeInvalidRequest, "positions/0"},

		"overtaken":            {`{"topic":"orders","if_offset":1,"records":[{"value":"no"}]}`, moved, 412, seb.CodeOffsetConflict, "appends/1"},
		"no such partition":    {`{"topic":"payments","partition":2,"records":[{"value":"no"}]}`, moved, 404, seb.CodePartitionNotFound, "appends/1"},
		"record's partition":   {`{"topic":"payments","records":[{"value":"no"},{"value":"no","partition":2}]}`, moved, 404, seb.CodePartitionNotFound, "appends/1"},
		"name of a topic":      {`{"topic":"?","records":[{"value":"no"}]}`, moved, 400, seb.CodeInvalidTopicName, "appends/1"},
		"topic left out":       {`{"records":[{"value":"no"}]}`, moved, 400, seb.CodeInvalidTopicName, "appends/1"},
		"no records":           {`{"topic":"payments","records":[]}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"records left out":     {`{"topic":"payments"}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"no value":             {`{"topic":"payments","records":[{"value":"no"},{}]}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"large record":         {`{"topic":"payments","records":[{"value":"` + strings.Repeat("v", 1001) + `"}]}`, moved, 413, seb.CodeRecordTooLarge, "appends/1"},
		"many headers":         {`{"topic":"payments","records":[{"value":"","headers":{"a":"1","b":"2"}}]}`, moved, 400, seb.CodeTooManyHeaders, "appends/1"},
		"unknown in append":    {`{"topic":"payments","record":[{"value":"no"}]}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"negative end":         {`{"topic":"payments","if_offset":-1,"records":[{"value":"no"}]}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"ends of several":      {`{"topic":"payments","if_offset":0,"records":[{"value":"no","partition":0},{"value":"no","partition":1}]}`, moved, 400, seb.CodeInvalidRequest, "appends/1"},
		"too many parts":       {strings.Repeat(appended+",", 4) + appended, moved, 413, seb.CodeRequestTooLarge, ""},
		"a body that is large": {`{"topic":"payments","records":[{"value":"` + strings.Repeat("v", 50_000) + `"}]}`, moved, 413, seb.CodeRequestTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			body := fmt.Sprintf(`{"appends":[%s],"positions":[%s]}`, strings.TrimSuffix(appended+","+c.appends, ","), c.positions)
			p := s.post(commitsPath, body, "Idempotency-Key", "k").wantProblem(t, c.status, c.code)
			if p.Part != c.part || p.Outcome != string(seb.NotCommitted) || p.Hint == "" {
				t.Errorf("the problem is %+v, want it of part %q", p, c.part)
			}
		})
	}
	s.t = t
	for _, body := range []string{"", "{", "[]", "{}", `{"appends":null}`, `{"appends":[]}`, `{"appends":{}}`, `{"acks":1}`, `{"nacks":[]}`, `{"positions":[],"positions":[]}`, `{"appends":[]} x`, "\xff",
		`{"ends":[]}`, `{"after":null}`, `{"after":"2026-01-31T12:00:00Z"}`, `{"ends":1}`} {
		if p := s.post(commitsPath, body).wantProblem(t, 400, seb.CodeInvalidRequest); p.Part != "" || p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%q: the problem is %+v", body, p)
		}
	}
	fine := fmt.Sprintf(`{"appends":[%s],"positions":[%s]}`, appended, moved)
	s.post(commitsPath+"?partition=1", fine).wantProblem(t, 400, seb.CodeInvalidRequest)
	s.post(commitsPath, fine, "Seb-Key", "k").wantProblem(t, 400, seb.CodeInvalidRequest)
	s.post(commitsPath, fine, "Idempotency-Key", "").wantProblem(t, 400, seb.CodeInvalidRequest)
	s.post(commitsPath, fine, "Idempotency-Key", "1", "Idempotency-Key", "2").wantProblem(t, 400, seb.CodeInvalidRequest)
	s.wantConsumer("billing", 0)
	if now := s.broker.Status().Applied; now != before {
		t.Errorf("refused commits took %d slots", now-before)
	}
	s.wantNothingReserved()
	s.post(commitsPath, fine, "Idempotency-Key", "k").want(t, http.StatusOK) // the refused commits did not use up the key
}

func TestRetryOfACommitOverHTTP(t *testing.T) {
	store := objstore.NewMemory()
	s, other := newServerOn(t, store, seb.Options{}, Options{}), newServerOn(t, store, seb.Options{}, Options{})
	s.prepareCommits()
	body := `{"appends":[{"topic":"payments","records":[{"value":"a"}]},{"topic":"totals","records":[{"value":"b"}]}],` +
		`"positions":[{"topic":"orders","consumer":"billing","expect":{"0":0},"offsets":{"0":2}}]}`
	first := s.post(commitsPath, body, "Idempotency-Key", "k")
	first.want(t, http.StatusOK)
	first.wantHeader(t, "Idempotency-Replayed", "")
	for _, s := range []*server{s, other} {
		again := s.post(commitsPath, strings.ReplaceAll(body, ",", " , "), "Idempotency-Key", "k")
		again.want(t, http.StatusOK)
		again.wantHeader(t, "Idempotency-Replayed", "true")
		if diff := cmp.Diff(first.body, again.body); diff != "" {
			t.Errorf("the retry's answer (-want +got):\n%s", diff)
		}
		p := s.post(commitsPath, strings.Replace(body, `"b"`, `"c"`, 1), "Idempotency-Key", "k").wantProblem(t, 422, seb.CodeIdempotencyKeyReused)
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("the outcome is %q", p.Outcome)
		}
		p = s.post(commitsPath, body).wantProblem(t, 412, seb.CodePositionConflict) // a repeat without the key
		if p.Part != "positions/0" {
			t.Errorf("the part is %q", p.Part)
		}
	}
	if got := s.values("totals", 0); got != "b" {
		t.Errorf("totals holds %s", got)
	}
}

func TestCommitOverHTTPAcknowledges(t *testing.T) {
	bubble(t, seb.Options{Limits: seb.Limits{CommitParts: 4}}, func(t *testing.T, s *server) {
		s.prepareCommits()
		s.setQueue("mail", `{"lease":"10s"}`, http.StatusCreated)
		ms := s.wantHanded(`{"max":3}`, "0#1 1#1 2#1")
		commit := func(tokens, append string) string {
			return `{"acks":[{"topic":"orders","queue":"mail","tokens":` + tokens + `}],"appends":[{"topic":"payments","partition":0,"records":[` + append + `]}]}`
		}
		const v = `{"value":"v"}`
		for name, c := range map[string]struct {
			body   string
			status int
			code   seb.Code
			part   string
		}{
			"no tokens":       {commit(`[]`, v), 400, seb.CodeInvalidRequest, "acks/0"},
			"no token":        {commit(`["x"]`, v), 400, seb.CodeInvalidRequest, "acks/0/tokens/0"},
			"null":            {commit(`[null]`, v), 400, seb.CodeInvalidRequest, "acks/0/tokens/0"},
			"too many":        {commit(`["1","2","3","4"]`, v), 413, seb.CodeRequestTooLarge, ""},
			"a long token":    {commit(`["`+strings.Repeat("t", 300)+`"]`, v), 400, seb.CodeInvalidRequest, "acks/0"},
			"no queue":        {strings.Replace(commit(tokensOf(t, ms), v), "mail", "none", 1), 404, seb.CodeQueueNotFound, "acks/0"},
			"something else":  {commit(tokensOf(t, ms), `{}`), 400, seb.CodeInvalidRequest, "appends/0"},
			"unknown":         {strings.Replace(commit(`[]`, v), "queue", "que", 1), 400, seb.CodeInvalidRequest, "acks/0"},
			"queue left out":  {`{"acks":[{"topic":"orders","tokens":` + tokensOf(t, ms) + `}]}`, 400, seb.CodeInvalidRequest, "acks/0"},
			"the queue twice": {`{"acks":[{"topic":"orders","queue":"mail","tokens":["x"]},{"topic":"orders","queue":"mail","tokens":["x"]}]}`, 400, seb.CodeInvalidRequest, "acks/0/tokens/0"},
		} {
			if p := s.post(commitsPath, c.body).wantProblem(t, c.status, c.code); p.Part != c.part || p.Outcome != string(seb.NotCommitted) {
				t.Errorf("%s: the problem is %+v, want it of part %q", name, p, c.part)
			}
		}
		s.post(commitsPath, commit(tokensOf(t, ms[:2]), v)).want(t, http.StatusOK)
		if p := s.post(commitsPath, commit(tokensOf(t, []wireMessage{ms[2], ms[1]}), v)).wantProblem(t, 409, seb.CodeLeaseLost); p.Part != "acks/0/tokens/1" {
			t.Errorf("the part is %q", p.Part)
		}
		time.Sleep(time.Minute) // fake time
		s.wantHanded(`{"max":3,"wait":"1s"}`, "2#2")
		if got := s.values("payments", 0); got != "v" {
			t.Errorf("payments holds %s", got)
		}
	})
}

// If a worker has lost its record to another worker, its whole commit is refused, with the results of
// its work.
func TestCommitWithALostLeaseDoesNothing(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		s.prepareCommits()
		s.setQueue("mail", `{"lease":"10s","backoff":"0s"}`, http.StatusCreated)
		commit := func(ms []wireMessage, header ...string) answer {
			return s.post(commitsPath, `{"appends":[{"topic":"payments","partition":0,"records":[{"value":"paid"}]}],`+
				`"positions":[{"topic":"orders","consumer":"billing","offsets":{"0":1}}],"acks":[{"topic":"orders","queue":"mail","tokens":`+tokensOf(t, ms)+`}]}`, header...)
		}
		slow := s.wantHanded("", "0#1")
		rest := s.wantHanded(`{"max":2,"lease":"1h"}`, "1#1 2#1")
		other := s.wantHanded(`{"wait":"1m"}`, "0#2")
		synctest.Wait() // a receiver is answered a moment before the status shows the commit
		before := s.broker.Status().Applied
		for i, ms := range [][]wireMessage{slow, append(rest[:1:1], slow...)} {
			p := commit(ms).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost)
			if p.Part != fmt.Sprintf("acks/0/tokens/%d", i) || p.Outcome != string(seb.NotCommitted) || p.Hint == "" {
				t.Errorf("the problem is %+v", p)
			}
		}
		if got := s.values("payments", 0); got != "" || s.broker.Status().Applied != before {
			t.Errorf("payments holds %q, and %d slots are taken", got, s.broker.Status().Applied-before)
		}
		s.wantConsumer("billing", 0)
		s.wantCounts("mail", 0, 3, 0, 0)
		commit(other, "Idempotency-Key", "k").want(t, http.StatusOK)
		again := commit(other, "Idempotency-Key", "k") // as after a lost answer
		again.want(t, http.StatusOK)
		again.wantHeader(t, "Idempotency-Replayed", "true")
		commit(other).wantProblem(t, http.StatusConflict, seb.CodeLeaseLost) // without the key it would pay twice
		if got, slots := s.values("payments", 0), s.broker.Status().Applied-before; got != "paid" || slots != 1 {
			t.Errorf("payments holds %q, after %d slots", got, slots)
		}
		s.wantConsumer("billing", 1)
		s.wantCounts("mail", 0, 2, 0, 0)
	})
}

// An append needs the scope write for its topic, a position the scope read.
func TestEachPartOfACommitNeedsItsOwn(t *testing.T) {
	s := newCommitServer(t, seb.Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	shown := map[string][]string{"ops": bearer(ops), "none": nil}
	for name, k := range map[string]struct {
		scopes seb.Scopes
		topics []string
	}{
		"reads orders":    {seb.ScopeRead, []string{"orders"}},
		"writes payments": {seb.ScopeWrite, []string{"payments"}},
		"both, orders":    {seb.ScopeRead | seb.ScopeWrite, []string{"orders"}},
		"both, both":      {seb.ScopeRead | seb.ScopeWrite, []string{"orders", "payments"}},
		"both, payments":  {seb.ScopeRead | seb.ScopeWrite, []string{"payments"}},
	} {
		_, secret := newKey(t, s.broker, strings.NewReplacer(" ", "_", ",", "").Replace(name), k.scopes, k.topics...)
		shown[name] = bearer(secret)
	}
	const position, payment = `{"topic":"orders","consumer":"billing","offsets":{"0":1}}`, `{"topic":"payments","records":[{"value":"p"}]}`
	bodies := map[string]string{
		"position": `{"positions":[` + position + `]}`,
		"payment":  `{"appends":[` + payment + `]}`,
		"all":      `{"appends":[` + payment + `],"positions":[` + position + `]}`,
		"ack":      `{"acks":[{"topic":"orders","queue":"mail","tokens":["x"]}]}`,
		"order":    `{"appends":[` + payment + `,{"topic":"orders","records":[{"value":"o"}]}]}`,
	}
	for key, want := range map[string]map[string]string{ // the part that is refused, "" if no part is
		"ops":             {"position": "", "payment": "", "all": "", "order": ""},
		"reads orders":    {"ack": "", "position": "", "payment": "appends/0", "all": "appends/0", "order": "appends/0"},
		"writes payments": {"ack": "acks/0", "position": "positions/0", "payment": "", "all": "positions/0", "order": "appends/1"},
		"both, orders":    {"position": "", "payment": "appends/0", "all": "appends/0", "order": "appends/0"},
		"both, payments":  {"ack": "acks/0", "position": "positions/0", "payment": "", "all": "positions/0", "order": "appends/1"},
		"both, both":      {"position": "", "payment": "", "all": "", "order": ""},
	} {
		for body, part := range want {
			before := s.broker.Status().Applied
			a := s.post(commitsPath, bodies[body], shown[key]...)
			if body == "ack" && part == "" {
				a.wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest) // admitted, but the token is invalid
				continue
			}
			if part == "" {
				a.want(t, http.StatusOK)
				continue
			}
			if p := a.wantProblem(t, http.StatusForbidden, seb.CodeForbidden); p.Part != part || p.Outcome != string(seb.NotCommitted) {
				t.Errorf("%s, %s: the problem is %+v, want it of part %s", key, body, p, part)
			}
			if now := s.broker.Status().Applied; now != before {
				t.Errorf("%s, %s: it was refused, and %d slots are taken", key, body, now-before)
			}
		}
	}
	s.post(commitsPath, bodies["all"]).wantProblem(t, http.StatusUnauthorized, seb.CodeUnauthorized)
}

// The memory of a commit's lists and maps is reserved as they are read, even if they are a small part of
// the body. While the commit waits for the store it holds none of that memory.
func TestMemoryOfACommit(t *testing.T) {
	memory := objstore.NewMemory()
	faulty := storetest.NewFaulty(memory)
	bubbleOn(t, faulty, seb.Options{Memory: 8 << 20}, Options{}, 0, func(t *testing.T, s *server) {
		s.prepareCommits()
		var many strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&many, `"%d":0,`, i)
		}
		body := `{"positions":[{"topic":"orders","consumer":"billing","offsets":{` + many.String() + `"100000":0}}]}`
		s.post(commitsPath, body).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
		s.wantNothingReserved()
		body = `{"ends":[{"topic":"orders","id":"0123abcd.1","ends":{` + many.String() + `"100000":0}}]}`
		s.post(commitsPath, body).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
		s.wantNothingReserved()

		release := make(chan struct{})
		undo := faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		answered := make(chan answer)
		body = `{"appends":[{"topic":"payments","records":[{"value":"` + strings.Repeat("v", 500_000) + `"}]}]}`
		go func() { answered <- s.post(commitsPath, body) }()
		synctest.Wait()
		free, err := s.broker.Reserve(t.Context(), s.adapterBytes()-600_000) // all but the broker's copy is free
		if err != nil {
			t.Error(err)
		} else {
			free()
		}
		undo()
		close(release)
		(<-answered).want(t, http.StatusOK)
	})
}

// If a client leaves before its commit is sent, the commit is withdrawn; a client that waits learns the
// outcome.
func TestCommitOfAClientThatLeft(t *testing.T) {
	faulty := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, faulty, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.prepareCommits()
		release := make(chan struct{})
		undo := faulty.On(objstore.VerbCreate, "log/", storetest.Hold(release))
		answered := make(chan answer)
		go func() { answered <- s.post("/v1/topics/payments/records?partition=0", "under way") }()
		synctest.Wait()
		body := `{"appends":[{"topic":"payments","partition":0,"records":[{"value":"no"}]}],"positions":[{"topic":"orders","consumer":"billing","offsets":{"0":2}}]}`
		conn := s.dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", commitsPath, len(body), body))
		synctest.Wait()
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * goneFor) // fake time
		undo()
		close(release)
		(<-answered).want(t, http.StatusCreated)
		synctest.Wait()
		if got := s.values("payments", 0); got != "under way" {
			t.Errorf("payments holds %s", got)
		}
		s.wantConsumer("billing", 0)
	})
}

// The parsed commit is what encoding/json reads from the body, and its records are those that an
// append with the same records would have.
func FuzzCommitJSON(f *testing.F) {
	f.Add([]byte(`{"appends":[{"topic":"a","records":[{"value":"v","partition":1},{"value_json":[1]}],"partition":2,"if_offset":3},{"topic":"b","records":[{"value":""}]}]}`))
	f.Add([]byte(`{"positions":[{"topic":"a","consumer":"c","expect":{"0":1},"offsets":{"0":41,"2147483647":9223372036854775807}}]}`))
	f.Add([]byte(`{"appends":[{"topic":null,"partition":null,"if_offset":null,"records":[{"value":"\u0041"}]}],"positions":[]}`))
	f.Add([]byte(`{"appends":[{"topic":"a"}]}`))
	f.Add([]byte(`{"acks":[{"topic":"a","queue":"q","tokens":["1","\u0032"]}]}`))
	s := newServer(f, seb.Options{Memory: 16 << 20}, Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := s.handler.commitJSONOf(t.Context(), bytes.Clone(body), func(seb.Scopes, string) error { return nil })
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			s.t = t
			s.wantNothingReserved()
			return
		}
		var want struct {
			Appends []struct {
				Topic     string
				Records   json.RawMessage
				Partition *int32
				IfOffset  *int64 `json:"if_offset"`
			}
			Positions []struct {
				Topic, Consumer string
				Expect, Offsets map[string]int64
			}
			Acks []struct {
				Topic, Queue string
				Tokens       []string
			}
		}
		if err := json.Unmarshal(body, &want); err != nil || len(want.Appends) != len(c.commit.Appends) || len(want.Positions) != len(c.commit.Positions) || len(want.Acks) != len(c.commit.Acks) {
			t.Fatalf("%q is taken as %+v: %v", body, c.commit, err)
		}
		for i, a := range want.Appends {
			got := c.commit.Appends[i]
			spec := &appendSpec{partition: -1}
			alone, err := s.handler.recordsJSONOf(t.Context(), spec, []byte(`{"records":`+string(a.Records)+`}`))
			if err != nil {
				t.Fatalf("the records of append %d are refused: %v", i, err)
			}
			options := 0
			for _, given := range []bool{a.Partition != nil, a.IfOffset != nil, spec.partitions != nil} {
				if given {
					options++
				}
			}
			if got.Topic != a.Topic || len(got.Options) != options || !cmp.Equal(alone.list, got.Records) {
				t.Fatalf("append %d of %q is taken as %+v", i, body, got)
			}
			alone.free()
		}
		for i, p := range want.Positions {
			got := c.commit.Positions[i]
			if got.Topic != p.Topic || got.Consumer != p.Consumer {
				t.Fatalf("position %d of %q is taken as %+v", i, body, got)
			}
			wantOffsets(t, body, p.Expect, got.Expect)
			wantOffsets(t, body, p.Offsets, got.Offsets)
		}
		for i, a := range want.Acks {
			if got := c.commit.Acks[i]; got.Topic != a.Topic || got.Queue != a.Queue || !slices.Equal(got.Tokens, a.Tokens) {
				t.Fatalf("acknowledgement %d of %q is taken as %+v", i, body, got)
			}
		}
		c.out.free()
		s.t = t
		s.wantNothingReserved()
	})
}

// A key that may neither write nor read is refused before the broker reads the body, so its bodies take no memory.
func TestCommitOfAKeyWithoutScopesIsRefusedBeforeItsBody(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		newKey(t, s.broker, "ops", seb.ScopeAdmin)
		_, key := newKey(t, s.broker, "metrics", seb.ScopeMetrics)
		conn := s.dial("POST /v1/commits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 100000\r\n\r\n")
		a, _ := answerOn(t, conn)
		p := a.wantProblem(t, http.StatusForbidden, seb.CodeForbidden) // not 408: the body never comes
		if p.Outcome != string(seb.NotCommitted) {
			t.Errorf("the outcome is %q", p.Outcome)
		}
		s.wantNothingReserved()
	})
}

// A part with a topic that the caller may not use is refused when it is read, not when the whole body is parsed.
func TestForbiddenPartIsRefusedBeforeTheRestIsParsed(t *testing.T) {
	s := newCommitServer(t, seb.Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, caller := newKey(t, s.broker, "caller", seb.ScopeRead|seb.ScopeWrite, "payments")
	for part, body := range map[string]string{
		"appends/1":   `{"appends":[{"topic":"payments","partition":0,"records":[{"value":"a"}]},{"topic":"orders","records":[{`,
		"positions/0": `{"positions":[{"topic":"orders","offsets":{`,
		"acks/0":      `{"acks":[{"topic":"orders","tokens":[`,
		"ends/0":      `{"ends":[{"topic":"orders","ends":{`,
	} {
		if p := s.post(commitsPath, body, bearer(caller)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden); p.Part != part {
			t.Errorf("the part is %q, want %q", p.Part, part)
		}
	}
	a := s.get("/v1/topics/payments", bearer(ops)...)
	a.want(t, http.StatusOK)
	if !strings.Contains(a.body, `"end_offset":0`) || strings.Contains(a.body, `"end_offset":1`) {
		t.Errorf("a refused commit appended records: %s", a.body)
	}
}
