package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/trigger"
	"github.com/simple-event-broker/seb/triggerapi"
)

// refusingTriggers serves the routes of triggers without a runner, whose commits would disturb tests that count commits. It reads
// from the broker if the request would read, appends if the request would change something, and then returns an error.
func refusingTriggers(b **seb.Broker) TriggerHandler {
	return func(_ http.ResponseWriter, r *http.Request, _ []byte) error {
		var err error
		switch {
		case r.Pattern == "/v1/driplang/check" || r.Pattern == "/v1/driplang/eval":
		case r.Method == http.MethodGet || r.Method == http.MethodHead || r.Pattern == "/v1/driplang/test":
			_, err = (*b).Cut(r.Context(), []string{"orders"}, seb.CutOptions{Existing: true})
		default:
			_, err = (*b).Append(r.Context(), "triggered", []seb.Record{{Value: []byte("x")}})
		}
		if err != nil {
			return err
		}
		return &seb.Error{Code: codeInvalidTrigger, Outcome: seb.NotCommitted, Detail: "refused"}
	}
}

// newTriggerServer returns a server with triggers. It closes them before the broker.
func newTriggerServer(t *testing.T, opts Options) (*server, *trigger.Triggers) {
	t.Helper()
	return newTriggerServerOf(t, seb.Options{}, opts)
}

func newTriggerServerOf(t *testing.T, brokerOpts seb.Options, opts Options) (*server, *trigger.Triggers) {
	t.Helper()
	b := openBroker(t, objstore.NewMemory(), brokerOpts)
	triggers := trigger.Open(b, trigger.Options{Logger: loglines.Logger(t)})
	t.Cleanup(triggers.Close)
	opts.Triggers = triggerapi.New(triggers)
	return serve(t, b, opts), triggers
}

const nudge = `{"from":["events"],"when":"signed_up AS u THEN NOT logged_in WITHIN 1s","to":"reminders","emit":{"plan":"u.data.plan"}}`

// waitFor waits until done.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	ticker, late := time.NewTicker(10*time.Millisecond), time.After(30*time.Second)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal("it takes too long")
		}
	}
}

// Whoever signs up and does not log in gets a reminder, once. Events come by POST /v1/events.
func TestTriggersOverHTTP(t *testing.T) {
	s, _ := newTriggerServer(t, Options{})
	s.post("/v1/events", `[{"event":"signed_up","entity_id":1,"data":{"plan":"old"}}]`).want(t, http.StatusCreated)
	s.do("PUT", "/v1/triggers/nudge", strings.NewReader(nudge)).want(t, http.StatusCreated)
	s.post("/v1/events", `[{"event":"signed_up","entity_id":2,"data":{"plan":"team"}},{"event":"signed_up","entity_id":"3"},{"event":"logged_in","entity_id":3}]`).want(t, http.StatusCreated)
	var got struct{ Firings []trigger.Firing }
	waitFor(t, func() bool {
		s.get("/v1/triggers/nudge/firings").json(t, &got)
		return len(got.Firings) > 0
	})
	if f := got.Firings[0]; len(got.Firings) != 1 || f.Entity != "2" || f.Emit["plan"] != "team" || f.Events[0].Topic != "events" || f.Events[0].Offset != 1 {
		t.Errorf("the firings are %+v", got.Firings)
	}
	var list struct {
		Triggers []struct {
			Name    string
			Version int
			Counts  trigger.Counts
		}
		Running bool
	}
	waitFor(t, func() bool { // the counts follow the commit
		s.get("/v1/triggers").json(t, &list)
		if !list.Running || len(list.Triggers) != 1 || list.Triggers[0].Name != "nudge" {
			t.Fatalf("the list is %+v", list)
		}
		return list.Triggers[0].Counts.Fired == 1
	})
	var explained struct {
		Steps []struct{ Did []string }
	}
	s.get("/v1/triggers/nudge/entities/2").json(t, &explained)
	if got := fmt.Sprint(explained.Steps); got != "[{[a run begins]} {[a run is complete, and the trigger fires]}]" {
		t.Errorf("the explanation is %s", got)
	}
	var report struct{ Events, Firings, Entities int }
	s.post("/v1/driplang/test", `{"since":"2020-01-01T00:00:00Z","definition":{"from":["events"],"when":"signed_up","to":"x"}}`).json(t, &report)
	if report.Events != 3 || report.Firings != 3 || report.Entities != 3 {
		t.Errorf("the backtest tells %+v", report)
	}
}

// Each change is a version. A definition of an answer can be sent again.
func TestVersionsOfATriggerOverHTTP(t *testing.T) {
	s, _ := newTriggerServer(t, Options{})
	s.append("events", "x")
	put := func(body string, want int) {
		t.Helper()
		s.do("PUT", "/v1/triggers/nudge", strings.NewReader(body)).want(t, want)
	}
	put(nudge, http.StatusCreated)
	put(strings.Replace(nudge, "1s", "2s", 1), http.StatusOK)
	s.post("/v1/triggers/nudge/pause", "").want(t, http.StatusOK)
	var all struct {
		Versions []struct {
			Version    int
			Definition map[string]any
		}
	}
	s.get("/v1/triggers/nudge/versions").json(t, &all)
	var modes []any
	for _, v := range all.Versions {
		modes = append(modes, fmt.Sprint(v.Version, " ", v.Definition["mode"]))
	}
	if fmt.Sprint(modes) != "[3 paused 2 live 1 live]" {
		t.Errorf("the versions are %v", modes)
	}
	first, err := marshal(all.Versions[2].Definition)
	if err != nil {
		t.Fatal(err)
	}
	put(string(first), http.StatusOK)
	if a := s.get("/v1/triggers/nudge"); !strings.Contains(a.body, `"version":4,"definition":{"from":["events"],"when":"signed_up AS u THEN NOT logged_in WITHIN 1s"`) {
		t.Errorf("the trigger is %s", a.body)
	}
	s.post("/v1/triggers/nudge/pause", "{}").want(t, http.StatusOK)
	if a := s.post("/v1/triggers/nudge/resume", ""); !strings.Contains(a.body, `"mode":"live"`) {
		t.Errorf("after resume it is %s", a.body)
	}
	s.do("DELETE", "/v1/triggers/nudge", nil).want(t, http.StatusNoContent)
	s.get("/v1/triggers/nudge/versions").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
}

// What is wrong is refused with the name of the field, and without an effect.
func TestWrongTriggersAreRefused(t *testing.T) {
	s, _ := newTriggerServer(t, Options{})
	s.append("events", "x")
	for body, want := range map[string]struct {
		code   seb.Code
		detail string
	}{
		``:   {seb.CodeInvalidRequest, "a trigger is no JSON"},
		`[]`: {seb.CodeInvalidRequest, "a trigger must be an object"},
		`{"from":["events"],"When":"A","to":"x"}`:                   {seb.CodeInvalidRequest, `unknown field "When"`},
		`{"from":"events","when":"A","to":"x"}`:                     {seb.CodeInvalidRequest, "from has the wrong type: string"},
		`{"from":["events"],"when":"A","to":"x","catch_up":1}`:      {seb.CodeInvalidRequest, "catch_up has the wrong type: number"},
		`{"from":["events"],"when":"A THEN","to":"x"}`:              {codeInvalidTrigger, "when: line 1, column 7: expected an event"},
		`{"from":["events"],"when":"NOT A","to":"x"}`:               {codeInvalidTrigger, "when: "},
		`{"from":["events"],"when":"A","to":"x","mode":""}`:         {codeInvalidTrigger, "mode: expected live"},
		`{"from":["events"],"when":"A","to":"x","replace":""}`:      {codeInvalidTrigger, "replace: expected drain or drop"},
		`{"from":["events"],"when":"A","to":"x","by":null}`:         {seb.CodeInvalidRequest, "by of a trigger is null"},
		`{"from":["events"],"to":"x"}`:                              {codeInvalidTrigger, "when: the expression is missing"},
		`{"from":["events"],"when":"A","to":"events"}`:              {codeInvalidTrigger, "its firings would be its own events"},
		`{"from":["events"],"when":"A","to":"x","repeat":"twice"}`:  {codeInvalidTrigger, "repeat: expected once"},
		`{"from":["events"],"when":"A","to":"x","replace":"never"}`: {codeInvalidTrigger, "replace: expected drain or drop"},
		`{"from":["events"],"when":"A","to":"x","start":"soon"}`:    {seb.CodeInvalidRequest, "start: "},
		`{"from":["events"],"when":"A","to":"x","by":"("}`:          {codeInvalidTrigger, "by: "},
		`{"from":["events"],"when":"A","to":"$"}`:                   {seb.CodeInvalidTopicName, ""},
	} {
		p := s.do("PUT", "/v1/triggers/nudge", strings.NewReader(body)).wantProblem(t, http.StatusBadRequest, want.code)
		if !strings.Contains(p.Detail, want.detail) || p.Hint == "" || p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%s: %+v", body, p)
		}
	}
	s.do("PUT", "/v1/triggers/nudge", strings.NewReader(strings.Replace(nudge, `"events"`, `"nothing"`, 1))).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	s.do("PUT", "/v1/triggers/-", strings.NewReader(nudge)).wantProblem(t, http.StatusBadRequest, codeInvalidTriggerName)
	s.get("/v1/triggers/nudge").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
	s.post("/v1/triggers/nudge/resume", "").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
	s.get("/v1/triggers/nudge/firings").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
	s.get("/v1/triggers/nudge/entities/2").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
	s.post("/v1/triggers/nudge/pause", "").wantProblem(t, http.StatusNotFound, codeTriggerNotFound)
	s.do("DELETE", "/v1/triggers/nudge", nil).wantProblem(t, http.StatusNotFound, codeTriggerNotFound)

	s.do("PUT", "/v1/triggers/nudge", strings.NewReader(nudge)).want(t, http.StatusCreated)
	back := `{"from":["reminders"],"when":"A","to":"events"}`
	s.append("reminders", "x")
	p := s.do("PUT", "/v1/triggers/back", strings.NewReader(back)).wantProblem(t, http.StatusBadRequest, codeInvalidTrigger)
	if !strings.Contains(p.Detail, "would lead back") {
		t.Errorf("a cycle: %+v", p)
	}
	s.get("/v1/triggers/nudge/firings?limit=").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.get("/v1/triggers/nudge/firings?limit=1001").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	s.post("/v1/triggers/nudge/pause", `{"for":"1h"}`).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

// The topic that gets the firings is created, also if it was deleted, unless that is one too many.
func TestTopicOfFiringsMayBeOneTooMany(t *testing.T) {
	s, _ := newTriggerServerOf(t, seb.Options{Limits: seb.Limits{Topics: 4}}, Options{})
	s.append("events", "x")
	s.do("PUT", "/v1/triggers/nudge", strings.NewReader(nudge)).want(t, http.StatusCreated)
	s.get("/v1/topics/reminders").want(t, http.StatusOK)
	s.do("DELETE", "/v1/topics/reminders", nil).want(t, http.StatusNoContent)
	s.append("another", "x")
	for _, a := range []answer{s.do("PUT", "/v1/triggers/nudge", strings.NewReader(nudge)), s.post("/v1/triggers/nudge/resume", "")} {
		if p := a.wantProblem(t, http.StatusConflict, seb.CodeTooManyTopics); p.Outcome != string(seb.NotCommitted) {
			t.Errorf("%+v", p)
		}
	}
	if a := s.get("/v1/triggers/nudge"); !strings.Contains(a.body, `"version":1`) {
		t.Errorf("refused requests have left %s", a.body)
	}
	s.post("/v1/triggers/nudge/pause", "").want(t, http.StatusOK)
}

// Requests about the language need no triggers.
func TestExpressionsOverHTTP(t *testing.T) {
	s, _ := newTriggerServer(t, Options{})
	for body, verdict := range map[string]string{
		`{"when":"A THEN B WITHIN 1h","events":[{"event":"A","at":"0"},{"event":"B","at":"50m"}]}`:        "true",
		`{"when":"A THEN NOT B WITHIN 7d","events":[{"event":"A","at":"0"}],"at":"6d"}`:                   "undecided",
		`{"when":{"event":"A"},"events":[{"event":"B"}]}`:                                                 "false",
		`{"when":"A [data.n > 9007199254740992]","events":[{"event":"A","data":{"n":9007199254740993}}]}`: "true",
	} {
		if a := s.post("/v1/driplang/eval", body); a.body != `{"verdict":"`+verdict+`"}`+"\n" {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	for body, detail := range map[string]string{
		`{}`: "when is missing", `{"when":"A","events":[{"at":"0"}]}`: "events/0 has no event", `{"when":"A","events":[{"event":"A","at":"soon"}]}`: "at is \"soon\"",
		`{"when":"A","events":[{"name":"A"}]}`: `events/0 has an unknown field "name"`, `{"when":"A","events":[` + strings.Repeat(`{"event":"A"},`, 1000) + `{"event":"A"}]}`: "at most 1000",
		`{"when":"A WITHIN 1h THEN B","events":[{"event":"A"}]}`: "has no log time",
	} {
		p := s.post("/v1/driplang/eval", body).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
		if !strings.Contains(p.Detail, detail) || p.Outcome != "" {
			t.Errorf("%.80s: %+v", body, p)
		}
	}
	s.post("/v1/driplang/check", `{"when":"A AND B","repeat":"every"}`).wantProblem(t, http.StatusBadRequest, codeInvalidTrigger)
	for body, detail := range map[string]string{
		`{"since":"2020-01-01T00:00:00Z"}`: "no definition", `{"definition":{"from":["events"],"when":"A","to":"x"}}`: "since is missing",
		`{"definition":{"From":["events"]}}`: `unknown field "From"`, `{"definition":null}`: "definition of the body is null", `{"since":"2020-01-01T00:00:00Z","definition":{"from":null}}`: "from of definition is null", `{"since":"soon"}`: "since",
	} {
		if p := s.post("/v1/driplang/test", body).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest); !strings.Contains(p.Detail, detail) {
			t.Errorf("%s: %+v", body, p)
		}
	}
}

// A broker without triggers has no routes for them.
func TestNoTriggersNoRoutes(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, path := range []string{"/v1/triggers", "/v1/triggers/nudge", "/v1/driplang/check"} {
		s.get(path).wantProblem(t, http.StatusNotFound, codeRouteNotFound)
	}
}
