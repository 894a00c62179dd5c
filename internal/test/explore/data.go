package explore

import (
	"cmp"
	"slices"
)

// object is a data object whose Create was sent, so that it may be written at
// any later time, any number of times.
type object struct {
	entry  entry // what will refer to it
	stands bool
	// landed: it was written some time, whether or not it stands. It matters
	// while its sender waits for the answer.
	landed bool
}

func (w *world) findObject(e entry) (i int, found bool) {
	return slices.BinarySearchFunc(w.objects, e, func(o object, e entry) int { return cmp.Compare(o.entry, e) })
}

// stands reports whether a data object is in the store.
func (w *world) stands(e entry) bool {
	i, found := w.findObject(e)
	return found && w.objects[i].stands
}

// putObject replaces what is known of a data object by o.
// Worlds share the slice, so it is never changed in place.
func (w *world) putObject(o object) {
	i, found := w.findObject(o.entry)
	if found {
		w.objects = slices.Clone(w.objects)
		w.objects[i] = o
		return
	}
	w.objects = slices.Concat(w.objects[:i], []object{o}, w.objects[i:])
}

// upload mirrors Broker.put: a payload goes into a data object of its own,
// again and again until the store says that it is there. That needs nothing of
// the log but the slot that is applied when it begins.
func (w *world) upload(b *broker) {
	switch {
	case !w.Data || b.claim != 0 || b.stored || b.payload != 0 && !b.payload.data():
		w.skip()
		return
	case b.payload == 0:
		if !w.number(b) {
			return
		}
		b.payload = b.payload.inData(b.log.seq())
	}
	w.sendObject(b)
}

// sendObject lets the Create of a data object execute and its answer come, or
// neither, or only the answer to one that executed before.
func (w *world) sendObject(b *broker) {
	e := b.payload
	i, sent := w.findObject(e)
	const answered, lost, late = 0, 1, 2
	switch w.pick(3) {
	case answered:
		// Success, or it exists and is read back as the own one.
		w.tell("%c uploads %v: success", b.name, e)
		w.putObject(object{e, true, true})
		b.stored = true
	case lost:
		w.tell("%c uploads %v, and gets no answer", b.name, e)
		if w.undo = sent; !sent {
			w.putObject(object{entry: e})
		}
	case late:
		if w.undo = !sent || !w.objects[i].landed || w.objects[i].stands; !w.undo {
			w.tell("%c hears that it has uploaded %v", b.name, e)
			b.stored = true
		}
	}
}

// landObject lets the Create of a data object that was sent execute now.
func (w *world) landObject() {
	if len(w.objects) == 0 {
		w.skip()
		return
	}
	o := w.objects[w.pick(len(w.objects))]
	if o.stands {
		w.skip() // it changes nothing
		return
	}
	w.tell("an upload of %v, sent some time ago, executes at the store", o.entry)
	w.putObject(object{o.entry, true, true})
	w.count(lateData)
}

// renewed mirrors the check of Broker.build: a data object that a sweep may
// have taken is uploaded again under another key. It returns whether one was.
func (w *world) renewed(b *broker) bool {
	if !b.payload.data() || b.payload.begin() >= b.log.floor() || w.Without == IgnoreFloor {
		return false
	}
	w.tell("%c finds %v below the floor %d", b.name, b.payload, b.log.floor())
	w.count(renewals)
	b.payload, b.stored = b.payload.inData(b.log.seq()), false
	w.sendObject(b)
	return true
}

// live reports whether what a slot brought, in the commit itself or in a data
// object, is live as of a log.
func (w *world) live(log commit, s int) bool {
	e := log.at(s)
	switch {
	case e == 0 || e.floor():
		return false
	case !w.Live:
		return e.data() // where inline payloads are then is of no interest
	}
	for s++; s <= log.seq(); s++ {
		if !log.at(s).floor() {
			return false // moved
		}
	}
	return true
}

// deleteObject removes a data object: one that no commit refers to, behind a
// sweep's entry; or one whose payload moved.
func (w *world) deleteObject() {
	if len(w.objects) == 0 {
		w.skip()
		return
	}
	o := w.objects[w.pick(len(w.objects))]
	decided := w.decided()
	orphan := w.orphan(o.entry, decided)
	s := decided.slotOf(o.entry)
	if !o.stands || !orphan && (s == 0 || !w.dead(s)) {
		w.skip()
		return
	}
	w.tell("the data object of %v is deleted", o.entry)
	w.putObject(object{o.entry, false, o.landed})
	if orphan {
		w.count(sweeps)
	} else {
		w.count(dataDeletions)
	}
}

// orphan reports whether a sweep takes a data object: its key is below a floor
// that the log states, and the state there does not know it.
func (w *world) orphan(e entry, decided commit) bool {
	if w.Without == SweepUnsaid {
		return e.begin() < decided.seq() && decided.slotOf(e) == 0
	}
	for s := decided.seq(); s > e.begin(); s-- {
		if decided.at(s).floor() && decided.prefix(s).slotOf(e) == 0 {
			return true
		}
	}
	return false
}

// dead reports whether the deleter's rules call what a slot brought dead: the
// state of a checkpoint that is D old says so.
func (w *world) dead(s int) bool {
	if w.Without == OwnState {
		return !w.live(w.decided(), s) && w.covered(s, w.old)
	}
	return w.covered(s, func(c checkpoint) bool { return w.old(c) && !w.live(c.log, s) })
}
