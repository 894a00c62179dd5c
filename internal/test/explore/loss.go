package explore

import "github.com/simple-event-broker/seb/internal/commitlog"

// lose removes an object of the log, as a store that breaks its promise may: a slot above all checkpoints,
// or the newest checkpoint, or its page. With the checkpoint, everything is lost that is in no other object.
func (w *world) lose() {
	s := 1 + w.pick(w.Slots)
	newest := w.newest()
	switch {
	case w.losses == w.Losses || !w.rarely(5):
		w.skip()
		return
	case w.Pages && w.pick(2) == 1:
		if s != newest || w.bare&(1<<s) != 0 {
			w.skip()
			return
		}
		w.bare |= 1 << s
		w.tell("the store loses the page of checkpoint %d", s)
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

// saw notes that a broker has seen that slot s exists, which proves that all lower slots were written. The
// note does not cover slot s itself: if a later answer says that slot s is missing, the protocol asks again.
func (w *world) saw(b *broker, s int) { b.evidence = max(b.evidence, s) }

// sawCheckpoint notes that a broker has seen a checkpoint, which proves that all slots up to the
// checkpoint were written.
func (w *world) sawCheckpoint(b *broker, s int) { w.saw(b, s+1) }

// checkGap checks a broker that treats a slot as never written: the broker must not have seen proof that the
// slot was written.
func (w *world) checkGap(b *broker, s int, what string) {
	if b.evidence > s {
		w.violate(LossIsLoud, "%c %s slot %d, though it has seen proof that all slots below %d were written", b.name, what, s, b.evidence)
	}
}

// checkRollback checks that a broker has halted if its List showed that the slot which it has applied is
// gone.
func (w *world) checkRollback(b *broker) {
	s := b.log.seq()
	if s > 0 && w.slots[s] == 0 && w.newest() < s && b.p.Err() == nil {
		w.violate(LossIsLoud, "%c goes on after a List, though slot %d, which it has applied, is gone", b.name, s)
	}
}

// checkAlarm checks a broker that gets a 404 for the slot after its applied slot, although it has seen that a
// later slot exists. The broker must not just Get the missing slot again: then no broker would notice the loss.
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
