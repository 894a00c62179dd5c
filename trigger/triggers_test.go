package trigger

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/objstore"
)

// openTriggers opens the triggers of a rig.
func (r *rig) openTriggers() *Triggers {
	r.t.Helper()
	return Open(r.broker, r.options)
}

func mustParse(t *testing.T, text string) When {
	t.Helper()
	e, err := driplang.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return When{e}
}

func (r *rig) post(name, entity string) {
	r.t.Helper()
	value := fmt.Appendf(nil, `{"event":%q,"entity_id":%q}`, name, entity)
	if _, err := r.broker.Append(r.t.Context(), "events", []seb.Record{{Key: []byte(entity), Value: value}}); err != nil {
		r.t.Fatal(err)
	}
}

// firings returns the firings in a topic.
func (r *rig) firings(topic string) (all []Firing) {
	r.t.Helper()
	for _, rec := range r.read(topic) {
		f, ok := decodeFiring(&rec)
		if !ok {
			r.t.Fatalf("no firing: %s", rec.Value)
		}
		all = append(all, f)
	}
	return all
}

// bubble runs a test in a bubble, with two brokers on one store.
func bubble(t *testing.T, f func(t *testing.T, a, b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		a, b := newRig(t, store), newRig(t, store)
		if _, _, err := a.broker.CreateTopic(t.Context(), "events", seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		f(t, a, b)
	})
}

// TestAnotherBrokerTakesOver stops the broker that runs the triggers while an entity waits for a deadline.
func TestAnotherBrokerTakesOver(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			bubble(t, func(t *testing.T, a, b *rig) {
				first := a.openTriggers()
				d := Definition{From: []string{"events"}, When: mustParse(t, "signed_up THEN NOT used WITHIN 1h"), To: "reminders"}
				if _, err := first.Put(t.Context(), "drip", d, PutOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				second := b.openTriggers()
				defer second.Close()
				b.post("signed_up", "u1") // so that each broker knows of the other
				time.Sleep(time.Minute)
				if !first.Status().Running && !second.Status().Running {
					t.Fatal("no broker runs the triggers")
				}
				first.Close()
				if busy {
					b.post("signed_up", "u2")
				}
				for range 80 {
					time.Sleep(time.Minute)
					if busy {
						b.post("other", "u3")
					}
				}
				due := map[string]time.Duration{}
				for _, f := range b.firings("reminders") {
					if _, twice := due[f.Entity]; twice {
						t.Errorf("%s fired twice", f.Entity)
					}
					due[f.Entity] = f.Fired.Sub(f.Due)
				}
				want := 1
				if busy {
					want = 2
				}
				if len(due) != want {
					t.Errorf("fired: %v, want %d entities", due, want)
				}
				for entity, late := range due {
					if late > overdueAfter+5*time.Second {
						t.Errorf("%s fired %v late", entity, late)
					}
				}
			})
		})
	}
}

// TestDefinitions checks what Put refuses, and what List, Get, Versions and Delete return.
func TestDefinitions(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *rig) {
		x := a.openTriggers()
		defer x.Close()
		good := Definition{From: []string{"events"}, When: mustParse(t, "A"), To: "out"}
		for _, c := range []struct {
			name   string
			change func(*Definition)
			want   seb.Code
		}{
			{"", func(*Definition) {}, CodeInvalidTriggerName},
			{"x", func(d *Definition) { d.From = []string{"missing"} }, seb.CodeTopicNotFound},
			{"x", func(d *Definition) { d.To = "events" }, CodeInvalidTrigger},
			{"x", func(d *Definition) { d.To = "a/b" }, seb.CodeInvalidTopicName},
			{"x", func(d *Definition) { d.Emit = map[string]string{"a": "u.data"} }, CodeInvalidTrigger},
		} {
			d := good
			c.change(&d)
			if _, err := x.Put(t.Context(), c.name, d, PutOptions{}); seb.CodeOf(err) != c.want {
				t.Errorf("%q, %+v: %v, want %s", c.name, d, err, c.want)
			}
		}
		if _, err := x.Get(t.Context(), "one"); seb.CodeOf(err) != CodeTriggerNotFound {
			t.Error(err)
		}
		for i := range 3 {
			v, err := x.Put(t.Context(), "one", good, PutOptions{})
			if err != nil || v.Number != int64(i+1) {
				t.Fatal(v, err)
			}
		}
		if _, _, err := a.broker.CreateTopic(t.Context(), "out", seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		back := good
		back.From, back.To = []string{"out"}, "events"
		if _, err := x.Put(t.Context(), "two", back, PutOptions{}); seb.CodeOf(err) != CodeInvalidTrigger {
			t.Errorf("a cycle: %v", err)
		}
		if all, err := x.Versions(t.Context(), "one"); err != nil || len(all) != 3 || all[0].Number != 3 {
			t.Error(all, err)
		}
		if _, err := x.SetMode(t.Context(), "one", Paused); err != nil {
			t.Error(err)
		}
		if v, err := x.Get(t.Context(), "one"); err != nil || v.Number != 4 || v.Definition.Mode != Paused {
			t.Error(v, err)
		}
		if err := x.Delete(t.Context(), "one"); err != nil {
			t.Error(err)
		}
		if all, err := x.List(t.Context()); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		if v, err := x.Put(t.Context(), "one", good, PutOptions{}); err != nil || v.Number != 6 {
			t.Error(v, err)
		}
	})
}

// TestIdleLog counts requests to the store while an entity waits for a deadline, and nothing else happens.
func TestIdleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		a := newRig(t, objstore.Observe(objstore.NewMemory(), func(objstore.Op) { requests.Add(1) }))
		if _, _, err := a.broker.CreateTopic(t.Context(), "events", seb.TopicOptions{}); err != nil {
			t.Fatal(err)
		}
		x := a.openTriggers()
		defer x.Close()
		d := Definition{From: []string{"events"}, When: mustParse(t, "signed_up THEN NOT used WITHIN 7d"), To: "reminders"}
		if _, err := x.Put(t.Context(), "drip", d, PutOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.post("signed_up", "u1")
		time.Sleep(time.Minute)
		before := requests.Load()
		time.Sleep(7*24*time.Hour - 10*time.Minute)
		if n := requests.Load() - before; n > 0 {
			t.Errorf("%d requests while nothing happened", n)
		}
		time.Sleep(20 * time.Minute)
		if got := a.firings("reminders"); len(got) != 1 || got[0].Fired.Sub(got[0].Due) > time.Second {
			t.Errorf("fired: %+v", got)
		}
	})
}

// TestExplain checks that each event of an entity is explained, and the deadline to come.
func TestExplain(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		x := a.openTriggers()
		defer x.Close()
		d := Definition{From: []string{"events"}, When: mustParse(t, "signed_up [data.plan == 'pro'] THEN NOT used WITHIN 1h"), To: "out", Repeat: driplang.Every}
		v, err := x.Put(t.Context(), "drip", d, PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		post := func(value string) {
			t.Helper()
			if _, err := a.broker.Append(t.Context(), "events", []seb.Record{{Key: []byte("u1"), Value: []byte(value)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		post(`{"event":"signed_up","entity_id":"u1","data":{"plan":"pro"}}`)
		post(`{"event":"used","entity_id":"u1"}`)
		post(`{"event":"signed_up","entity_id":"u1","data":{}}`)
		post(`{"event":"signed_up","entity_id":"u2","data":{"plan":"pro"}}`)
		post(`{"event":"signed_up","entity_id":"u1","data":{"plan":"pro"}}`)
		e, err := x.Explain(t.Context(), "drip", "u1")
		if err != nil {
			t.Fatal(err)
		}
		var did []string
		for _, s := range e.Steps {
			did = append(did, s.Event.Event+": "+strings.Join(s.Did, "; "))
		}
		want := []string{
			"signed_up: a run begins",
			"used: a run ends, since nothing can make it true now",
			"signed_up: a condition can't be decided, for example because a field is missing, so it does not hold",
			"signed_up: a run begins",
		}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Error(diff)
		}
		if last := e.Steps[len(e.Steps)-1].Time; e.Open != 1 || !e.Next.Equal(last.Add(time.Hour)) || !e.From.Equal(v.At) {
			t.Errorf("%+v", e)
		}
		if r, err := x.Test(t.Context(), d, v.At); err != nil || r.Firings != 0 || r.OpenRuns != 2 || r.Counts.ConditionErrors != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		time.Sleep(2 * time.Hour)
		a.post("other", "u3")
		r, err := x.Test(t.Context(), d, v.At)
		if err != nil || r.Firings != 2 || r.Entities != 2 || r.Most != 1 || len(r.Samples) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		fired, err := x.Firings(t.Context(), "drip", 10)
		if err != nil || len(fired) != 2 || fired[0].ID == fired[1].ID || fired[0].Trigger != "drip" || fired[0].Fired.Before(fired[0].Due) {
			t.Errorf("%+v, %v", fired, err)
		}
	})
}

// TestGapEndsRunsThatWaitForAbsence deletes records before the triggers see them.
func TestGapEndsRunsThatWaitForAbsence(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		x := a.openTriggers()
		for name, text := range map[string]string{"absent": "signed_up THEN NOT used WITHIN 1h", "present": "signed_up THEN paid WITHIN 10h"} {
			if _, err := x.Put(t.Context(), name, Definition{From: []string{"events"}, When: mustParse(t, text), To: name}, PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		a.post("signed_up", "u1")
		time.Sleep(time.Minute)
		x.Close()
		a.post("used", "u1")
		a.post("other", "u1")
		if _, err := a.broker.DeleteRecords(t.Context(), "events", 0, 2); err != nil {
			t.Fatal(err)
		}
		a.post("signed_up", "u2")
		x = a.openTriggers()
		defer x.Close()
		time.Sleep(3 * time.Hour)
		a.post("paid", "u1")
		time.Sleep(time.Minute)
		got := map[string][]string{}
		for _, topic := range []string{"absent", "present"} {
			for _, f := range a.firings(topic) {
				got[topic] = append(got[topic], f.Entity)
			}
		}
		if diff := cmp.Diff(map[string][]string{"absent": {"u2"}, "present": {"u1"}}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOverMemory lets more entities wait than the memory allows, and gives the triggers more later.
func TestOverMemory(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		x := Open(a.broker, Options{Logger: slog.New(slog.DiscardHandler), Memory: 10 * (entityBytes + 40)})
		d := Definition{From: []string{"events"}, When: mustParse(t, "signed_up THEN NOT used WITHIN 1h"), To: "out"}
		if _, err := x.Put(t.Context(), "drip", d, PutOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for i := range 30 {
			a.post("signed_up", fmt.Sprintf("u%d", i))
		}
		time.Sleep(2 * time.Hour)
		if err := x.Status().Err; seb.CodeOf(err) != CodeOverTriggerBudget {
			t.Errorf("status: %v", err)
		}
		x.Close()
		if x = a.openTriggers(); x.Status().Err != nil {
			t.Error(x.Status().Err)
		}
		defer x.Close()
		time.Sleep(2 * time.Hour)
		if got := a.firings("out"); len(got) != 30 {
			t.Errorf("%d entities fired, want 30", len(got))
		}
	})
}

// TestPause pauses triggers while entities wait, and resumes them.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		x := a.openTriggers()
		defer func() { x.Close() }()
		for name, text := range map[string]string{
			"absent": "signed_up THEN NOT used WITHIN 1h", "present": "signed_up THEN paid WITHIN 10h", "short": "signed_up THEN paid WITHIN 30m",
			"count": "2 TIMES paid",
		} {
			if _, err := x.Put(t.Context(), name, Definition{From: []string{"events"}, When: mustParse(t, text), To: name}, PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		a.post("signed_up", "u1")
		a.post("paid", "u2")
		setAll := func(mode Mode) {
			t.Helper()
			for _, name := range []string{"absent", "present", "short", "count"} {
				if _, err := x.SetMode(t.Context(), name, mode); err != nil {
					t.Fatal(err)
				}
			}
		}
		setAll(Paused)
		time.Sleep(2 * time.Hour)
		a.post("signed_up", "u3")
		a.post("paid", "u4")
		x.Close() // the pause survives a restart
		x = a.openTriggers()
		time.Sleep(time.Minute)
		setAll(Live)
		time.Sleep(time.Minute)
		for _, of := range []string{"u1", "u2", "u3", "u4"} {
			a.post("paid", of)
		}
		a.post("signed_up", "u5")
		time.Sleep(2 * time.Hour)
		got := map[string][]string{}
		for _, topic := range []string{"absent", "present", "short", "count"} {
			for _, f := range a.firings(topic) {
				got[topic] = append(got[topic], f.Entity)
			}
		}
		if diff := cmp.Diff(map[string][]string{"absent": {"u5"}, "present": {"u1"}, "count": {"u2"}}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestWatchedTopicIsDeleted deletes a topic that a trigger watches, and creates it again.
func TestWatchedTopicIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		x := a.openTriggers()
		defer x.Close()
		for name, text := range map[string]string{"absent": "signed_up THEN NOT used WITHIN 1h", "present": "signed_up THEN paid WITHIN 10h"} {
			if _, err := x.Put(t.Context(), name, Definition{From: []string{"events"}, When: mustParse(t, text), To: name}, PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		a.post("signed_up", "u1")
		time.Sleep(time.Minute)
		if err := a.broker.DeleteTopic(t.Context(), "events"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		a.post("paid", "u1") // creates the topic again
		a.post("signed_up", "u2")
		time.Sleep(2 * time.Hour)
		got := map[string][]string{}
		for _, topic := range []string{"absent", "present"} {
			for _, f := range a.firings(topic) {
				got[topic] = append(got[topic], f.Entity)
			}
		}
		if diff := cmp.Diff(map[string][]string{"absent": {"u2"}, "present": {"u1"}}, got); diff != "" {
			t.Error(diff)
		}
	})
}
