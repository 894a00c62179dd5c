package trigger

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/dripmodel"
)

// event is an event of an entity of a test, and its place among the events of that entity.
type event struct {
	driplang.Event
	entity string
	index  int
}

// TestEvaluatorAgreesWithModel evaluates several triggers over several entities, and compares the firings of each trigger and
// entity with the model, which knows one entity only.
func TestEvaluatorAgreesWithModel(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		histories := map[string][]driplang.Event{}
		var all []event
		for i := range 1 + r.IntN(4) {
			of := fmt.Sprintf("entity-%d", i)
			histories[of] = dripmodel.RandomHistory(r, r.IntN(14))
			for i, e := range histories[of] {
				all = append(all, event{e, of, i})
			}
		}
		slices.SortStableFunc(all, func(a, b event) int { return a.LogTime.Compare(b.LogTime) })
		until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

		got := map[string][]dripmodel.Firing{}
		v := newEvaluator(func(f firing) {
			name := f.trigger.name + "/" + f.entity
			firing := dripmodel.Firing{Due: time.UnixMicro(f.at.time).UTC(), At: -1}
			if f.at.topic != deadlineTopic {
				firing.At = all[f.at.offset].index
			}
			got[name] = append(got[name], firing)
		})
		definitions := map[string]Definition{}
		for i := range 1 + r.IntN(3) {
			d := Definition{From: []string{"events"}, When: When{dripmodel.RandomExpr(r)}, To: "fired", RunsMax: 1 + r.IntN(4), Repeat: randomRepeat(r)}
			c, err := compile(d)
			if err != nil { // an expression that allows once only
				d.Repeat = driplang.Once
				if c, err = compile(d); err != nil {
					t.Fatal(err)
				}
			}
			name := fmt.Sprintf("trigger-%d", i)
			definitions[name] = d
			v.replace(v.version(name, 1, c), false)
		}
		for i, e := range all {
			v.record("events", 1, recordOf(t, i, e))
		}
		v.pass(until.UnixMicro())

		for name, d := range definitions {
			for of, history := range histories {
				most, per := d.Repeat.Limit()
				want, _ := dripmodel.Firings(d.When.Expr, history, dripmodel.Options{
					RunsMax: d.RunsMax, Until: until, Match: dripmodel.ByNumber(history), Captures: captured(d.When.Expr, history),
					Repeat: dripmodel.Repeat{Once: d.Repeat == driplang.Once, Most: most, Per: per},
				})
				if d := cmp.Diff(want, got[name+"/"+of], cmp.Comparer(sameFiring)); d != "" {
					t.Fatalf("seed %d: %s, repeat %s, entity %s\n%s", seed, definitions[name].When, definitions[name].Repeat, of, d)
				}
			}
		}
	}
}

func recordOf(t *testing.T, i int, e event) *seb.Record {
	value, err := json.Marshal(map[string]any{"event": e.Name, "entity_id": e.entity, "data": e.Data})
	if err != nil {
		t.Fatal(err)
	}
	return &seb.Record{Value: value, Offset: seb.Offset(i), LogTime: e.LogTime}
}

func sameFiring(a, b dripmodel.Firing) bool { return a.Due.Equal(b.Due) && a.At == b.At }

func randomRepeat(r *rand.Rand) driplang.Repeat {
	switch r.IntN(3) {
	case 0:
		return driplang.Once
	case 1:
		return driplang.Every
	default:
		return driplang.AtMost(1+r.IntN(2), time.Duration(1+r.IntN(30))*time.Second)
	}
}

// captured returns the data of the events that conditions use.
func captured(e *driplang.Expr, history []driplang.Event) func(map[string]int) string {
	program, err := driplang.Compile(e)
	if err != nil {
		panic(err)
	}
	return func(captured map[string]int) string {
		all := map[string]any{}
		for _, f := range program.Uses() {
			if event, has := captured[f.Alias]; has {
				all[f.Alias] = history[event].Data
			}
		}
		text, err := json.Marshal(all)
		if err != nil {
			panic(err)
		}
		return string(text)
	}
}
