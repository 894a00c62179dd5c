package explore

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
)

// resume continues the pending request of a broker.
func (w *world) resume(b *broker) {
	switch b.pending.kind {
	case aListing:
		w.listLog(b)
	case someGets:
		w.getOne(b)
	case aCreate:
		w.createNow(b)
	case nothing:
	}
	w.settle(b)
}

// list mirrors the first half of Log.list. The model does not lose the answer: for the broker, a lost
// answer would be the same as a List that was not sent yet. A Create differs, since it changes the store.
func (w *world) list(b *broker) {
	applied, _ := b.p.Position()
	l := commitlog.Listing{At: w.listStamp()}
	if s := w.newest(); s >= int(applied) {
		l.Checkpoint = format.Seq(s)
	}
	if w.Without == LoadOlder {
		// The List shows any checkpoint above the applied slot, instead of the newest.
		s := int(applied) + 1 + w.pick(w.Slots-int(applied))
		if s > w.Slots || w.checkpoints[s].since == 0 {
			w.undo = l.Checkpoint > applied
		} else {
			l.Checkpoint = format.Seq(s)
		}
	}
	l.From = max(applied, l.Checkpoint)
	w.tell("%c Lists checkpoint/: %d is the newest; it is %d", b.name, l.Checkpoint, w.now)
	b.pending = pending{kind: aListing, listing: l}
	if !w.Split {
		w.listLog(b)
	}
}

// listLog mirrors the second half of Log.list.
func (w *world) listLog(b *broker) {
	l := b.pending.listing
	b.pending = pending{}
	if w.Split && w.pick(2) == 1 {
		w.tell("%c Lists log/, and gets no answer", b.name)
		return
	}
	l.LogAt = w.stamp()
	for s := max(1, int(l.From)); s <= w.Slots; s++ {
		if w.slots[s] != 0 {
			if l.First == 0 {
				l.First = format.Seq(s)
			}
			l.Last = format.Seq(s)
		}
	}
	w.saw(b, int(l.Last))
	w.sawCheckpoint(b, int(l.Checkpoint))
	w.tell("%c Lists log/ from %d on: slots %d to %d", b.name, l.From, l.First, l.Last)
	switch w.Without {
	case BlindStart:
		l.First, l.Last = l.From, 0
	case NoRollback:
		l.First = l.From
	default:
	}
	b.p.Listed(l)
	if !w.Split {
		w.checkRollback(b)
	}
}

// load mirrors Log.load, and what Log.Commit does if the load ends a claim.
func (w *world) load(b *broker, seq format.Seq) {
	s := int(seq)
	c := w.checkpoints[s]
	if c.since == 0 {
		w.tell("%c Gets checkpoint %d: it is gone", b.name, s)
		b.p.LoadMissing()
		return
	}
	if w.bare&(1<<s) != 0 {
		w.tell("%c Gets the page of checkpoint %d: it is gone", b.name, s)
		w.count(pagesMissed)
		b.p.PageMissing("the page")
		return
	}
	w.tell("%c loads checkpoint %d = %v", b.name, s, c.log)
	w.count(loads)
	b.log = c.log
	for r := range s + 1 {
		b.read[r] = 0
	}
	ended := b.p.Loaded(seq, c.log.hash())
	if b.claim == 0 {
		return
	}
	if ended.Sent {
		w.tell("%c: the outcome of %v is unknown", b.name, b.payload)
		w.count(unknowns)
		w.end(b)
		if w.Without != MoveOn {
			b.payload, b.stored = 0, false
		}
	}
	b.claim = 0
}

// get mirrors Log.get.
func (w *world) get(b *broker, act commitlog.Action) {
	to := act.To
	if w.Without == AlarmOrder && to == act.Seq {
		to++ // also Get the slot after those that are known to exist
	}
	p := pending{kind: someGets, known: int(b.p.Known())}
	for s := act.Seq; s <= min(to, format.Seq(w.Slots+1)); s++ {
		if !b.p.Held(s) {
			p.want |= 1 << s
		}
	}
	p.alone = p.want&(p.want-1) == 0
	b.pending = p
	if p.alone {
		w.getOne(b)
	}
}

// getOne ends one of the pending Gets, with or without an answer. When all have ended, the protocol gets
// their answers.
func (w *world) getOne(b *broker) {
	p := &b.pending
	s := w.wanted(p)
	p.want &^= 1 << s
	outcomes := []int{answered}
	if !p.alone { // a single Get without an answer would be the same as a Get that was not sent yet
		outcomes = append(outcomes, unanswered)
	}
	if w.Undated {
		outcomes = append(outcomes, undated)
	}
	switch outcomes[w.pick(len(outcomes))] {
	case answered:
		p.got[s] = got{at: int8(w.now + w.Skew - w.skewed())}
	case undated:
		p.got[s] = got{at: -1}
	case unanswered:
		w.tell("%c Gets slot %d, and gets no answer", b.name, s)
	}
	if g := &p.got[s]; g.at != 0 {
		if s <= w.Slots {
			g.commit, g.false404 = w.slots[s], w.slots[s] == 0 && w.first[s] != 0
		}
		w.tell("%c Gets slot %d: %s", b.name, s, found(*g, s))
		if g.false404 {
			w.count(false404s)
		}
	}
	if p.want == 0 {
		w.gotAll(b)
	}
}

// How a Get can end.
const (
	answered = iota
	undated
	unanswered
)

// wanted returns a slot whose Get is under way.
func (w *world) wanted(p *pending) int {
	want := p.want
	for range w.pick(bits.OnesCount16(want)) {
		want &= want - 1
	}
	return bits.TrailingZeros16(want)
}

func found(g got, s int) string {
	if g.commit == 0 {
		return "404"
	}
	return g.commit.at(s).String()
}

// gotAll passes the answers to the protocol, in the order in which the store gave them. In another order
// the store's clock could seem to step back by more than the margin.
func (w *world) gotAll(b *broker) {
	p := b.pending
	b.pending = pending{}
	order := make([]int, 0, len(p.got))
	for s, g := range p.got {
		if g.at != 0 {
			order = append(order, s)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return int(p.got[x].at) - int(p.got[y].at) })
	if w.Without == AlarmOrder {
		// The slots that were found come before those that were not.
		slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(p.got[y].commit, p.got[x].commit) })
	}
	for _, s := range order {
		if w.Without == AlarmOrder {
			p.known = int(b.p.Known())
		}
		w.answered(b, s, p.got[s], p.known)
	}
}

func (w *world) answered(b *broker, s int, g got, known int) {
	a := commitlog.Answer{Seq: format.Seq(s), Known: format.Seq(known)}
	if g.at > 0 {
		a.At = stampAt(int(g.at))
	}
	if g.commit != 0 {
		w.saw(b, s)
		a.Found, a.Hash, a.Prev = true, g.commit.hash(), g.commit.prev().hash()
		if w.Without == NoPrev {
			_, a.Prev = b.p.Position()
		}
		b.read[s] = g.commit
		b.readBack = b.readBack || g.commit == b.claim && w.Without == NoNonce
	}
	b.false404 &^= 1 << s
	if g.false404 {
		b.false404 |= 1 << s
	}
	b.p.Answered(a)
	w.checkAlarm(b, a)
}

// create mirrors Log.create.
func (w *world) create(b *broker) {
	w.checkGap(b, b.claim.seq(), "claims")
	w.flights = w.flights.with(b.claim)
	b.pending = pending{kind: aCreate, sent: w.now}
	if w.Without == TellEarly {
		w.wire = insert(w.wire, reply{w.now, b.claim})
	}
	if w.Slow || w.Without == SendTime {
		w.tell("%c sends a Create of slot %d with %v; it is %d", b.name, b.claim.seq(), b.payload, w.now)
		return
	}
	w.createNow(b)
}

// createNow executes the Create and passes the reply to the broker, or does neither. In the latter case
// the store may still execute the Create at any later time.
func (w *world) createNow(b *broker) {
	c, at := b.claim, w.stamp()
	s := c.seq()
	if w.Without == SendTime {
		at = stampAt(b.pending.sent)
	}
	b.pending = pending{}
	switch {
	case w.pick(2) == 1:
		w.tell("%c Creates slot %d with %v, and gets no answer", b.name, s, c.at(s))
		w.count(lost)
	case w.slots[s] != 0:
		w.tell("%c Creates slot %d with %v: it exists", b.name, s, c.at(s))
		w.saw(b, s)
		b.p.Exists(format.Seq(s), at)
	default:
		w.tell("%c Creates slot %d with %v: success", b.name, s, c.at(s))
		w.execute(c)
		b.read[s] = c
		b.p.Created(format.Seq(s), c.hash(), at)
	}
}

// lateReply tells a broker that its Create has succeeded, after the broker has stopped waiting for the
// reply. If the broker still tries to write the commit of that Create, its claim succeeds.
func (w *world) lateReply(b *broker, r reply) {
	at := stampAt(r.at)
	b.p = b.p.Clone()
	if w.Without == AnyReply && b.claim != 0 {
		r.commit = b.claim
	}
	if b.claim == r.commit {
		b.read[r.commit.seq()] = r.commit
	} else if w.Without == LateReply && b.p.Covers(at) {
		w.tell("%c acknowledges %v", b.name, r.commit.last())
		w.acknowledge(r.commit)
	}
	b.p.Created(format.Seq(r.commit.seq()), r.commit.hash(), at)
	w.settle(b)
}

// hear gives a broker a commit that another broker has sent, perhaps long ago. It mirrors Log.takeTold. While a Create
// of the broker is under way, it mirrors Log.awaitCreated: the broker may give up the Create, which may execute later.
func (w *world) hear(b *broker) {
	if len(w.wire) == 0 || b.pending.kind != nothing && b.pending.kind != aCreate {
		w.skip()
		return
	}
	r := w.wire[w.pick(len(w.wire))]
	s := r.commit.seq()
	if !b.p.Told(format.Seq(s), r.commit.hash(), r.commit.prev().hash(), stampAt(r.at)) {
		w.undo = true
		return
	}
	w.tell("%c hears that slot %d has %v, by an answer of the time %d", b.name, s, r.commit.last(), r.at)
	b.read[s] = r.commit
	if b.p.Confirmed() {
		b.read[b.claim.seq()] = b.claim
	}
	if b.p.CanApply() {
		w.count(heard)
		if b.pending.kind == aCreate {
			w.tell("%c gives up its Create of slot %d", b.name, b.claim.seq())
			w.count(beaten)
			b.pending = pending{}
		}
	}
	if b.pending.kind == nothing {
		w.settle(b)
	}
}
