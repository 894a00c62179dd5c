package dripmodel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/driplang"
)

// random calls check with random expressions and histories.
func random(t *testing.T, check func(*rapid.T, *rand.Rand, []driplang.Event)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		check(t, r, RandomHistory(r, r.IntN(12)))
	})
}

// same checks that two expressions have the same verdicts and firings.
func same(t *rapid.T, r *rand.Rand, a, b *driplang.Expr, history []driplang.Event) {
	at := history[r.IntN(len(history))].LogTime.Add(time.Duration(r.IntN(40)) * time.Second)
	for _, time := range []*time.Time{nil, &at} {
		if v, w := Verdict(a, history, time, ByNumber(history)), Verdict(b, history, time, ByNumber(history)); v != w {
			t.Fatalf("%s\n%s\n%v: %v and %v at %v", a, b, history, v, w, time)
		}
	}
	o := byNumber(history)
	o.RunsMax, o.Once = 1+r.IntN(4), kindOf(a) == lasting
	f, c := Firings(a, history, o)
	g, d := Firings(b, history, o)
	if !slices.Equal(f, g) || c != d {
		t.Fatalf("%s\n%s\n%v: %v %+v and %v %+v", a, b, history, f, c, g, d)
	}
}

func then(args ...*driplang.Expr) *driplang.Expr {
	return &driplang.Expr{Op: driplang.OpThen, Times: 1, Args: args}
}

func TestWindowOfNotIsNotOfWindow(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		first, e, d := RandomExpr(r), RandomExpr(r), time.Duration(1+r.IntN(10))*time.Second
		if e.Within != 0 || len(history) == 0 {
			t.Skip("it has a window already")
		}
		within := *e
		within.Within = d
		a := &driplang.Expr{Op: driplang.OpNot, Times: 1, Args: []*driplang.Expr{e}, Within: d}
		b := &driplang.Expr{Op: driplang.OpNot, Times: 1, Args: []*driplang.Expr{&within}}
		same(t, r, then(first, a), then(first, b), history)
	})
}

func TestThenIsAssociative(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		e, f, g := RandomExpr(r), RandomExpr(r), RandomExpr(r)
		if len(history) == 0 {
			t.Skip("no events")
		}
		same(t, r, then(e, f, g), then(then(e, f), g), history)
		same(t, r, then(e, f, g), then(e, then(f, g)), history)
	})
}

// TestMomentsAreComplete checks that a deadline in each second decides nothing that the deadlines of the windows don't decide.
func TestMomentsAreComplete(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		e := RandomExpr(r)
		s := &sequence{expr: e, first: firstPart(e), events: history, match: ByNumber(history)}
		for i := range history {
			s.end = s.deadline(history[len(history)-1].LogTime.Add(20 * time.Second))
			if !s.begins(i) {
				continue
			}
			few, many := s.run(i), s.run(i)
			for at := history[0].LogTime; !at.After(s.end.at); at = at.Add(time.Second) {
				many.moments = append(many.moments, s.deadline(at))
			}
			slices.SortFunc(many.moments, instant.compare)
			m, ok := few.becomes(e, few.origin, s.end, nil, nil)
			n, really := many.becomes(e, many.origin, s.end, nil, nil)
			if ok != really || m != n {
				t.Fatalf("%s %v: the run of event %d fires at %v, %v, with all deadlines at %v, %v", e, history, i, m, ok, n, really)
			}
		}
	})
}

// TestEstimateIsSafe checks that what may not become true by the estimate never does, and that the estimate includes what is.
func TestEstimateIsSafe(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		e := RandomExpr(r)
		s := &sequence{expr: e, first: firstPart(e), events: history, match: ByNumber(history)}
		for i := range history {
			s.end = s.deadline(history[len(history)-1].LogTime.Add(time.Hour))
			if !s.begins(i) {
				continue
			}
			run := s.run(i)
			for _, become := range []bool{true, false} {
				is, may := driplang.True, true
				if !become {
					is = driplang.False
				}
				for _, m := range run.moments {
					if m.compare(run.origin) < 0 || m.seen <= i {
						continue
					}
					may = may && run.may(e, run.origin, m, nil, nil, become)
					if v := run.whole(m); v == is && !may {
						t.Fatalf("%s %v: the run of event %d is %v at %v", e, history, i, v, m)
					}
				}
			}
		}
	})
}

func TestWindowsNeverChangeBack(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		e := RandomExpr(r)
		if e.Within == 0 {
			t.Skip("no window")
		}
		s := &sequence{expr: e, first: firstPart(e), events: history, match: ByNumber(history)}
		for i := range history {
			s.end = s.deadline(history[len(history)-1].LogTime.Add(time.Hour))
			if !s.begins(i) {
				continue
			}
			run, last := s.run(i), driplang.Undecided
			for _, m := range run.moments {
				v := run.whole(m)
				if last != driplang.Undecided && v != last {
					t.Fatalf("%s %v: the run of event %d is %v, and %v later at %v", e, history, i, last, v, m)
				}
				last = v
			}
			if last == driplang.Undecided {
				t.Fatalf("%s %v: the run of event %d is undecided after all deadlines", e, history, i)
			}
		}
	})
}

// TestRandomCasesVary checks that the generators make what tests of evaluators need.
func TestRandomCasesVary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var sum Counts
	kinds, firings, deadlines, none := map[kind]int{}, 0, 0, 0
	for range 2000 {
		e, history := RandomExpr(r), RandomHistory(r, 12)
		kinds[kindOf(e)]++
		o := byNumber(history)
		o.RunsMax, o.Repeat = 2, pick(r, every, Repeat{Most: 1, Per: 10 * time.Second})
		if Refused(e, false) {
			o.Repeat = once
		}
		fired, counts := Firings(e, history, o)
		for _, f := range fired {
			firings++
			if f.At < 0 {
				deadlines++
			}
		}
		if len(fired) == 0 {
			none++
		}
		sum.Begun += counts.Begun
		sum.Over += counts.Over
		sum.Dropped += counts.Dropped
		sum.Superseded += counts.Superseded
		sum.Lost += counts.Lost
		sum.Repeats += counts.Repeats
	}
	t.Logf("%v, %d firings, %d at deadlines, %d never fire: %+v", kinds, firings, deadlines, none, sum)
	if len(kinds) != 3 || min(deadlines, none, sum.Over, sum.Dropped, sum.Superseded, sum.Lost, sum.Repeats) < 20 {
		t.Error("some cases are too rare")
	}
}

// TestSupersededRunsAreNotMissed checks that an entity fires when it would without a limit of runs, if none was dropped. This is
// so under once: under every, a run that has been superseded may have been about to fire in addition to the newer one.
func TestSupersededRunsAreNotMissed(t *testing.T) {
	random(t, func(t *rapid.T, r *rand.Rand, history []driplang.Event) {
		e, o := RandomExpr(r), byNumber(history)
		o.Once, o.RunsMax = true, 1+r.IntN(2)
		some, counts := Firings(e, history, o)
		o.RunsMax = len(history) + 1
		all, unlimited := Firings(e, history, o)
		if unlimited.Dropped+unlimited.Superseded > 0 {
			t.Fatalf("%s %v: %+v although there is no limit", e, history, unlimited)
		}
		if counts.Dropped == 0 && !slices.EqualFunc(some, all, func(a, b Firing) bool { return a.Due.Equal(b.Due) && a.At == b.At }) {
			t.Fatalf("%s %v: fires %v, and without a limit %v", e, history, some, all)
		}
	})
}

// TestSupersededRunMayHaveFiredToo states what the test above does not promise.
func TestSupersededRunMayHaveFiredToo(t *testing.T) {
	history := events(t, "A@0 A@2h B@150m C@5h")
	for runsMax, want := range map[int]int{1: 1, 2: 2} {
		o := byNumber(history)
		o.RunsMax = runsMax
		if fired, _ := Firings(parse(t, "A THEN (B WITHIN 1h OR C)"), history, o); len(fired) != want {
			t.Errorf("with %d runs: fires %v, want %d firings", runsMax, fired, want)
		}
	}
}
