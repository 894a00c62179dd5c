package format

import (
	"encoding/binary"
	"testing"
	"time"
)

// goldenSegments has all entries about segments.
func goldenSegments() *Commit {
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xbb), Time: goldenTime,
		Entries: []Entry{
			&LevelRaised{Level: 6, DeleteDelay: 24 * time.Hour},
			&CheckpointSeen{Slot: 8, Bottom: 7, Boot: BootID{1, 2, 15: 16}, Since: 1_000_001},
			&CheckpointSeen{Slot: 1},
			&Collected{Slot: 6, Bottom: 7},
			&LevelKnown{Level: 6},
			&LevelKnown{Level: 7, Hold: true},
			&SegmentAdded{
				Ref: DataRef{Seq: 5, ID: 0x0102030405060708, Size: 70_000}, Level: 1, Slot: 7, Table: TableRef{Pos: 60_000, IndexSize: 3000, IndexCRC: 0xdeadbeef},
				First: CommitTime{2, goldenTime - 5}, Last: CommitTime{7, goldenTime - 1},
				Ranges: []SegmentRange{
					{Topic: 1, Partition: 0, Base: 10, End: 20, Records: 9, Bytes: 300, MaxTime: -1},
					{Topic: 1, Partition: 0, Base: 20, End: 25, Stays: true},
					{Topic: 1, Partition: 0, Base: 30, End: 1 << 40, Records: 1 << 33, Bytes: 1 << 31, MaxTime: 1_790_000_000_000},
					{Topic: 1, Partition: 4, Base: 1, End: 2, Records: 1, Bytes: 61, MaxTime: 0},
					{Topic: 300, Partition: 2, Base: 0, End: 1, Records: 1, Bytes: 61, MaxTime: 5},
				},
			},
			&SegmentAdded{
				Ref: DataRef{Seq: 6, ID: 1, Size: 200}, Level: 2, Through: 31, Table: TableRef{Pos: 198, IndexSize: 1, IndexCRC: 1},
				First: CommitTime{1, 0}, Last: CommitTime{1, 0}, Inputs: []uint64{1, 2, 1 << 40},
				Ranges: []SegmentRange{{Topic: 7, Partition: 0, Base: 0, End: 1, Records: 1, Bytes: 61, MaxTime: 5}},
			},
		},
	}
}

func TestGoldenSegmentEntries(t *testing.T) {
	file := golden(t, "commit.segments.golden")
	want := goldenSegments()
	requireBytes(t, EncodeCommit(want), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
}

// TestSegmentEntryFieldTable builds an entry only from the table in the comment.
func TestSegmentEntryFieldTable(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	u, z := binary.AppendUvarint, binary.AppendVarint
	b := u32(u32(u64(u64(nil, 5), 0x0102030405060708), 70_000), 1)
	b = u32(u32(u64(u64(b, 0), 7), 60_000), 3000)
	b = u32(u32(b, 0xdeadbeef), 0)
	b = u64(u64(u64(u64(b, 2), goldenTime-5), 7), goldenTime-1)
	b = u(u(b, 0), 5)
	b = z(u(u(u(u(u(u(u(b, 1), 0), 10), 10), 0), 9), 300), -1)
	b = z(u(u(u(u(u(u(u(b, 0), 0), 0), 5), 1), 0), 0), 0)
	b = z(u(u(u(u(u(u(u(b, 0), 0), 5), 1<<40-30), 0), 1<<33), 1<<31), 1_790_000_000_000)
	b = z(u(u(u(u(u(u(u(b, 0), 4), 1), 1), 0), 1), 61), 0)
	b = z(u(u(u(u(u(u(u(b, 299), 2), 0), 1), 0), 1), 61), 5)
	requireBytes(t, goldenSegments().Entries[6].append(nil), b)
}

func TestInvalidSegmentEntries(t *testing.T) {
	for name, change := range map[string]func(x, merged *SegmentAdded){
		"level 0":             func(x, _ *SegmentAdded) { x.Level = 0 },
		"level 1, no slot":    func(x, _ *SegmentAdded) { x.Slot = 0 },
		"level 1, inputs":     func(x, _ *SegmentAdded) { x.Inputs = []uint64{1} },
		"level 2, no through": func(_, m *SegmentAdded) { m.Through = 0 },
		"level 1, through":    func(x, _ *SegmentAdded) { x.Through = 1 },
		"level 2, no inputs":  func(_, m *SegmentAdded) { m.Inputs = nil },
		"level 2, a slot":     func(_, m *SegmentAdded) { m.Slot = 1 },
		"inputs fall":         func(_, m *SegmentAdded) { m.Inputs = []uint64{2, 1} },
		"input 0":             func(_, m *SegmentAdded) { m.Inputs = []uint64{0} },
		"table outside":       func(x, _ *SegmentAdded) { x.Table.Pos = x.Ref.Size - 3000 },
		"first after last":    func(x, _ *SegmentAdded) { x.First.Seq = 8 },
		"first in slot 0":     func(x, _ *SegmentAdded) { x.First.Seq = 0 },
		"no ranges":           func(x, _ *SegmentAdded) { x.Ranges = nil },
		"topic 0":             func(x, _ *SegmentAdded) { x.Ranges = []SegmentRange{{End: 1, Records: 1, Bytes: 1}} },
		"empty range":         func(x, _ *SegmentAdded) { x.Ranges[0].End = x.Ranges[0].Base },
		"ranges overlap":      func(x, _ *SegmentAdded) { x.Ranges[1].Base-- },
		"topics fall":         func(x, _ *SegmentAdded) { x.Ranges[4].Topic = 0 },
		"partitions fall":     func(x, _ *SegmentAdded) { x.Ranges[2].Partition = 5 },
		"negative base":       func(x, _ *SegmentAdded) { x.Ranges[0].Base = -1 },
		"no records":          func(x, _ *SegmentAdded) { x.Ranges[0].Records = 0 },
		"no bytes":            func(x, _ *SegmentAdded) { x.Ranges[0].Bytes = 0 },
		"stays, with records": func(x, _ *SegmentAdded) { x.Ranges[1].Records = 1 },
		"stays, with a time":  func(x, _ *SegmentAdded) { x.Ranges[1].MaxTime = 1 },
		"beyond int64":        func(x, _ *SegmentAdded) { x.Ranges[2].Base, x.Ranges[2].End = 1<<62, -1<<62 },
	} {
		t.Run(name, func(t *testing.T) {
			c := goldenSegments()
			change(c.Entries[6].(*SegmentAdded), c.Entries[7].(*SegmentAdded))
			_, err := DecodeCommit(EncodeCommit(c))
			requireIs(t, err, ErrCorrupt)
		})
	}
	for i, it := range goldenSegments().Entries {
		body := it.append(nil)
		for n := range body {
			c := &Commit{Seq: 1, Entries: []Entry{&cutEntry{it.kind(), body[:n]}}}
			if _, err := DecodeCommit(EncodeCommit(c)); !known(err) {
				t.Fatalf("the first %d of %d bytes of entry %d: %v", n, len(body), i, err)
			}
		}
	}
	reserved := (&LevelRaised{Level: 6, DeleteDelay: time.Hour}).append(nil)
	reserved[4] = 1
	for _, it := range []Entry{
		&LevelRaised{DeleteDelay: time.Hour}, &LevelRaised{Level: 6}, &LevelRaised{Level: 6, DeleteDelay: -time.Hour}, &LevelKnown{}, &cutEntry{entryLevelRaised, reserved},
		&CheckpointSeen{}, &CheckpointSeen{Slot: 1, Bottom: 3}, &CheckpointSeen{Slot: 1, Since: -1}, &Collected{}, &Collected{Slot: 1, Bottom: 3},
	} {
		_, err := DecodeCommit(EncodeCommit(&Commit{Seq: 1, Entries: []Entry{it}}))
		requireIs(t, err, ErrCorrupt)
	}
}

// cutEntry is an entry of any kind with any bytes.
type cutEntry struct {
	of   uint16
	body []byte
}

func (c *cutEntry) kind() uint16           { return c.of }
func (c *cutEntry) size() int              { return len(c.body) }
func (c *cutEntry) append(b []byte) []byte { return append(b, c.body...) }
