package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// moved adds to the log that consumer "k" with that id was moved. It creates the consumer if needed.
func (p *past) moved(id format.ConsumerID, to seb.Offset) {
	if p.topic.consumers == nil {
		p.topic.consumers = map[format.ConsumerID]*consumer{}
	}
	if p.topic.consumers[id] == nil {
		p.topic.consumers[id] = &consumer{name: "k"}
	}
	move := &format.PositionsMoved{Consumer: id, Positions: []format.Position{{Offset: to}}}
	p.topic.consumers[id].move(move, &incarnation{partitions: []partition{{ids: p.log}}})
}

// consumer adds an operation on consumer "k" through life A1, from second at to the next one.
// failure and outcome are those of its answer; both are "" if it succeeded.
func (p *past) consumer(at int, what kind, failure seb.Code, outcome seb.Outcome) *op {
	o := consumerRef{"t", "k"}.op(what)
	o.client, o.broker, o.via, o.failure, o.outcome = fmt.Sprint("k", at), "A1", viaLibrary, failure, outcome
	o.call = time.Duration(at) * time.Second
	o.ret = o.call + time.Second
	p.add(o)
	return o
}

// created adds that consumer "k" was created at offset 0, by an operation at that time.
func (p *past) created(at int, id format.ConsumerID) {
	p.moved(id, 0)
	o := p.consumer(at, sets, "", "")
	o.created = true
	o.tells1(id, 1, 0)
}

// tells1 makes an answer tell the position of consumer "k".
func (o *op) tells1(id format.ConsumerID, count int, at seb.Offset) {
	o.told = []positions{{consumer: "k", version: fmt.Sprintf("%d.%d", id, count), at: []seb.Offset{at}}}
}

// describe adds an answer that tells the position of consumer "k".
func (p *past) describe(at int, id format.ConsumerID, count int, offset seb.Offset) *op {
	o := p.consumer(at, describes, "", "")
	o.tells1(id, count, offset)
	return o
}

// commit adds an acknowledged commit, but no move in the log.
func (p *past) commit(at int, to seb.Offset, told string) *op {
	o := p.consumer(at, commits, "", "")
	o.offsets, o.told = seb.Offsets{0: to}, []positions{{version: told}}
	return o
}

// lost adds a commit that failed with an outcome.
func (p *past) lost(at int, to seb.Offset, outcome seb.Outcome) *op {
	o := p.consumer(at, commits, seb.CodeStoreUnavailable, outcome)
	o.offsets = seb.Offsets{0: to}
	return o
}

// overtaken adds a commit that was refused because of its version.
func (p *past) overtaken(at int, version string) {
	o := p.lost(at, 1, seb.NotCommitted)
	o.failure, o.version = seb.CodePositionConflict, version
}

// consume adds a read with consumer "k" that found records from an offset on.
func (p *past) consume(at int, from seb.Offset, found ...string) *op {
	o := p.consumer(at, consumes, "", "")
	for i, id := range found {
		o.records = append(o.records, seen{from + seb.Offset(i), id})
	}
	if len(found) > 0 {
		o.partition, o.next = 0, from+seb.Offset(len(found))
		o.end = o.next
	}
	return o
}

// The checker finds every wrong history of a consumer, and accepts correct ones. In each, the consumer
// is created first, from 5 s to 6 s.
func TestConsumersThatDoNotAddUpAreFound(t *testing.T) {
	tests := map[string]struct {
		change func(*past)
		want   string // "" means that nothing is found
	}{
		"the truth":                     {func(*past) {}, ""},
		"a commit":                      {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 2); p.describe(9, 1, 2, 2) }, ""},
		"a commit that is lost":         {func(p *past) { p.commit(7, 2, "1.2") }, "AckDurable"},
		"a commit that is lost later":   {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 2); p.describe(9, 1, 1, 0) }, "ConsumerAsAsked"},
		"a commit to elsewhere":         {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 1) }, "ConsumerAsAsked"},
		"a commit of unknown outcome":   {func(p *past) { p.lost(7, 2, seb.Unknown) }, ""},
		"one that was done":             {func(p *past) { p.lost(7, 2, seb.Unknown); p.moved(1, 2) }, ""},
		"one that was done later":       {func(p *past) { p.lost(7, 2, seb.Unknown); p.describe(9, 1, 1, 0); p.moved(1, 2) }, ""},
		"one that was done twice":       {func(p *past) { p.lost(7, 2, seb.Unknown); p.moved(1, 2); p.moved(1, 2) }, "ConsumerAsAsked"},
		"one that was done before":      {func(p *past) { p.describe(7, 1, 2, 2); p.moved(1, 2); p.lost(9, 2, seb.Unknown) }, "ConsumerAsAsked"},
		"two of which one was done":     {func(p *past) { p.lost(7, 2, seb.Unknown); p.commit(9, 2, "1.2"); p.moved(1, 2) }, ""},
		"a commit refused, and done":    {func(p *past) { p.lost(7, 2, seb.NotCommitted); p.moved(1, 2) }, "ConsumerAsAsked"},
		"a failure without an outcome":  {func(p *past) { p.lost(7, 2, "") }, "NoPhantom"},
		"a move that nobody asked for":  {func(p *past) { p.moved(1, 2) }, "ConsumerAsAsked"},
		"a move that is told otherwise": {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 2); p.describe(9, 1, 2, 1) }, "ConsumerAsAsked"},
		"an answer of the past elsewhere": {func(p *past) {
			p.commit(7, 2, "1.2")
			p.moved(1, 2)
			p.lives["B1"] = 0
			p.describe(9, 1, 1, 0).broker = "B1"
		}, ""},
		"an answer of the past after a start": {func(p *past) {
			p.commit(7, 2, "1.2")
			p.moved(1, 2)
			p.lives["B1"] = 9 * time.Second
			p.describe(10, 1, 1, 0).broker = "B1"
		}, "ConsumerAsAsked"},
		"a life that goes back": {func(p *past) {
			p.commit(7, 2, "1.2").broker = "C1"
			p.moved(1, 2)
			p.lives["B1"], p.lives["C1"] = 0, 0
			p.describe(9, 1, 2, 2).broker = "B1"
			p.describe(11, 1, 1, 0).broker = "B1"
		}, "ConsumerAsAsked"},
		"a conflict":              {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 2); p.overtaken(9, "1.1") }, ""},
		"a conflict without one":  {func(p *past) { p.overtaken(7, "1.1") }, "ConsumerAsAsked"},
		"a conflict too early":    {func(p *past) { p.overtaken(7, "1.1"); p.commit(9, 2, "1.2"); p.moved(1, 2) }, "ConsumerAsAsked"},
		"a conflict that moves":   {func(p *past) { p.commit(7, 2, "1.2"); p.moved(1, 2); p.overtaken(9, "1.1"); p.moved(1, 1) }, "ConsumerAsAsked"},
		"a version that held":     {func(p *past) { p.commit(7, 2, "1.2").version = "1.1"; p.moved(1, 2) }, ""},
		"a version that was past": {func(p *past) { p.moveTo(7, 1, "1.2"); p.commit(9, 2, "1.3").version = "1.1"; p.moved(1, 2) }, "ConsumerAsAsked"},
		"two from one version": {func(p *past) {
			p.commit(7, 1, "1.2").version = "1.1"
			p.moved(1, 1)
			p.commit(9, 1, "1.2").version = "1.1"
		}, "Condition"},
		"a commit out of range": {func(p *past) {
			o := p.lost(7, 4, seb.NotCommitted)
			o.failure, o.end = seb.CodeOffsetOutOfRange, 3
		}, ""},
		"a commit in range that is refused": {func(p *past) {
			o := p.lost(7, 3, seb.NotCommitted)
			o.failure, o.end = seb.CodeOffsetOutOfRange, 3
		}, "Condition"},
		"a consumer that is said not to be there": {func(p *past) { p.consumer(7, describes, seb.CodeConsumerNotFound, "") }, "ConsumerAsAsked"},
		"one that is told of too early":           {func(p *past) { p.describe(3, 1, 1, 0) }, "ConsumerAsAsked"},
		"a list":                                  {func(p *past) { p.consumer(7, lists, "", "").tells1(1, 1, 0) }, ""},
		"a list without it":                       {func(p *past) { p.consumer(7, lists, "", "") }, "ConsumerAsAsked"},
		"one that is forgotten":                   {func(p *past) { p.forget(7, ""); p.consumer(9, describes, seb.CodeConsumerNotFound, "") }, ""},
		"one that is told of after that":          {func(p *past) { p.forget(7, ""); p.describe(9, 1, 1, 0) }, "ConsumerAsAsked"},
		"one that is not":                         {func(p *past) { p.forget(7, ""); p.topic.consumers[1].deleted = false }, "ConsumerAsAsked"},
		"one that nobody forgot":                  {func(p *past) { p.topic.consumers[1].deleted = true }, "ConsumerAsAsked"},
		"one that was not to be":                  {func(p *past) { p.forget(7, seb.NotCommitted) }, "ConsumerAsAsked"},
		"one that is created again":               {func(p *past) { p.forget(7, ""); p.created(9, 2); p.describe(11, 2, 1, 0) }, ""},
		"one that is taken for the older":         {func(p *past) { p.moveTo(7, 2, "1.2"); p.forget(9, ""); p.created(11, 2); p.describe(13, 1, 2, 2) }, "ConsumerAsAsked"},
		"one with the older's place":              {func(p *past) { p.moveTo(7, 2, "1.2"); p.forget(9, ""); p.moved(2, 2); p.consume(11, 2, "c") }, "ConsumerAsAsked"},
		"a commit by the older's version": {func(p *past) {
			p.forget(7, "")
			p.created(9, 2)
			p.commit(11, 1, "2.2").version = "1.1"
			p.moved(2, 1)
		}, "ConsumerAsAsked"},
		"a reset":                        {func(p *past) { p.reset(7, "latest", 3) }, ""},
		"a reset to elsewhere":           {func(p *past) { p.reset(7, "earliest", 3) }, "ConsumerAsAsked"},
		"a creation that is not one":     {func(p *past) { o := p.consumer(7, sets, "", ""); o.created = true; o.tells1(1, 1, 0) }, "ConsumerAsAsked"},
		"a creation that moves":          {func(p *past) { p.reset(7, "", 0) }, "ConsumerAsAsked"},
		"a read":                         {func(p *past) { p.consume(7, 0, "a", "b") }, ""},
		"a read from elsewhere":          {func(p *past) { p.consume(7, 1, "b") }, "ConsumerAsAsked"},
		"a read of other records":        {func(p *past) { p.consume(7, 0, "b") }, "DenseOffsets"},
		"a read of nothing":              {func(p *past) { p.consume(7, 0) }, "ConsumerAsAsked"},
		"a read of nothing at the end":   {func(p *past) { p.moveTo(7, 3, "1.2"); p.consume(9, 0) }, ""},
		"a read that is to be committed": {func(p *past) { p.consume(7, 0, "a", "b").next = 3 }, "DenseOffsets"},
		"a read refused for no trim":     {func(p *past) { p.consumer(7, consumes, seb.CodeOffsetOutOfRange, "") }, "ConsumerAsAsked"},
		"a read refused for one": {func(p *past) {
			p.trim(7, 2, 2, "")
			p.consumer(9, consumes, seb.CodeOffsetOutOfRange, "")
		}, ""},
		"a first read":              {func(p *past) { p.forget(7, ""); p.consume(9, 0, "a"); p.moved(2, 0) }, ""},
		"a first read at the end":   {func(p *past) { p.forget(7, ""); p.consume(9, 0); p.moved(2, 3) }, "ConsumerAsAsked"},
		"a first read of no effect": {func(p *past) { p.forget(7, ""); p.consume(9, 0, "a") }, "ConsumerAsAsked"},
		"a record that is passed":   {func(p *past) { p.passed = "b" }, "NothingPassed"},
		"a record that is trimmed":  {func(p *past) { p.passed = "b"; p.trim(7, 2, 2, "") }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &past{history: newHistory(func() time.Duration { return 0 }), log: []string{"a", "b", "c"}, lives: map[string]time.Duration{"A1": 0}}
			p.append("c", 1, "", 0, "a", "b", "c")
			p.created(5, 1)
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

// moveTo adds a commit, and its move in the log.
func (p *past) moveTo(at int, to seb.Offset, told string) {
	p.commit(at, to, told)
	p.moved(1, to)
}

// forget adds the deletion of consumer "k" to the log, and the operation for it.
func (p *past) forget(at int, outcome seb.Outcome) {
	p.topic.consumers[1].deleted = true
	if o := p.consumer(at, forgets, "", outcome); outcome != "" {
		o.failure = seb.CodeStoreUnavailable
	}
}

// reset adds a reset of consumer "k" to the log, and the operation for it.
func (p *past) reset(at int, to string, offset seb.Offset) {
	p.moved(1, offset)
	o := p.consumer(at, sets, "", "")
	o.to = to
	o.tells1(1, 2, offset)
}

// match pairs as many as possible, even if the first item must change its partner for that.
func TestMatchPairsAsManyAsItCan(t *testing.T) {
	fits := map[[2]int]bool{{0, 0}: true, {0, 1}: true, {1, 0}: true, {2, 1}: true, {2, 2}: true}
	got := match(4, 3, func(l, r int) bool { return fits[[2]int{l, r}] })
	if want := []int{1, 0, 2, -1}; !slices.Equal(got, want) {
		t.Errorf("they are paired as %v, want %v", got, want)
	}
	maps.DeleteFunc(fits, func(pair [2]int, _ bool) bool { return pair[1] == 2 })
	got = match(3, 3, func(l, r int) bool { return fits[[2]int{l, r}] })
	if n := len(slices.DeleteFunc(got, func(r int) bool { return r < 0 })); n != 2 {
		t.Errorf("%d are paired, want 2", n)
	}
}
