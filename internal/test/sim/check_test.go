package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// past is a handmade history, and the log that it led to.
type past struct {
	*history
	log []string
	// starts are the offsets to which the partition's start was moved.
	starts []seb.Offset
	topic  incarnation
	// owns are topics that existed one after the other under one name.
	owns []*incarnation
	// passed is a record that no worker received.
	passed string
	// inForce says that API key 1 was not revoked.
	inForce bool
	// lives has the time at which each life began.
	lives map[string]time.Duration
}

// append adds an append of client c through life A1, from second at to the next one.
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

// read adds a read through a life, which found records from offset 0 on.
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

// appendIf adds an append of x at 9 s, after all others were answered, with an end as its condition.
func (p *past) appendIf(end seb.Offset, failure seb.Code) *op {
	outcome := seb.NotCommitted
	if failure == "" {
		outcome = ""
	}
	o := p.append("i", 9, outcome, len(p.log), "x")
	o.ifOffset, o.failure = &end, failure
	return o
}

// trim adds a trim through A1. It moved the start unless moved is negative.
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

// update adds an update of the topic's config through A1.
func (p *past) update(at int, config int64, outcome seb.Outcome) *op {
	o := &op{client: "u", broker: "A1", kind: updates, topic: "t", config: config, is: shape{1, config}, outcome: outcome, call: time.Duration(at) * time.Second}
	o.ret = o.call + time.Second
	if outcome != "" {
		o.failure = seb.CodeStoreUnavailable
	}
	p.add(o)
	return o
}

// own adds a topic "own", and appends to it, after everything before: at 5 s, and then at 15 s.
func (p *past) own(deleted bool, values ...string) {
	for i, v := range values {
		o := p.append("o", 5+10*max(i, len(p.owns)), "", i, v)
		o.topic = "own"
	}
	p.owns = append(p.owns, &incarnation{name: "own", deleted: deleted, partitions: []partition{{ids: values}}})
}

// delete adds the deletion of topic "own" at 10 s.
func (p *past) delete(outcome seb.Outcome) *op {
	o := &op{client: "o", broker: "A1", kind: deletes, topic: "own", outcome: outcome, call: 10 * time.Second, ret: 11 * time.Second}
	if outcome != "" {
		o.failure = seb.CodeStoreUnavailable
	}
	p.add(o)
	return o
}

// readOwn adds a read of topic "own" at the end.
func (p *past) readOwn(found ...string) { p.read("A1", 30, len(found), found...).topic = "own" }

// key adds an operation with API key 1.
func (p *past) key(life string, at int, what kind, failure seb.Code) *op {
	o := &op{client: "k", broker: life, kind: what, apiKey: 1, failure: failure, call: time.Duration(at) * time.Second}
	o.ret = o.call + time.Second
	if failure != "" {
		o.outcome = seb.Unknown
	}
	p.add(o)
	return o
}

// below adds a read through A1 that was refused because of where the partition starts.
func (p *past) below(at, start seb.Offset) {
	o := p.read("A1", 9, len(p.log))
	o.from, o.start, o.failure = seb.At(at), start, seb.CodeOffsetOutOfRange
}

func (p *past) check() []string {
	s := &simulation{plan: plan{brokers: 1, topics: []topic{{"t", 1}}}, history: p.history, begins: p.lives, done: map[string]bool{}}
	for _, id := range p.log {
		s.done[id] = id != p.passed
	}
	p.topic.name = "t"
	if p.topic.queues == nil {
		p.topic.partitions = []partition{{ids: p.log, starts: p.starts}}
	}
	all := truth{1: &p.topic}
	for i, in := range p.owns {
		all[format.TopicID(2+i)] = in
	}
	final := newLog(all, state.New())
	if p.inForce {
		final.keys[1] = true
	}
	s.check(final)
	return p.violations
}

// The checker finds every kind of wrong history, and accepts a correct one.
func TestHistoriesThatDoNotAddUpAreFound(t *testing.T) {
	tests := map[string]struct {
		change func(*past)
		want   string // "" means that nothing is found
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
		"an update":                            {func(p *past) { p.update(7, 1, ""); p.topic.configs = []int64{1} }, ""},
		"an update that was not done":          {func(p *past) { p.update(7, 1, "") }, "TopicAsAsked"},
		"an update refused, and done":          {func(p *past) { p.update(7, 1, seb.NotCommitted); p.topic.configs = []int64{1} }, "TopicAsAsked"},
		"an update of unknown outcome":         {func(p *past) { p.update(7, 1, seb.Unknown); p.topic.configs = []int64{1} }, ""},
		"an update nobody asked for":           {func(p *past) { p.topic.configs = []int64{1} }, "TopicAsAsked"},
		"an update that tells too much":        {func(p *past) { p.update(7, 1, "").is.partitions = 2; p.topic.configs = []int64{1} }, "TopicAsAsked"},
		"an update that tells the past": {func(p *past) {
			p.update(5, 1, "")
			p.update(7, 2, "").is.config = 1
			p.topic.configs = []int64{1, 2}
		}, "TopicAsAsked"},
		"updates in another order": {func(p *past) { p.update(5, 1, ""); p.update(7, 2, ""); p.topic.configs = []int64{2, 1} }, "TopicAsAsked"},
		"a topic that is deleted":  {func(p *past) { p.own(true, "x"); p.delete("") }, ""},
		"one that is not":          {func(p *past) { p.own(false, "x"); p.delete("") }, "TopicAsAsked"},
		"one that nobody deleted":  {func(p *past) { p.own(true, "x") }, "TopicAsAsked"},
		"one that was not to be":   {func(p *past) { p.own(true, "x"); p.delete(seb.NotCommitted) }, "TopicAsAsked"},
		"one that is said to be gone": {func(p *past) {
			p.own(false, "x")
			p.delete(seb.NotCommitted).failure = seb.CodeTopicNotFound
		}, "TopicAsAsked"},
		"one that is created again": {func(p *past) { p.own(true, "x"); p.delete(""); p.own(false, "y") }, ""},
		"one that lives on":         {func(p *past) { p.own(true, "x", "y"); p.delete("") }, "TopicAsAsked"},
		"a read across two of a name": {func(p *past) {
			p.own(true, "x")
			p.delete("")
			p.own(false, "w", "y")
			p.read("B1", 30, 2, "x", "y").topic = "own"
		}, "DenseOffsets"},
		"a read of one of two":       {func(p *past) { p.own(true, "x"); p.delete(""); p.own(false, "w", "y"); p.readOwn("w", "y") }, ""},
		"a read of one that is gone": {func(p *past) { p.own(true, "x"); p.delete(""); p.own(false, "y"); p.readOwn("x") }, "TopicAsAsked"},
		"a read of that elsewhere too": {func(p *past) {
			p.own(true, "x")
			p.delete("")
			p.own(false, "y")
			p.lives["B1"] = 0
			p.read("B1", 30, 1, "x").topic = "own"
		}, ""},
		"a key that is good":                    {func(p *past) { p.key("A1", 5, shows, ""); p.inForce = true }, ""},
		"a key that is refused":                 {func(p *past) { p.key("A1", 5, shows, seb.CodeUnauthorized); p.inForce = true }, "KeyAsAsked"},
		"a key that is refused too early":       {func(p *past) { p.key("A1", 5, shows, seb.CodeUnauthorized); p.key("A1", 7, revokes, "") }, "KeyAsAsked"},
		"a revoked key":                         {func(p *past) { p.key("A1", 5, revokes, ""); p.key("A1", 7, shows, seb.CodeUnauthorized) }, ""},
		"a revoked key that is good":            {func(p *past) { p.key("A1", 5, revokes, ""); p.key("A1", 7, shows, "") }, "KeyAsAsked"},
		"a revoked key that is good elsewhere":  {func(p *past) { p.lives["B1"] = 0; p.key("A1", 5, revokes, ""); p.key("B1", 7, shows, "") }, ""},
		"a revoked key that is good after that": {func(p *past) { p.lives["B1"] = 6 * time.Second; p.key("A1", 5, revokes, ""); p.key("B1", 7, shows, "") }, "KeyAsAsked"},
		"a revoked key that is in force":        {func(p *past) { p.key("A1", 5, revokes, ""); p.inForce = true }, "KeyAsAsked"},
		"a key that is good in the end, and revoked": {func(p *past) {
			p.key("A1", 5, revokes, seb.CodeStoreUnavailable)
			p.key("A1", 9, shows, "").client = atEnd
		}, "KeyAsAsked"},
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

// fail adds a read at offset 1 that failed after all records were acknowledged.
func (p *past) fail(code seb.Code) {
	o := p.read("A1", 9, 0)
	o.from, o.failure = seb.At(1), code
}
