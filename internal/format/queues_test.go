package format

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
)

func goldenQueues() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 10, Nonce: goldenNonce, Prev: hashOf(0xee), Time: goldenTime,
		Entries: []Entry{
			&QueueSet{ID: 5, Topic: 3, Name: "mail", Config: QueueConfig{
				LeaseMS: 30_000, BackoffMinMS: 1_000, BackoffMaxMS: 3_600_000, Attempts: 5, Ordered: true, Paused: true, DeadLetterTopic: "mail.dead",
			}},
			&QueueSet{ID: 6, Topic: 3, Name: "plain", Config: QueueConfig{LeaseMS: 1, Attempts: math.MaxUint32}},
			&QueueDeleted{ID: 4},
			&QueueOwned{Queue: 5, Epoch: 2, Windows: []Offset{4096, 0, math.MaxInt64}, Address: "http://10.0.0.1:51313"},
			&QueueReleased{Queue: 6, Epoch: 1},
			&WindowMoved{Queue: 5, Epoch: 2, Partition: 1, Window: 8192},
			&RecordsAttempted{Queue: 5, Epoch: 2, Partition: 1, Attempts: []Attempt{{Offset: 0, Number: 2}, {Offset: math.MaxInt64, Number: math.MaxUint32}}},
			&RecordsDone{Queue: 5, Partition: 1, Runs: []Run{{Offset: 3, Count: 4, Number: 1}, {Offset: 7, Count: 1, Number: 2}, {Offset: 1 << 40, Count: math.MaxUint32, Number: 1}}},
			&RecordPutBack{Queue: 5, Partition: 1, Attempt: Attempt{Offset: 0, Number: 2}, NotBefore: goldenTime + 1, Reason: "smtp: 451"},
			&RecordPutBack{Queue: 5, Partition: 2, Attempt: Attempt{Offset: 9, Number: 5}, DeadLetter: true},
			&RecordsRedriven{Queue: 5, Partition: 2, Offsets: []Offset{0, 9, math.MaxInt64}},
			&QueuePurged{Queue: 5, Partition: 2, Before: 10},
			&RecordsDelayed{Topic: 3, Partition: 1, Count: 2, Offset: 1 << 33, Due: goldenTime + 60_000_000},
		},
	}
}

func TestGoldenCommitOfQueues(t *testing.T) {
	file := golden(t, "commit.queues.golden")
	want := goldenQueues()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestQueueFieldTable builds the entries only from the table in the comment of queues.go.
func TestQueueFieldTable(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	entry := func(kind byte, size uint32) { b = le.AppendUint32(append(b, kind, 0, 1, 0), size) }
	u64 := func(fields ...uint64) {
		for _, f := range fields {
			b = le.AppendUint64(b, f)
		}
	}
	u32 := func(fields ...uint32) {
		for _, f := range fields {
			b = le.AppendUint32(b, f)
		}
	}
	text := func(s string) { b = append(b, s...) }

	entry(14, 2*8+3*8+2*4+2+9+4)
	u64(5, 3, 30_000, 1_000, 3_600_000)
	u32(5, 3)
	text("\x09\x00mail.deadmail")
	entry(14, 2*8+3*8+2*4+2+5)
	u64(6, 3, 1, 0, 0)
	u32(math.MaxUint32, 0)
	text("\x00\x00plain")
	entry(15, 8)
	u64(4)
	entry(16, 2*8+2*4+3*8+21)
	u64(5, 2)
	u32(3, 0)
	u64(4096, 0, math.MaxInt64)
	text("http://10.0.0.1:51313")
	entry(17, 16)
	u64(6, 1)
	entry(18, 32)
	u64(5, 2)
	u32(1, 0)
	u64(8192)
	entry(19, 24+2*16)
	u64(5, 2)
	u32(1, 0)
	u64(0)
	u32(2, 0)
	u64(math.MaxInt64)
	u32(math.MaxUint32, 0)
	entry(20, 16+3*16)
	u64(5)
	u32(1, 0)
	u64(3)
	u32(4, 1)
	u64(7)
	u32(1, 2)
	u64(1 << 40)
	u32(math.MaxUint32, 1)
	entry(21, 40+9)
	u64(5)
	u32(1, 2)
	u64(0, goldenTime+1)
	u32(0, 0)
	text("smtp: 451")
	entry(21, 40)
	u64(5)
	u32(2, 5)
	u64(9, 0)
	u32(1, 0)
	entry(22, 16+3*8)
	u64(5)
	u32(2, 0)
	u64(0, 9, math.MaxInt64)
	entry(23, 24)
	u64(5)
	u32(2, 0)
	u64(10)
	entry(24, 32)
	u64(3)
	u32(1, 2)
	u64(1<<33, goldenTime+60_000_000)
	requireBytes(t, golden(t, "commit.queues.golden")[PrologueSize+commitFixedSize:], b)
}

// queueBody returns the encoded entry, and a function that decodes such an entry.
func queueBody(it Entry) (body []byte, decode func(b []byte) error) {
	kind := it.kind()
	return it.append(nil), func(b []byte) error {
		if want := fixedEntrySize(kind); want >= 0 && int64(len(b)) != want {
			return Corrupt("size") // decodeEntry checks the size first
		}
		_, _, err := decodeQueueEntry(kind, b)
		return err
	}
}

// A truncated entry about queues is refused, or is another valid entry: one with fewer elements
// in its list, or a shorter text.
func TestQueueEntriesThatAreCutOffAreRefused(t *testing.T) {
	shortest := map[uint16][]int{ // by kind: sizes that a truncated entry may have
		entryRecordsAttempted: {24 + 16}, entryRecordsDone: {16 + 16, 16 + 32}, entryRecordsRedriven: {16 + 8, 16 + 16},
	}
	text := map[uint16]int{entryQueueSet: 50, entryQueueOwned: 24, entryRecordPutBack: 40}
	for _, it := range goldenQueues().Entries {
		body, decode := queueBody(it)
		from := len(body)
		switch x := it.(type) {
		case *QueueSet:
			from = text[x.kind()] + len(x.Config.DeadLetterTopic)
		case *QueueOwned:
			from = text[x.kind()] + 8*len(x.Windows)
		case *RecordPutBack:
			from = text[x.kind()]
		}
		for n := range body {
			err := decode(body[:n])
			if whole := n >= from || slices.Contains(shortest[it.kind()], n); whole && err != nil || !whole && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d of %d bytes of a %T: %v", n, len(body), it, err)
			}
		}
		if _, text := text[it.kind()]; !text {
			if err := decode(append(body, 0)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a byte follows a %T: %v", it, err)
			}
		}
	}
}

func TestImpossibleQueueEntriesAreRefused(t *testing.T) {
	attempted := func(as ...Attempt) Entry { return &RecordsAttempted{Attempts: as} }
	done := func(rs ...Run) Entry { return &RecordsDone{Runs: rs} }
	redriven := func(os ...Offset) Entry { return &RecordsRedriven{Offsets: os} }
	for name, it := range map[string]Entry{
		"window before the beginning":       &WindowMoved{Window: -1},
		"owner's window before it":          &QueueOwned{Windows: []Offset{0, -1}},
		"no attempts":                       attempted(),
		"attempt before the beginning":      attempted(Attempt{-1, 1}),
		"attempt number 0":                  attempted(Attempt{1, 0}),
		"attempts of one offset":            attempted(Attempt{1, 1}, Attempt{1, 2}),
		"attempts out of order":             attempted(Attempt{2, 1}, Attempt{1, 1}),
		"nothing done":                      done(),
		"done before the beginning":         done(Run{-1, 1, 1}),
		"no records done":                   done(Run{1, 0, 1}),
		"done by no attempt":                done(Run{1, 1, 0}),
		"done beyond the last offset":       done(Run{math.MaxInt64, 1, 1}),
		"done far beyond the last offset":   done(Run{math.MaxInt64 - 5, math.MaxUint32, 1}),
		"done twice":                        done(Run{1, 3, 1}, Run{3, 1, 1}),
		"done out of order":                 done(Run{5, 1, 1}, Run{1, 1, 1}),
		"put back before the beginning":     &RecordPutBack{Attempt: Attempt{-1, 1}},
		"attempt number 0 put back":         &RecordPutBack{Attempt: Attempt{1, 0}},
		"put back until before time begins": &RecordPutBack{Attempt: Attempt{1, 1}, NotBefore: -1},
		"nothing redriven":                  redriven(),
		"redriven before the beginning":     redriven(-1),
		"redriven twice":                    redriven(1, 1),
		"redriven out of order":             redriven(2, 1),
		"purged before the beginning":       &QueuePurged{Before: -1},
		"no records delayed":                &RecordsDelayed{Offset: 1},
		"delayed before the beginning":      &RecordsDelayed{Offset: -1, Count: 1},
		"delayed beyond the last offset":    &RecordsDelayed{Offset: math.MaxInt64, Count: 1},
		"delayed until before time begins":  &RecordsDelayed{Count: 1, Due: -1},
	} {
		body, decode := queueBody(it)
		if err := decode(body); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBentQueueEntriesAreRefused(t *testing.T) {
	entries := goldenQueues().Entries
	for name, bend := range map[string]struct {
		entry, at int
		to        byte
		want      error
	}{
		"unknown flag of a queue":           {0, 44, 4, ErrVersion},
		"unknown high flag of a queue":      {0, 47, 0x80, ErrVersion},
		"dead-letter topic of 65,033 bytes": {0, 49, 0xfe, ErrCorrupt},
		"dead-letter topic beyond the end":  {0, 48, 14, ErrCorrupt},
		"more windows than bytes":           {3, 16, 6, ErrCorrupt},
		"billions of windows":               {3, 19, 0xff, ErrCorrupt},
		"reserved bytes of an owner":        {3, 23, 1, ErrCorrupt},
		"reserved bytes of a window":        {5, 20, 1, ErrCorrupt},
		"reserved bytes of attempts":        {6, 20, 1, ErrCorrupt},
		"reserved bytes of an attempt":      {6, 24 + 12, 1, ErrCorrupt},
		"reserved bytes of what is done":    {7, 15, 1, ErrCorrupt},
		"unknown flag of one put back":      {8, 32, 2, ErrVersion},
		"reserved bytes of one put back":    {8, 36, 1, ErrCorrupt},
		"reserved bytes of redriven ones":   {10, 12, 1, ErrCorrupt},
		"reserved bytes of a purge":         {11, 12, 1, ErrCorrupt},
	} {
		body, decode := queueBody(entries[bend.entry])
		if err := decode(body); err != nil {
			t.Fatal(err)
		}
		body[bend.at] = bend.to
		if err := decode(body); !errors.Is(err, bend.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
