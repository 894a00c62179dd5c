package explore

import (
	"math"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// check checks all invariants in a state.
func (w *segmentWorld) check() {
	k := w.known()
	if k.wrong != "" {
		w.violate(Conserved, "%s", k.wrong)
	}
	newest, second := w.newestTwo()
	for s := second + 1; s <= int(k.slot); s++ {
		if w.slots&(1<<s) != 0 {
			continue
		}
		if s > newest {
			w.violate(RecoverOK, "slot %d is gone, and the newest checkpoint is that of slot %d", s, newest)
		}
		w.violate(TwoOpen, "slot %d is gone, so the log can't be opened from checkpoint %d", s, second)
	}
	w.checkPages(RecoverOK, newest)
	w.checkPages(TwoOpen, second)
	if !w.readable(k.slots, k.segments) {
		w.violate(RecoverOK, "a recovery finds records whose object is gone: they are in the slots %b and the segments %v", k.slots, k.segments)
	}
	for log := w.log; log > 0; log = w.logs.logs[log].before {
		w.checkReader(w.logs.logs[log].before)
	}
	if int(k.slot) == w.Slots && int(w.now) > w.Ticks {
		w.checkCollected()
	}
}

// checkPages checks that the store has the pages of a checkpoint.
func (w *segmentWorld) checkPages(i Invariant, checkpoint int) {
	if checkpoint == 0 {
		return // the log is replayed from its first slot
	}
	if pages := w.logs.logs[w.logs.upTo(w.log, format.Seq(checkpoint))].pages; !w.readable(0, pages) {
		w.violate(i, "checkpoint %d refers to the pages %v, one of which is gone", checkpoint, pages)
	}
}

// newestTwo returns the slots of the newest two checkpoints; 0 for one that does not exist.
func (w *segmentWorld) newestTwo() (newest, second int) {
	for _, c := range w.checkpoints {
		if c.stands {
			newest, second = int(c.slot), newest
		}
	}
	return newest, second
}

// checkReader checks what a broker reads that has applied a beginning of the log, if its lease may still last.
func (w *segmentWorld) checkReader(log int) {
	k := &w.logs.logs[log]
	for _, c := range w.checkpoints {
		// The broker has listed the checkpoints last before it could see this one.
		if c.slot > uint8(k.slot) && c.since != 0 && int(w.now) >= int(c.since-1)+deleteTicks-marginTicks {
			return
		}
	}
	if !w.readable(k.slots, k.segments) {
		w.violate(ReadOK, "a broker that has applied slot %d reads records whose object is gone: they are in the slots %b and the segments %v", k.slot, k.slots, k.segments)
	}
	if w.slots&(1<<(k.slot+1)) == 0 {
		w.violate(MissOK, "a broker that has applied slot %d finds the next one missing", k.slot)
	}
}

// checkCollected checks that all that is dead is deleted in the end, and that the state forgets it.
func (w *segmentWorld) checkCollected() {
	if w.Only != nil {
		return
	}
	end := *w
	cfg := *w.SegmentConfig
	cfg.Slots, cfg.Checkpoints, cfg.Floors, cfg.Ticks = segmentSlotsMax, math.MaxInt, math.MaxInt, 100
	end.SegmentConfig, end.trace = &cfg, &trace{}
	const rounds = 4
	for range rounds {
		slot := end.known().slot
		end.setCheckpoint(segmentCheckpoint{slot: uint8(slot), since: end.now + 1, stands: true})
		end.commit("checkpoint %d was seen", int(slot), &format.CheckpointSeen{Slot: slot, Bottom: end.known().bottom})
		end.commit("the data floor rises to %d", int(slot), &format.DataFloor{Seq: slot})
		end.now += deleteTicks
		end.collectAll()
	}
	k := end.known()
	s := w.logs.state(end.log)
	for _, u := range end.uploads {
		live := false
		for _, n := range slices.Concat(k.segments, k.pages) {
			live = live || n == u.upload
		}
		if u.stands != live {
			w.violate(Collected, "when nothing more happens, segment %d is in the store: %v, and has records: %v", u.upload+1, u.stands, live)
		}
	}
	collected := s.Collected()
	if left := end.slots & (1<<collected.Bottom - 1) &^ k.slots; left&^1 != 0 || collected.Bottom != s.Bottom() {
		w.violate(Collected, "when nothing more happens, the slots %b stay, below slot %d; the bottom is %d", left, collected.Bottom, s.Bottom())
	}
	for _, d := range s.Dead() {
		w.violate(Collected, "when nothing more happens, the state remembers %+v", d)
	}
}

// collectAll deletes all that may go, and says so.
func (w *segmentWorld) collectAll() {
	plan := w.logs.collection(w.log, int(w.now))
	if plan == nil {
		return
	}
	w.slots &^= slotsOf(plan)
	for i, u := range w.uploads {
		if u.stands && goes(plan, &w.logs.uploads[u.upload]) {
			w.setUpload(i, segmentUpload{u.upload, u.landed, false})
		}
	}
	said := plan.Collected
	w.commit("what died up to slot %d is deleted", int(said.Slot), &said)
}
