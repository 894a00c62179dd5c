package explore

import (
	"cmp"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

// isClaimed reports whether the broker's claim has the request that is in no bundle.
func (b *handoverBroker) isClaimed() bool {
	return b.home != 0 && slices.Contains(b.claim.marks(), mark(b.home)|noMark)
}

// refuse tells the caller of a bundle's request that it is not committed.
func (w *handoverWorld) refuse(n bundle) {
	r := w.bundles[n].request
	w.refused |= 1 << r
	w.tell("the caller of b%d is told that its request is not committed", n)
	w.checkLog()
}

// claim builds a commit for the next slot, and sends its PUT, which may succeed at any later time.
func (w *handoverWorld) claim(b *handoverBroker) {
	slot := int(b.take.Position()) + 1
	if b.claim != 0 || slot > w.Slots || slot <= w.end {
		w.skip() // a claim of a slot that is written already changes nothing
		return
	}
	own := b.send.Undecided()
	list := b.take.Build(own)
	if len(list) > len(own) && w.pick(2) == 1 {
		list = list[:len(own)] // no room for the bundles of others
	}
	if w.Without == OwnTwice {
		list = slices.Concat(own, b.take.Build(nil))
	}
	if len(list) == 0 && b.home == 0 && !w.rarely(5) {
		w.skip()
		return
	}
	var (
		marks []mark
		left  uint8
	)
	if b.home != 0 && (b.send.MayClaim() || w.Without == ClaimAfterLoad && len(own) == 0) {
		marks = append(marks, mark(b.home)|noMark)
		if w.Without != SealClaimed && b.send.MayClaim() {
			b.send = b.send.Clone()
			b.send.Claimed()
		}
	}
	for i, l := range list {
		n := bundleOf(l.Mark)
		m := mark(n + 1)
		if n == stranger {
			w.violate(WireIsTrue, "%c commits a bundle of a broker that has another log", b.name)
			continue
		}
		if w.bundles[n].conditional && !w.holds(slot, marks) {
			if w.Without == NoVerdict && i < len(own) {
				left |= 1 << n
				continue
			}
			m |= refusedMark
		}
		marks = append(marks, m)
	}
	for _, n := range ones(b.kept) {
		marks = append(marks, mark(n+1))
	}
	if len(marks) > entriesMax {
		marks = marks[:entriesMax]
	}
	c := writtenIn(slot, marks, left)
	b.claim = c
	w.flights = inserted(w.flights, c, cmp.Compare[written])
	w.tell("%c sends a PUT of slot %d with %v", b.name, slot, c)
	if w.Wire && w.Without == SentUndecided {
		w.told = inserted(w.told, c, cmp.Compare[written])
	}
}

// abandonClaim makes a broker give up its claim. The PUT may still succeed.
func (w *handoverWorld) abandonClaim(b *handoverBroker) {
	if !w.Abandons || b.claim == 0 {
		w.skip()
		return
	}
	w.tell("%c gives up its claim of slot %d", b.name, b.claim.slot())
	if b.isClaimed() { // the outcome of the request is unknown
		b.send = b.send.Clone()
		b.send.Unclaimed()
		b.home = 0
	}
	b.claim = 0
}

// applyNext makes a broker apply the next slot, which it reads from the store, or gets from another broker.
func (w *handoverWorld) applyNext(b *handoverBroker) {
	slot := int(b.take.Position()) + 1
	var commits []written
	if slot <= w.end {
		commits = append(commits, w.log[slot])
	}
	stored := len(commits)
	for _, c := range w.told {
		if c.slot() == slot {
			commits = append(commits, c)
		}
	}
	if len(commits) == 0 {
		w.skip()
		return
	}
	i := w.pick(len(commits))
	c := commits[i]
	if i < stored {
		w.tell("%c reads slot %d, %v, and applies it", b.name, slot, c)
	} else {
		w.tell("%c gets slot %d, %v, from another broker, and applies it", b.name, slot, c)
		w.count(byWire)
		if c != w.log[slot] {
			w.violate(WireIsTrue, "%c applies %v in slot %d, but the store has %v there", b.name, c, slot, w.log[slot])
			return
		}
	}
	w.apply(b, c)
}

func (w *handoverWorld) apply(b *handoverBroker, c written) {
	seq := format.Seq(c.slot())
	commit := handover.Commit{Seq: seq, Hash: hashOf(seq), Own: b.claim == c}
	for _, m := range c.marks() {
		if m&noMark == 0 {
			commit.Marks = append(commit.Marks, w.markOf(m.bundle()))
			b.kept &^= 1 << m.bundle()
		}
	}
	if commit.Own && c.left() != 0 { // the writer acts as if the log had the marks that it left out
		for _, n := range ones(c.left()) {
			commit.Marks = append(commit.Marks, w.markOf(n))
		}
	}
	if b.claim.slot() == c.slot() {
		switch {
		case !commit.Own:
			w.count(lostClaims)
		case b.isClaimed():
			w.count(directCommits)
			b.home = 0
		}
		b.claim = 0
	}
	if w.Wire && commit.Own {
		w.told = inserted(w.told, c, cmp.Compare[written])
	}
	w.applyAsReceiver(b, commit)
	w.applyAsSender(b, c, commit)
}

func (w *handoverWorld) applyAsReceiver(b *handoverBroker, c handover.Commit) {
	had := b.take.Hand()
	b.take = b.take.Clone()
	if w.AnyWinner {
		b.take.Named(c.Writer, c.Seq)
	}
	if w.Without == NoOrder {
		for i := range c.Marks {
			c.Marks[i].Number = 0
		}
	}
	before := b.take.Build(nil)
	dropped := b.take.Applied(c)
	if had > b.take.Hand()+len(dropped) {
		w.count(struck)
	}
	if len(dropped) > 0 {
		w.count(droppedBundles)
	}
	if w.Without == NoStrike && !c.Own { // give the receiver again what it has struck
		for _, l := range before {
			b.take.Take(handover.Frame{Bundle: l, After: c.Seq, AfterHash: c.Hash})
		}
	}
}

func (w *handoverWorld) applyAsSender(b *handoverBroker, c written, commit handover.Commit) {
	marks := commit.Marks
	commit.Marks = nil
	for _, m := range marks {
		if w.Without != NoLook {
			commit.Marks = append(commit.Marks, w.asSenderSees(w.markOf(bundleOf(m)), b))
		}
	}
	b.send = b.send.Clone()
	decided, copied := b.send.Applied(commit)
	if copied {
		w.tell("%c finds a mark of its session that it did not seal: it takes a new session", b.name)
		w.count(copiesFound)
		b.session, b.sealed = 0, 0
		if b.home != 0 {
			b.sealed = 1 << (b.home - 1)
		}
		b.send.Renew(handover.Session{})
	}
	for _, d := range decided {
		w.decide(b, bundleOf(d.Mark), c)
	}
}

// asSenderSees returns a mark as the sender gets it.
func (w *handoverWorld) asSenderSees(m handover.Mark, b *handoverBroker) handover.Mark {
	if w.Without == MarkByNumber {
		for _, u := range b.send.Undecided() {
			if u.Session == m.Session && u.Number == m.Number {
				return u.Mark
			}
		}
	}
	return m
}

// decide tells the caller of a bundle's request what the commit c says about it.
func (w *handoverWorld) decide(b *handoverBroker, n bundle, c written) {
	for _, m := range c.marks() {
		if m == mark(n+1) {
			w.count(toldCommitted)
			return
		}
		if m == mark(n+1)|refusedMark {
			w.count(toldRefused)
			w.refuse(n)
			return
		}
	}
	if c.left()&(1<<n) != 0 {
		w.refuse(n)
		return
	}
	w.violate(ToldIsTrue, "%c tells the caller of b%d that it is in slot %d, which has %v", b.name, n, c.slot(), c)
}
