package driplang_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb/driplang"
	"github.com/simple-event-broker/seb/internal/test/dripmodel"
)

var (
	modelCases = flag.Int("model.cases", 20_000, "how many random expressions and histories are compared with the model")
	modelSeed  = flag.Uint64("model.seed", 1, "the seed of the first of them")
)

// TestMachineAgreesWithModel compares machines with the reference evaluator, which computes everything from the full history.
func TestMachineAgreesWithModel(t *testing.T) {
	for i := range *modelCases {
		seed := *modelSeed + uint64(i)
		r := rand.New(rand.NewPCG(seed, 0))
		e := dripmodel.RandomExpr(r)
		history := dripmodel.RandomHistory(r, r.IntN(16))
		program, err := driplang.Compile(e)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, e, err)
		}
		o := dripmodel.Options{RunsMax: 1 + r.IntN(5), Match: dripmodel.ByNumber(history), Captures: captures(history)}
		if len(history) > 0 {
			o.Start = history[0].LogTime
			o.Until = history[len(history)-1].LogTime.Add(time.Duration(r.IntN(60)) * time.Second)
		}
		o.Once = program.OnceOnly() || r.IntN(3) == 0
		want, counts := dripmodel.Firings(e, history, o)
		got, gotCounts := firings(program, history, o, func(int) bool { return r.IntN(4) == 0 })
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b dripmodel.Firing) bool { return a.Due.Equal(b.Due) && a.At == b.At })); d != "" {
			t.Fatalf("seed %d: %s, %+v\n%s\nfirings (-model +machine):\n%s", seed, e, o.Repeat, show(history), d)
		}
		if first(e).Times > 1 { // is no run until it is true
			counts.Begun, counts.Over, gotCounts.Begun, gotCounts.Over = 0, 0, 0, 0
		}
		if !program.OnceOnly() && !o.Once && counts != gotCounts {
			t.Fatalf("seed %d: %s, at most %d runs\n%s\nmodel   %+v\nmachine %+v", seed, e, o.RunsMax, show(history), counts, gotCounts)
		}
		at := o.Until
		wantVerdict := dripmodel.Verdict(e, history, &at, o.Match)
		if len(history) == 0 || r.IntN(2) == 0 {
			at = time.Time{}
			wantVerdict = dripmodel.Verdict(e, history, nil, o.Match)
		}
		if v, err := program.Eval(history, at); err != nil || v != wantVerdict {
			t.Fatalf("seed %d: %s at %v\n%s\nverdict %v, %v, model %v", seed, e, at, show(history), v, err, wantVerdict)
		}
	}
}

// TestRefusalsAgreeWithModel compares what Compile refuses with the rules of RFC 0006, as the model has them.
func TestRefusalsAgreeWithModel(t *testing.T) {
	for i := range *modelCases / 2 {
		r := rand.New(rand.NewPCG(*modelSeed+uint64(i), 1))
		e, err := driplang.Parse(randomText(r, 3))
		if err != nil {
			continue // a window in a window with a NOT around the same node
		}
		program, err := driplang.Compile(e)
		for _, once := range []bool{true, false} {
			refused := err != nil || !once && program.CheckRepeat(driplang.Every) != nil
			if want := dripmodel.Refused(e, once); refused != want {
				t.Fatalf("%s, once %t: refused %t (%v), the model refuses it: %t", e, once, refused, err, want)
			}
		}
	}
}

// randomText returns an expression that may make no sense.
func randomText(r *rand.Rand, depth int) string {
	window := ""
	if r.IntN(3) == 0 {
		window = fmt.Sprintf(" WITHIN %ds", 1+r.IntN(9))
	}
	if depth == 0 || r.IntN(4) == 0 {
		return "(" + []string{"", "", "", "2 TIMES "}[r.IntN(4)] + string(rune('A'+r.IntN(4))) + window + ")"
	}
	a, b := randomText(r, depth-1), randomText(r, depth-1)
	switch r.IntN(4) {
	case 0:
		return "((" + a + " AND " + b + ")" + window + ")"
	case 1:
		return "((" + a + " OR " + b + ")" + window + ")"
	case 2:
		return "((" + a + " THEN " + b + ")" + window + ")"
	default:
		return "(NOT " + a + window + ")"
	}
}

// again stores an entity that has seen a history, and loads it.
func again(p *driplang.Program, m *driplang.Machine[int], n *driplang.Entity[int], start time.Time, history []driplang.Event) driplang.Entity[int] {
	now := start
	if len(history) > 0 {
		now = history[len(history)-1].LogTime.Add(-time.Microsecond) // deadlines at the time of the last event have not passed
	}
	loaded, err := m.DecodeEntity(m.AppendEntity(nil, n, appendIndex), now, readIndex)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", p.Expr(), err))
	}
	return *loaded
}

func appendIndex(b []byte, event int) []byte { return binary.AppendUvarint(b, uint64(event)) }

func readIndex(b []byte) (int, []byte, error) {
	v, n := binary.Uvarint(b)
	return int(v), b[n:], nil
}

// firings feeds a history to a machine, which is stored and loaded before the events for which restart is true.
func firings(p *driplang.Program, history []driplang.Event, o dripmodel.Options, restart func(int) bool) (fired []dripmodel.Firing, counts dripmodel.Counts) {
	m := driplang.Machine[int]{Program: p, RunsMax: o.RunsMax}
	captured := func(aliases iter.Seq[string], r *driplang.Run[int]) map[string]int {
		all := map[string]int{}
		for alias := range aliases {
			if event, ok := m.Captured(r, alias); ok {
				all[alias] = event
			}
		}
		return all
	}
	m.Matches = func(e *driplang.Expr, event int, r *driplang.Run[int]) bool {
		return o.Match(e, event, captured(maps.Keys(aliases(p.Expr())), r))
	}
	m.Same = func(a, b *driplang.Run[int]) bool {
		sure := slices.Values(p.Emittable())
		return o.Captures(captured(sure, a)) == o.Captures(captured(sure, b))
	}
	var n driplang.Entity[int]
	took := func(due time.Time, at int, r driplang.Result[int]) (ended bool) {
		counts.Begun += r.Begun + r.Dropped
		counts.Over += r.Over
		counts.Dropped += r.Dropped
		counts.Superseded += r.Superseded
		counts.Lost += r.Lost
		if r.Fired != nil {
			fired = append(fired, dripmodel.Firing{Due: due, At: at})
		}
		return r.Fired != nil && o.Once
	}
	pass := func(before time.Time) (ended bool) {
		for {
			d, ok := m.Deadline(&n)
			if !ok || !d.Before(before) {
				return false
			}
			if took(d, -1, m.Pass(&n, d)) {
				return true
			}
		}
	}
	for i, event := range history {
		if restart(i) {
			n = again(p, &m, &n, o.Start, history[:i])
		}
		if pass(event.LogTime) || took(event.LogTime, i, m.Event(&n, i, event.LogTime)) {
			return fired, counts
		}
	}
	pass(o.Until.Add(time.Microsecond))
	return fired, counts
}

// first returns the first part of an expression.
func first(e *driplang.Expr) *driplang.Expr {
	for e.Op == driplang.OpThen {
		e = e.Args[0]
	}
	return e
}

func aliases(e *driplang.Expr) map[string]bool {
	all := map[string]bool{}
	if e.As != "" {
		all[e.As] = true
	}
	for _, a := range e.Args {
		for alias := range aliases(a) {
			all[alias] = true
		}
	}
	return all
}

// captures returns the numbers that conditions of random expressions can use.
func captures(history []driplang.Event) func(map[string]int) string {
	return func(captured map[string]int) string {
		var all []string
		for alias, event := range captured {
			all = append(all, fmt.Sprintf("%s=%v", alias, history[event].Data))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
}

func show(history []driplang.Event) string {
	var all []string
	for _, e := range history {
		all = append(all, fmt.Sprintf("%s@%v%v", e.Name, e.LogTime.Sub(history[0].LogTime), e.Data))
	}
	return strings.Join(all, " ")
}
