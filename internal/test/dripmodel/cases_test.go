package dripmodel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func parse(t testing.TB, text string) *driplang.Expr {
	t.Helper()
	e, err := driplang.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// offset reads a duration; a number without a unit is seconds.
func offset(t testing.TB, text string) time.Duration {
	t.Helper()
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(n) * time.Second
	}
	d, err := driplang.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// events reads a history such as "A@0 B@50m C{1}@7d".
func events(t testing.TB, text string) []driplang.Event {
	t.Helper()
	form := regexp.MustCompile(`^(\w+)(?:\{(\d+)\})?@(\w+)$`)
	var history []driplang.Event
	for _, word := range strings.Fields(text) {
		m := form.FindStringSubmatch(word)
		if m == nil {
			t.Fatalf("%q is not an event", word)
		}
		n, _ := strconv.ParseInt(m[2], 10, 64) // without a number: 0
		history = append(history, driplang.Event{Name: m[1], LogTime: epoch.Add(offset(t, m[3])), Data: map[string]any{"n": n}})
	}
	return history
}

// spread returns n events, a second from each other.
func spread(name string, from, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s@%d", name, from+i))
	}
	return strings.Join(all, " ")
}

func byNumber(history []driplang.Event) Options {
	return Options{Match: ByNumber(history), Until: epoch.Add(500 * 24 * time.Hour), Captures: func(captured map[string]int) string {
		of := map[string]any{}
		for alias, event := range captured {
			of[alias] = history[event].Data
		}
		return fmt.Sprint(of)
	}}
}

var once, every = Repeat{Once: true}, Repeat{}

var decided = []struct {
	expr   string
	repeat Repeat
	events string
	fires  string // the times at which it fires
}{
	{"A AND B", once, "B@1 A@2", "2"},
	{"A AND NOT (B OR C)", once, "A@1", "1"},
	{"A AND NOT (B OR C)", once, "B@1 A@2", ""},
	{"A AND NOT (B OR C)", once, "D@1 A@2", "2"},
	{"A THEN B", every, "B@1 A@2", ""},
	{"A THEN B", every, "A@1 B@1", "1"},
	{"A THEN A", every, "A@1", ""},
	{"A THEN A", every, "A@1 A@2 A@3", "2 3"},
	{"A THEN NOT B WITHIN 7d", every, "A@0", "7d"},
	{"A THEN NOT B WITHIN 7d", every, "A@0 B@7d", ""},
	{"A THEN NOT B WITHIN 7d", every, "B@0 A@1d", "8d"},
	{"A THEN NOT B WITHIN 7d", every, "A@0 B@1d A@2d", "9d"},
	{"A THEN NOT B WITHIN 7d", every, "A@0 A@3d", "7d 10d"},
	{"A THEN NOT B WITHIN 7d", once, "A@0 A@3d", "7d"},
	{"A THEN B WITHIN 1h", every, "A@0 A@50m B@70m", "70m"},
	{"A THEN B THEN C WITHIN 1h", every, "A@0 B@1h B@3h C@3h", ""},
	{"A THEN (B AND NOT C) WITHIN 1d", every, "A@0 B@1h", "1d"},
	{"A THEN (B AND NOT C) WITHIN 1d", every, "A@0 B@1h C@2h", ""},
	{"A THEN (B OR NOT C) WITHIN 1d", every, "A@0 B@1h", "1h"},
	{"A THEN (B OR NOT C) WITHIN 1d", every, "A@0 C@1h B@2h", "2h"},
	{"A THEN (B OR NOT C) WITHIN 1d", every, "A@0 C@1h", ""},
	{"A THEN (B OR NOT C) WITHIN 1d", every, "A@0", "1d"},
	{"3 TIMES F WITHIN 1h", every, "F@0 F@40m F@70m F@80m", "80m"},
	{"H THEN NOT H WITHIN 1m", every, "H@0 H@50", "110"},
	{"A THEN NOT B", every, "A@1", "1"},

	{"A THEN NOT B WITHIN 1h THEN C", every, "A@0 C@90m", "90m"},
	{"A THEN NOT B WITHIN 1h THEN C", every, "A@0 C@1h", ""},
	{"A AND B THEN C WITHIN 1h", once, "A@0 B@1m A@3h C@200m", "200m"},
	{"(A THEN B WITHIN 2h) WITHIN 1h", every, "A@0 B@90m", ""},
	{"(A THEN B WITHIN 2h) WITHIN 1h", every, "A@0 B@1h", "1h"},
	{"(A THEN B) OR C", once, "C@1", "1"},
	{"(A AND B) WITHIN 1h", every, "A@0 B@5h A@330m", "330m"},
	{"A THEN B", every, "A@0 B@0 A@0 B@0", "0 0"},
	{"A AS a THEN B", every, "A{1}@0 A{2}@1 B@2", "2"},
	{"40 TIMES F WITHIN 1h", every, spread("F", 0, 16) + " " + spread("F", 3590, 40), "3629"},
	{"3 TIMES F WITHIN 1h", every, "F@0 F@1m F@2m F@3m", "2m 3m"},
	{"3 TIMES F WITHIN 1h", Repeat{Most: 1, Per: time.Hour}, "F@0 F@1m F@2m F@3m", "2m"},
	{"A", Repeat{Most: 1, Per: time.Hour}, "A@0 A@3599 A@1h A@7199 A@2h", "0 1h 2h"},
	{"A", Repeat{Most: 2, Per: time.Hour}, "A@0 A@0 A@0 A@1h", "0 0 1h"},
	{"A THEN (C AND NOT B)", every, "A@0 C@1h", "1h"},
	{"A THEN (C AND NOT B)", every, "A@0 B@30m C@1h", ""},
	{"A THEN (C WITHIN 1d AND NOT B)", every, "A@0 C@1h", "1h"},
	{"A THEN (C WITHIN 1d AND NOT B)", every, "A@0 B@30m C@1h", ""},
	{"* THEN NOT * WITHIN 30d", every, "A@0 B@1d C@40d", "31d 70d"},

	// Not on the page, but stated by the RFC.
	{"user_created AS u THEN NOT use_feature_x [data.n == u.data.n] WITHIN 7d", every, "user_created{1}@0 use_feature_x{2}@1d", "7d"},
	{"user_created AS u THEN NOT use_feature_x [data.n == u.data.n] WITHIN 7d", every, "user_created{1}@0 use_feature_x{1}@1d", ""},
	{"2 TIMES A AS a THEN B [data.n == a.data.n]", every, "A{1}@0 A{2}@1 B{1}@2", ""},
	{"2 TIMES A AS a THEN B [data.n == a.data.n]", every, "A{1}@0 A{2}@1 B{2}@2", "2"},
	{"(A AS a AND B) WITHIN 1h THEN C [data.n == a.data.n]", every, "A{1}@0 B@1 C{2}@2 C{1}@3", "3"},
	{"(A AS a THEN D) AND B THEN C [data.n == a.data.n]", once, "A{1}@0 D@1 B@2 C{2}@3 C{1}@4", "4"},
	{"2 TIMES (A OR *)", every, "A@0 A@1", "1"},
	{"A AND B", once, "A@0 A@1", ""},
	{"(A AND NOT B) WITHIN 1h", every, "A@0 A@0", "1h"},
}

func TestDecidedCases(t *testing.T) {
	for _, c := range decided {
		e, history := parse(t, c.expr), events(t, c.events)
		if Refused(e, c.repeat.Once) {
			t.Errorf("%s is refused", c.expr)
		}
		o := byNumber(history)
		o.Repeat = c.repeat
		var want, got []time.Duration
		for _, at := range strings.Fields(c.fires) {
			want = append(want, offset(t, at))
		}
		fired, counts := Firings(e, history, o)
		for _, f := range fired {
			got = append(got, f.Due.Sub(epoch))
			if f.At >= 0 && !history[f.At].LogTime.Equal(f.Due) {
				t.Errorf("%s [%s]: due at %v, but fired at event %d", c.expr, c.events, f.Due, f.At)
			}
		}
		if !slices.Equal(got, want) || counts.Dropped > 0 {
			t.Errorf("%s [%s]: fires at %v %+v, want %v", c.expr, c.events, got, counts, want)
		}
	}
}

func TestWhichRunFires(t *testing.T) {
	for _, c := range []struct {
		expr, events string
		runsMax      int
		want         string // for each firing: the first event of the run, and the event at which it fired
		counts       Counts
	}{
		{"A AS a THEN B", "A{1}@0 A{2}@1 B@2", 0, "1-2", Counts{Begun: 2, Lost: 1}},
		{"A THEN NOT B WITHIN 1h", "A@0 A@0 A@1", 0, "1--1 2--1", Counts{Begun: 3, Lost: 1}},
		{"A THEN NOT B WITHIN 1h", "A@0 A@1 B@2", 0, "", Counts{Begun: 2, Over: 2}},
		{"A THEN NOT B WITHIN 1h", "A@0 A@1 A@2", 2, "0--1 1--1", Counts{Begun: 3, Dropped: 1}},
		{"A THEN B", "A@0 A@1 A@2 B@3", 2, "2-3", Counts{Begun: 3, Superseded: 1, Lost: 1}},
		{"A AS a THEN B [data.n == a.data.n]", "A{0}@0 A{1}@1 A{1}@2 B{0}@3 B{1}@3", 2, "0-3 2-4", Counts{Begun: 3, Superseded: 1}},
		{"A AS a THEN B [data.n == a.data.n]", "A{0}@0 A{1}@1 A{2}@2 B{2}@3", 2, "", Counts{Begun: 3, Dropped: 1}},
		{"A THEN 2 TIMES B", "A@0 A@1 B@1 A@2 B@3", 2, "1-4", Counts{Begun: 3, Dropped: 1, Lost: 1}},
		{"(A AND B) WITHIN 1h", "A@0 A@1 A@2 B@3", 2, "1-3", Counts{Begun: 4, Over: 1, Dropped: 1, Lost: 1}},
		{"3 TIMES A THEN B", "A@0 A@1 A@2 B@3", 1, "0-3", Counts{Begun: 3}},
		{"3 TIMES A THEN NOT B WITHIN 1h", "A@0 A@1 A@2 A@3", 1, "0--1", Counts{Begun: 4, Dropped: 1}},
		{"(A AND NOT B) WITHIN 1h", "A@0 B@1", 0, "", Counts{Begun: 1, Over: 1}},
		{"(A AND NOT (C AND NOT B)) WITHIN 1h", "B@0 C@1 A@2", 0, "0-2 2--1", Counts{Begun: 2}},
		{"A AND NOT B", "B@0 A@1", 0, "", Counts{Begun: 1, Over: 1}},
		{"A AND B THEN B", "A@0 B@0 B@0", 0, "1-2", Counts{Begun: 3}},
		{"A THEN (B WITHIN 1h OR C WITHIN 1h)", "A@0 A@30m", 0, "", Counts{Begun: 2, Over: 2}},
		{"A AND B THEN NOT C WITHIN 1h", "A@0 A@1 A@2 B@3", 2, "3--1", Counts{Begun: 4}},
	} {
		e, history := parse(t, c.expr), events(t, c.events)
		o := byNumber(history)
		o.RunsMax, o.Once = c.runsMax, kindOf(e) == lasting
		fired, counts := Firings(e, history, o)
		var got []string
		for _, f := range fired {
			got = append(got, fmt.Sprintf("%d-%d", f.Run, f.At))
		}
		if strings.Join(got, " ") != c.want || counts != c.counts {
			t.Errorf("%s [%s]: fires %v %+v, want %s %+v", c.expr, c.events, got, counts, c.want, c.counts)
		}
	}
}

// TestUntilAndStart checks that deadlines count up to Until or before the last event, and events from Start.
func TestUntilAndStart(t *testing.T) {
	e := parse(t, "A THEN NOT B WITHIN 1h")
	for _, c := range []struct {
		events, start, until string
		want                 string // when it is due
	}{
		{"A@0", "0", "3599", ""},
		{"A@0", "0", "1h", "1h"},
		{"A@0 C@1h", "0", "0", ""},
		{"A@0 C@3601", "0", "0", "1h"},
		{"A@0 A@1", "1", "1d", "3601"},
		{"A@0 A@1", "2", "1d", ""},
	} {
		history := events(t, c.events)
		o := byNumber(history)
		o.Start, o.Until = epoch.Add(offset(t, c.start)), epoch.Add(offset(t, c.until))
		fired, _ := Firings(e, history, o)
		if len(fired) > 0 != (c.want != "") || len(fired) > 0 && !fired[0].Due.Equal(epoch.Add(offset(t, c.want))) {
			t.Errorf("[%s] from %s until %s: fires %v, want %q", c.events, c.start, c.until, fired, c.want)
		}
	}
	history := events(t, "B@0 A@1 C@2")
	o := byNumber(history)
	o.Start = epoch.Add(time.Second)
	if fired, _ := Firings(parse(t, "A AND NOT B"), history, o); len(fired) != 1 {
		t.Errorf("B came before the start: fires %v", fired)
	}
}

func TestVerdictOfASequence(t *testing.T) {
	const signUp = "user_created THEN ((NOT use_feature_x) WITHIN 7 days)"
	for _, c := range []struct {
		expr, events, at string
		want             driplang.Verdict
	}{
		{"A AND B", "A@0", "", driplang.False},
		{"A AND B", "B@0", "", driplang.False},
		{"A AND B", "A@0 B@1", "", driplang.True},
		{"A AND B", "B@0 A@1", "", driplang.True},
		{"A AND (NOT (B OR C))", "A@0", "", driplang.True},
		{"A AND (NOT (B OR C))", "B@0 A@1", "", driplang.False},
		{"A AND (NOT (B OR C))", "A@0 B@1", "", driplang.False},
		{"A AND (NOT (B OR C))", "D@0 A@1", "", driplang.True},
		{"A THEN B", "A@0 B@1", "", driplang.True},
		{"A THEN B", "B@0 A@1", "", driplang.False},
		{"A THEN (NOT B)", "A@0", "", driplang.True},
		{"A THEN (NOT B)", "A@0 B@1", "", driplang.False},
		{"A THEN (NOT B)", "A@0 C@1", "", driplang.True},
		{"A THEN NOT B", "A@0 B@1 A@2", "", driplang.True},
		{"A THEN (B WITHIN 2 days)", "A@0 B@2d", "", driplang.True},
		{"A THEN (B WITHIN 2 days)", "A@0 B@172801", "", driplang.False},
		{"A THEN (B WITHIN 2 days)", "A@0 C@2d", "", driplang.Undecided},
		{"A THEN (B WITHIN 2 days)", "A@0 C@2d", "2d", driplang.False},
		{"A THEN (B WITHIN 2 days)", "A@0 B@1d", "12h", driplang.Undecided},
		{"A THEN (B WITHIN 2 days)", "A@1h", "59m", driplang.False},
		{signUp, "user_created@0", "6d", driplang.Undecided},
		{signUp, "user_created@0", "7d", driplang.True},
		{signUp, "user_created@0 use_feature_x@7d", "7d", driplang.False},
		{"A", "", "", driplang.False},
	} {
		history := events(t, c.events)
		var at *time.Time
		if c.at != "" {
			then := epoch.Add(offset(t, c.at))
			at = &then
		}
		if got := Verdict(parse(t, c.expr), history, at, ByName(history)); got != c.want {
			t.Errorf("%s [%s] at %q: %v, want %v", c.expr, c.events, c.at, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		expr      string
		unlimited bool // refused unless the repeat is once
		always    bool
	}{
		{"NOT A", true, true},
		{"A OR NOT B", true, true},
		{"NOT (A THEN B)", true, true},
		{"NOT A THEN B", true, true},
		{"A THEN (NOT B OR C) THEN D", true, true},
		{"A THEN ((NOT B THEN C) AND D)", true, true},
		{"A THEN NOT B", false, false},
		{"NOT A WITHIN 1h", true, true},
		{"A WITHIN 1h OR NOT B WITHIN 1h", true, true},
		{"NOT A WITHIN 1h THEN B", true, true},
		{"A WITHIN 1h AND NOT B WITHIN 1h", false, false},
		{"A WITHIN 1h OR (NOT B WITHIN 1h THEN C WITHIN 1h)", true, true},
		{"A THEN NOT B WITHIN 1h THEN C", false, false},
		{"NOT (A AND NOT B) WITHIN 1h", true, true},
		{"A AND (B WITHIN 1h)", true, true},
		{"A OR (NOT B WITHIN 1h)", true, true},
		{"A AND NOT (B WITHIN 1h) THEN C", true, true},
		{"(A THEN B WITHIN 2h) WITHIN 1h", false, false},
		{"(A THEN NOT B WITHIN 2h) WITHIN 1h", true, true},
		{"((A WITHIN 1h) AND NOT B) WITHIN 2h", true, true},
		{"A THEN NOT (B WITHIN 1h)", false, false},
		{"A THEN (C AND NOT B)", false, false},
		{"A THEN (C AND NOT B) THEN D", true, true},
		{"A THEN (C AND NOT B) WITHIN 1h THEN D", false, false},
		{"(A AND NOT B THEN C) WITHIN 1h", true, true},
		{"A THEN (C AND NOT (NOT B)) THEN D", false, false},
		{"A THEN NOT (B THEN C)", false, false},
		{"A AND B", true, false},
		{"A AND NOT B", true, false},
		{"(A THEN B) OR C", true, false},
		{"A OR 2 TIMES B", true, false},
		{"A OR B", false, false},
		{"2 TIMES (A OR B) THEN C", false, false},
		{"(A AND B) WITHIN 1h", false, false},
		{"(A AND B THEN C) WITHIN 1h", false, false},
	} {
		e := parse(t, c.expr)
		if got := Refused(e, false); got != c.unlimited {
			t.Errorf("%s: refused without once: %v", c.expr, got)
		}
		if got := Refused(e, true); got != c.always {
			t.Errorf("%s: refused with once: %v", c.expr, got)
		}
	}
}
