package explore

import (
	"cmp"
	"slices"
)

// object is a data object whose Create was sent. The store may write it at any later time, any number
// of times.
type object struct {
	entry  entry // the entry that will refer to the object
	stands bool
	// landed says that the store has written the object at some time, even if the object is deleted by
	// now. Then the sender of the Create may still get the answer "success".
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

// putObject sets the state of a data object to o. It copies the slice, which other worlds share.
func (w *world) putObject(o object) {
	i, found := w.findObject(o.entry)
	if found {
		w.objects = slices.Clone(w.objects)
		w.objects[i] = o
		return
	}
	w.objects = slices.Concat(w.objects[:i], []object{o}, w.objects[i:])
}

// upload mirrors Engine.put: a payload gets its own data object, and the broker sends the Create of the
// object again and again until the store confirms it. The object's name contains the slot that
// was the broker's last applied slot when the upload began.
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

// sendObject sends the Create of a data object. There are three outcomes: the Create executes and the
// broker gets the answer; neither happens yet; or the broker gets the late answer to an earlier Create,
// whose object was deleted in the meantime.
func (w *world) sendObject(b *broker) {
	e := b.payload
	i, sent := w.findObject(e)
	const answered, lost, late = 0, 1, 2
	switch w.pick(3) {
	case answered:
		// The Create succeeds. Or the object exists, and the broker reads it and finds its own bytes.
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

// landObject executes a Create of a data object. A broker sent the Create in an earlier step.
func (w *world) landObject() {
	if len(w.objects) == 0 {
		w.skip()
		return
	}
	o := w.objects[w.pick(len(w.objects))]
	if o.stands {
		w.skip() // the object exists, so the Create changes nothing
		return
	}
	w.tell("an upload of %v, sent some time ago, executes at the store", o.entry)
	w.putObject(object{o.entry, true, true})
	w.count(lateData)
}

// renewed mirrors Engine.useless: if a sweep may have deleted the data object of a payload, the broker
// uploads the payload again under another key. renewed returns whether the broker did so.
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

// live reports whether the state after a log still needs the payload of a slot, which is in the commit
// or in a data object.
func (w *world) live(log commit, s int) bool {
	e := log.at(s)
	switch {
	case e == 0 || e.floor():
		return false
	case !w.Live:
		return e.data() // without Live, only payloads in data objects are live
	}
	for s++; s <= log.seq(); s++ {
		if !log.at(s).floor() {
			return false // the payload has moved
		}
	}
	return true
}

// deleteObject deletes an orphan, or a data object whose payload is dead.
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

// orphan reports whether a sweep may delete a data object: the log has a floor entry in a slot above the
// slot in the object's name, and no commit up to that entry refers to the object.
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

// dead reports whether the payload of a slot may be deleted, because a checkpoint that is D old no longer
// needs it.
func (w *world) dead(s int) bool {
	if w.Without == OwnState {
		return !w.live(w.decided(), s) && w.covered(s, w.old)
	}
	return w.covered(s, func(c checkpoint) bool { return w.old(c) && !w.live(c.log, s) })
}
