package state

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

func queueSet(id format.QueueID, topic format.TopicID, name string) *format.QueueSet {
	return &format.QueueSet{ID: id, Topic: topic, Name: name, Config: format.QueueConfig{LeaseMS: 30_000, BackoffMinMS: 10, BackoffMaxMS: 20, Attempts: 3}}
}

// runs returns an entry with runs of done records: offset, count, attempt, offset, count,
// attempt and so on.
func runs(queue format.QueueID, partition format.Partition, of ...format.Offset) *format.RecordsDone {
	x := &format.RecordsDone{Queue: queue, Partition: partition}
	for ; len(of) > 0; of = of[3:] {
		x.Runs = append(x.Runs, format.Run{Offset: of[0], Count: uint32(of[1]), Number: uint32(of[2])})
	}
	return x
}

// tries returns an entry with attempts: offset, attempt, offset, attempt and so on.
func tries(queue format.QueueID, epoch format.Epoch, partition format.Partition, of ...format.Offset) *format.RecordsAttempted {
	x := &format.RecordsAttempted{Queue: queue, Epoch: epoch, Partition: partition}
	for ; len(of) > 0; of = of[2:] {
		x.Attempts = append(x.Attempts, format.Attempt{Offset: of[0], Number: uint32(of[1])})
	}
	return x
}

func back(queue format.QueueID, partition format.Partition, offset format.Offset, number uint32, parked bool) *format.RecordPutBack {
	return &format.RecordPutBack{
		Queue: queue, Partition: partition, Attempt: format.Attempt{Offset: offset, Number: number},
		NotBefore: 1 << 40, DeadLetter: parked, Reason: "no such mailbox",
	}
}

func redriven(queue format.QueueID, partition format.Partition, offsets ...format.Offset) *format.RecordsRedriven {
	return &format.RecordsRedriven{Queue: queue, Partition: partition, Offsets: offsets}
}

func owned(queue format.QueueID, epoch format.Epoch, windows ...format.Offset) *format.QueueOwned {
	return &format.QueueOwned{Queue: queue, Epoch: epoch, Windows: windows, Address: "http://b:1"}
}

func delayedRun(topic format.TopicID, partition format.Partition, offset format.Offset, count uint32, due format.Offset) *format.RecordsDelayed {
	return &format.RecordsDelayed{Topic: topic, Partition: partition, Offset: offset, Count: count, Due: int64(due)}
}

// withQueues adds two topics with queues to a state; the queues have records in every possible
// state. The first topic has three partitions, of which 0 and 2 have ten records each.
func withQueues(t rapid.TB, s *State) {
	t.Helper()
	id, end := s.topics.next, format.Offset(s.Time())
	mail := queueSet(1, id, "mail")
	mail.Config.Ordered, mail.Config.Paused, mail.Config.DeadLetterTopic = true, true, "mail.dead"
	apply := func(at int64, entries ...format.Entry) {
		t.Helper()
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: int64(end + format.Offset(at)), PayloadSize: 122, Entries: entries})
	}
	apply(0,
		&format.TopicCreated{ID: id, Partitions: 3, Name: "work"}, &format.TopicCreated{ID: id + 1, Partitions: 1, Name: "work.too"},
		&format.Batch{Topic: id, Count: 10, Size: 61}, &format.Batch{Topic: id, Partition: 2, Count: 10, Size: 61, Pos: 61},
		queueSet(1, id, "mail"), queueSet(2, id, "gone"), queueSet(3, id+1, "mail"), queueSet(4, id, "idle"),
		delayedRun(id, 0, 8, 2, end+100), delayedRun(id, 2, 5, 1, end+100), delayedRun(id, 2, 9, 1, end+50), delayedRun(id, 2, 8, 1, end),
	)
	apply(1, owned(1, 1, 8, 0, 20), owned(3, 1, 4), &format.QueueDeleted{ID: 2})
	apply(2,
		runs(1, 0, 0, 1, 1, 2, 2, 1), tries(1, 1, 0, 1, 2), back(1, 0, 5, 1, false), back(1, 0, 6, 1, true),
		back(1, 2, 0, 1, true), back(1, 2, 1, 1, true), redriven(1, 2, 1), &format.QueuePurged{Queue: 1, Partition: 2, Before: 1},
		mail, &format.QueueReleased{Queue: 3, Epoch: 1}, &format.WindowMoved{Queue: 1, Epoch: 1, Window: 9},
	)
	apply(3, owned(1, 2, 12, 5), tries(1, 2, 0, 1, 3, 4, 2))
}

func queueState(t rapid.TB) *State {
	s := New()
	withQueues(t, s)
	return s
}

// queuesTake computes the memory of the queues and delayed records from their content.
func queuesTake(s *State) (n int64) {
	for _, q := range s.queues.byID {
		n += q.memory()
		for i := range q.partitions {
			n += q.partitions[i].memory()
			var reasons int64
			for _, a := range q.partitions[i].attempts {
				reasons += int64(len(a.Reason))
			}
			n += reasons - q.partitions[i].reasons
		}
	}
	return n + int64(len(s.delayed))*delayedMemory
}

func TestQueueKnowsWhatBecameOfEachRecord(t *testing.T) {
	s := queueState(t)
	q := s.Queue(1, "mail")
	if q == nil || q != s.QueueByID(1) || q.Epoch != 2 || !q.Owned || q.Address != "http://b:1" || q.Seen != 3 || q.Created != 0 || q.Config.DeadLetterTopic != "mail.dead" {
		t.Fatalf("the queue is %+v", q)
	}
	if q := s.Queue(2, "mail"); q == nil || q.ID != 3 || q.Owned || q.Epoch != 1 || q.Address != "" || len(q.partitions) != 0 {
		t.Fatalf("the one that was released is %+v", q)
	}
	if qs := s.Queues(1); len(qs) != 2 || qs[0].Name != "idle" || qs[1] != q || s.Queue(1, "gone") != nil {
		t.Fatalf("the topic's queues are %+v", qs)
	}
	d := s.Draft(3)
	type known struct {
		done bool
		Attempt
		sure bool
	}
	done, until, no := known{done: true, sure: true}, int64(1<<40), "no such mailbox"
	for partition, want := range map[format.Partition]map[format.Offset]known{
		0: {
			0: done, 1: {Attempt: Attempt{Number: 3}, sure: true}, 2: done, 3: done,
			4: {Attempt: Attempt{Number: 2}, sure: true},                                                 // uncertain, then handed out again
			5: {Attempt: Attempt{Number: 1, NotBefore: until, Reason: no}, sure: true},                   // put back
			6: {Attempt: Attempt{Number: 1, NotBefore: until, DeadLetter: true, Reason: no}, sure: true}, // dead letter
			7: {Attempt: Attempt{Number: 1}, sure: true}, 8: {Attempt: Attempt{Number: 1}, sure: true},   // uncertain
			9: {}, // the owner may have handed it out
		},
		2: {0: done, 1: {Attempt: Attempt{Number: 1, Redriven: 1}, sure: true}, 2: {Attempt: Attempt{Number: 1}, sure: true}, 9: {Attempt: Attempt{Number: 1}, sure: true}},
	} {
		for offset, want := range want {
			isDone, a, sure := d.RecordState(1, partition, offset)
			if got := (known{isDone, a, sure}); got == want {
				continue
			}
			t.Errorf("offset %d of partition %d: done %v, %+v, sure %v; want %+v", offset, partition, isDone, a, sure, want)
		}
	}
	if got := s.Delayed(); !slices.Equal(got, []Delayed{{Due: 50, Topic: 1, Partition: 2, Offset: 9, Count: 1}, {Due: 100, Topic: 1, Offset: 8, Count: 2}, {Due: 100, Topic: 1, Partition: 2, Offset: 5, Count: 1}}) {
		t.Errorf("delayed are %+v", got)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

func TestQueuesGoWithTheirTopics(t *testing.T) {
	s := New()
	before := s.Memory()
	withQueues(t, s)
	took := queuesTake(s)
	if q := s.Queue(1, "mail"); q.partitions[0].reasons != 2*int64(len("no such mailbox")) || q.partitions[2].reasons != 0 {
		t.Fatalf("the reasons have %d and %d bytes", q.partitions[0].reasons, q.partitions[2].reasons)
	}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 5, Entries: []format.Entry{
		&format.TopicDeleted{ID: 1}, &format.TopicCreated{ID: 3, Partitions: 1, Name: "work"}, queueSet(5, 3, "mail"),
	}})
	if q := s.Queue(3, "mail"); s.Queue(1, "mail") != nil || s.QueueByID(1) != nil || q == nil || q.Epoch != 0 || len(s.Delayed()) != 0 {
		t.Fatalf("the queue of the topic that came after is %+v", q)
	}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 5, Entries: []format.Entry{
		&format.QueueDeleted{ID: 5}, &format.TopicDeleted{ID: 2}, &format.TopicDeleted{ID: 3},
	}})
	if left := s.Memory() - before - int64(s.Objects())*objectMemory; left != 0 || took == 0 || len(s.queues.byName)+s.queues.list.count != 0 {
		t.Fatalf("%d bytes are left", left)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

// Records before the start of a partition are done in every queue.
func TestMovingTheStartTakesWorkAway(t *testing.T) {
	s := queueState(t)
	start := &format.StartMoved{Topic: 1, Start: 6}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{start}})
	q := s.Queue(1, "mail")
	if p := &q.partitions[0]; p.done.floor != 6 || len(p.done.above) != 0 || len(p.attempts) != 1 || !p.attempts[6].DeadLetter {
		t.Fatalf("the partition is %+v", p)
	}
	for _, id := range []format.QueueID{1, 4} { // also the queue that no entry has touched
		if isDone, _, _ := s.Draft(9).RecordState(id, 0, 5); !isDone {
			t.Errorf("queue %d is to do a record that is not there", id)
		}
	}
	for name, it := range map[string]format.Entry{
		"done": runs(1, 0, 5, 1, 1), "attempted": tries(1, 2, 0, 5, 2), "put back": back(1, 0, 5, 1, false), "redriven": redriven(1, 0, 5),
	} {
		if err := s.Draft(9).Take(it); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s: %v", name, err)
		}
		d := queueState(t).Draft(9) // already in the commit that moves the start
		if err := d.Take(start); err != nil {
			t.Fatal(err)
		}
		if err := d.Take(it); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s after the start was moved in the same commit: %v", name, err)
		}
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

// The fold changes nothing in place that a view shares with the state.
func TestViewKeepsQueuesThatGoOn(t *testing.T) {
	changes := map[string]format.Entry{
		"a span joins others": runs(1, 0, 1, 1, 3), "a span grows": runs(1, 0, 4, 1, 2), "a span is added": runs(1, 0, 8, 1, 1),
		"an attempt is counted": tries(1, 2, 0, 1, 4), "one is put back": back(1, 0, 1, 3, true), "one is redriven": redriven(1, 0, 6),
		"all is purged": &format.QueuePurged{Queue: 1, Before: 10}, "the window moves": &format.WindowMoved{Queue: 1, Epoch: 2, Partition: 1, Window: 7},
		"the window falls": &format.WindowMoved{Queue: 1, Epoch: 2, Window: 11},
		"another owner":    owned(1, 3, 50, 50, 50), "none": &format.QueueReleased{Queue: 1, Epoch: 2}, "another config": queueSet(1, 1, "mail"),
		"a queue is deleted": &format.QueueDeleted{ID: 1}, "the topic is deleted": &format.TopicDeleted{ID: 1}, "records come due": &format.UnknownEntry{Kind: 99},
	}
	for name, it := range changes {
		s := queueState(t)
		view, want := s.View(), s.View().Encode()
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 70, Entries: []format.Entry{it}})
		if string(view.Encode()) != string(want) {
			t.Errorf("%s: the view has changed", name)
		}
		if got := s.View().Encode(); name != "records come due" && string(got) == string(want) {
			t.Errorf("%s: nothing has changed", name)
		}
	}
}

// Work that is back at its beginning leaves no trace, so that equal states encode to equal bytes
// and take equal memory.
func TestPartitionThatNobodyWorksOnIsNoPartition(t *testing.T) {
	s := queueState(t)
	before, memory := len(s.Queue(2, "mail").partitions), s.Memory()
	for i, entries := range [][]format.Entry{
		{owned(3, 2, 5), &format.QueueReleased{Queue: 3, Epoch: 2}},
		{owned(3, 3, 0)},
		{&format.QueuePurged{Queue: 3}},
		{&format.WindowMoved{Queue: 3, Epoch: 3}},
		{&format.QueueReleased{Queue: 3, Epoch: 3}},
	} {
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: entries})
		if n := len(s.Queue(2, "mail").partitions); n != before {
			t.Fatalf("after step %d there are %d partitions", i, n)
		}
	}
	if s.Memory() != memory {
		t.Fatalf("%d bytes more than before", s.Memory()-memory)
	}
}

// A token names a delivery by its number, so no number may be used twice, even after a redrive.
func TestRedrivenRecordsDontRepeatNumbers(t *testing.T) {
	s := queueState(t)
	for range 3 {
		d := s.Draft(9)
		_, a, _ := d.RecordState(1, 0, 6)
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{redriven(1, 0, 6)}})
		if _, now, _ := s.Draft(9).RecordState(1, 0, 6); now.Number != a.Number || now.Used() != 0 || now.DeadLetter {
			t.Fatalf("redriven it is %+v, before that %+v", now, a)
		}
		if err := s.Draft(9).Take(tries(1, 2, 0, 6, 1)); !errors.Is(err, ErrNonsense) {
			t.Fatalf("attempt 1 is accepted after a redrive: %v", err)
		}
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{
			tries(1, 2, 0, 6, format.Offset(a.Number+1)), tries(1, 2, 0, 6, format.Offset(a.Number+2)), back(1, 0, 6, a.Number+2, true),
		}})
		if _, now, _ := s.Draft(9).RecordState(1, 0, 6); now.Used() != 2 {
			t.Fatalf("handed out twice more it is %+v", now)
		}
		requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
	}
	mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 9, Entries: []format.Entry{redriven(1, 0, 6), tries(1, 2, 0, 6, 8), runs(1, 0, 6, 1, 8)}})
}

func TestNonsenseAboutQueuesIsRefusedAndChangesNothing(t *testing.T) {
	long := strings.Repeat("n", 2000)
	set := func(change func(x *format.QueueSet)) format.Entry {
		x := queueSet(6, 1, "new")
		change(x)
		return x
	}
	putBack := func(change func(x *format.RecordPutBack)) format.Entry {
		x := back(1, 0, 4, 2, false)
		change(x)
		return x
	}
	fine := []format.Entry{queueSet(5, 1, "e"), runs(1, 0, 1, 1, 3), &format.QueueDeleted{ID: 3}, back(1, 0, 7, 1, true)}
	for name, it := range map[string]format.Entry{
		"id again":                        queueSet(1, 1, "f"),
		"id of a deleted one":             queueSet(2, 1, "f"),
		"id of one deleted here":          queueSet(3, 2, "mail"),
		"id left out":                     queueSet(7, 1, "f"),
		"name that is taken":              queueSet(6, 1, "mail"),
		"name that this commit took":      queueSet(6, 1, "e"),
		"id in another topic":             queueSet(1, 2, "mail"),
		"topic that isn't there":          queueSet(6, 3, "f"),
		"no name":                         set(func(x *format.QueueSet) { x.Name = "" }),
		"long name":                       set(func(x *format.QueueSet) { x.Name = long[:QueueNameBytesMax+1] }),
		"long dead-letter topic":          set(func(x *format.QueueSet) { x.Config.DeadLetterTopic = long[:QueueNameBytesMax+1] }),
		"no lease":                        set(func(x *format.QueueSet) { x.Config.LeaseMS = 0 }),
		"long lease":                      set(func(x *format.QueueSet) { x.Config.LeaseMS = QueueMSMax + 1 }),
		"no attempts":                     set(func(x *format.QueueSet) { x.Config.Attempts = 0 }),
		"backoff before it begins":        set(func(x *format.QueueSet) { x.Config.BackoffMinMS = -1 }),
		"backoff that falls":              set(func(x *format.QueueSet) { x.Config.BackoffMaxMS = 9 }),
		"long backoff":                    set(func(x *format.QueueSet) { x.Config.BackoffMaxMS = QueueMSMax + 1 }),
		"deleted again":                   &format.QueueDeleted{ID: 2},
		"deleted here again":              &format.QueueDeleted{ID: 3},
		"owner of none":                   owned(9, 1),
		"owner of the same epoch":         owned(1, 2),
		"owner of a later epoch":          owned(1, 4),
		"owner of epoch 0":                owned(4, 0),
		"owner with too many windows":     owned(1, 3, 1, 1, 1, 1),
		"owner's window before 0":         owned(1, 3, 1, -1),
		"owner with a long address":       &format.QueueOwned{Queue: 1, Epoch: 3, Address: long},
		"release by an old owner":         &format.QueueReleased{Queue: 1, Epoch: 1},
		"release of what nobody owns":     &format.QueueReleased{Queue: 4},
		"release of none":                 &format.QueueReleased{Queue: 9, Epoch: 1},
		"window of an old owner":          &format.WindowMoved{Queue: 1, Epoch: 1, Window: 99},
		"window in no partition":          &format.WindowMoved{Queue: 1, Epoch: 2, Partition: 3, Window: 99},
		"window before 0":                 &format.WindowMoved{Queue: 1, Epoch: 2, Partition: 2, Window: -1},
		"attempts of an old owner":        tries(1, 1, 0, 4, 3),
		"attempts where nobody owns":      tries(4, 0, 0, 4, 1),
		"attempts in no partition":        tries(1, 2, 3, 4, 1),
		"no attempts at all":              tries(1, 2, 0),
		"attempt that was made":           tries(1, 2, 0, 4, 2),
		"attempt that leaves one out":     tries(1, 2, 0, 4, 4),
		"attempt number 0":                tries(1, 2, 0, 4, 0),
		"attempt of what is done":         tries(1, 2, 0, 2, 1),
		"attempt of what is done here":    tries(1, 2, 0, 1, 4),
		"attempt of what is parked":       tries(1, 2, 0, 6, 2),
		"attempt of what is parked here":  tries(1, 2, 0, 7, 2),
		"attempt beyond the end":          tries(1, 2, 0, 10, 1),
		"attempt before 0":                tries(1, 2, 0, -1, 2),
		"attempts out of order":           tries(1, 2, 0, 5, 2, 4, 3),
		"attempts of one twice":           tries(1, 2, 0, 4, 3, 4, 4),
		"third attempt of what was fresh": tries(1, 2, 0, 9, 3),
		"nothing done":                    runs(1, 0),
		"done in no queue":                runs(9, 0, 4, 1, 2),
		"done in a queue deleted here":    runs(3, 0, 4, 1, 2),
		"done in no partition":            runs(1, 3, 4, 1, 2),
		"done by an older attempt":        runs(1, 0, 4, 1, 1),
		"done by an attempt to come":      runs(1, 0, 4, 1, 3),
		"done by a second in doubt":       runs(1, 0, 8, 1, 2),
		"done that is done":               runs(1, 0, 2, 1, 1),
		"done that is done here":          runs(1, 0, 1, 1, 3),
		"done twice":                      runs(1, 0, 8, 1, 1, 8, 1, 1),
		"done out of order":               runs(1, 0, 8, 1, 1, 4, 1, 2),
		"done that is parked":             runs(1, 0, 6, 1, 1),
		"done that is parked here":        runs(1, 0, 7, 1, 1),
		"done that never went out":        runs(4, 0, 0, 1, 1),
		"done by attempt 0":               runs(4, 0, 0, 1, 0),
		"done over many":                  runs(1, 0, 7, 2, 1),
		"done beyond the end":             runs(1, 0, 9, 2, 1),
		"done far beyond the end":         runs(1, 0, math.MaxInt64, 1, 1),
		"done before 0":                   runs(1, 0, -1, 1, 1),
		"no records done":                 runs(1, 0, 8, 0, 1),
		"put back by an older attempt":    putBack(func(x *format.RecordPutBack) { x.Number = 1 }),
		"put back that is done":           putBack(func(x *format.RecordPutBack) { x.Offset, x.Number = 2, 1 }),
		"put back that is done here":      putBack(func(x *format.RecordPutBack) { x.Offset, x.Number = 1, 3 }),
		"put back that is parked":         putBack(func(x *format.RecordPutBack) { x.Offset, x.Number = 6, 1 }),
		"put back that never went out":    putBack(func(x *format.RecordPutBack) { x.Queue, x.Number = 4, 0 }),
		"put back beyond the end":         putBack(func(x *format.RecordPutBack) { x.Offset, x.Number = 10, 1 }),
		"put back before 0":               putBack(func(x *format.RecordPutBack) { x.Offset, x.Number = -1, 1 }),
		"put back in no partition":        putBack(func(x *format.RecordPutBack) { x.Partition = 3 }),
		"put back for a long reason":      putBack(func(x *format.RecordPutBack) { x.Reason = long }),
		"put back until before time":      putBack(func(x *format.RecordPutBack) { x.NotBefore = -1 }),
		"nothing redriven":                redriven(1, 0),
		"redriven that is not parked":     redriven(1, 0, 5),
		"redriven twice":                  redriven(1, 0, 6, 6),
		"redriven out of order":           redriven(1, 0, 7, 6),
		"redriven before 0":               redriven(1, 0, -1),
		"redriven in no partition":        redriven(1, 3, 6),
		"redriven that was redriven":      redriven(1, 2, 1),
		"purged in no queue":              &format.QueuePurged{Queue: 9},
		"purged in no partition":          &format.QueuePurged{Queue: 1, Partition: 3},
		"purged beyond the end":           &format.QueuePurged{Queue: 1, Before: 11},
		"purged before 0":                 &format.QueuePurged{Queue: 1, Before: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := queueState(t)
			before, memory := s.View().Encode(), s.Memory()
			err := s.Apply(&format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: append(slices.Clone(fine), it)})
			if !errors.Is(err, ErrNonsense) {
				t.Fatalf("the error is %v", err)
			}
			if string(s.View().Encode()) != string(before) || s.Memory() != memory {
				t.Fatal("the state has changed")
			}
			mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: 30, Entries: fine})
		})
	}
}

// A draft shows the changes of the entries taken so far, so that a broker can decide by them.
func TestDraftShowsQueues(t *testing.T) {
	d := queueState(t).Draft(9)
	take := func(its ...format.Entry) {
		t.Helper()
		for _, it := range its {
			if err := d.Take(it); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(offset format.Offset, isDone bool, number uint32, sure bool) {
		t.Helper()
		gotDone, a, gotSure := d.RecordState(1, 0, offset)
		if gotDone != isDone || a.Number != number || gotSure != sure {
			t.Fatalf("offset %d: done %v, %+v, sure %v", offset, gotDone, a, gotSure)
		}
	}
	if d.NextQueueID() != 5 || d.QueueCount() != 3 {
		t.Fatalf("the next is %d, there are %d", d.NextQueueID(), d.QueueCount())
	}
	want(9, false, 0, false)
	take(runs(1, 0, 9, 1, 1), tries(1, 2, 0, 4, 3))
	want(9, true, 0, true)
	want(4, false, 3, true)
	take(&format.Batch{Topic: 1, Base: 10, Count: 3, Size: 61})
	want(11, false, 0, false)
	want(12, false, 0, true)
	take(owned(1, 3, 13), &format.QueuePurged{Queue: 1, Before: 5})
	want(11, false, 1, true)
	want(12, false, 0, false)
	want(4, true, 0, true)
	if epoch, owned := d.QueueEpoch(1); epoch != 3 || !owned {
		t.Fatalf("epoch %d, %v", epoch, owned)
	}
	take(&format.QueueReleased{Queue: 1, Epoch: 3})
	want(12, false, 0, true)
	if _, owned := d.QueueEpoch(1); owned {
		t.Fatal("it is still owned")
	}
	changed := queueSet(1, 1, "mail")
	take(changed, queueSet(5, 1, "new"), &format.QueueDeleted{ID: 4}, queueSet(6, 1, "idle"))
	if id, ok := d.QueueID(1, "idle"); !ok || id != 6 || d.QueueConfig(1) != changed.Config || d.NextQueueID() != 7 || d.QueueCount() != 4 {
		t.Fatalf("the one created again is %d, %v; the next %d of %d", id, ok, d.NextQueueID(), d.QueueCount())
	}
	take(&format.TopicDeleted{ID: 1})
	for _, name := range []string{"mail", "new", "idle", "gone"} {
		if id, ok := d.QueueID(1, name); ok {
			t.Fatalf("%s is still there as %d", name, id)
		}
	}
}
