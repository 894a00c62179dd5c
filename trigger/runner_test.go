package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/dripmodel"
	"github.com/simple-event-broker/seb/objstore"
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

func (r *rig) put(name string, d Definition) {
	r.t.Helper()
	if err := createTopics(r.t.Context(), r.broker); err != nil {
		r.t.Fatal(err)
	}
	defs, err := openDefinitions(r.t.Context(), r.broker)
	if err == nil {
		_, err = defs.put(r.t.Context(), Version{Name: name, Definition: &d})
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
	for seed := range uint64(60) {
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
			definitions := map[string]Definition{}
			for i := range 1 + rnd.IntN(3) {
				d := Definition{From: []string{"events"}, When: When{dripmodel.RandomExpr(rnd)}, To: "fired", RunsMax: 1 + rnd.IntN(4), Repeat: randomRepeat(rnd)}
				if _, err := compile(d); err != nil {
					d.Repeat = driplang.Once
				}
				name := fmt.Sprintf("trigger-%d", i)
				definitions[name] = d
				rigs[0].put(name, d)
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
			compareWithModel(t, seed, rigs[0], definitions)
		})
	}
}

const timeForm = "2006-01-02T15:04:05.000000Z07:00"

// compareWithModel compares the firings in the log with what the model makes of the events in the log.
func compareWithModel(t *testing.T, seed uint64, r *rig, definitions map[string]Definition) {
	t.Helper()
	histories := map[string][]driplang.Event{}
	for _, rec := range r.read("events") {
		e := EventOf("events", &rec)
		histories[e.Entity] = append(histories[e.Entity], e.Event)
	}
	got := map[string][]string{}
	for _, rec := range r.read("fired") {
		var f Firing
		if err := json.Unmarshal(rec.Value, &f); err != nil {
			t.Fatal(err)
		}
		if !rec.LogTime.After(f.Due) && !slices.ContainsFunc(f.Events, func(e FiringEvent) bool { return e.LogTime.Equal(f.Due) }) {
			t.Errorf("seed %d: %s was appended at %v, before it was due at %v", seed, f.ID, rec.LogTime, f.Due)
		}
		name := f.Trigger + "/" + f.Entity
		got[name] = append(got[name], f.Due.Format(timeForm))
	}
	for name, d := range definitions {
		for of, history := range histories {
			most, per := d.Repeat.Limit()
			want, _ := dripmodel.Firings(d.When.Expr, history, dripmodel.Options{
				RunsMax: d.RunsMax, Until: time.Now(), Match: dripmodel.ByNumber(history), Captures: captured(d.When.Expr, history),
				Repeat: dripmodel.Repeat{Once: d.Repeat == driplang.Once, Most: most, Per: per},
			})
			var dues []string
			for _, f := range want {
				dues = append(dues, f.Due.UTC().Format(timeForm))
			}
			if diff := cmp.Diff(dues, got[name+"/"+of]); diff != "" {
				t.Errorf("seed %d: %s, repeat %s, entity %s\n%s", seed, d.When, d.Repeat, of, diff)
			}
		}
	}
}
