package explore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// logs has every log that an exploration has come across: each is a commit behind another log. Package state computes the
// states, as in brokers.
type logs struct {
	cfg      *SegmentConfig
	logs     []knownLog
	after    map[segmentCommit]int // the logs after commits; -1 for those that are refused
	uploads  []segmentJob
	uploaded map[uploadKey]int
	mays     map[mayKey]*mayGo
}

// knownLog is a log, and what follows from the state after it.
type knownLog struct {
	before int // the log without the last commit
	slot   format.Seq
	body   string // the snapshot of the state
	bottom format.Seq
	seen   uint8                // slot of the last checkpoint that was seen
	end    [partitionsMax]uint8 // next offset of each partition
	start  [partitionsMax]uint8
	// slots are the slots that have records, as bits; segments are the uploads that have records.
	slots    uint64
	segments []int
	// keyed are the times of the commits that have made the log remember keys; pages are the uploads to which the state refers as pages.
	keyed []int64
	pages []int
	// wrong says that a record is not where the state says; "" if all are.
	wrong string
	// record is the record that the last commit has appended: its partition and offset. partition is -1 if it has appended none.
	partition format.Partition
	offset    format.Offset
}

// segmentJob is a segment that a compactor may upload. Each has a key of its own: two compactors that do the same job make two.
type segmentJob struct {
	key   uploadKey
	ref   format.DataRef
	entry *format.SegmentAdded // to be committed once the upload is in the store
	// page is the entry of a page, and section its section of keys; such a job has no entry about a segment.
	page    *format.PageStored
	section []byte
}

type uploadKey struct {
	log, rows int
	merge     bool
	page      bool // of keys
	unread    bool // the first batch can't be read
	instance  int
}

// newLogs returns logs with one log, as log 0: it has an empty topic, and segments.
func newLogs(cfg *SegmentConfig) *logs {
	cfg.mustFit()
	l := &logs{cfg: cfg, after: map[segmentCommit]int{}, uploaded: map[uploadKey]int{}, mays: map[mayKey]*mayGo{}}
	s := state.New()
	raise := &format.LevelRaised{Level: format.LevelSegments, DeleteDelay: deleteTicks * tickMicros * time.Microsecond}
	if err := l.apply(s, 1, &format.TopicCreated{ID: theTopic, Partitions: uint32(cfg.Partitions), Name: "topic"}, raise); err != nil {
		panic(err)
	}
	l.add(s, 0, -1, 0)
	return l
}

func (l *logs) apply(s *state.State, now int64, entries ...format.Entry) error {
	c := &format.Commit{Seq: s.Seq() + 1, Time: s.NextTime(now), Entries: entries}
	for _, it := range entries {
		if b, ok := it.(*format.Batch); ok {
			c.PayloadSize = b.Size
		}
	}
	read, err := format.DecodeCommit(format.EncodeCommit(c))
	if err != nil {
		return fmt.Errorf("explore: a commit can't be read: %w", err)
	}
	return s.Apply(read)
}

// time returns the log's time at a tick; 0 for a commit that need not say when it was made.
func (l *logs) time(tick int) int64 {
	if l.cfg.Keys == 0 || tick == 0 {
		return int64(tick) * tickMicros
	}
	return state.KeyedFor.Microseconds() + int64(tick-l.cfg.Forget)*tickMicros
}

// keyOf returns the hash of a key.
func keyOf(n int) format.Digest { return format.Digest{byte(n + 1)} }

// segmentCommit is a commit behind a log, at a time. what and number tell the entries of a log apart.
type segmentCommit struct {
	log, now int
	what     string
	number   int
}

// try commits an entry. taken reports whether the state accepts it.
func (l *logs) try(c segmentCommit, entry format.Entry) (to int, taken bool) {
	if to, ok := l.after[c]; ok {
		return to, to >= 0
	}
	l.after[c] = -1
	s := l.state(c.log)
	switch err := l.apply(s, l.time(c.now), entry); {
	case errors.Is(err, state.ErrNonsense):
		return 0, false
	case err != nil:
		panic(err)
	}
	partition, offset := format.Partition(-1), format.Offset(0)
	if b, ok := entry.(*format.Batch); ok {
		partition, offset = b.Partition, b.Base
	}
	to = l.add(s, c.log, partition, offset)
	l.noteKeys(to, s, entry)
	l.after[c] = to
	return to, true
}

// add adds a log whose last commit has led to the state s.
func (l *logs) add(s *state.State, before int, partition format.Partition, offset format.Offset) int {
	n := len(l.logs)
	l.logs = append(l.logs, knownLog{before: before, slot: s.Seq(), body: string(s.View().Encode()), bottom: s.Bottom(), partition: partition, offset: offset})
	k := &l.logs[n]
	if seen := s.Seen(); len(seen) > 0 {
		k.seen = uint8(seen[len(seen)-1].Slot)
	}
	t := s.TopicByID(theTopic)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		k.start[i], k.end[i] = uint8(p.Start), uint8(p.End)
		for o := p.Start; o < p.End; o++ {
			l.locate(k, n, s.Locate(nil, t, format.Partition(i), o, 1, 1)[0], format.Partition(i), o)
		}
	}
	return n
}

// noteKeys notes which pages the state s of a log refers to, and checks that it remembers the keys that it should.
func (l *logs) noteKeys(n int, s *state.State, last format.Entry) {
	k := &l.logs[n]
	k.keyed = l.logs[k.before].keyed
	if _, ok := last.(*format.AppendKeyed); ok {
		k.keyed = append(slices.Clip(k.keyed), s.Time())
	}
	for i, at := range k.keyed {
		if _, ok := s.Keyed(keyOf(i), s.Time()); ok != (at > s.Time()-state.KeyedFor.Microseconds()) {
			k.wrong = fmt.Sprintf("key %d is remembered: %v", i+1, ok)
		}
	}
	for _, p := range s.Pages() {
		k.pages = append(k.pages, int(p.Ref.ID-1))
	}
}

// locate notes which object has a record, and checks that it is there.
func (l *logs) locate(k *knownLog, n int, at state.Location, partition format.Partition, offset format.Offset) {
	o := objectOf(at)
	if !o.Data {
		k.slots |= 1 << o.Seq
		if c := &l.logs[l.upTo(n, format.Seq(o.Seq))]; c.partition != partition || c.offset != offset {
			k.wrong = fmt.Sprintf("offset %d of partition %d should be in slot %d, which has offset %d of partition %d", offset, partition, o.Seq, c.offset, c.partition)
		}
		return
	}
	if n := int(o.Tag - 1); !slices.Contains(k.segments, n) {
		k.segments = append(k.segments, n)
	}
	for _, r := range l.uploads[o.Tag-1].entry.Ranges {
		if !r.Stays && r.Partition == partition && r.Base <= offset && offset < r.End {
			return
		}
	}
	k.wrong = fmt.Sprintf("offset %d of partition %d should be in segment %d, which does not have it", offset, partition, o.Tag)
}

// upTo returns a log up to a slot.
func (l *logs) upTo(log int, slot format.Seq) int {
	for l.logs[log].slot > slot {
		log = l.logs[log].before
	}
	return log
}

// state returns the state after a log.
func (l *logs) state(log int) *state.State {
	s, err := state.Decode(l.logs[log].slot, []byte(l.logs[log].body))
	if err != nil {
		panic(fmt.Sprintf("explore: the snapshot of a state is refused: %v", err))
	}
	var sections [][]byte
	for _, p := range s.Pages() {
		sections = append(sections, l.uploads[p.Ref.ID-1].section)
	}
	if err := s.ReadPages(sections); err != nil {
		panic(fmt.Sprintf("explore: the pages of a state are refused: %v", err))
	}
	return s
}

// planPage returns the upload of a page by a broker that has applied a log; -1 if there is nothing to do.
func (l *logs) planPage(k uploadKey) int {
	s, n := l.state(k.log), len(l.uploads)
	list := s.PlanPage(1, math.MaxInt64)
	l.uploaded[k] = -1
	if list == nil {
		return -1
	}
	u := segmentJob{key: k, section: state.EncodeKeyed(list)}
	_, p := format.EncodePage(format.ClusterID{}, format.DataRef{Seq: s.Seq(), ID: uint64(n + 1)}, 0, u.section, uint32(len(list)))
	u.ref, u.page = p.Ref, &format.PageStored{Page: p, First: list[0].Key}
	l.uploads = append(l.uploads, u)
	l.uploaded[k] = n
	return n
}

// plan returns the upload of a compactor that has applied a log; -1 if there is nothing to do.
func (l *logs) plan(k uploadKey) int {
	if n, ok := l.uploaded[k]; ok {
		return n
	}
	if k.page {
		return l.planPage(k)
	}
	s := l.state(k.log)
	o := state.PlanOptions{Bytes: math.MaxInt64, Rows: k.rows, Before: math.MaxInt64, Group: 2, Large: math.MaxInt64, Skip: func(*state.Segment) bool { return false }}
	var plan *state.Plan
	if k.merge {
		plan = s.PlanMerge(o)
	} else {
		plan = s.PlanTail(o)
	}
	l.uploaded[k] = -1
	if plan == nil {
		return -1
	}
	n := len(l.uploads)
	u := segmentJob{key: k, ref: format.DataRef{Seq: s.Seq(), ID: uint64(n + 1), Size: 1000}}
	u.entry = &format.SegmentAdded{
		Ref: u.ref, Level: plan.Level, Through: plan.Through, Slot: plan.Slot,
		Table: format.TableRef{Pos: 900, IndexSize: 50}, First: format.CommitTime{Seq: 1}, Last: format.CommitTime{Seq: s.Seq(), Time: s.Time()},
	}
	for _, in := range plan.Inputs {
		u.entry.Inputs = append(u.entry.Inputs, in.Number)
	}
	left := 0
	for i, r := range plan.Ranges {
		if k.unread && i == 0 && len(r.Batches) > 0 {
			x := r.Batches[0]
			u.entry.Ranges = append(u.entry.Ranges, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: x.Base, End: x.End(), Stays: true})
			if r.Base = x.End(); r.Base == r.End {
				continue
			}
		}
		left++
		u.entry.Ranges = append(u.entry.Ranges, format.SegmentRange{
			Topic: r.Topic, Partition: r.Partition, Base: r.Base, End: r.End, Records: int64(r.End - r.Base), Bytes: int64(r.End - r.Base),
		})
	}
	if left == 0 {
		return -1 // nothing can be read
	}
	l.uploads = append(l.uploads, u)
	l.uploaded[k] = n
	return n
}

// inputs returns the objects that a compactor reads to make an upload: slots as bits, and uploads.
func (l *logs) inputs(log int, u *segmentJob) (slots uint64, segments []int) {
	s := l.state(log)
	t := s.TopicByID(theTopic)
	for _, r := range u.entry.Ranges {
		if r.Stays {
			continue
		}
		for o := max(r.Base, t.Partitions[r.Partition].Start); o < r.End; o++ {
			if x := objectOf(s.Locate(nil, t, r.Partition, o, 1, 1)[0]); x.Data {
				segments = append(segments, int(x.Tag-1))
			} else {
				slots |= 1 << x.Seq
			}
		}
	}
	return slots, segments
}

// objectOf returns the object that has a batch.
func objectOf(l state.Location) state.Object {
	if n := l.Segment; n != nil {
		return state.Object{Data: true, Seq: uint64(n.Ref.Seq), Tag: n.Ref.ID, Size: n.Ref.Size}
	}
	return l.Object
}

type mayKey struct{ log, now int }

// mayGo is what the collectors may delete that have applied a log, or a beginning of it.
type mayGo struct {
	slots uint64
	below format.Seq // checkpoints below it
	plans []*state.Collection
}

// upload reports whether an upload may be deleted.
func (m *mayGo) upload(u *segmentJob) bool {
	return slices.ContainsFunc(m.plans, func(x *state.Collection) bool { return goes(x, u) })
}

// goes reports whether a collection deletes an upload.
func goes(x *state.Collection, u *segmentJob) bool {
	key := state.DataKey{Seq: u.ref.Seq, ID: u.ref.ID}
	return u.ref.Seq < x.Floor && !x.Known[key] || slices.ContainsFunc(x.Data, func(r format.DataRef) bool { return r.ID == key.ID })
}

// slotsOf returns the commits that a collection deletes, if the store has all of them, as bits.
func slotsOf(x *state.Collection) (slots uint64) {
	for s := format.Seq(1); s < x.Collected.Bottom; s++ {
		if !x.Keep[s] {
			slots |= 1 << s
		}
	}
	return slots
}

// may returns what collectors may delete at a time.
func (l *logs) may(log, now int) *mayGo {
	k := mayKey{log, now}
	if m := l.mays[k]; m != nil {
		return m
	}
	m := &mayGo{}
	if log > 0 {
		*m = *l.may(l.logs[log].before, now)
	}
	l.mays[k] = m
	if plan := l.collection(log, now); plan != nil {
		m.slots, m.below, m.plans = m.slots|slotsOf(plan), max(m.below, plan.Collected.Slot), append(slices.Clip(m.plans), plan)
	}
	return m
}

// collection returns what a collector plans that has applied a log; its clock is ahead by the margin.
func (l *logs) collection(log, now int) *state.Collection {
	s := l.state(log)
	o := state.CollectOptions{
		Now: l.time(now + marginTicks), Delay: deleteTicks * tickMicros * time.Microsecond, Since: math.MaxInt64,
		Sight: func(format.Seq) int64 { return 0 },
	}
	if l.cfg.Without == NoAge {
		o.Now += 1000 * tickMicros
	}
	if l.cfg.Without == NewestIsOld && len(s.Seen()) > 0 {
		// As if another checkpoint was seen after the newest one.
		if err := l.apply(s, s.Time()+deleteTicks*tickMicros, &format.CheckpointSeen{Slot: s.Seq(), Bottom: s.Bottom()}); err != nil {
			panic(err)
		}
	}
	plan := s.PlanCollection(o)
	if plan == nil {
		return nil
	}
	switch l.cfg.Without {
	case OwnDead:
		plan.Data = nil
		for _, d := range s.Dead() {
			if d.Data {
				plan.Data = append(plan.Data, format.DataRef{Seq: format.Seq(d.Seq), ID: d.Tag})
			}
		}
	case OwnBottom:
		plan.Collected.Bottom = s.Bottom()
	case KeepNothing:
		clear(plan.Keep)
	case SweepDead:
		for _, d := range s.Dead() {
			delete(plan.Known, state.DataKey{Seq: format.Seq(d.Seq), ID: d.Tag})
		}
	case FloorUnsaid:
		plan.Floor = s.Seq()
		for o := range s.AllObjects() {
			if o.Data {
				plan.Known[state.DataKey{Seq: format.Seq(o.Seq), ID: o.Tag}] = true
			}
		}
	default: // the rule does not change a plan
	}
	return plan
}
