package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// past is a history made by hand, and the log it left.
type past struct {
	*history
	log []string
	// starts are those that the log was moved to.
	starts []seb.Offset
	// lives tells when lives began.
	lives map[string]time.Duration
}

// append adds an append of client c through life A1, from a second to the next.
func (p *past) append(c string, at int, outcome seb.Outcome, first int, values ...string) *op {
	o := &op{client: c, broker: "A1", via: viaLibrary, kind: appends, topic: "t", values: values, outcome: outcome, call: time.Duration(at) * time.Second}
	o.ret = o.call + time.Second
	if outcome == "" {
		o.ranges = []seb.Range{{Offset: seb.Offset(first), Count: len(values)}}
	} else {
		o.failure = seb.CodeStoreUnavailable
	}
	p.add(o)
	return o
}

// read adds a read through a life that found records from offset 0 on.
func (p *past) read(life string, at, end int, found ...string) *op {
	o := &op{client: "r", broker: life, kind: reads, topic: "t", from: seb.At(0), call: time.Duration(at) * time.Second}
	o.ret = o.call + time.Second
	for i, id := range found {
		o.records = append(o.records, seen{seb.Offset(i), id})
	}
	o.next, o.end = seb.Offset(len(found)), seb.Offset(end)
	p.add(o)
	return o
}

// appendIf adds an append of x that insists on an end, and after it was answered.
func (p *past) appendIf(end seb.Offset, failure seb.Code) *op {
	outcome := seb.NotCommitted
	if failure == "" {
		outcome = ""
	}
	o := p.append("i", 9, outcome, len(p.log), "x")
	o.ifOffset, o.failure = &end, failure
	return o
}

// trim adds a trim through A1, that moved the start if it is not negative.
func (p *past) trim(at int, before, moved seb.Offset, outcome seb.Outcome) *op {
	o := &op{client: "t", broker: "A1", kind: trims, topic: "t", before: before, outcome: outcome, call: time.Duration(at) * time.Second}
	o.ret = o.call + time.Second
	o.start, o.end = before, seb.Offset(len(p.log))
	if outcome != "" {
		o.failure = seb.CodeStoreUnavailable
	}
	if moved >= 0 {
		p.starts = append(p.starts, moved)
	}
	p.add(o)
	return o
}

// below adds a read through A1 that was refused for where the partition starts.
func (p *past) below(at, start seb.Offset) {
	o := p.read("A1", 9, len(p.log))
	o.from, o.start, o.failure = seb.At(at), start, seb.CodeOffsetOutOfRange
}

func (p *past) check() []string {
	s := &simulation{plan: plan{topics: []topic{{"t", 1}}}, history: p.history, begins: p.lives}
	s.check(&log{partitions: map[place]*partition{{"t", 0}: {ids: p.log, starts: p.starts}}})
	return p.violations
}

// Every kind of lie about the past is found, and the truth passes.
func TestHistoriesThatDoNotAddUpAreFound(t *testing.T) {
	tests := map[string]struct {
		change func(*past)
		want   string // "" = nothing
	}{
		"the truth":                   {func(*past) {}, ""},
		"an unknown append took hold": {func(p *past) { p.append("c", 5, seb.Unknown, 0, "x"); p.log = append(p.log, "x") }, ""},
		"an unknown append did not":   {func(p *past) { p.append("c", 5, seb.Unknown, 0, "x") }, ""},
		"lost":                        {func(p *past) { p.log = p.log[:2] }, "AckDurable"},
		"swapped":                     {func(p *past) { p.log = []string{"b", "a", "c"} }, "Order"},
		"elsewhere":                   {func(p *past) { p.log = []string{"a", "c", "b"} }, "AckDurable"},
		"twice":                       {func(p *past) { p.log = append(p.log, "a") }, "AtMostOnce"},
		"a phantom":                   {func(p *past) { p.append("c", 5, seb.NotCommitted, 0, "x"); p.log = append(p.log, "x") }, "NoPhantom"},
		"half of an append":           {func(p *past) { p.append("c", 5, seb.Unknown, 0, "x", "y"); p.log = append(p.log, "y") }, "AckDurable"},
		"no outcome":                  {func(p *past) { p.append("c", 5, seb.Unknown, 0, "x").outcome = "" }, "NoPhantom"},
		"acknowledged at too few offsets": {func(p *past) {
			p.append("c", 5, "", 3, "x", "y").ranges[0].Count = 1
			p.log = append(p.log, "x", "y")
		}, "AckDurable"},
		"out of order": {func(p *past) {
			p.append("c", 5, seb.Unknown, 0, "x")
			p.append("c", 7, seb.Unknown, 0, "y")
			p.log = append(p.log, "y", "x")
		}, "Order"},
		"another record at an offset": {func(p *past) { p.read("A1", 9, 3, "b") }, "DenseOffsets"},
		"a read beyond the end":       {func(p *past) { p.read("A1", 9, 4) }, "DenseOffsets"},
		"a read with a hole":          {func(p *past) { p.read("A1", 9, 3, "a", "b").records[1] = seen{2, "c"} }, "DenseOffsets"},
		"a read from elsewhere":       {func(p *past) { p.read("A1", 9, 3, "a").from = seb.At(1) }, "DenseOffsets"},
		"a read that says a wrong next": {func(p *past) {
			p.read("A1", 9, 3, "a", "b").next = 3
		}, "DenseOffsets"},
		"a broker that goes back":                {func(p *past) { p.read("A1", 9, 2, "a", "b") }, "AckDurable"},
		"a broker that is behind":                {func(p *past) { p.lives["B1"] = 0; p.read("B1", 9, 2, "a", "b") }, ""},
		"a recovery that finds too little":       {func(p *past) { p.lives["B1"] = 8 * time.Second; p.read("B1", 9, 2, "a", "b") }, "AckDurable"},
		"a refusal of what was acknowledged":     {func(p *past) { p.fail(seb.CodeOffsetOutOfRange) }, "AckDurable"},
		"a topic that is said not to be there":   {func(p *past) { p.fail(seb.CodeTopicNotFound) }, "LossIsLoud"},
		"data that is said to be lost":           {func(p *past) { p.fail(seb.CodeDataLost) }, "LossIsLoud"},
		"a store that is said to be unavailable": {func(p *past) { p.fail(seb.CodeStoreUnavailable) }, ""},
		"a read of what was sent only later":     {func(p *past) { p.lives["B1"] = 0; p.read("B1", 0, 3) }, "SlotAgreement"},
		"a condition that held":                  {func(p *past) { p.appendIf(3, ""); p.log = append(p.log, "x") }, ""},
		"a condition that did not hold":          {func(p *past) { p.appendIf(2, ""); p.log = append(p.log, "x") }, "Condition"},
		"a condition that held nowhere": {func(p *past) {
			p.appendIf(2, "").outcome = seb.Unknown
			p.log = append(p.log, "x")
		}, "Condition"},
		"a conflict":                             {func(p *past) { p.appendIf(2, seb.CodeOffsetConflict).end = 3 }, ""},
		"a conflict without one":                 {func(p *past) { p.appendIf(3, seb.CodeOffsetConflict).end = 3 }, "Condition"},
		"a conflict that nobody asked for":       {func(p *past) { p.appendIf(2, seb.CodeOffsetConflict).ifOffset = nil }, "Condition"},
		"a conflict with an end that never was":  {func(p *past) { p.appendIf(2, seb.CodeOffsetConflict).end = 4 }, "SlotAgreement"},
		"a conflict with an end that has passed": {func(p *past) { p.appendIf(3, seb.CodeOffsetConflict).end = 2 }, "SlotAgreement"},
		"a trim":                                 {func(p *past) { p.trim(7, 2, 2, "") }, ""},
		"a trim that was not done":               {func(p *past) { p.trim(7, 2, -1, "") }, "StartAsAsked"},
		"a trim that is told otherwise":          {func(p *past) { p.trim(7, 2, 2, "").start = 1 }, "StartAsAsked"},
		"a trim that nobody asked for":           {func(p *past) { p.starts = []seb.Offset{1} }, "StartAsAsked"},
		"a trim to elsewhere":                    {func(p *past) { p.trim(7, 1, 2, "") }, "StartAsAsked"},
		"a start that goes back":                 {func(p *past) { p.trim(5, 2, 2, ""); p.trim(7, 1, 1, "").start = 2 }, "StartAsAsked"},
		"a trim that was refused, and done":      {func(p *past) { p.trim(7, 2, 2, seb.NotCommitted) }, "StartAsAsked"},
		"a trim of unknown outcome":              {func(p *past) { p.trim(7, 2, -1, seb.Unknown) }, ""},
		"a trim of unknown outcome, done":        {func(p *past) { p.trim(7, 2, 2, seb.Unknown) }, ""},
		"a read behind a trim":                   {func(p *past) { p.trim(7, 2, 2, ""); p.below(1, 2) }, ""},
		"a read refused for no trim":             {func(p *past) { p.below(1, 2) }, "StartAsAsked"},
		"a read refused in range":                {func(p *past) { p.trim(7, 2, 2, ""); p.below(2, 2) }, "DenseOffsets"},
		"a read refused before a trim":           {func(p *past) { p.below(1, 2); p.trim(11, 2, 2, "") }, "StartAsAsked"},
		"a read refused for a smaller start":     {func(p *past) { p.trim(7, 2, 2, ""); p.below(0, 1) }, "SlotAgreement"},
		"a read of what was trimmed":             {func(p *past) { p.trim(7, 2, 2, ""); p.read("A1", 9, 3, "a") }, "StartAsAsked"},
		"a read of that elsewhere": {func(p *past) {
			p.trim(7, 2, 2, "")
			p.lives["B1"] = 0
			p.read("B1", 9, 3, "a")
		}, ""},
		"a trim that tells an end of the past": {func(p *past) { p.trim(7, 2, 2, "").end = 2 }, "SlotAgreement"},
		"a conflict with one that is under way": {func(p *past) {
			p.append("c", 5, seb.Unknown, 0, "y")
			p.log = append(p.log, "y")
			p.appendIf(3, seb.CodeOffsetConflict).end = 4
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &past{history: newHistory(func() time.Duration { return 0 }), log: []string{"a", "b", "c"}, lives: map[string]time.Duration{"A1": 0}}
			p.append("c", 1, "", 0, "a", "b")
			p.append("d", 3, "", 2, "c")
			p.read("A1", 4, 3, "a", "b", "c")
			test.change(p)
			got := p.check()
			if test.want == "" && len(got) > 0 {
				t.Fatalf("nothing is wrong, and yet: %v", got)
			}
			if test.want != "" && !strings.HasPrefix(strings.Join(got, "; "), test.want) {
				t.Fatalf("found %v, want %s", got, test.want)
			}
		})
	}
}

// fail adds a read at offset 1 that failed, after all was acknowledged.
func (p *past) fail(code seb.Code) {
	o := p.read("A1", 9, 0)
	o.from, o.failure = seb.At(1), code
}
