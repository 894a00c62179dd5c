package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// truth has every topic that was ever created, by id. It is built from the commits that were the first in
// their slots and from their data objects, even if these objects were deleted later.
type truth map[format.TopicID]*incarnation

// recreated returns how many topics have the name of an earlier topic.
func (all truth) recreated() int {
	names := map[string]bool{}
	for _, in := range all {
		names[in.name] = true
	}
	return len(all) - len(names)
}

// incarnation is a topic from its creation to its end.
type incarnation struct {
	name       string
	partitions []partition
	configs    []int64       // each retention in bytes that the topic had
	age        time.Duration // the topic's retention by age
	deleted    bool
	deletedIn  format.Seq                      // the slot of its deletion; 0 if it exists
	consumers  map[format.ConsumerID]*consumer // by id, deleted ones included
	queues     map[format.QueueID]*work        // by id, deleted ones included
	delayed    map[spot]delaying
}

// partition is the history of a partition: all records that it ever had, by offset, and its start offset after
// each deletion of records.
type partition struct {
	ids    []string
	info   []recordInfo // of each record
	starts []seb.Offset

	addedIn format.Seq // the slot that created the partition
}

// recordInfo is the key of a record, and when the record came into the log.
type recordInfo struct {
	key  string // "" without a key
	at   moment
	time int64 // the log's time in microseconds since 1970
}

// moment is the time at which a commit came into the log, and its slot.
type moment struct {
	time.Duration
	seq format.Seq
}

// added notes that a slot created the partitions from first on.
func (in *incarnation) added(first int, slot format.Seq) {
	for i := range in.partitions[first:] {
		in.partitions[first+i].addedIn = slot
	}
}

func (p *partition) start() seb.Offset {
	if n := len(p.starts); n > 0 {
		return p.starts[n-1]
	}
	return 0
}

// replay applies, in order, the commits that were the first in their slots. After each commit, it compares the
// state with the checkpoint of that slot, if there ever was such a checkpoint.
func (s *simulation) replay() (*log, error) {
	st, all := state.New(), truth{}
	var hash format.Hash
	for q := format.Seq(1); ; q++ {
		body := s.bucket.original(format.LogKey(q))
		if body == nil {
			s.checkLiveObjects(st)
			return newLog(all, st), s.noneAbove(q)
		}
		c, err := format.DecodeCommit(body)
		if err != nil {
			return nil, fmt.Errorf("slot %d: %w", q, err)
		}
		if c.Seq != q || c.Prev != hash {
			return nil, fmt.Errorf("slot %d holds a commit for slot %d after %v; the head before it has %v", q, c.Seq, c.Prev, hash)
		}
		if err := st.Apply(c); err != nil {
			return nil, fmt.Errorf("slot %d: %w", q, err)
		}
		if err := s.tell(all, c, body); err != nil {
			return nil, fmt.Errorf("slot %d: %w", q, err)
		}
		hash = c.Hash
		if body := s.bucket.original(format.CheckpointKey(q)); body != nil {
			k, err := format.DecodeCheckpoint(body)
			if err != nil {
				return nil, fmt.Errorf("checkpoint %d: %w", q, err)
			}
			if k.Hash != hash || string(k.Body) != string(st.View().Encode()) {
				return nil, fmt.Errorf("checkpoint %d differs from the state after a replay of slots 1 to %d", q, q)
			}
			if err := s.checkPages(k, st); err != nil {
				return nil, fmt.Errorf("checkpoint %d: %w", q, err)
			}
		}
	}
}

// checkPages expects that the state of a checkpoint, with the pages to which it refers, remembers the same idempotency keys as the state
// after a replay.
func (s *simulation) checkPages(k *format.Checkpoint, want *state.State) error {
	got, err := state.Decode(k.Seq, k.Body)
	if err != nil {
		return err
	}
	var bodies [][]byte
	for _, p := range got.Pages() {
		object := s.bucket.original(p.Ref.Key())
		if len(object) != int(p.Ref.Size) {
			return fmt.Errorf("%s has %d bytes instead of %d", p.Ref.Key(), len(object), p.Ref.Size)
		}
		bodies = append(bodies, object[p.Pos:])
	}
	if err := got.ReadPages(bodies); err != nil {
		return err
	}
	if !bytes.Equal(got.KeyedSection(), want.KeyedSection()) {
		return errors.New("other idempotency keys are remembered than after a replay")
	}
	return nil
}

// noneAbove expects no slot at or above q to exist.
func (s *simulation) noneAbove(q format.Seq) error {
	slots, err := s.bucket.seqs(format.LogPrefix)
	if n := len(slots); n > 0 && slots[n-1] >= q {
		return fmt.Errorf("slot %d has a commit, but slot %d never had one", slots[n-1], q)
	}
	return err
}

// tell adds a commit to the truth. The caller has already applied the commit to the state.
func (s *simulation) tell(all truth, c *format.Commit, object []byte) error {
	at := moment{s.bucket.visible(format.LogKey(c.Seq)).Sub(s.begun), c.Seq}
	dead := &deadLetters{sim: s}
	for _, entry := range c.Entries {
		switch x := entry.(type) {
		case *format.TopicCreated:
			all[x.ID] = &incarnation{name: x.Name, partitions: make([]partition, x.Partitions), consumers: map[format.ConsumerID]*consumer{}, queues: map[format.QueueID]*work{}, delayed: map[spot]delaying{}}
			all[x.ID].added(0, c.Seq)
		case *format.PartitionsAdded:
			t, had := all[x.Topic], len(all[x.Topic].partitions)
			t.partitions = append(t.partitions, make([]partition, int(x.Partitions)-had)...)
			t.added(had, c.Seq)
		case *format.TopicConfigured:
			in := all[x.Topic]
			in.age, in.configs = time.Duration(x.Config.RetentionMS)*time.Millisecond, append(in.configs, x.Config.RetentionBytes)
		case *format.TopicDeleted:
			all[x.ID].deleted, all[x.ID].deletedIn = true, c.Seq
			all[x.ID].endQueues(at)
		case *format.StartMoved:
			p := &all[x.Topic].partitions[x.Partition]
			s.tellRetention(all[x.Topic], p, x.Start, at, c.Time)
			p.starts = append(p.starts, x.Start)
			for _, w := range all[x.Topic].queues {
				w.pass(int(x.Partition), x.Start, at)
			}
		case *format.PageStored:
			s.pages++
		case *format.ConsumerCreated:
			all[x.Topic].consumers[x.ID] = &consumer{name: x.Name}
		case *format.PositionsMoved:
			in := all.topicOf(x.Consumer)
			in.consumers[x.Consumer].move(x, in)
		case *format.ConsumerDeleted:
			all.topicOf(x.ID).consumers[x.ID].deleted = true
		case *format.Batch:
			from, pos := object, c.PayloadStart+x.Pos
			if x.Object > 0 {
				from, pos = s.bucket.original(c.Data[x.Object-1].Key()), format.DataPayloadStart+x.Pos
			}
			if len(from) < int(pos)+int(x.Size) {
				return fmt.Errorf("a batch of %[2]d bytes begins at byte %[1]d of an object of %[3]d bytes", pos, x.Size, len(from))
			}
			if err := s.tellBatch(&all[x.Topic].partitions[x.Partition], from[pos:pos+x.Size], at, c.Time, dead); err != nil {
				return fmt.Errorf("%s/%d: %w", all[x.Topic].name, x.Partition, err)
			}
		default:
			s.tellQueue(all, entry, at, c.Time, dead)
		}
	}
	dead.check(at)
	return nil
}

func (s *simulation) tellBatch(p *partition, raw []byte, at moment, time int64, dead *deadLetters) error {
	head, err := record.Parse(raw)
	if err != nil {
		return err
	}
	if !head.Dense() {
		return fmt.Errorf("an appended batch has %d records in %d offsets", head.Count, head.Span)
	}
	for r, err := range head.Records(raw, int64(len(p.ids)), record.Limits{}) {
		if err != nil {
			return err
		}
		id, ok := s.history.identify(string(r.Value))
		if !ok {
			return fmt.Errorf("%.40q is at %d, which nobody sent", r.Value, r.Offset)
		}
		p.ids, p.info = append(p.ids, dead.name(id, r.Headers)), append(p.info, recordInfo{string(r.Key), at, time})
	}
	return nil
}

// checkWhole expects the log in the bucket to be sound. A commit that was written again after its deletion may be that of a broker
// that lost the slot; fsck takes it for damage.
func (s *simulation) checkWhole() {
	if s.bucket.ghosts > 0 {
		return
	}
	r, err := fsck.Check(context.Background(), s.bucket.Memory, fsck.Options{Deep: true})
	if err != nil {
		s.history.violate("NothingLost", "the log in the bucket can't be checked: %v", err)
		return
	}
	for _, f := range r.Findings {
		if f.Class.Damage() {
			s.history.violate("NothingLost", "%v %+v", f.Class, f)
		}
	}
}

// verifyBucket compares what the bucket holds with what a broker recovers from it.
func (s *simulation) verifyBucket() {
	final, err := s.replay()
	if err != nil {
		s.history.violate("Determinism", "%v", err)
		return
	}
	s.checkWhole()
	b, err := seb.Open(context.Background(), s.bucket, kit.InVirtualTime(s.plan.options(stream(s.cfg.Seed, "last"))))
	if err != nil {
		s.history.violate("LossIsLoud", "the bucket can't be opened in the end: %v", err)
		return
	}
	all := final.all
	s.final = final
	topics, err := seb.Collect(b.Topics(context.Background(), seb.ListOptions{}))
	if err != nil {
		s.history.violate("LossIsLoud", "a recovery at the end of the run can't list the topics: %v", err)
	}
	for _, t := range topics {
		if !all[t.ID].matches(t) {
			s.history.violate("TopicAsAsked", "a recovery at the end of the run has %s with %d partitions and %+v; by the log it has %d partitions, and had the configs %v",
				t.Name, len(t.Partitions), t.Config, len(all[t.ID].partitions), all[t.ID].configs)
			continue
		}
		for i, p := range t.Partitions {
			at, want := place{t.Name, i}, &all[t.ID].partitions[i]
			if err := s.compare(b, at, p, want); err != nil {
				s.history.violate("LossIsLoud", "a recovery at the end of the run can't read everything of %v: %v", at, err)
			}
		}
		s.compareConsumers(b, t.Name, all[t.ID])
		s.compareQueues(b, t.Name, all[t.ID])
	}
	keys, err := seb.Collect(b.Keys(context.Background(), 0))
	same := err == nil && len(keys) == len(final.keys)
	for _, k := range keys {
		same = same && final.keys[k.ID]
	}
	if !same {
		s.history.violate("KeyAsAsked", "a recovery at the end of the run has the API keys %v (%v), want %v", keys, err, final.keys)
	}
	if err := b.Close(); err != nil {
		s.history.violate("Liveness", "close: %v", err)
	}
}

// matches reports whether a topic is as the commits left it.
func (in *incarnation) matches(t seb.Topic) bool {
	var config int64
	if n := len(in.configs); n > 0 {
		config = in.configs[n-1]
	}
	return !in.deleted && in.name == t.Name && len(in.partitions) == len(t.Partitions) && t.Config == seb.TopicConfig{Retention: in.age, RetentionBytes: config}
}

// log is the content of the bucket's log.
type log struct {
	all        truth
	partitions map[place]*partition  // of all existing topics
	keys       map[format.KeyID]bool // the API keys in force
	segments   int                   // that the log ever had
	merged     int                   // segments that the log has, and that are made of other segments
}

func newLog(all truth, st *state.State) *log {
	l := &log{all: all, partitions: map[place]*partition{}, keys: map[format.KeyID]bool{}, segments: st.SegmentsAdded()}
	for _, n := range st.Segments() {
		if n.Level > 1 {
			l.merged++
		}
	}
	for _, k := range st.Keys() {
		l.keys[k.ID] = true
	}
	for _, in := range all {
		for i := range in.partitions {
			if !in.deleted {
				l.partitions[place{in.name, i}] = &in.partitions[i]
			}
		}
	}
	return l
}

// ids returns the ids of all records that a partition ever held.
func (l *log) ids(p place) []string {
	if x := l.partitions[p]; x != nil {
		return x.ids
	}
	return nil
}

// compare expects a recovered broker to know the partition as the commits left it.
func (s *simulation) compare(b *seb.Broker, at place, p seb.Partition, want *partition) error {
	if p.Start != want.start() || int(p.End) != len(want.ids) {
		s.history.violate("AckDurable", "%v has offsets %d to %d after a recovery, want %d to %d", at, p.Start, p.End, want.start(), len(want.ids))
	}
	next := p.Start
	for r, err := range b.Read(context.Background(), at.topic, int32(at.partition), seb.Earliest) {
		if err != nil {
			return err
		}
		id, ok := s.history.identify(string(r.Value))
		if at.topic == dead {
			id += deadLetterSuffix
		}
		if r.Offset != next || !ok || int(next) >= len(want.ids) || id != want.ids[next] {
			s.history.violate("DenseOffsets", "%v has %.40q at offset %d, want offset %d next", at, r.Value, r.Offset, next)
			return nil
		}
		next++
	}
	if int(next) != len(want.ids) {
		s.history.violate("AckDurable", "%v can be read up to offset %d, want %d", at, next, len(want.ids))
	}
	return nil
}
