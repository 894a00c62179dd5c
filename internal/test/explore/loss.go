package explore

import "github.com/simple-event-broker/seb/internal/commitlog"

// lose makes a store that breaks its promise lose an object of the log: a slot above all checkpoints,
// or the newest checkpoint with everything that is in no other object.
func (w *world) lose() {
	s := 1 + w.pick(w.Slots)
	newest := w.newest()
	switch {
	case w.losses == w.Losses || !w.rarely(5):
		w.skip()
		return
	case w.pick(2) == 1:
		if s != newest {
			w.skip()
			return
		}
		w.checkpoints[s] = checkpoint{}
		w.tell("the store loses checkpoint %d", s)
	default:
		if s <= newest || w.slots[s] == 0 {
			w.skip()
			return
		}
		w.tell("the store loses slot %d, %v", s, w.slots[s].at(s))
		w.slots[s] = 0
	}
	w.losses++
	w.count(losses)
}

// saw notes that a broker has seen that a slot exists, so that no lower slot is free. The slot itself
// is left out: if another answer says that it is missing, the protocol asks again.
func (w *world) saw(b *broker, s int) { b.evidence = max(b.evidence, s) }

// sawCheckpoint notes that a broker has seen a checkpoint, so that no slot that it covers is free.
func (w *world) sawCheckpoint(b *broker, s int) { w.saw(b, s+1) }

// checkGap checks a broker that assumes that a slot is free.
func (w *world) checkGap(b *broker, s int, what string) {
	if b.evidence > s {
		w.violate(LossIsLoud, "%c %s slot %d, though it has seen that none below %d is free", b.name, what, s, b.evidence)
	}
}

// checkRollback checks a broker after a List which showed that the slot that it has applied is gone.
func (w *world) checkRollback(b *broker) {
	s := b.log.seq()
	if s > 0 && w.slots[s] == 0 && w.newest() < s && b.p.Err() == nil {
		w.violate(LossIsLoud, "%c goes on after a List, though slot %d, which it has applied, is gone", b.name, s)
	}
}

// checkAlarm checks a broker that learns that the next slot is missing after it has seen a later one.
// The broker must not just ask again, since that would hide the loss for ever.
func (w *world) checkAlarm(b *broker, a commitlog.Answer) {
	applied, _ := b.p.Position()
	if a.Found || a.Seq != applied+1 || a.Known <= a.Seq || !b.p.Covers(a.At) {
		return
	}
	p := b.p.Clone()
	switch act := p.Next(0); act.Do {
	case commitlog.Halt, commitlog.DoList, commitlog.DoLoad:
	default:
		w.violate(LossIsLoud, "%c goes on, though slot %d is missing and slot %d exists", b.name, a.Seq, a.Known)
	}
}
