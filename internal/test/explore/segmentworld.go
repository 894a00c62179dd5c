package explore

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// segmentWorld is a log, and a store with its commits, checkpoints and segments. A compactor or a collector has applied any
// beginning of the log, however old: so the world has no brokers.
type segmentWorld struct {
	*SegmentConfig
	moment
	logs *logs

	log         int
	now         uint8
	slots       uint64              // which commits the store has, as bits
	checkpoints []segmentCheckpoint // by slot
	uploads     []segmentUpload
	trims       uint8
	floors      uint8
}

// segmentCheckpoint is a checkpoint that a broker has begun to write.
type segmentCheckpoint struct {
	slot   uint8
	since  uint8 // when the store had it first, plus 1; 0 if the store never had it
	stands bool
}

// segmentUpload is a segment that a compactor has begun to upload.
type segmentUpload struct {
	upload int // in logs.uploads
	landed bool
	stands bool
}

func newSegmentWorld(cfg *SegmentConfig, l *logs) *segmentWorld {
	return &segmentWorld{SegmentConfig: cfg, moment: moment{only: cfg.Only}, logs: l, now: 1, slots: 1 << 1}
}

func (w *segmentWorld) known() *knownLog { return &w.logs.logs[w.log] }

// step makes one thing happen.
func (w *segmentWorld) step() {
	steps := []func(){
		w.append, w.remember, w.trim, w.upload, w.land, w.commitUpload, w.writeCheckpoint, w.landCheckpoint, w.see, w.tick, w.deleteSlot,
		w.deleteUpload, w.deleteOldCheckpoint, w.collected, w.raiseFloor, w.ghost,
	}
	steps[w.pick(len(steps))]()
}

// commit tries to commit an entry in the next slot, and reports whether the log has taken it. what and number tell the entries of a
// log apart.
func (w *segmentWorld) commit(what string, number int, entry format.Entry) bool {
	if int(w.known().slot) == w.Slots {
		w.skip()
		return false
	}
	to, taken := w.logs.try(segmentCommit{w.log, w.timeOf(entry), what, number}, entry)
	if !taken {
		w.skip()
		return false
	}
	w.log = to
	w.slots |= 1 << w.known().slot
	if before := &w.logs.logs[w.known().before]; len(before.pages) > len(w.known().pages) {
		w.count(pagesDied)
	}
	w.tell("slot %d: "+what, w.known().slot, number)
	return true
}

// timeOf returns the time of a commit with an entry. Only for some entries does it matter: all others get the time of the commit
// before, so that there are fewer logs.
func (w *segmentWorld) timeOf(entry format.Entry) int {
	switch entry.(type) {
	case *format.CheckpointSeen, *format.Collected:
		return int(w.now)
	}
	return 0
}

func (w *segmentWorld) append() {
	p := w.pick(w.Partitions)
	k := w.known()
	total := 0
	for i := range w.Partitions {
		total += int(k.end[i])
	}
	if total == w.Appends {
		w.skip()
		return
	}
	b := &format.Batch{Topic: theTopic, Partition: format.Partition(p), Base: format.Offset(k.end[p]), Count: 1, Size: 100}
	w.commit("a record is appended to partition %d", p, b)
}

// remember makes the log remember an idempotency key.
func (w *segmentWorld) remember() {
	n := len(w.known().keyed)
	if n == w.Keys {
		w.skip()
		return
	}
	w.commit("key %d is remembered", n+1, &format.AppendKeyed{Key: keyOf(n)})
}

func (w *segmentWorld) trim() {
	p := w.pick(w.Partitions)
	k := w.known()
	if int(w.trims) == w.Trims || k.start[p] == k.end[p] {
		w.skip()
		return
	}
	start := int(k.start[p]) + 1 + w.pick(int(k.end[p]-k.start[p]))
	if w.commit([]string{"records of partition 0 are deleted below %d", "records of partition 1 are deleted below %d"}[p], start,
		&format.StartMoved{Topic: theTopic, Partition: format.Partition(p), Start: format.Offset(start)}) {
		w.trims++
	}
}

// view picks a slot up to which a broker has applied the log, and returns the log up to it.
func (w *segmentWorld) view() int {
	return w.logs.upTo(w.log, format.Seq(1+w.pick(int(w.known().slot))))
}

// upload makes a compactor read its inputs, and send a segment to the store. The compactor may have slept since it has applied
// the log: this is the same as a commit of the segment that comes later.
func (w *segmentWorld) upload() {
	if len(w.uploads) == w.Uploads {
		w.skip()
		return
	}
	k := uploadKey{log: w.log}
	switch what := w.pick(3); {
	case what == 2 && w.Keys > 0:
		k.page = true
	case what == 2:
		w.skip()
		return
	default:
		k.merge = what == 1
	}
	if !k.merge && !k.page {
		k.rows = 1 + w.pick(2)
		k.unread = w.Stays && w.pick(2) == 1
	}
	for _, u := range w.uploads {
		if x := w.logs.uploads[u.upload].key; x.log == k.log && x.merge == k.merge && x.page == k.page && x.rows == k.rows && x.unread == k.unread {
			k.instance++
		}
	}
	n := w.logs.plan(k)
	if n < 0 || !k.page && !w.readable(w.logs.inputs(k.log, &w.logs.uploads[n])) {
		w.skip()
		return
	}
	landed := !w.Late || w.pick(2) == 0
	w.uploads = append(slices.Clip(w.uploads), segmentUpload{n, landed, landed})
	w.tell([]string{"segment %d, of commits up to slot %d, is uploaded: %v", "page %d, of commits up to slot %d, is uploaded: %v"}[bit(k.page)], n+1, w.logs.logs[k.log].slot, landed)
	w.count(segmentsUploaded)
	if k.merge {
		w.count(segmentsMerged)
	}
}

// readable reports whether the store has objects.
func (w *segmentWorld) readable(slots uint64, segments []int) bool {
	if slots&^w.slots != 0 {
		return false
	}
	for _, n := range segments {
		if !w.stands(n) {
			return false
		}
	}
	return true
}

func (w *segmentWorld) stands(upload int) bool {
	i := w.findUpload(upload)
	return i >= 0 && w.uploads[i].stands
}

func (w *segmentWorld) findUpload(upload int) int {
	return slices.IndexFunc(w.uploads, func(u segmentUpload) bool { return u.upload == upload })
}

func (w *segmentWorld) setUpload(i int, u segmentUpload) {
	w.uploads = slices.Clone(w.uploads)
	w.uploads[i] = u
}

// land executes an upload that was sent some time ago, perhaps once more after it was deleted.
func (w *segmentWorld) land() {
	if !w.Late || len(w.uploads) == 0 {
		w.skip()
		return
	}
	i := w.pick(len(w.uploads))
	u := w.uploads[i]
	if u.stands {
		w.skip()
		return
	}
	w.tell("an upload of segment %d, sent some time ago, executes", u.upload+1)
	if u.landed {
		w.count(segmentGhosts)
	}
	w.setUpload(i, segmentUpload{u.upload, true, true})
}

// commitUpload puts a segment in the place of its inputs. The compactor has read the segment back, perhaps long ago.
func (w *segmentWorld) commitUpload() {
	if len(w.uploads) == 0 {
		w.skip()
		return
	}
	u := w.uploads[w.pick(len(w.uploads))]
	if !u.landed {
		w.skip()
		return
	}
	x := &w.logs.uploads[u.upload]
	if x.page != nil {
		if w.commit("page %d is stored", u.upload+1, x.page) {
			w.count(pagesAdded)
		} else {
			w.count(pagesRefused)
		}
		return
	}
	if !w.commit("segment %d is added", u.upload+1, x.entry) {
		w.count(segmentsRefused)
		return
	}
	w.count(segmentsAdded)
}

func (w *segmentWorld) findCheckpoint(slot uint8) (i int, found bool) {
	return slices.BinarySearchFunc(w.checkpoints, slot, func(c segmentCheckpoint, slot uint8) int { return int(c.slot) - int(slot) })
}

func (w *segmentWorld) setCheckpoint(c segmentCheckpoint) {
	i, found := w.findCheckpoint(c.slot)
	w.checkpoints = slices.Clone(w.checkpoints)
	if found {
		w.checkpoints[i] = c
		return
	}
	w.checkpoints = slices.Insert(w.checkpoints, i, c)
}

// writeCheckpoint makes a broker write a checkpoint.
func (w *segmentWorld) writeCheckpoint() {
	slot := uint8(w.known().slot)
	if _, found := w.findCheckpoint(slot); found || len(w.checkpoints) == w.Checkpoints {
		w.skip()
		return
	}
	c := segmentCheckpoint{slot: slot, since: w.now + 1, stands: true}
	if w.Late && w.pick(2) == 1 {
		c.since, c.stands = 0, false
	}
	w.tell("checkpoint %d is written: %v", slot, c.stands)
	w.setCheckpoint(c)
}

func (w *segmentWorld) landCheckpoint() {
	if !w.Late || len(w.checkpoints) == 0 {
		w.skip()
		return
	}
	c := w.checkpoints[w.pick(len(w.checkpoints))]
	if c.stands || c.since != 0 {
		w.skip()
		return
	}
	w.tell("the write of checkpoint %d executes", c.slot)
	c.since, c.stands = w.now+1, true
	w.setCheckpoint(c)
}

// see makes a broker say that it has read a checkpoint, perhaps long ago.
func (w *segmentWorld) see() {
	if len(w.checkpoints) == 0 {
		w.skip()
		return
	}
	c := w.checkpoints[w.pick(len(w.checkpoints))]
	if c.since == 0 && w.Without != SeenUnread {
		w.skip()
		return
	}
	if c.slot == w.known().seen {
		w.skip() // it would be said again
		return
	}
	at := w.logs.upTo(w.log, format.Seq(c.slot))
	if w.Without == MixedPair {
		at = w.log
	}
	if w.commit("checkpoint %d was seen", int(c.slot), &format.CheckpointSeen{Slot: format.Seq(c.slot), Bottom: min(w.logs.logs[at].bottom, format.Seq(c.slot)+1)}) {
		w.count(checkpointsSeen)
	}
}

func (w *segmentWorld) tick() {
	if int(w.now) > w.Ticks {
		w.skip()
		return
	}
	w.now++
	w.tell("the time is %d", w.now)
}

func (w *segmentWorld) may() *mayGo { return w.logs.may(w.log, int(w.now)) }

func (w *segmentWorld) deleteSlot() {
	s := 1 + w.pick(int(w.known().slot))
	if w.slots&w.may().slots&(1<<s) == 0 {
		w.skip()
		return
	}
	w.tell("slot %d is deleted", s)
	w.slots &^= 1 << s
	w.count(slotsDeleted)
}

// ghost writes a commit again that was deleted: its Create was sent twice.
func (w *segmentWorld) ghost() {
	s := 1 + w.pick(int(w.known().slot))
	if !w.Late || w.slots&(1<<s) != 0 {
		w.skip()
		return
	}
	w.tell("slot %d is written again", s)
	w.slots |= 1 << s
	w.count(slotGhosts)
}

func (w *segmentWorld) deleteUpload() {
	if len(w.uploads) == 0 {
		w.skip()
		return
	}
	i := w.pick(len(w.uploads))
	u := w.uploads[i]
	if !u.stands || !w.may().upload(&w.logs.uploads[u.upload]) {
		w.skip()
		return
	}
	w.tell("segment %d is deleted", u.upload+1)
	w.setUpload(i, segmentUpload{u.upload, u.landed, false})
	if w.logs.uploads[u.upload].page != nil {
		w.count(pagesDeleted)
	} else {
		w.count(segmentsDeleted)
	}
}

func (w *segmentWorld) deleteOldCheckpoint() {
	if len(w.checkpoints) == 0 {
		w.skip()
		return
	}
	c := w.checkpoints[w.pick(len(w.checkpoints))]
	newer := 0
	for _, x := range w.checkpoints {
		if x.stands && x.slot > c.slot {
			newer++
		}
	}
	if !c.stands || newer < 2 || format.Seq(c.slot) >= w.may().below {
		w.skip()
		return
	}
	w.tell("checkpoint %d is deleted", c.slot)
	c.stands = false
	w.setCheckpoint(c)
	w.count(checkpointsDeleted)
}

// collected makes a collector say that all that it may delete is deleted. It has listed the store before.
func (w *segmentWorld) collected() {
	plan := w.logs.collection(w.view(), int(w.now))
	if plan == nil || w.slots&slotsOf(plan) != 0 || slices.ContainsFunc(w.uploads, func(u segmentUpload) bool { return u.stands && goes(plan, &w.logs.uploads[u.upload]) }) {
		w.skip()
		return
	}
	said := plan.Collected
	said.Bottom = min(said.Bottom, said.Slot+1) // more can't be said in a commit
	if w.commit("what died up to slot %d is deleted", int(said.Slot), &said) {
		w.count(collections)
	}
}

func (w *segmentWorld) raiseFloor() {
	if int(w.floors) == w.Floors {
		w.skip()
		return
	}
	f := int(w.known().slot)
	if w.commit("the data floor rises to %d", f, &format.DataFloor{Seq: format.Seq(f)}) {
		w.floors++
	}
}
