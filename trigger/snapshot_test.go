package trigger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/dripmodel"
)

// TestPagesOfDifferentMomentsGoOn stores each page at some moment of its own, loads all pages into another evaluator, gives it all
// records from the earliest of these moments on, and compares what both fire.
func TestPagesOfDifferentMomentsGoOn(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		var all []event
		for i := range 1 + r.IntN(5) {
			for _, e := range dripmodel.RandomHistory(r, r.IntN(14)) {
				all = append(all, event{Event: e, entity: fmt.Sprintf("entity-%d", i)})
			}
		}
		slices.SortStableFunc(all, func(a, b event) int { return a.LogTime.Compare(b.LogTime) })
		c, err := compile(Definition{From: []string{"events"}, When: When{dripmodel.RandomExpr(r)}, To: "fired", RunsMax: 1 + r.IntN(4)})
		if err != nil {
			t.Fatal(err)
		}
		c.Repeat = randomRepeat(r)
		if c.program.OnceOnly() {
			c.Repeat = driplang.Once
		}
		until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

		var want, got []string
		v := newEvaluator(func(f firing) { want = append(want, fmt.Sprint(f.entity, f.at)) })
		v.replace(v.version("trigger", 3, c), false)
		pages := map[int][]byte{}
		storedAt := map[int]position{}
		store := func(one int) {
			for i := range pageCount {
				if v.pages[i].dirty && r.IntN(one) == 0 {
					pages[i], storedAt[i] = v.storePage(i), v.clock()
				}
			}
		}
		for i, e := range all {
			v.record("events", 1, recordOf(t, i, e))
			if r.IntN(3) == 0 {
				v.pass(e.LogTime.UnixMicro() + int64(r.IntN(2)) - 1)
			}
			store(4)
		}
		v.pass(until)

		// A page that was never stored begins at the beginning. A firing that came before its page was stored does not come again.
		again := newEvaluator(func(f firing) { got = append(got, fmt.Sprint(f.entity, f.at)) })
		known := again.version("trigger", 3, c)
		again.replace(known, false)
		find := func(string, int64) *active { return known }
		for i, p := range pages {
			if err := again.loadPage(p, storedAt[i], find); err != nil {
				t.Fatal(err)
			}
		}
		for i, e := range all {
			again.record("events", 1, recordOf(t, i, e))
		}
		again.pass(until)
		var since []string
		check := newEvaluator(func(f firing) {
			for i := range v.pages {
				if i == pageOf(f.entity) && f.at.compare(storedAt[i]) > 0 {
					since = append(since, fmt.Sprint(f.entity, f.at))
				}
			}
		})
		check.replace(check.version("trigger", 3, c), false)
		for i, e := range all {
			check.record("events", 1, recordOf(t, i, e))
		}
		check.pass(until)
		if d := cmp.Diff(since, got); d != "" {
			t.Fatalf("seed %d: %s, %s (-without, +with a restart)\n%s", seed, c.When, c.Repeat, d)
		}
		if len(since) > len(want) {
			t.Fatal("more firings after the restart than at all")
		}
		for i, p := range pages {
			for cut := range len(p) * max(0, 5-int(seed)) / 5 {
				if err := newEvaluator(nil).loadPage(p[:cut], position{}, func(string, int64) *active { return nil }); err == nil {
					t.Fatalf("page %d: %d of %d bytes were accepted", i, cut, len(p))
				}
			}
		}
	}
}
