package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

// For every slot of a log: a snapshot of that slot and the commits after it give the same state
// as all commits.
func TestSnapshotAndReplayIsFullReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, m := &writer{State: New()}, &model{}
		var (
			log       []*format.Commit
			snapshots [][]byte
			views     []*View
		)
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			snapshots = append(snapshots, w.View().Encode())
			views = append(views, w.View())
			c, _ := w.commit(t)
			mustApply(t, w.State, c)
			m.apply(c)
			log = append(log, c)
		}
		for cut, snapshot := range snapshots {
			if string(views[cut].Encode()) != string(snapshot) || views[cut].Seq() != format.Seq(cut) {
				t.Fatalf("the view of slot %d has changed since", cut)
			}
			s, err := Decode(format.Seq(cut), snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if string(s.View().Encode()) != string(snapshot) {
				t.Fatalf("the snapshot of slot %d is another once decoded and encoded", cut)
			}
			mustApply(t, s, log[cut:]...)
			requireSame(t, s, w.State)
			m.compare(t, s)
		}
	})
}

// Files with a snapshot of each version; they never change.
const (
	snapshot1Golden = "testdata/snapshot.golden"
	snapshot2Golden = "testdata/snapshot.2.golden"
	snapshot3Golden = "testdata/snapshot.3.golden"
	snapshot4Golden = "testdata/snapshot.4.golden"
	snapshot5Golden = "testdata/snapshot.5.golden"
)

func golden(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenSnapshot(t *testing.T) {
	requireSame(t, mustDecode(t, 3, golden(t, snapshot1Golden)), sound(t))
	want := sound(t)
	mustApply(t, want, keyedCommit())
	withKeys(t, want)
	requireSame(t, mustDecode(t, want.Seq(), golden(t, snapshot2Golden)), want)
	withConsumers(t, want)
	requireSame(t, mustDecode(t, want.Seq(), golden(t, snapshot3Golden)), want)
	withQueues(t, want)
	requireSame(t, mustDecode(t, want.Seq(), golden(t, snapshot4Golden)), want)
	withSessions(t, want)
	file := golden(t, snapshot5Golden)
	if got := want.View().Encode(); !bytes.Equal(got, file) {
		t.Fatalf("encoded\n%x\nwant\n%x", got, file)
	}
	requireSame(t, mustDecode(t, want.Seq(), file), want)
}

func TestViewKnowsItsSnapshotInEveryVersion(t *testing.T) {
	s := sound(t)
	first := s.View()
	mustApply(t, s, keyedCommit())
	withKeys(t, s)
	second := s.View()
	withConsumers(t, s)
	third := s.View()
	withQueues(t, s)
	views := map[string]*View{snapshot1Golden: first, snapshot2Golden: second, snapshot3Golden: third, snapshot4Golden: s.View()}
	for file := range views {
		for of, view := range views {
			if view.Is(golden(t, file)) != (of == file) {
				t.Errorf("%s is the state of %s, or not that of its own", file, of)
			}
		}
	}
	newer := s.View().Encode()
	newer[0]++
	if v := s.View(); v.Is(newer) || v.Is(nil) || v.Is([]byte{1}) {
		t.Error("what can't be read is the state")
	}
}

func TestEverySnapshotThatIsCutOffIsRefused(t *testing.T) {
	full := sound(t)
	mustApply(t, full, keyedCommit())
	withKeys(t, full)
	withConsumers(t, full)
	withQueues(t, full)
	withSessions(t, full)
	b := full.View().Encode()
	for n := range b {
		if s, err := Decode(3, b[:n]); err == nil {
			t.Fatalf("%d of %d bytes are accepted: %s", n, len(b), summary(s))
		}
	}
	if _, err := Decode(3, append(b, 0)); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("with a byte more: %v", err)
	}
}

func TestSnapshotOfAnotherVersionIsRefused(t *testing.T) {
	b := sound(t).View().Encode()
	for _, version := range []byte{0, snapshotVersion + 1} {
		b[0] = version
		if _, err := Decode(3, b); !errors.Is(err, format.ErrVersion) {
			t.Fatalf("version %d: the error is %v", version, err)
		}
	}
}

func TestSnapshotThatContradictsItselfIsRefused(t *testing.T) {
	snapshot := []byte{
		snapshotVersion, 0, 2, 0, // time, next topic, floor
		0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 100, // objects from 0 on: one of slot 1
		1, 1, 1, 'a', 0, 0, 0, 1, // topics: number 1, without a config, with one partition
		0, 2, 0, 1, // the partition has offsets 0 and 1, in one batch
		0, 2, 0, 0, 32, 61, 1, 2, 3, 4,
		1, 0, // appends with a key: one, of time 0
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
		1, 0, 2, 0, // with one range: offsets 0 and 1 of partition 0
	}
	const topicsEnd, keyedEnd = 39, 77
	snapshot = append(snapshot, 1, 0) // no keys; the next has id 1
	snapshot = append(snapshot, 1, 0) // no consumers; the next has id 1
	snapshot = append(snapshot, 1, 0) // no queues; the next has id 1
	snapshot = append(snapshot, 0)    // no delayed records
	snapshot = append(snapshot, 0, 0) // no sessions
	if _, err := Decode(1, snapshot); err != nil {
		t.Fatal(err)
	}
	for name, bend := range map[string]struct {
		at int
		to byte
	}{
		"topic id that is to come":         {2, 1},
		"object of an unknown kind":        {6, 2},
		"object of a negative slot":        {7, 1},
		"topic without a name":             {19, 0},
		"topic without partitions":         {24, 0},
		"start behind the end":             {25, 3},
		"end behind the last batch":        {26, 3},
		"end before the last batch's":      {26, 1},
		"batch without records":            {30, 0},
		"object before the first":          {32, 1},
		"object behind the last":           {32, 2},
		"no batches, and yet some offsets": {28, 0},
		"keyed append of the future":       {40, 2},
		"keyed append without records":     {75, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bent := slices.Clone(snapshot)
			bent[bend.at] = bend.to
			if _, err := Decode(1, bent); !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("the error is %v", err)
			}
		})
	}
	late := slices.Clone(snapshot)
	late[26], late[29] = 3, 1
	if _, err := Decode(1, late); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("a first batch behind the start: %v", err)
	}
	twice := slices.Concat(snapshot[:17], []byte{2}, snapshot[18:topicsEnd], snapshot[18:])
	if _, err := Decode(1, twice); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("a topic twice: %v", err)
	}
	again := slices.Concat(snapshot[:topicsEnd], []byte{2}, snapshot[topicsEnd+1:keyedEnd], snapshot[topicsEnd+1:])
	if _, err := Decode(1, again); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("a key twice: %v", err)
	}
}

// A false count must not make Decode allocate more than the size of the snapshot justifies.
func TestSnapshotThatLiesAboutCountsTakesNoMemory(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}
	for name, b := range map[string][]byte{
		"objects":    append([]byte{snapshotVersion, 0, 1, 0, 0}, huge...),
		"topics":     append([]byte{snapshotVersion, 0, 1, 0, 0, 0}, huge...),
		"name":       append([]byte{snapshotVersion, 0, 9, 0, 0, 0, 1, 1}, huge...),
		"partitions": append([]byte{snapshotVersion, 0, 9, 0, 0, 0, 1, 1, 1, 'a', 0, 0, 0}, huge...),
		"keyed":      append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0}, huge...),
		"ranges":     slices.Concat([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 1, 0}, make([]byte, 32), huge),
		"keys":       append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1}, huge...),
		"consumers":  append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}, huge...),
		"positions":  append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 9, 1, 1, 1, 1, 'p', 0, 0, 0}, huge...),
		"queues":     append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 9}, huge...),
		"parts":      append(aQueue(), huge...),
		"spans":      append(append(aQueue(), 1, 0), huge...),
		"attempts":   append(append(aQueue(), 1, 0, 0, 0, 0), huge...),
		"sessions":   append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0}, huge...),
		"owners":     append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0}, huge...),
		"delayed":    append([]byte{snapshotVersion, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0}, huge...),
	} {
		t.Run(name, func(t *testing.T) {
			b = append(b, make([]byte, 100)...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(1, b)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("the error is %v", err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Fatalf("it took %d bytes", n)
			}
		})
	}
}

func TestViewIsReadWhileTheStateGoesOn(t *testing.T) {
	s, _ := long(t, 3*chunkBatches)
	end := s.Topic("a").Partitions[0].End
	var readers sync.WaitGroup
	for i := range 300 {
		entries := []format.Entry{&format.Batch{Topic: 1, Base: end, Count: 1, Size: 61}}
		switch i {
		case 100:
			entries = append(entries, &format.PartitionsAdded{Topic: 1, Partitions: 9})
		case 200:
			entries = append(entries, &format.TopicCreated{ID: 2, Partitions: 1, Name: "b"})
		case 299:
			entries = append(entries, &format.TopicDeleted{ID: 1})
		}
		end++
		if i%20 == 19 {
			view, want := s.View(), s.View().Encode()
			readers.Go(func() {
				for range 5 {
					if string(view.Encode()) != string(want) {
						t.Error("a view changed while the state went on")
					}
				}
			})
		}
		mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Entries: entries})
	}
	readers.Wait()
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add(New().View().Encode())
	f.Add(sound(f).View().Encode())
	keyed := sound(f)
	mustApply(f, keyed, keyedCommit())
	f.Add(keyed.View().Encode())
	f.Add(golden(f, snapshot1Golden))
	small, _ := long(f, 12)
	f.Add(small.View().Encode())
	keys := sound(f)
	withKeys(f, keys)
	f.Add(keys.View().Encode())
	f.Add(golden(f, snapshot3Golden))
	f.Add(golden(f, snapshot4Golden))
	f.Add(golden(f, snapshot5Golden))
	f.Add(golden(f, pushGolden))
	f.Add(golden(f, snapshotPagesGolden))
	f.Add(spendAt(f, raisedState(f), time.UnixMicro(2), spent(format.CauseRead, format.StoreUse{Gets: 7})).View().Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(5, b)
		if err != nil {
			if !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrVersion) {
				t.Fatalf("the error says neither damaged nor version: %v", err)
			}
			return
		}
		again := mustDecode(t, 5, s.View().Encode())
		requireSame(t, again, s)
		for _, topic := range s.Topics() {
			for i := range topic.Partitions {
				p := &topic.Partitions[i]
				for _, offset := range []format.Offset{p.Start, p.Start + format.Offset((int64(p.End-p.Start))/2), p.End - 1} {
					got := s.Locate(nil, topic, format.Partition(i), offset, 1, 1)
					if p.Start <= offset && offset < p.End && (len(got) != 1 || got[0].Base > offset || got[0].Base+format.Offset(got[0].Span) <= offset) {
						t.Fatalf("offset %d of %d to %d is at %+v", offset, p.Start, p.End, got)
					}
				}
			}
		}
		if s.Unread() {
			return // no commit can be applied to it
		}
		if s.Time() == math.MaxInt64 {
			return // no commit can be later
		}
		// An accepted state can apply further commits.
		c := &format.Commit{Seq: 6, Time: s.NextTime(s.Time()), Data: []format.DataRef{{Seq: s.DataFloor(), ID: 1, Size: 1000}}}
		if s.topics.next+1 != 0 {
			c.Entries = []format.Entry{
				&format.TopicCreated{ID: s.topics.next, Partitions: 1, Name: "a name that no other topic has"},
				&format.Batch{Topic: s.topics.next, Count: 1, Size: 61},
				&format.Batch{Topic: s.topics.next, Base: 1, Count: 1, Size: 61, Object: 1},
			}
		}
		if s.DataFloor() > 5 {
			c.Data, c.Entries = nil, nil
		}
		if s.NextKeyID()+1 != 0 && len(s.Keys()) < KeysMax {
			c.Entries = append(c.Entries, key(s.NextKeyID(), "a name that no other key has"), &format.KeyRevoked{ID: s.NextKeyID()})
		}
		if topics := s.Topics(); len(topics) > 0 && s.consumers.next+1 != 0 {
			c.Entries = append(c.Entries, created(s.consumers.next, topics[0].ID, "a name that no other consumer has"), moved(s.consumers.next, 0, 0))
		}
		if topics := s.Topics(); len(topics) > 0 && s.queues.next+1 != 0 && len(s.queues.byID) < QueuesMax {
			c.Entries = append(c.Entries, queueSet(s.queues.next, topics[0].ID, "a name that no other queue has"), owned(s.queues.next, 1, 1))
			for _, q := range s.Queues(topics[0].ID) {
				if q.Epoch+1 != 0 {
					c.Entries = append(c.Entries, owned(q.ID, q.Epoch+1, 5))
				}
			}
		}
		if err := s.Apply(c); err != nil {
			t.Fatal(err)
		}
		requireSame(t, mustDecode(t, 6, s.View().Encode()), s)
	})
}
