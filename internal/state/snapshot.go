package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// A snapshot is the body of a checkpoint. Numbers are varints (u: unsigned, z:
// zig-zag) unless a size in bytes is given:
//
//	1 byte   version: 5
//	u        the log's time in microseconds
//	u        id of the next topic
//	u        data floor
//	u u      index of the first object, number of objects; then for each
//	           1 byte   0 commit, 1 data object
//	           z        seq, minus the previous one
//	           8 bytes  tag
//	           u        size of the object
//	u        number of topics; then for each, by ascending id
//	           u        id
//	           u …      length of the name, name
//	           u        created, microseconds
//	           u u      retention in ms, in bytes (not in version 1)
//	           u        number of partitions; then for each
//	             u u      start, end
//	             z        largest timestamp of the last batch
//	             u        number of batches, and, if any, u the first one's base; then for each
//	               u        records
//	               z        largest timestamp, minus the previous one
//	               z        index of its object, minus the previous one
//	               u u      position in the object, size
//	               4 bytes  CRC-32C
//	u        number of appends with an idempotency key, in version 6 without those in pages; then for each, the oldest first
//	           z         the log's time in microseconds, minus the previous one
//	           16 bytes  hash of the key, its scope and the caller
//	           16 bytes  hash of the request
//	           u         number of ranges; then for each
//	             u u u     partition, records, base
//	u        id of the next API key
//	u        number of API keys; then for each, by ascending id
//	           u        id
//	           u u      created, expires (0: never), microseconds
//	           u        scopes
//	           16 32 32 bytes  salt, hash, public key
//	           u …      length of the name, name
//	           u        number of topic patterns; then for each u … length, pattern
//
//	u        id of the next consumer
//	u        number of consumers; then for each, by ascending id
//	           u u      id, topic
//	           u …      length of the name, name
//	           u u u    created, moved (microseconds), version
//	           u        number of positions, the last of which is not 0; then each: u
//
//	u        id of the next queue
//	u        number of queues; then for each, by ascending id
//	           u u      id, topic
//	           u …      length of the name, name
//	           u        created, microseconds
//	           u u u u  lease, shortest and longest backoff in ms; attempts
//	           1 byte   bit 0 ordered by key, bit 1 paused, bit 2 owned, bit 3 pushed
//	           u …      dead-letter topic
//	           u        epoch
//	           u …      the owner's address
//	           u        time of the last entry of the owner, microseconds
//	           if it is pushed
//	             u … u … u …  URL, secret, why the push was stopped
//	             u u      timeout in ms, most requests at a time
//	             u        number of headers; then for each, by name, u … u …: name, value
//	           u        number of partitions (in the last one, some value is not 0); then for each
//	             u        floor: all offsets below it are done
//	             u        number of runs of done records above floor; for each, by offset, u u: gap before it, records
//	             u u      dispatch limit, end of the uncertain range
//	             u        number of attempts; then for each, by offset
//	               u u u u  offset, number, number at the last redrive, earliest time of the next delivery (microseconds)
//	               1 byte   1: dead letter
//	               u …      reason
//	u        number of runs of delayed records; then for each, as sorted by compareDelayed
//	           u u u u u  due (minus the previous one), topic, partition, offset, records
//
//	u        number of sessions; then for each, the one named longest ago first
//	           32 bytes  public key
//	u        number of queues whose owner has named its session; then for each, by ascending id
//	           u         id
//	           32 bytes  public key
//
// Older versions end earlier: version 1 after the topics, version 2 after the API keys, version
// 3 after the consumers, version 4 after the delayed records. Topics in version 1 have no
// retention. Decode reads all versions. From the level [format.LevelSegments] on, a snapshot has the version 6:
// segmentsnapshot.go has what differs.
//
// A snapshot is canonical: equal states give equal bytes, whichever commits led to these
// states.
const snapshotVersion = 5

var errSnapshot = fmt.Errorf("snapshot: %w", format.ErrCorrupt)

// View is a copy of the state at the time of [State.View]. Callers may read the View while the
// state changes.
type View struct {
	seq          format.Seq
	time         int64
	nextTopic    format.TopicID
	dataFloor    format.Seq
	objects      objects
	topics       []Topic
	keyed        []Keyed // those that are in no page
	pages        []page
	keys         []*Key
	nextKey      format.KeyID
	consumers    []Consumer
	nextConsumer format.ConsumerID
	queues       []Queue
	nextQueue    format.QueueID
	delayed      delayed
	sessions     sessions
	segments     viewSegments
	spending     []Spending
}

// View returns a copy of the state. It copies the partitions, and what queues know about single
// records. It does not copy the batches, but shares them with the state.
func (s *State) View() *View {
	v := &View{
		seq: s.seq, time: s.time, nextTopic: s.topics.next, dataFloor: s.dataFloor,
		objects: s.objects, keyed: s.keyed.list[s.keyed.paged():], pages: s.keyed.pages, keys: s.Keys(), nextKey: s.keys.next,
		consumers: copiesByID(s.consumers.byID), nextConsumer: s.consumers.next,
		queues: s.viewQueues(), nextQueue: s.queues.next, delayed: slices.Clone(s.delayed), sessions: slices.Clone(s.sessions),
	}
	v.objects.chunks, v.objects.commits = slices.Clone(s.objects.chunks), slices.Clone(s.objects.commits)
	v.segments, v.spending = s.viewSegments(), s.CloneSpending()
	v.topics = copiesByID(s.topics.byID)
	for i := range v.topics {
		ps := slices.Clone(v.topics[i].Partitions)
		for j := range ps {
			ps[j].chunks = slices.Clone(ps[j].chunks)
		}
		v.topics[i].Partitions = ps
	}
	return v
}

// Seq returns the slot of the last applied commit.
func (v *View) Seq() format.Seq { return v.seq }

// Encode returns the view as a snapshot.
func (v *View) Encode() []byte {
	return v.appendSections(appendSessions(v.withoutSessions(), v.sessions, v.queues))
}

// withoutSessions returns the part of the snapshot before the sessions.
func (v *View) withoutSessions() []byte {
	if v.segments.level >= format.LevelSegments {
		return v.withSegments()
	}
	b := []byte{snapshotVersion}
	b = binary.AppendUvarint(b, uint64(v.time))
	b = binary.AppendUvarint(b, uint64(v.nextTopic))
	b = binary.AppendUvarint(b, uint64(v.dataFloor))

	b = binary.AppendUvarint(b, v.objects.first)
	b = binary.AppendUvarint(b, uint64(v.objects.count))
	var seq uint64
	for i := range v.objects.count {
		o := v.objects.entry(v.objects.first + uint64(i))
		b = append(b, byte(o.seq>>63))
		b = binary.AppendVarint(b, int64(o.seq&^dataBit-seq))
		b = binary.LittleEndian.AppendUint64(b, o.tag)
		b = binary.AppendUvarint(b, uint64(o.size))
		seq = o.seq &^ dataBit
	}

	return v.appendRest(b, appendPartition)
}

// appendRest appends what follows the objects, up to the sessions.
func (v *View) appendRest(b []byte, appendPartition func([]byte, *Partition) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(v.topics)))
	for i := range v.topics {
		t := &v.topics[i]
		b = binary.AppendUvarint(b, uint64(t.ID))
		b = binary.AppendUvarint(b, uint64(len(t.Name)))
		b = append(b, t.Name...)
		b = binary.AppendUvarint(b, uint64(t.Created))
		b = binary.AppendUvarint(b, uint64(t.Config.RetentionMS))
		b = binary.AppendUvarint(b, uint64(t.Config.RetentionBytes))
		b = binary.AppendUvarint(b, uint64(len(t.Partitions)))
		for j := range t.Partitions {
			b = appendPartition(b, &t.Partitions[j])
		}
	}
	b = appendKeys(appendKeyed(b, v.keyed), uint64(v.nextKey), v.keys)
	b = appendConsumers(b, uint64(v.nextConsumer), v.consumers)
	return appendDelayed(appendQueues(b, uint64(v.nextQueue), v.queues), v.delayed.sorted())
}

// Is reports whether body is a snapshot of the same state, in any supported version. It ignores
// sessions: old brokers write checkpoints without sessions, and a broker that starts from such
// a checkpoint does not know the sessions that were named earlier.
func (v *View) Is(body []byte) bool {
	s, err := Decode(v.seq, body)
	return err == nil && bytes.Equal(v.appendSections(v.withoutSessions()), s.View().appendSections(s.View().withoutSessions()))
}

func appendKeyed(b []byte, list []Keyed) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	var before int64
	for i := range list {
		k := &list[i]
		b = binary.AppendVarint(b, k.Time-before)
		before = k.Time
		b = append(append(b, k.Key[:]...), k.Print[:]...)
		b = binary.AppendUvarint(b, uint64(len(k.Ranges)))
		for _, r := range k.Ranges {
			b = binary.AppendUvarint(b, uint64(r.Partition))
			b = binary.AppendUvarint(b, uint64(r.Count))
			b = binary.AppendUvarint(b, uint64(r.Base))
		}
	}
	return b
}

func appendPartition(b []byte, p *Partition) []byte {
	count := 0
	for _, c := range p.chunks {
		count += len(c.batches)
	}
	b = binary.AppendUvarint(b, uint64(p.Start))
	b = binary.AppendUvarint(b, uint64(p.End))
	b = binary.AppendVarint(b, p.MaxTime)
	b = binary.AppendUvarint(b, uint64(count))
	if count == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(p.chunks[0].batches[0].base))
	return appendTail(b, p, func(index uint64) uint64 { return index })
}

// appendTail appends the batches of a partition's tail. number returns the number by which the snapshot names an object.
func appendTail(b []byte, p *Partition, number func(index uint64) uint64) []byte {
	var before uint64
	var maxTime int64
	for ci, c := range p.chunks {
		for bi, x := range c.batches {
			n := number(c.object + uint64(x.object))
			b = binary.AppendUvarint(b, uint64(p.endOf(ci, bi)-x.base))
			b = binary.AppendVarint(b, x.maxTime-maxTime)
			b = binary.AppendVarint(b, int64(n-before))
			b = binary.AppendUvarint(b, uint64(x.pos))
			b = binary.AppendUvarint(b, uint64(x.size))
			b = binary.LittleEndian.AppendUint32(b, x.crc)
			maxTime, before = x.maxTime, n
		}
	}
	return b
}

// Decode decodes a snapshot of the state at slot seq. It returns an error for any other bytes. If the snapshot refers to pages, no
// commit can be applied to the state before [State.ReadPages].
func Decode(seq format.Seq, body []byte) (*State, error) {
	r := reader{b: body}
	s := New()
	s.seq = seq
	version := r.byte()
	if version == 0 || version > segmentsVersion {
		return nil, fmt.Errorf("%w: snapshot version is %d, this seb reads 1 to %d", format.ErrVersion, version, segmentsVersion)
	}
	if version == segmentsVersion {
		s.level = uint32(r.max(math.MaxUint32))
		if r.err == nil && s.level != format.LevelSegments {
			return nil, fmt.Errorf("%w: the log has the level %d, this seb reads only up to %d", format.ErrVersion, s.level, format.LevelSegments)
		}
	}
	s.time = r.int64()
	s.topics.next = format.TopicID(r.uvarint())
	s.dataFloor = format.Seq(r.uvarint())
	if version == segmentsVersion {
		s.decodeSegments(&r)
	} else {
		s.decodeObjects(&r)
	}
	for range r.count(5) {
		s.decodeTopic(&r, version)
		if r.err != nil {
			break
		}
	}
	if version > 1 {
		s.decodeKeyed(&r)
		s.keys.decode(&r, 80, decodeKey, s.putKey)
	}
	if version > 2 {
		s.consumers.decode(&r, 8, s.decodeConsumer, s.putConsumer)
	}
	if version > 3 {
		s.queues.decode(&r, 15, s.decodeQueue, s.putQueue)
		s.decodeDelayed(&r)
	}
	if version > 4 {
		s.decodeSessions(&r)
	}
	if version == segmentsVersion {
		s.decodeSections(&r)
		s.checkSegments(&r)
	}
	if len(r.b) != 0 {
		r.fail("%d bytes follow after the end of the snapshot", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

func (s *State) decodeObjects(r *reader) {
	s.objects.first = r.uvarint()
	var seq uint64
	for range r.count(11) {
		kind := r.byte()
		seq += uint64(r.varint())
		x := Object{Data: kind == 1, Seq: seq, Tag: r.fixed64(), Size: uint32(r.max(1<<32 - 1))}
		if kind > 1 || seq&dataBit != 0 {
			r.fail("an object has the invalid kind %d or number %d", kind, seq)
		}
		if r.err != nil {
			return
		}
		s.objects.add(x, format.CommitTime{})
	}
	s.memory += s.objects.memory(s.level)
}

func (s *State) decodeTopic(r *reader, version byte) {
	t := &Topic{ID: format.TopicID(r.uvarint())}
	t.Name = string(r.bytes(r.count(1)))
	t.Created = r.int64()
	if version > 1 {
		t.Config = format.TopicConfig{RetentionMS: r.int64(), RetentionBytes: r.int64()}
	}
	n := r.count(4)
	if r.err == nil && (t.ID >= s.topics.next || t.Name == "" || n == 0 || s.TopicByID(t.ID) != nil || s.Topic(t.Name) != nil) {
		r.fail("topic %d %q with %d partitions is invalid or repeated", t.ID, t.Name, n)
	}
	if r.err != nil {
		return
	}
	t.Partitions = make([]Partition, n)
	s.putTopic(t)
	for i := range t.Partitions {
		if version == segmentsVersion {
			s.decodeSegmentsPartition(r, &t.Partitions[i])
		} else {
			s.decodePartition(r, &t.Partitions[i])
		}
	}
}

func (s *State) decodePartition(r *reader, p *Partition) {
	p.Start, p.End = format.Offset(r.int64()), format.Offset(r.int64())
	p.MaxTime = r.varint()
	count := r.count(9)
	if count == 0 {
		if p.Start != p.End {
			r.fail("a partition from offset %d to %d has no batch", p.Start, p.End)
		}
		return
	}
	base := format.Offset(r.int64())
	if base > p.Start {
		r.fail("a partition starts at offset %d, but its first batch at %d", p.Start, base)
	}
	s.decodeTail(r, p, base, count)
}

// decodeTail reads the batches of a partition's tail.
func (s *State) decodeTail(r *reader, p *Partition, base format.Offset, count int) {
	var index uint64
	var maxTime int64
	for range count {
		records := int64(r.max(1<<32 - 1))
		maxTime += r.varint()
		index += uint64(r.varint())
		b := batch{base: base, maxTime: maxTime, pos: uint32(r.max(1<<32 - 1)), size: uint32(r.max(1<<32 - 1)), crc: r.fixed32()}
		if records == 0 || base+format.Offset(records) < base || index < s.objects.first || index >= s.objects.next() {
			r.fail("a batch has the invalid count %d, offset %d or object %d", records, base, index)
		}
		if r.err != nil {
			return
		}
		s.push(p, index, b)
		base += format.Offset(records)
	}
	if base != p.End || p.Start > p.End {
		r.fail("a partition goes from offset %d to %d, but its batches end at %d", p.Start, p.End, base)
	}
}

func (s *State) decodeKeyed(r *reader) {
	list := r.keyedList()
	for i := range list {
		s.rememberKeyed(r, &list[i])
	}
}

// rememberKeyed adds an append of a snapshot or a page to those that the state remembers.
func (s *State) rememberKeyed(r *reader, k *Keyed) {
	before := int64(0)
	if n := len(s.keyed.list); n > 0 {
		before = s.keyed.list[n-1].Time
	}
	if _, twice := s.keyed.index[k.Key]; twice || k.Time < before || k.Time > s.time || k.expired(s.time) {
		r.fail("an append with an idempotency key is repeated, or has the invalid time %d", k.Time)
	}
	if r.err == nil {
		s.addKeyed(*k)
	}
}

// keyedList reads what appendKeyed has written.
func (r *reader) keyedList() (list []Keyed) {
	var before int64
	count := r.count(keyedSizeMin)
	list = make([]Keyed, 0, count)
	for range count {
		k := Keyed{Time: before + r.varint()}
		copy(k.Key[:], r.bytes(len(k.Key)))
		copy(k.Print[:], r.bytes(len(k.Print)))
		for range r.count(3) {
			x := format.KeyedRange{Partition: format.Partition(r.max(math.MaxInt32)), Count: uint32(r.max(1<<32 - 1)), Base: format.Offset(r.int64())}
			if x.Count == 0 || x.Base+format.Offset(x.Count) < 0 {
				r.fail("a range of an append with an idempotency key has the invalid count %d or offset %d", x.Count, x.Base)
			}
			k.Ranges = append(k.Ranges, x)
		}
		if r.err != nil {
			return nil
		}
		list = append(list, k)
		before = k.Time
	}
	return list
}

// reader reads values from the front of b, and cuts them off. After the first error, all
// methods return zeros, so callers need to check err only once.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{errSnapshot}, args...)...)
	}
	r.b = nil
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail("the snapshot ends too early")
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// text reads a length, then a string of that many bytes.
func (r *reader) text() string { return string(r.bytes(r.count(1))) }

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) fixed32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) fixed64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("a number is cut off or too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("a number is cut off or too large")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// max reads a number. A number above most is an error.
func (r *reader) max(most uint64) uint64 {
	v := r.uvarint()
	if v > most {
		r.fail("a number is %d; at most %d is allowed", v, most)
		return 0
	}
	return v
}

func (r *reader) int64() int64 { return int64(r.max(1<<63 - 1)) }

// count reads the number of elements that follow, each of which takes at least size bytes. It
// refuses a number of elements that can't fit into the rest of the snapshot. Otherwise a
// damaged number could make a broker allocate all memory.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.fail("%d elements of at least %d bytes each don't fit into the %d bytes that are left", n, size, len(r.b))
		return 0
	}
	return int(n)
}
