package trigger

import (
	gocmp "cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/dripmodel"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

var (
	seeds     = flag.Uint64("trigger.seeds", 60, "how many random runs are compared with the model")
	firstSeed = flag.Uint64("trigger.seed", 1, "the seed of the first of them")
)

// rig is a broker with triggers in a bubble, where time passes as soon as nothing else happens.
type rig struct {
	t       *testing.T
	store   objstore.Store
	broker  *seb.Broker
	options Options
	cancel  context.CancelFunc
	ended   chan error
}

func newRig(t *testing.T, store objstore.Store) *rig {
	t.Helper()
	b, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: store, broker: b, options: Options{Logger: slog.New(slog.DiscardHandler)}}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts a runner.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	run, err := openRunner(ctx, r.broker, r.options)
	for errors.Is(err, errOvertaken) { // this broker did not know the newest version of the consumer
		run, err = openRunner(ctx, r.broker, r.options)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	go func() { r.ended <- run.run(ctx) }()
}

// stop stops the runner without a last word.
func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errOvertaken) {
		r.t.Fatal(err)
	}
}

func (r *rig) put(name string, d Definition, replace Replace, catchUp bool) {
	r.t.Helper()
	if err := createTopics(r.t.Context(), r.broker); err != nil {
		r.t.Fatal(err)
	}
	defs, err := openDefinitions(r.t.Context(), r.broker)
	if err == nil {
		_, err = defs.put(r.t.Context(), Version{Name: name, Definition: &d, Replace: replace, CatchUp: catchUp})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) append(topic string, e event) {
	r.t.Helper()
	rec := recordOf(r.t, 0, e)
	if _, err := r.broker.Append(r.t.Context(), topic, []seb.Record{*rec}); err != nil {
		r.t.Fatal(err)
	}
}

// read returns all records of a topic.
func (r *rig) read(topic string) (records []seb.Record) {
	r.t.Helper()
	for rec, err := range r.broker.Read(r.t.Context(), topic, 0, seb.Earliest) {
		if seb.CodeOf(err) == seb.CodeTopicNotFound {
			return nil
		}
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, rec)
	}
	return records
}

// TestRunnerAgreesWithModel lets brokers run triggers over random histories, stops and replaces them at random moments, and compares
// what they have appended with what the model makes of the log.
func TestRunnerAgreesWithModel(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 9))
			store := objstore.NewMemory()
			rigs := []*rig{newRig(t, store), newRig(t, store)}
			for _, r := range rigs {
				r.options.storeMin, r.options.trimAfter = 1+rnd.Int64N(400), seb.Offset(1+rnd.IntN(10))
			}
			if _, _, err := rigs[0].broker.CreateTopic(t.Context(), "events", seb.TopicOptions{}); err != nil {
				t.Fatal(err)
			}
			names := []string{"trigger-0", "trigger-1", "trigger-2"}[:1+rnd.IntN(3)]
			for _, name := range names {
				rigs[0].put(name, randomDefinition(rnd), "", false)
			}
			active := rigs[0]
			active.start()
			var all []event
			for i := range 1 + rnd.IntN(4) {
				of := fmt.Sprintf("entity-%d", i)
				for _, e := range dripmodel.RandomHistory(rnd, rnd.IntN(14)) {
					all = append(all, event{Event: e, entity: of})
				}
			}
			slices.SortStableFunc(all, func(a, b event) int { return a.LogTime.Compare(b.LogTime) })
			for i, e := range all {
				if i > 0 {
					time.Sleep(e.LogTime.Sub(all[i-1].LogTime))
				}
				active.append("events", e)
				if rnd.IntN(8) == 0 {
					d := randomDefinition(rnd)
					if rnd.IntN(2) == 0 { // some of the history counts
						d.Start = Start{time.Now().Add(-time.Duration(rnd.IntN(90)) * time.Second)}
					}
					active.put(names[rnd.IntN(len(names))], d, []Replace{Drain, Drop}[rnd.IntN(2)], rnd.IntN(2) == 0)
				}
				if rnd.IntN(5) == 0 { // another broker takes over, and the one before is stopped before or after that
					before := active
					active = rigs[rnd.IntN(2)]
					early := active == before || rnd.IntN(2) == 0
					if early {
						before.stop()
					}
					active.start()
					if !early {
						before.stop()
					}
				}
			}
			time.Sleep(400 * 24 * time.Hour)
			synctest.Wait()
			active.stop()
			compareWithModel(t, seed, rigs[0])
		})
	}
}

// TestFaultyStore lets two brokers take part in running triggers on a store that fails, loses replies and is slow, stops and starts
// them at random moments, and compares what they have appended with what the model makes of the log.
func TestFaultyStore(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		synctest.Test(t, func(t *testing.T) { faultyRun(t, seed) })
	}
}

func faultyRun(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 10))
	faulty := storetest.NewFaulty(objstore.NewMemory())
	rigs, open := []*rig{newRig(t, faulty), newRig(t, faulty)}, []*Triggers{nil, nil}
	if _, _, err := rigs[0].broker.CreateTopic(t.Context(), "events", seb.TopicOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rigs {
		r.options.storeMin, r.options.trimAfter = 1+rnd.Int64N(400), seb.Offset(1+rnd.IntN(10))
	}
	for _, name := range []string{"one", "two"} {
		rigs[0].put(name, randomDefinition(rnd), "", false)
	}
	var all []event
	for i := range 1 + rnd.IntN(4) {
		of := fmt.Sprintf("entity-%d", i)
		for _, e := range dripmodel.RandomHistory(rnd, rnd.IntN(14)) {
			all = append(all, event{Event: e, entity: of})
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.LogTime.Compare(b.LogTime) })
	var mu sync.Mutex
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	fault := func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
		switch chance(20) {
		case 0:
			return storetest.Fail(ctx, r, next)
		case 1:
			return storetest.LoseReply(ctx, r, next)
		case 2:
			return storetest.Delay(time.Duration(chance(3000))*time.Millisecond)(ctx, r, next)
		}
		return next(ctx, r)
	}
	remove := []func(){faulty.On(objstore.VerbCreate, "log/", fault), faulty.On(objstore.VerbGet, "", fault)}
	for i, e := range all {
		if i > 0 {
			time.Sleep(e.LogTime.Sub(all[i-1].LogTime))
		}
		if n := chance(2); chance(3) == 0 && open[n] == nil {
			open[n] = rigs[n].openTriggers()
		} else if open[n] != nil && chance(4) == 0 {
			open[n].Close()
			open[n] = nil
		}
		rec := recordOf(t, 0, e)
		for { // an append whose outcome is unknown may be in the log twice, which is all the same to the model
			if _, err := rigs[chance(2)].broker.Append(t.Context(), "events", []seb.Record{*rec}); err == nil {
				break
			}
		}
	}
	for _, r := range remove {
		r()
	}
	for n := range open {
		if open[n] == nil {
			open[n] = rigs[n].openTriggers()
		}
	}
	for range 20 { // others commit, so a runner that is lost is noticed
		time.Sleep(10 * time.Second)
		rigs[0].append("events", event{Event: driplang.Event{Name: "other", Data: map[string]any{"n": 0}}, entity: "nobody"})
	}
	time.Sleep(time.Hour)
	for _, x := range open {
		x.Close()
	}
	compareWithModel(t, seed, rigs[0])
}

// randomDefinition returns a definition that compiles.
func randomDefinition(r *rand.Rand) Definition {
	d := Definition{From: []string{"events"}, When: When{dripmodel.RandomExpr(r)}, To: "fired", RunsMax: 1 + r.IntN(4), Repeat: randomRepeat(r)}
	if _, err := compile(d); err != nil { // an expression that allows once only
		d.Repeat = driplang.Once
	}
	return d
}

// expected is a firing that the model expects.
type expected struct {
	dripmodel.Firing
	version *Version
}

// decided returns when the runner can know of the firing: not before it knows the version.
func (e expected) decided() time.Time {
	if e.Due.Before(e.version.At) {
		return e.version.At
	}
	return e.Due
}

// compareWithModel compares the firings in the log with what the model makes of the definitions and events in the log.
func compareWithModel(t *testing.T, seed uint64, r *rig) {
	t.Helper()
	histories := map[string][]driplang.Event{}
	for _, rec := range r.read("events") {
		e := EventOf("events", &rec)
		histories[e.Entity] = append(histories[e.Entity], e.Event)
	}
	versions := map[string][]*Version{}
	for _, rec := range r.read(definitionsTopic) {
		v, err := decodeVersion(&rec, 0)
		if err != nil {
			t.Fatal(err)
		}
		versions[v.Name] = append(versions[v.Name], v)
	}
	got := map[string][]string{}
	for _, rec := range r.read("fired") {
		f, ok := decodeFiring(&rec)
		if !ok {
			t.Fatalf("no firing: %s", rec.Value)
		}
		if rec.LogTime.Before(f.Due) || rec.LogTime.Equal(f.Due) {
			t.Errorf("seed %d: %s was appended at %v, before it was due at %v", seed, f.ID, rec.LogTime, f.Due)
		}
		name := f.Trigger + "/" + f.Entity
		got[name] = append(got[name], fmt.Sprintf("%d at %v", f.Version, f.Due))
	}
	for name, all := range versions {
		for of, history := range histories {
			var raw []expected
			for i, v := range all {
				o := dripmodel.Options{
					RunsMax: v.Definition.RunsMax, Until: time.Now(), Match: dripmodel.ByNumber(history), Captures: captured(v.Definition.When.Expr, history),
					Start: v.At,
				}
				if start := v.Definition.Start; !start.IsZero() && start.Before(v.At) {
					o.Start = start.Time
				}
				events := history
				if i+1 < len(all) {
					o.Replaced = all[i+1].At
				}
				for _, later := range all[i+1:] {
					if later.Replace == Drop { // ends all open runs
						o.Until = later.At.Add(-time.Microsecond)
						events = events[:sort.Search(len(events), func(i int) bool { return !events[i].LogTime.Before(later.At) })]
						break
					}
				}
				if v.Definition.Repeat == driplang.Once {
					o.Once = true
				}
				firings, _ := dripmodel.Firings(v.Definition.When.Expr, events, o)
				for _, f := range firings {
					raw = append(raw, expected{f, v})
				}
			}
			slices.SortStableFunc(raw, func(a, b expected) int {
				return gocmp.Or(a.decided().Compare(b.decided()), a.Due.Compare(b.Due), gocmp.Compare(uint(a.At), uint(b.At))) // -1, a deadline, comes last
			})
			var want []string
			var fired []time.Time
			for _, f := range raw {
				if most, per := f.version.Definition.Repeat.Limit(); most > 0 { // a version remembers what its repeat needs
					recent := slices.DeleteFunc(slices.Clone(fired), func(at time.Time) bool { return per > 0 && !at.After(f.Due.Add(-per)) })
					if len(recent) >= most {
						continue
					}
					fired = append(recent, f.Due)
				}
				if f.Due.Before(f.version.At) && !f.version.CatchUp {
					continue
				}
				want = append(want, fmt.Sprintf("%d at %v", f.version.Number, f.Due.UTC()))
			}
			if diff := cmp.Diff(want, got[name+"/"+of]); diff != "" {
				t.Errorf("seed %d: trigger %s, entity %s\n%s", seed, name, of, diff)
				for _, v := range all {
					t.Logf("version %d at %v: start %v, catch up %v, %s, repeat %s, replace %q, runs_max %d", v.Number, v.At, v.Definition.Start, v.CatchUp, v.Definition.When, v.Definition.Repeat, v.Replace, v.Definition.RunsMax)
				}
				for _, e := range history {
					t.Logf("%s %v at %v", e.Name, e.Data, e.LogTime)
				}
			}
		}
	}
}

// TestPagesAfterARide stores pages after a sign of life has come into the topic of the state by a ride.
func TestPagesAfterARide(t *testing.T) {
	bubble(t, func(t *testing.T, a, _ *rig) {
		a.put("drip", Definition{From: []string{"events"}, When: mustParse(t, "signed_up THEN NOT used WITHIN 1h"), To: "out"}, "", false)
		r, err := openRunner(t.Context(), a.broker, a.options)
		if err != nil {
			t.Fatal(err)
		}
		step := func() {
			t.Helper()
			r.reached = false // don't wait
			if err := r.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		step()
		a.post("signed_up", "u1")
		step()
		if err := r.output.signByRide(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the ride waits
		a.post("signed_up", "u2")
		<-r.output.riding.ended
		step()
		if err := r.store.finish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		x := a.openTriggers()
		defer x.Close()
		time.Sleep(2 * time.Hour)
		if got := a.firings("out"); len(got) != 2 {
			t.Errorf("fired: %+v; status: %+v", got, x.Status())
		}
	})
}
