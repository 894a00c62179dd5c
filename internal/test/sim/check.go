package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// check compares the history with the log as it is at the end of the run.
func (s *simulation) check(final *log) {
	x := &checker{sim: s, history: s.history, final: final, at: map[string][]position{}, lives: map[string]format.TopicID{}}
	keyed := map[string]bool{}
	for _, o := range s.history.ops {
		for _, id := range o.values {
			keyed[id] = keyed[id] || o.kind == appends && o.key != ""
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(final.all)) {
		in := final.all[topic]
		for p := range in.partitions {
			for i, id := range in.partitions[p].ids {
				// The network may delay a retry of an append. By then, the topic may be deleted together with the
				// idempotency key, and another topic may have its name. Then both topics have the record.
				if first, ok := x.lives[id]; ok && keyed[id] && first != topic && final.all[first].name == in.name {
					continue
				}
				x.at[id] = append(x.at[id], position{place{in.name, p}, seb.Offset(i)})
				x.lives[id] = topic
			}
		}
	}
	ops := slices.Clone(s.history.ops)
	slices.SortStableFunc(ops, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	x.checkAppends(ops)
	x.checkConditions(ops)
	x.checkDecisions(ops)
	x.checkTrims(ops)
	x.checkTopics(ops)
	x.checkKeys(ops)
	x.checkConsumers(ops)
	x.checkWork()
	x.checkQueues(ops)
	x.checkMade()
	x.checkAging()
	x.checkOrder(ops)
	x.checkReads(ops)
	x.checkLinear(ops)
}

// checker compares operations with the log.
type checker struct {
	sim     *simulation
	history *history
	final   *log
	at      map[string][]position     // for each id, where the log has the record
	lives   map[string]format.TopicID // for each id, the topic that has the record
}

type position struct {
	place
	offset seb.Offset
}

// stays reports whether a topic exists during the whole run.
func (x *checker) stays(name string) bool {
	return slices.ContainsFunc(x.sim.plan.topics, func(t topic) bool { return t.name == name })
}

func (x *checker) checkAppends(ops []*op) {
	for _, o := range ops {
		if o.kind != appends {
			continue
		}
		found := 0
		for _, id := range o.values {
			if len(x.at[id]) > 1 {
				x.history.violate("AtMostOnce", "%s is in the log more than once: at %v", id, x.at[id])
			}
			if len(x.at[id]) > 0 {
				found++
			}
		}
		switch {
		case o.acked():
			x.checkAcked(o)
		case o.outcome == seb.NotCommitted && found > 0:
			x.history.violate("NoPhantom", "the append was answered as not committed, but its records are in the log: %v", o)
		case found > 0 && found < len(o.values):
			x.history.violate("AckDurable", "%d of %d records of one append are in the log: %v", found, len(o.values), o)
		case !o.acked() && o.outcome == "":
			x.history.violate("NoPhantom", "a failed append without an outcome: %v", o)
		}
	}
}

// checkAcked expects the records of an append to be at the offsets that the append's answer names.
func (x *checker) checkAcked(o *op) {
	count := 0
	told := map[position]bool{}
	for _, r := range o.ranges {
		for i := range r.Count {
			told[position{place{o.topic, int(r.Partition)}, r.Offset + seb.Offset(i)}] = true
			count++
		}
	}
	if count != len(o.values) || len(told) != count {
		x.history.violate("AckDurable", "%d records are acknowledged at %d offsets: %v", len(o.values), count, o)
	}
	for _, id := range o.values {
		if len(x.at[id]) != 1 || !told[x.at[id][0]] {
			x.history.violate("AckDurable", "%s, which was acknowledged, is at %v: %v", id, x.at[id], o)
		}
	}
}

// checkOrder expects the log to have the records of an append in the order of the append. It expects two
// appends of a client in the order in which the client sent them, if the client had the acknowledgement of
// the first append when it sent the second. An append that failed may still come into the log later. After
// such an append, the order is expected only if both appends were library calls to one life of a broker.
func (x *checker) checkOrder(ops []*op) {
	type author struct {
		client string
		place
	}
	type latest struct {
		op *op
		at seb.Offset
	}
	last := map[author]latest{}
	for _, o := range ops {
		if o.kind != appends || !x.stays(o.topic) {
			continue
		}
		for _, id := range o.values {
			if len(x.at[id]) != 1 {
				continue
			}
			p := x.at[id][0]
			a := author{o.client, p.place}
			before, ok := last[a]
			after := before.op == o || ok && before.op.ret <= o.call && (before.op.acked() || direct(before.op, o))
			if after && p.offset < before.at {
				x.history.violate("Order", "%s is before a record that was sent earlier: %v, %v", id, before.op, o)
			}
			if !ok || p.offset > before.at {
				last[a] = latest{o, p.offset}
			}
		}
	}
}

// direct reports whether two operations are library calls to the same life of a broker.
func direct(a, b *op) bool { return a.broker == b.broker && a.via == viaLibrary && b.via == viaLibrary }

// checkReads expects the log to have the records that each read found. The answer must not contradict the start
// and the end of the partition that the broker must have known.
func (x *checker) checkReads(ops []*op) {
	for i, o := range ops {
		if o.kind == reads && !x.stays(o.topic) {
			x.checkOwnRead(ops[:i], o)
		}
		if o.kind != reads || !x.stays(o.topic) {
			continue
		}
		p := place{o.topic, o.partition}
		x.checkFound(o, x.final.ids(p))
		known := x.known(ops[:i], o, p)
		switch {
		case o.acked() && o.end < known.end:
			x.history.violate("AckDurable", "the read ends at %d, but its broker must have known %d records: %v", o.end, known.end, o)
		case o.acked() && o.first() < known.start:
			x.history.violate("StartAsAsked", "the read found records before %d, which its broker must have known to be gone: %v", known.start, o)
		case o.failure == seb.CodeTopicNotFound, o.failure == seb.CodePartitionNotFound:
			x.history.violate("LossIsLoud", "a broker did not find a topic that existed: %v", o)
		case o.failure == seb.CodeDataLost:
			x.history.violate("LossIsLoud", "a broker reported lost data, but nothing was lost: %v", o)
		case o.failure == seb.CodeOffsetOutOfRange:
			x.checkOutOfRange(ops, o)
		}
	}
}

// checkFound compares the records of a read with the log.
func (x *checker) checkFound(o *op, log []string) {
	for i, r := range o.records {
		if r.offset != o.records[0].offset+seb.Offset(i) {
			x.history.violate("DenseOffsets", "offset %d follows %d: %v", r.offset, o.records[i-1].offset, o)
		}
		if int(r.offset) >= len(log) || log[r.offset] != r.id {
			x.history.violate("DenseOffsets", "%s was read at offset %d, but the log has no such record there: %v", r.id, r.offset, o)
		}
	}
	if !o.acked() {
		return
	}
	if n := len(o.records); n > 0 && o.next != o.records[n-1].offset+1 {
		x.history.violate("DenseOffsets", "next is %d after %v: %v", o.next, o.records[n-1], o)
	}
	if at, ok := x.asked(o); ok && len(o.records) > 0 && o.records[0].offset != at {
		x.history.violate("DenseOffsets", "the read began at offset %d, not where the client asked: %v", o.records[0].offset, o)
	}
	if o.next > o.end || int(o.end) > len(log) {
		x.history.violate("DenseOffsets", "the read tells that the partition ends at %d and that the next offset is %d, but the log has %d records: %v", o.end, o.next, len(log), o)
	}
}

// asked returns the offset from which the client wanted to read, and true. It returns false if the client named
// no offset.
func (x *checker) asked(o *op) (seb.Offset, bool) {
	for at := range seb.Offset(len(x.final.ids(place{o.topic, o.partition})) + 3) {
		if o.from == seb.At(at) {
			return at, true
		}
	}
	return 0, false
}

// known returns the bounds of a partition that the broker of a read must have known when the client asked;
// the real bounds may be higher. The broker must have known all bounds that any answer named up to the time
// that freshSince returns, and all bounds that earlier answers of the same life named.
func (x *checker) known(before []*op, o *op, p place) (known bounds) {
	fresh := x.freshSince(o)
	for _, b := range before {
		if b.ret <= fresh || b.broker == o.broker && b.ret <= o.call {
			known = known.later(told(b, p))
		}
	}
	return known
}

// staleMax is more than any broker's StaleMax. A broker counts StaleMax from the start of its last sync.
const staleMax = time.Second + 10*time.Millisecond

// freshSince returns the time up to which the broker of a read must have known the log. If the read reached
// the end of the partition and there are no faults, this time is staleMax before the client asked, or the
// start of the broker's life if that is later. In all other cases, it is the start of the broker's life.
func (x *checker) freshSince(o *op) time.Duration {
	began := x.sim.began(o.broker)
	if (x.sim.plan.calm || o.client == atEnd) && o.next == o.end {
		return max(began, o.call-staleMax)
	}
	return began
}

// acknowledged returns the highest end of a partition that an answer to any client named up to a given
// time.
func (x *checker) acknowledged(ops []*op, p place, then time.Duration) (end seb.Offset) {
	for _, o := range ops {
		if o.ret <= then {
			end = max(end, told(o, p).end)
		}
	}
	return end
}

// told returns the bounds of a partition that an operation's answer shows. The partition had at least these
// bounds when the answer came.
func told(o *op, p place) (b bounds) {
	if o.topic != p.topic {
		return b
	}
	for _, r := range o.ranges {
		if int(r.Partition) == p.partition {
			b.end = max(b.end, r.Offset+seb.Offset(r.Count))
		}
	}
	for _, s := range o.told {
		if p.partition < len(s.bounds) {
			b = b.later(s.bounds[p.partition])
		}
	}
	switch {
	case o.partition != p.partition:
	case o.kind == reads && o.acked():
		b.start, _ = o.startsBetween()
		b.end = o.end
	case o.kind == trims && o.acked(), o.failure == seb.CodeOffsetOutOfRange, o.conflicts():
		b.start, b.end = o.start, o.end
	}
	return b
}
