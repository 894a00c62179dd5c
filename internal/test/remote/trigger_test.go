package remote_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/trigger"
	"github.com/simple-event-broker/seb/triggerapi"
)

// A program sets, tests, watches, pauses and deletes a trigger through a client.
func TestClientUsesTriggers(t *testing.T) {
	b := open(t)
	triggers := trigger.Open(b, trigger.Options{Logger: loglines.Logger(t)})
	t.Cleanup(triggers.Close)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = httpapi.NewServer(httpapi.New(b, httpapi.Options{Triggers: triggerapi.New(triggers)}), nil)
	ts.Start()
	t.Cleanup(ts.Close)
	c, ctx := newClient(t, client.Options{Servers: []string{ts.URL}}), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	signUp := func(entity string) {
		t.Helper()
		_, err := c.Append(ctx, "events", []seb.Record{{Key: []byte(entity), Value: []byte(`{"event":"signed_up","data":{"plan":"team"}}`)}})
		must(err)
	}
	signUp("1")
	spec := client.TriggerSpec{TriggerDefinition: client.TriggerDefinition{
		From: []string{"events"}, When: "signed_up AS u THEN NOT left WITHIN 1s", To: "reminders", Emit: map[string]string{"plan": "u.data.plan"},
	}}
	set, created, err := c.SetTrigger(ctx, "nudge", spec)
	must(err)
	if !created || set.Version != 1 || set.Definition.Repeat != "once" || set.At.IsZero() {
		t.Errorf("set: %+v, created: %t", set, created)
	}
	signUp("a/b ?") // an entity may have any characters
	for r, err := range c.Follow(ctx, "reminders", 0, seb.Earliest) {
		must(err)
		if string(r.Key) != "a/b ?" {
			t.Errorf("the reminder is for %q", r.Key)
		}
		break
	}
	firings, err := c.Firings(ctx, "nudge", 10)
	must(err)
	if len(firings) != 1 || firings[0].Entity != "a/b ?" || firings[0].Emit["plan"] != "team" || firings[0].Events[0].Offset != 1 {
		t.Errorf("firings: %+v", firings)
	}
	x, err := c.ExplainTrigger(ctx, "nudge", "a/b ?")
	must(err)
	if len(x.Steps) != 2 || x.Steps[0].Event == nil || x.Steps[1].Event != nil {
		t.Errorf("explained: %+v", x)
	}
	report, err := c.TestTrigger(ctx, spec.TriggerDefinition, time.Now().Add(-time.Hour))
	must(err)
	if report.Firings != 2 || report.Entities != 2 || len(report.Samples) != 2 {
		t.Errorf("tested: %+v", report)
	}
	spec.Replace = "drop"
	_, created, err = c.SetTrigger(ctx, "nudge", spec)
	must(err)
	paused, err := c.PauseTrigger(ctx, "nudge")
	must(err)
	resumed, err := c.ResumeTrigger(ctx, "nudge")
	must(err)
	if got := fmt.Sprintln(created, paused.Definition.Mode, resumed.Definition.Mode); got != "false paused live\n" {
		t.Errorf("changed: %s", got)
	}
	versions, err := c.TriggerVersions(ctx, "nudge")
	must(err)
	if len(versions) != 4 || versions[0].Version != 4 || versions[2].Replace != "drop" {
		t.Errorf("versions: %+v", versions)
	}
	one, err := c.Trigger(ctx, "nudge")
	must(err)
	list, err := c.Triggers(ctx)
	must(err)
	if one.Version != 4 || len(list.Triggers) != 1 || list.Triggers[0].Name != "nudge" || !list.Running || list.LogTime == nil {
		t.Errorf("one: %+v; list: %+v", one, list)
	}
	must(c.DeleteTrigger(ctx, "nudge"))
	if _, err := c.Trigger(ctx, "nudge"); seb.CodeOf(err) != trigger.CodeTriggerNotFound {
		t.Errorf("after its deletion: %v", err)
	}
	err = c.DeleteTrigger(ctx, "nudge")
	if seb.CodeOf(err) != trigger.CodeTriggerNotFound || seb.OutcomeOf(err) != seb.NotCommitted {
		t.Errorf("a second deletion: %v", err)
	}
	spec.When = "NOT A"
	if _, _, err := c.SetTrigger(ctx, "nudge", spec); seb.CodeOf(err) != trigger.CodeInvalidTrigger || seb.OutcomeOf(err) != seb.NotCommitted {
		t.Errorf("an expression that is true before anything happened: %v", err)
	}
}
