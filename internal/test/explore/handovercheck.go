package explore

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
)

// checkLog checks what the log has, whenever a slot was written, or a caller was told that its request is not
// committed.
func (w *handoverWorld) checkLog() {
	var bundles, committed uint8
	for _, m := range w.all() {
		n := m.bundle()
		s := w.bundles[n]
		if bundles&(1<<n) != 0 {
			w.violate(OnceAtMost, "the log has two marks of b%d", n)
		}
		for _, later := range ones(bundles) {
			if w.bundles[later].earlier&(1<<s.request) != 0 {
				w.violate(InOrder, "the log has b%d before b%d, whose request came first", later, n)
			}
		}
		bundles |= 1 << n
		if m&refusedMark != 0 {
			continue
		}
		if committed&(1<<s.request) != 0 {
			w.violate(OnceAtMost, "the request of b%d is committed twice", s.request)
		}
		committed |= 1 << s.request
		if w.refused&(1<<s.request) != 0 {
			w.violate(RefusedIsTrue, "the request of b%d is in the log, though its caller was told that it is not committed", s.request)
		}
	}
}

// check checks NothingLost. The steps have checked the other invariants.
func (w *handoverWorld) check() {
	if len(w.Only) > 0 && !slices.Contains(w.Only, NothingLost) {
		return
	}
	var atEnd [brokersMax]*handover.Receiver
	for i := range w.brokers[:w.Brokers] {
		atEnd[i] = w.atEnd(&w.brokers[i])
	}
	for i := range w.brokers[:w.Brokers] {
		if len(w.brokers[i].send.Undecided()) > 0 {
			w.checkDecided(i, atEnd[:w.Brokers])
		}
	}
}

// checkDecided makes a broker apply the log to its end. Then the broker must claim all its bundles that are not
// in the log, in order, and consider them decided when the log has its commit. And no other broker that has
// applied the log to its end may answer that it has seen the marks of these bundles, that they are too old, or
// that they are from another log.
func (w *handoverWorld) checkDecided(broker int, atEnd []*handover.Receiver) {
	b := &w.brokers[broker]
	send := b.send.Clone()
	for s := send.Looked() + 1; s <= format.Seq(w.end); s++ {
		send.Applied(w.commitOf(s))
	}
	left := send.Undecided()
	for _, l := range left {
		if n := bundleOf(l.Mark); slices.ContainsFunc(w.all(), func(m mark) bool { return m.bundle() == n }) {
			w.violate(NothingLost, "%c has applied the whole log and does not know that b%d is in it", b.name, n)
		}
	}
	for i, take := range atEnd {
		if i != broker {
			w.checkTaken(take.Clone(), send.Frames(), w.brokers[i].name)
		}
	}
	built := atEnd[broker].Build(left)
	if len(built) < len(left) || !slices.Equal(built[:len(left)], left) {
		w.violate(NothingLost, "%c does not claim all its undecided bundles, in order", b.name)
	}
	c := handover.Commit{Seq: format.Seq(w.end) + 1, Own: true}
	for _, l := range left {
		c.Marks = append(c.Marks, l.Mark)
	}
	if send.Applied(c); len(send.Frames()) > 0 {
		w.violate(NothingLost, "%c has claimed its bundles, and the log does not decide them", b.name)
	}
}

// checkTaken checks the answers of a winner that has applied the whole log to bundles that are not in it.
func (w *handoverWorld) checkTaken(take *handover.Receiver, frames []handover.Frame, name byte) {
	for _, f := range frames {
		a := take.Take(f)
		if a == handover.Seen || a == handover.OtherLog || a == handover.TooOld {
			w.violate(NothingLost, "%c has applied the whole log, and answers to b%d: %v", name, bundleOf(f.Mark), a)
		}
	}
}

// atEnd returns the receiver of a broker when it has applied the whole log and is a winner.
func (w *handoverWorld) atEnd(b *handoverBroker) *handover.Receiver {
	take := b.take.Clone()
	for s := take.Position() + 1; s <= format.Seq(w.end); s++ {
		take.Applied(w.commitOf(s))
	}
	take.Named(handover.Session{}, take.Position())
	return take
}

func (w *handoverWorld) commitOf(s format.Seq) handover.Commit {
	c := handover.Commit{Seq: s, Hash: hashOf(s)}
	for _, m := range w.log[s].marks() {
		if m&noMark == 0 {
			c.Marks = append(c.Marks, w.markOf(m.bundle()))
		}
	}
	return c
}
