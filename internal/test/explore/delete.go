package explore

import "slices"

// delete deletes a slot, a checkpoint, a data object or a page, if the rules allow that.
func (w *world) delete() {
	kinds := 3
	if w.Pages {
		kinds++
	}
	switch w.pick(kinds) {
	case 0:
		w.deleteSlot(1 + w.pick(w.Slots))
	case 1:
		w.deleteCheckpoint(1 + w.pick(w.Slots))
	case 2:
		w.deleteObject()
	case 3:
		w.deletePage(1 + w.pick(w.Slots))
	}
}

// deletePage deletes the page to which the checkpoint of slot s refers, or to which it will refer if it becomes visible late.
func (w *world) deletePage(s int) {
	if w.bare&(1<<s) != 0 || !w.covered(s+1, w.old) {
		w.skip()
		return
	}
	w.tell("the page of checkpoint %d is deleted", s)
	w.bare |= 1 << s
	w.count(deletions)
}

func (w *world) deleteSlot(s int) {
	if w.slots[s] == 0 || !w.deletable(s) {
		w.skip()
		return
	}
	w.tell("slot %d, %v, is deleted", s, w.slots[s].at(s))
	w.slots[s] = 0
	w.count(deletions)
	if !w.covered(s, func(c checkpoint) bool { return w.now+w.Skew >= c.since+w.Delay }) {
		w.violate(FloorSafe, "slot %d is deleted, and no checkpoint at or above it has been visible for %d", s, w.Delay)
	}
}

// deletable reports whether the rules allow a slot to be deleted.
func (w *world) deletable(s int) bool {
	if w.first[s].last().data() {
		return w.covered(s, w.old) // the payload is elsewhere: in a data object
	}
	return w.dead(s)
}

// covered reports whether there is a checkpoint at or above slot s for which ok returns true.
func (w *world) covered(s int, ok func(checkpoint) bool) bool {
	return slices.ContainsFunc(w.checkpoints[s:w.Slots+1], func(c checkpoint) bool { return c.since != 0 && ok(c) })
}

// old reports whether a broker that deletes objects may conclude that a checkpoint has been visible for D.
// The clock by which the broker decides may be ahead by Skew.
func (w *world) old(c checkpoint) bool {
	switch w.Without {
	case NoDelay:
		return true
	case UploadTime:
		return w.now+w.Skew >= c.begun+w.Delay
	default:
		return w.now+w.Skew >= c.since+w.Delay
	}
}

func (w *world) deleteCheckpoint(s int) {
	newer := 0
	for _, c := range w.checkpoints[s+1 : w.Slots+1] {
		if c.since != 0 {
			newer++
		}
	}
	switch {
	case w.checkpoints[s].since == 0,
		newer < w.Keep && w.Without != DeleteNewest,
		w.Aged && !w.covered(s+1, w.old):
		w.skip()
		return
	}
	w.tell("checkpoint %d is deleted", s)
	w.checkpoints[s] = checkpoint{}
}
