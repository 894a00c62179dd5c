package state

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// modelQueues is a simple implementation of the fold for queues, record by record.
type modelQueues struct {
	byID    map[format.QueueID]*modelQueue
	delayed []Delayed
}

type modelQueue struct {
	topic  format.TopicID
	name   string
	config format.QueueConfig
	epoch  format.Epoch
	owned  bool
	parts  map[format.Partition]*modelWork
}

type modelWork struct {
	window, doubt format.Offset
	done          map[format.Offset]bool
	attempts      map[format.Offset]Attempt
}

func (q *modelQueue) work(partition format.Partition) *modelWork {
	if q.parts[partition] == nil {
		q.parts[partition] = &modelWork{done: map[format.Offset]bool{}, attempts: map[format.Offset]Attempt{}}
	}
	return q.parts[partition]
}

// finish marks a record as done.
func (w *modelWork) finish(offset format.Offset) {
	w.done[offset] = true
	delete(w.attempts, offset)
}

func (m *modelQueues) expire(now int64) {
	m.delayed = slices.DeleteFunc(m.delayed, func(d Delayed) bool { return d.Due <= now })
}

func (m *modelQueues) apply(it format.Entry, all *model, now int64) {
	if m.byID == nil {
		m.byID = map[format.QueueID]*modelQueue{}
	}
	switch x := it.(type) {
	case *format.TopicDeleted:
		for id, q := range m.byID {
			if q.topic == x.ID {
				delete(m.byID, id)
			}
		}
		m.delayed = slices.DeleteFunc(m.delayed, func(d Delayed) bool { return d.Topic == x.ID })
	case *format.StartMoved:
		for _, q := range m.byID {
			for o := range x.Start {
				if q.topic == x.Topic {
					q.work(x.Partition).finish(o)
				}
			}
		}
	case *format.QueueSet:
		if m.byID[x.ID] == nil {
			m.byID[x.ID] = &modelQueue{topic: x.Topic, name: x.Name, parts: map[format.Partition]*modelWork{}}
			for i, p := range all.topic(x.Topic).partitions {
				for o := range p.start {
					m.byID[x.ID].work(format.Partition(i)).finish(o)
				}
			}
		}
		m.byID[x.ID].config = x.Config
	case *format.QueueDeleted:
		delete(m.byID, x.ID)
	case *format.QueueOwned:
		q := m.byID[x.Queue]
		q.epoch, q.owned = x.Epoch, true
		for i, p := range all.topic(q.topic).partitions {
			w := q.work(format.Partition(i))
			w.doubt, w.window = max(w.doubt, min(w.window, p.end)), 0
			if i < len(x.Windows) {
				w.window = x.Windows[i]
			}
		}
	case *format.QueueReleased:
		m.byID[x.Queue].owned = false
		for _, w := range m.byID[x.Queue].parts {
			w.window = 0
		}
	case *format.WindowMoved:
		m.byID[x.Queue].work(x.Partition).window = x.Window
	case *format.RecordsDelayed:
		if x.Due > now {
			m.delayed = append(m.delayed, Delayed{Due: x.Due, Topic: x.Topic, Offset: x.Offset, Partition: x.Partition, Count: x.Count})
		}
	default:
		m.applyWork(it)
	}
}

func (m *modelQueues) applyWork(it format.Entry) {
	switch x := it.(type) {
	case *format.RecordsAttempted:
		w := m.byID[x.Queue].work(x.Partition)
		for _, a := range x.Attempts {
			w.attempts[a.Offset] = Attempt{Number: a.Number, Redriven: w.attempts[a.Offset].Redriven}
		}
	case *format.RecordsDone:
		for _, r := range x.Runs {
			for o := r.Offset; o < r.End(); o++ {
				m.byID[x.Queue].work(x.Partition).finish(o)
			}
		}
	case *format.RecordPutBack:
		w := m.byID[x.Queue].work(x.Partition)
		w.attempts[x.Offset] = Attempt{Number: x.Number, Redriven: w.attempts[x.Offset].Redriven, NotBefore: x.NotBefore, DeadLetter: x.DeadLetter, Reason: x.Reason}
	case *format.RecordsRedriven:
		w := m.byID[x.Queue].work(x.Partition)
		for _, o := range x.Offsets {
			w.attempts[o] = Attempt{Number: w.attempts[o].Number, Redriven: w.attempts[o].Number}
		}
	case *format.QueuePurged:
		for o := range x.Before {
			m.byID[x.Queue].work(x.Partition).finish(o)
		}
	}
}

// compare asserts that state and model are the same for every record.
func (m *modelQueues) compare(t rapid.TB, s *State) {
	t.Helper()
	if len(m.byID) != len(s.queues.byID) {
		t.Fatalf("%d queues, not %d", len(s.queues.byID), len(m.byID))
	}
	slices.SortFunc(m.delayed, compareDelayed)
	for _, topic := range s.topics.byID {
		of := slices.DeleteFunc(slices.Clone(m.delayed), func(d Delayed) bool { return d.Topic != topic.ID })
		if got := slices.SortedFunc(s.DelayedOf(topic.ID), compareDelayed); !slices.Equal(got, of) {
			t.Fatalf("of topic %d are delayed %+v, not %+v", topic.ID, got, of)
		}
	}
	if got := s.Delayed(); !slices.Equal(got, m.delayed) {
		t.Fatalf("delayed are %+v, not %+v", got, m.delayed)
	}
	d := s.Draft(s.Time())
	for id, want := range m.byID {
		q := s.QueueByID(id)
		if q == nil || q != s.Queue(want.topic, want.name) || !slices.Contains(s.Queues(want.topic), q) || q.Config != want.config || q.Epoch != want.epoch || q.Owned != want.owned {
			t.Fatalf("queue %d is %+v, not %+v", id, q, want)
		}
		for i, p := range s.TopicByID(want.topic).Partitions {
			w := want.work(format.Partition(i))
			for o := range p.End {
				a, listed := w.attempts[o]
				sure := listed
				if !listed && !w.done[o] {
					a, sure = unlisted(o, w.window, w.doubt)
				}
				isDone, gotA, gotSure := d.RecordState(id, format.Partition(i), o)
				if isDone != w.done[o] || gotA != a || gotSure != (sure || isDone) {
					t.Fatalf("queue %d, partition %d, offset %d: done %v, %+v, sure %v; want %v, %+v, %v", id, i, o, isDone, gotA, gotSure, w.done[o], a, sure)
				}
			}
		}
	}
}

// After each commit, the state, its snapshot and the views taken before must agree with the
// model.
func TestQueuesAreWhatTheirModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m := &writer{State: New(), queues: true}, &model{}
		apply := func(c *format.Commit) {
			mustApply(t, w.State, c)
			m.apply(c)
		}
		apply(&format.Commit{Seq: 1, PayloadSize: 61, Entries: []format.Entry{
			&format.TopicCreated{ID: 1, Partitions: 2, Name: "a"}, &format.Batch{Topic: 1, Count: 12, Size: 61},
			queueSet(1, 1, "q"), owned(1, 1, 9, 2), back(1, 0, 3, 1, true), back(1, 0, 4, 1, true),
		}})
		for range rapid.IntRange(1, 20).Draw(t, "commits") {
			view, before := w.View(), w.View().Encode()
			c, _ := w.commit(t)
			apply(c)
			m.compare(t, w.State)
			s, err := Decode(w.Seq(), w.View().Encode())
			if err != nil {
				t.Fatal(err)
			}
			requireSame(t, s, w.State)
			if string(view.Encode()) != string(before) {
				t.Fatal("a view has changed")
			}
			old, err := Decode(w.Seq()-1, before)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Continues(old); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// queueEntry draws a valid entry about the queues or the delayed records of an existing topic;
// nil if no entry of the drawn kind would be valid.
func (w *writer) queueEntry(t *rapid.T, d *Draft, topic format.TopicID, partitions uint32) format.Entry {
	partition := format.Partition(rapid.Uint32Range(0, partitions-1).Draw(t, "partition"))
	kind := rapid.IntRange(0, 18).Draw(t, "queue entry")
	if end, _ := d.End(topic, partition); kind == 0 || kind > 15 && end > w.end(topic, partition) {
		return w.delayEntry(t, d, topic, partition)
	}
	name := rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue")
	id, ok := d.QueueID(topic, name)
	if kind == 1 || !ok {
		if !ok {
			id = d.NextQueueID()
		}
		return &format.QueueSet{ID: id, Topic: topic, Name: name, Config: format.QueueConfig{
			LeaseMS: 1, Attempts: rapid.Uint32Range(1, 3).Draw(t, "attempts"), Paused: rapid.Bool().Draw(t, "paused"), DeadLetterTopic: name,
		}}
	}
	epoch, owned := d.QueueEpoch(id)
	end, _ := d.End(topic, partition)
	switch {
	case kind == 2 && rapid.Bool().Draw(t, "deleted"):
		return &format.QueueDeleted{ID: id}
	case kind <= 4 || !owned && kind <= 6:
		x := &format.QueueOwned{Queue: id, Epoch: epoch + 1, Address: name}
		for i := range rapid.Uint32Range(0, partitions).Draw(t, "windows") {
			end, _ := d.End(topic, format.Partition(i))
			x.Windows = append(x.Windows, format.Offset(rapid.Int64Range(0, int64(end+3)).Draw(t, "window")))
		}
		return x
	case kind == 5:
		return &format.QueueReleased{Queue: id, Epoch: epoch}
	case kind == 6:
		window := d.queuePartition(d.queue(id), partition).dispatchLimit
		return &format.WindowMoved{Queue: id, Epoch: epoch, Partition: partition, Window: format.Offset(rapid.Int64Range(int64(max(0, window-5)), int64(window+5)).Draw(t, "window"))}
	case kind == 7:
		return &format.QueuePurged{Queue: id, Partition: partition, Before: format.Offset(rapid.Int64Range(0, int64(end)).Draw(t, "before"))}
	case end == 0:
		return nil
	}
	offset := format.Offset(rapid.Int64Range(0, int64(end-1)).Draw(t, "offset"))
	if known := slices.Sorted(maps.Keys(d.queuePartition(d.queue(id), partition).base.attempts)); len(known) > 0 && rapid.Bool().Draw(t, "again") {
		offset = rapid.SampledFrom(known).Draw(t, "known")
	}
	return w.workEntry(t, d, id, partition, offset)
}

// workEntry draws an entry about a record, and maybe those after it.
func (w *writer) workEntry(t *rapid.T, d *Draft, id format.QueueID, partition format.Partition, offset format.Offset) format.Entry {
	isDone, a, sure := d.RecordState(id, partition, offset)
	epoch, owned := d.QueueEpoch(id)
	number := a.Number
	if number == 0 && !sure {
		number = 1 // assume that the owner handed it out
	}
	what := rapid.IntRange(0, 3).Draw(t, "work")
	switch {
	case isDone:
		return nil
	case a.DeadLetter:
		return &format.RecordsRedriven{Queue: id, Partition: partition, Offsets: []format.Offset{offset}}
	case what == 0 && owned:
		return &format.RecordsAttempted{Queue: id, Epoch: epoch, Partition: partition, Attempts: []format.Attempt{{Offset: offset, Number: number + 1}}}
	case number == 0:
		return nil
	case what <= 2:
		return &format.RecordPutBack{
			Queue: id, Partition: partition, Attempt: format.Attempt{Offset: offset, Number: number}, NotBefore: rapid.Int64Range(0, 3).Draw(t, "not before"),
			DeadLetter: rapid.Bool().Draw(t, "parked"), Reason: rapid.SampledFrom([]string{"", "no", "why not"}).Draw(t, "reason"),
		}
	}
	r := format.Run{Offset: offset, Count: 1, Number: number}
	x := &format.RecordsDone{Queue: id, Partition: partition, Runs: []format.Run{r}}
	for end, _ := d.End(d.queue(id).topic, partition); r.End() < end && isLastOf(d, id, partition, r.End(), number); r.Count++ {
		x.Runs[0].Count = r.Count + 1
	}
	return x
}

func isLastOf(d *Draft, id format.QueueID, partition format.Partition, offset format.Offset, number uint32) bool {
	isDone, a, sure := d.RecordState(id, partition, offset)
	return !isDone && isLast(a, sure, number)
}

// delayEntry delays some records that the commit appends.
func (w *writer) delayEntry(t *rapid.T, d *Draft, topic format.TopicID, partition format.Partition) format.Entry {
	end, _ := d.End(topic, partition)
	x := &format.RecordsDelayed{
		Topic: topic, Partition: partition, Count: 1, Offset: end - format.Offset(rapid.Int64Range(1, 4).Draw(t, "delayed")),
		Due: d.time + rapid.SampledFrom([]int64{0, 1, 2, KeyedFor.Microseconds()}).Draw(t, "due"),
	}
	if x.Offset < w.end(topic, partition) || d.delayed.runs[batchKey{topic, partition}] != nil && d.delayed.runs[batchKey{topic, partition}].has(x.Offset) {
		return nil
	}
	return x
}

// recount computes the memory of a state from its content.
func recount(s *State) int64 {
	n := queuesTake(s) + s.objects.memory(s.level) + int64(len(s.segments))*segmentMemory + int64(len(s.dead))*deadMemory + int64(len(s.keyed.pages))*pageMemory
	for _, t := range s.topics.byID {
		n += topicMemory + int64(len(t.Name)) + int64(len(t.Partitions))*partitionMemory
		for _, p := range t.Partitions {
			n += p.segmented.memory()
			for _, c := range p.chunks {
				n += chunkMemory + int64(cap(c.batches))*batchMemory
			}
		}
	}
	for i := range s.keyed.list {
		n += s.keyed.list[i].memory()
	}
	for _, k := range s.keys.byID {
		n += k.memory()
	}
	for _, c := range s.consumers.byID {
		n += c.memory()
	}
	return n
}
