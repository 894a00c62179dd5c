package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Retention deletes the oldest records of a topic, by age and by size. What is over is decided here, from the state alone. Only
// which records of one segment are over, the segment's table of locations says: see [Expiry.Edge].
//
// The age of a record counts from its commit, by the log's time: timestamps are set by those who append. The size counts as stored.
// Records may be a little older, and a partition a little larger, than the topic's config says. Otherwise each commit would be
// followed by another one that deletes a few records.

// Front is what a broker has read about the front of a partition in a table of locations. It holds as long as the partition
// starts at Start, and Segment has that offset.
type Front struct {
	Start   format.Offset
	Segment uint64
	Time    int64 // the log's time, in microseconds, of the commit that appended the record at Start, or the first record after it
	Dead    int64 // bytes of the segment's batches that lie wholly before Start
	Size    int64 // bytes of the batch that has Start, or of the first one after it
}

// RetentionOptions say what a broker knows beside the state.
type RetentionOptions struct {
	Now int64 // the store's time in microseconds since 1970
	// SlackMin and SlackMax bound how much older than a topic's retention records may become: a twentieth of it.
	SlackMin, SlackMax time.Duration
	Front              func(format.TopicID, format.Partition) Front
}

// Expiry is what retention says about a partition.
type Expiry struct {
	Topic       format.TopicID
	Partition   format.Partition
	Config      format.TopicConfig // by which records are over
	From, Start format.Offset      // the records from the partition's start From up to Start are over

	// Edge is the segment that has the records from Start on, if it may be that some of them are over; else nil. The segment has the
	// offsets from Base to End-1 of the partition, Base being the first offset of a batch. Records of commits up to the time Before
	// are over, and so are the first batches as long as they have Excess bytes together.
	Edge      *Segment
	Base, End format.Offset
	Before    int64
	Excess    int64
	bytes     int64 // of the partition, if some records are over only because of the size

	// Oldest is the log's time of the commit that appended the oldest record, or earlier: a segment says only what its own oldest
	// record is, until its table of locations was read. It is 0 if the partition has no records.
	Oldest int64
	// Due is the time from which on what is over because of its age should be deleted, as far as the state knows; 0 if the topic has
	// no such limit, or a queue holds what is over.
	Due int64
	// Full says that the partition is so large that records should be deleted now.
	Full bool
	// Queue is a queue that holds records that are over: it has neither done them nor copied them to a dead-letter topic.
	Queue *Queue
}

// slackShare: records may be 1/slackShare older, and a partition 1/slackShare larger, than a topic keeps.
const slackShare = 20

// limited returns the topics whose records are deleted by age or by size, sorted by id. Below [format.LevelSegments] it returns
// nothing, since the log does not know when records were committed.
func (s *State) limited() (topics []*Topic) {
	for _, t := range s.topics.byID {
		if s.level >= format.LevelSegments && t.limits() {
			topics = append(topics, t)
		}
	}
	slices.SortFunc(topics, func(a, b *Topic) int { return cmp.Compare(a.ID, b.ID) })
	return topics
}

// limits reports whether records of the topic are deleted because of their age, or the topic's size.
func (t *Topic) limits() bool {
	return !t.Dormant && (t.Config.RetentionMS > 0 || t.Config.RetentionBytes > 0)
}

// ShortestRetention returns the shortest age up to which a topic keeps records; 0 if no topic has such a limit.
func (s *State) ShortestRetention() (shortest time.Duration) {
	for _, t := range s.limited() {
		if age := time.Duration(t.Config.RetentionMS) * time.Millisecond; age > 0 && (shortest == 0 || age < shortest) {
			shortest = age
		}
	}
	return shortest
}

// Expiries returns what retention says about the partitions of the topics that don't keep all records: by topic id, then by
// partition.
func (s *State) Expiries(o RetentionOptions) (xs []Expiry) {
	for _, t := range s.limited() {
		xs = append(xs, s.ExpiriesOf(t, o)...)
	}
	return xs
}

// ExpiriesOf returns what retention says about the partitions of a topic; nothing if the topic keeps all records.
func (s *State) ExpiriesOf(t *Topic, o RetentionOptions) (xs []Expiry) {
	if s.level < format.LevelSegments || !t.limits() {
		return nil
	}
	queues := s.Queues(t.ID)
	for i := range t.Partitions {
		xs = append(xs, s.expiry(t, format.Partition(i), queues, o))
	}
	return xs
}

func (s *State) expiry(t *Topic, partition format.Partition, queues []*Queue, o RetentionOptions) Expiry {
	p := &t.Partitions[partition]
	x := Expiry{Topic: t.ID, Partition: partition, Config: t.Config, From: p.Start, Start: p.Start, Before: math.MinInt64}
	if p.Start == p.End {
		return x
	}
	f := o.Front(t.ID, partition)
	if parts := p.parts(); f.Start != p.Start || len(parts) == 0 || parts[0].segment != f.Segment {
		f = Front{}
	}
	x.Oldest = cmp.Or(f.Time, s.frontTime(p))
	if age := time.Duration(t.Config.RetentionMS) * time.Millisecond; age > 0 {
		x.Before = o.Now - age.Microseconds()
		x.Due = x.Oldest + age.Microseconds() + min(max(age/slackShare, o.SlackMin), o.SlackMax).Microseconds()
	}
	byAge := x
	if s.walkParts(p, &byAge, f) {
		s.walkTail(p, &byAge)
	}
	most := t.Config.RetentionBytes
	if most == 0 || p.Bytes <= most {
		x = byAge
	} else {
		x.Excess, x.bytes = p.Bytes-most, p.Bytes
		full := x.Excess-f.Dead > most/slackShare
		if s.walkParts(p, &x, f) {
			s.walkTail(p, &x)
		}
		x.Full = full && (x.Start > byAge.Start || x.Edge != nil && (f == Front{} || f.Size <= x.Excess-f.Dead))
		if x.Start == byAge.Start && x.Edge == nil {
			x.bytes = 0
		}
	}
	// A queue may hold what is over. Whether anything in a segment is over is not known before its table was read.
	hold, q := queueHold(t, partition, queues)
	if q != nil && (hold < x.Start || hold == p.Start && x.Edge != nil && f != Front{}) {
		x.Start, x.Edge, x.Queue = hold, nil, q
		if hold == p.Start {
			x.Due, x.Full = 0, false
		}
	}
	return x
}

// frontTime returns the log's time of the commit that appended the first record of a partition; of a record in a segment, that of
// the segment's first commit.
func (s *State) frontTime(p *Partition) int64 {
	if len(p.parts()) > 0 {
		first, _ := s.partTimes(p, p.parts()[0])
		return first
	}
	c := &p.chunks[0]
	return s.objects.commitOf(c.object+uint64(c.batches[0].object), s.raised).Time
}

// partTimes returns the log's times of the first and the last commit that the segment of a part has records of.
func (s *State) partTimes(p *Partition, x part) (first, last int64) {
	if n := s.segment(x.segment); n != nil {
		return n.First.Time, n.Last.Time
	}
	at := p.stay(x.base).Commit.Time
	return at, at
}

// walkParts moves x.Start past the parts that are over. If it finds one that is perhaps over in part, it sets x.Edge. It reports
// whether all parts are over.
func (s *State) walkParts(p *Partition, x *Expiry, f Front) bool {
	for i, part := range p.parts() {
		first, last := s.partTimes(p, part)
		if i == 0 {
			first = max(first, f.Time)
		}
		if last > x.Before && part.bytes > x.Excess {
			if part.segment != 0 && (first <= x.Before || x.Excess > 0) {
				x.Edge, x.Base, x.End = s.segment(part.segment), part.base, p.partEnd(i)
			}
			return false
		}
		x.Start, x.Excess = p.partEnd(i), x.Excess-part.bytes
	}
	return true
}

// walkTail moves x.Start past the batches of the tail that are over.
func (s *State) walkTail(p *Partition, x *Expiry) {
	for ci, c := range p.chunks {
		for bi, b := range c.batches {
			at := s.objects.commitOf(c.object+uint64(b.object), s.raised).Time
			if at > x.Before && int64(b.size) > x.Excess {
				return
			}
			x.Start, x.Excess = p.endOf(ci, bi), x.Excess-int64(b.size)
		}
	}
}

// stay returns the batch of a part that is in no segment.
func (p *Partition) stay(base format.Offset) *Location {
	for i := range p.stays() {
		if y := &p.stays()[i]; y.Base >= base {
			return y
		}
	}
	panic("state: a part without a segment has no batch")
}

// queueHold returns the first record of a partition that one of the topic's queues has not done, and that queue; nil if the topic
// has no queue, or gives up what its queues have not done.
func queueHold(t *Topic, partition format.Partition, queues []*Queue) (hold format.Offset, holder *Queue) {
	if t.Config.PastQueues {
		return 0, nil
	}
	for _, q := range queues {
		if next := q.NextUndone(partition, t.Partitions[partition].Start); holder == nil || next < hold {
			hold, holder = next, q
		}
	}
	return hold, holder
}

// Expire returns the entry that moves the start of a partition to what an [Expiry] says, as far as that holds for the draft; nil if
// it does not: if the topic is gone or has another config, if a queue needs the records, or if they are deleted already.
func (d *Draft) Expire(x *Expiry) *format.StartMoved {
	t, now := d.s.topics.byID[x.Topic], d.topic(x.Topic)
	if t == nil || now == nil || now.config != x.Config || d.createsQueue(x.Topic) {
		return nil
	}
	if p := &t.Partitions[x.Partition]; p.Bytes < x.bytes {
		return nil // meanwhile, records were deleted, or compaction has made them smaller
	}
	start := x.Start
	if hold, q := queueHold(t, x.Partition, d.s.Queues(x.Topic)); q != nil {
		start = min(start, hold)
	}
	if start <= d.Start(x.Topic, x.Partition) {
		return nil
	}
	return &format.StartMoved{Topic: x.Topic, Partition: x.Partition, Start: start}
}

// Passed says how many records that a queue has not done are deleted.
type Passed struct {
	Topic, Queue string
	Partition    format.Partition
	Records      int64
}

// Passed returns which queues lose records if the start of a partition moves.
func (d *Draft) Passed(to *format.StartMoved) (lost []Passed) {
	t := d.s.topics.byID[to.Topic]
	from := d.Start(to.Topic, to.Partition)
	for _, q := range d.s.Queues(to.Topic) {
		done := &q.part(to.Partition).done
		if n := int64(to.Start-from) - (done.count(from) - done.count(to.Start)); n > 0 {
			lost = append(lost, Passed{t.Name, q.Name, to.Partition, n})
		}
	}
	return lost
}

// createsQueue reports whether the commit creates a queue of a topic: such a queue may need all records.
func (d *Draft) createsQueue(topic format.TopicID) bool {
	for _, q := range d.queues.changed {
		if q != nil && q.base == nil && q.topic == topic {
			return true
		}
	}
	return false
}

func (d *Draft) takeQueuesPassed(x *format.QueuesPassed) error {
	t := d.topic(x.Topic)
	if d.Level() < format.LevelSegments || t == nil {
		return fmt.Errorf("%w: at level %d of the log, an entry about what retention deletes of topic %d", ErrNonsense, d.Level(), x.Topic)
	}
	config := t.config
	config.PastQueues = x.PastQueues
	d.topics.put(x.Topic, &draftTopic{partitions: t.partitions, config: config})
	return nil
}

// Flags of topics in a snapshot.
const (
	topicPastQueues = 1 << iota
	topicDormant
	topicFlags // all flags are below
)

func (t *Topic) flags() (flags uint64) {
	if t.Config.PastQueues {
		flags |= topicPastQueues
	}
	if t.Dormant {
		flags |= topicDormant
	}
	return flags
}

// topicFlagsSection returns the section of the snapshot with the flags of the topics that have any.
func (v *View) topicFlagsSection() []byte {
	var flagged []*Topic
	for i := range v.topics {
		if t := &v.topics[i]; t.flags() != 0 {
			flagged = append(flagged, t)
		}
	}
	b := binary.AppendUvarint(nil, uint64(len(flagged)))
	for _, t := range flagged {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.ID)), t.flags())
	}
	return b
}

// decodeTopicFlags reads the section, and reports whether it has something.
func (s *State) decodeTopicFlags(r *reader) bool {
	n := r.count(2)
	var last format.TopicID
	for i := 0; i < n && r.err == nil; i++ {
		id, flags := format.TopicID(r.uvarint()), r.uvarint()
		t := s.topics.byID[id]
		if r.err == nil && (id <= last || t == nil || flags == 0 || flags >= topicFlags) {
			r.fail("topic %d does not exist, is listed twice, or has the invalid flags %#x", id, flags)
		}
		if r.err != nil {
			return false
		}
		t.Config.PastQueues, t.Dormant, last = flags&topicPastQueues != 0, flags&topicDormant != 0, id
	}
	return n > 0
}

// makeDormant is called when the level of the log is raised. Brokers have not applied any limits before, and earlier versions called
// the size a minimum. So the limits that topics have now delete nothing before somebody sets them again.
func (s *State) makeDormant() {
	for _, t := range s.topics.byID {
		t.Dormant = t.Config.RetentionMS > 0 || t.Config.RetentionBytes > 0
	}
}

// Dormant reports whether brokers don't apply the limits of an existing topic: see [Topic].
func (d *Draft) Dormant(topic format.TopicID) bool {
	t := d.s.topics.byID[topic]
	return t != nil && (t.Dormant || d.raised && t.limits())
}
