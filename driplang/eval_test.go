package driplang

import (
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sequenceOf reads events as "A@0 B@50m".
func sequenceOf(t *testing.T, s string) (events []Event) {
	for f := range strings.FieldsSeq(s) {
		name, at, timed := strings.Cut(f, "@")
		e := Event{Name: name}
		if timed {
			e.LogTime = at0(t, at)
		}
		events = append(events, e)
	}
	return events
}

func at0(t *testing.T, s string) time.Time {
	if s == "0" || s == "0s" {
		return t0
	}
	d, err := ParseDuration(s)
	if err != nil {
		t.Fatal(s, err)
	}
	return t0.Add(d)
}

func program(t *testing.T, text string) *Program {
	e, err := Parse(text)
	if err != nil {
		t.Fatal(text, err)
	}
	p, err := Compile(e)
	if err != nil {
		t.Fatal(text, err)
	}
	return p
}

func fires(t *testing.T, text, events string, until time.Time) string {
	p := program(t, text)
	m := Machine[*Event]{Program: p, Matches: p.Match}
	var n Entity[*Event]
	var out []string
	fired := func(at time.Time, r Result[*Event]) {
		if r.Fired != nil {
			d := FormatDuration(at.Sub(t0))
			if d == "" {
				d = "0"
			}
			out = append(out, d)
		}
	}
	pass := func(to time.Time) {
		for {
			d, ok := m.Deadline(&n)
			if !ok || !d.Before(to) {
				return
			}
			fired(d, m.Pass(&n, d))
		}
	}
	all := sequenceOf(t, events)
	for i := range all {
		pass(all[i].LogTime)
		fired(all[i].LogTime, m.Event(&n, &all[i], all[i].LogTime))
	}
	pass(until)
	return strings.Join(out, " ")
}

func TestFires(t *testing.T) {
	for _, c := range [][3]string{
		{"A AND B", "B@1s A@2s", "2s"},
		{"A AND NOT (B OR C)", "A@1s", "1s"},
		{"A AND NOT (B OR C)", "B@1s A@2s", ""},
		{"A AND NOT (B OR C)", "D@1s A@2s", "2s"},
		{"A THEN B", "B@1s A@2s", ""},
		{"A THEN B", "A@1s B@1s", "1s"},
		{"A THEN A", "A@1s", ""},
		{"A THEN A", "A@1s A@2s A@3s", "2s 3s"},
		{"A THEN NOT B WITHIN 7d", "A@0", "7d"},
		{"A THEN NOT B WITHIN 7d", "A@0 B@7d", ""},
		{"A THEN NOT B WITHIN 7d", "B@0 A@1d", "8d"},
		{"A THEN NOT B WITHIN 7d", "A@0 B@1d A@2d", "9d"},
		{"A THEN NOT B WITHIN 7d", "A@0 A@3d", "7d 10d"},
		{"A THEN B WITHIN 1h", "A@0 A@50m B@70m", "1h10m"},
		{"A THEN B THEN C WITHIN 1h", "A@0 B@1h B@3h C@3h", ""},
		{"A THEN (B AND NOT C) WITHIN 1d", "A@0 B@1h", "1d"},
		{"A THEN (B AND NOT C) WITHIN 1d", "A@0 B@1h C@2h", ""},
		{"A THEN (B OR NOT C) WITHIN 1d", "A@0 B@1h", "1h"},
		{"A THEN (B OR NOT C) WITHIN 1d", "A@0 C@1h B@2h", "2h"},
		{"A THEN (B OR NOT C) WITHIN 1d", "A@0 C@1h", ""},
		{"A THEN (B OR NOT C) WITHIN 1d", "A@0", "1d"},
		{"3 TIMES F WITHIN 1h", "F@0 F@40m F@70m F@80m", "1h20m"},
		{"H THEN NOT H WITHIN 1m", "H@0 H@50s", "1m50s"},
		{"A THEN NOT B", "A@1s", "1s"},
		{"A THEN NOT B WITHIN 1h THEN C", "A@0 C@90m", "1h30m"},
		{"A THEN NOT B WITHIN 1h THEN C", "A@0 C@1h", ""},
		{"A AND B THEN C WITHIN 1h", "A@0 B@1m A@3h C@200m", "3h20m"},
		{"(A THEN B WITHIN 2h) WITHIN 1h", "A@0 B@90m", ""},
		{"(A THEN B) OR C", "C@1s", "1s"},
		{"(A AND B) WITHIN 1h", "A@0 B@5h A@330m", "5h30m"},
		{"A THEN B", "A@1s B@1s A@1s B@1s", "1s 1s"},
		{"3 TIMES F WITHIN 1h", "F@0 F@1m F@2m F@3m", "2m 3m"},
		{"A THEN (C AND NOT B)", "A@0 B@30m C@1h", ""},
		{"A THEN (C WITHIN 1d AND NOT B)", "A@0 C@1h", "1h"},
		{"A THEN (C WITHIN 1d AND NOT B)", "A@0 B@30m C@1h", ""},
		{"* THEN NOT * WITHIN 30d", "A@0 B@1d", "31d"},
	} {
		if got := fires(t, c[0], c[1], t0.Add(365*day)); got != c[2] {
			t.Errorf("%s: %s: fires at %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestEvalNeedsAllTimes(t *testing.T) {
	for _, c := range [][2]string{
		{"A@5m B", "event 2 has no log time"},
		{"A B@5m", "event 1 has no log time"},
		{"A@5m B@1m", "event 2 is earlier than event 1"},
	} {
		if _, err := program(t, "A THEN B").Eval(sequenceOf(t, c[0]), time.Time{}); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v, want %q", c[0], err, c[1])
		}
	}
}
