package format

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
)

func goldenSegment() *SegmentHead {
	return &SegmentHead{
		Cluster: goldenCluster,
		Ref:     DataRef{Seq: 5, ID: 0x0102030405060708, Size: 1168},
		Created: goldenTime,
		Batches: 3,
		Sections: []Section{
			{Kind: SectionBatches, Rows: 3, Pos: 168, Size: 700, CRC: 0xdeadbeef},
			{Kind: 77, Rows: 1 << 40, Pos: 868, Size: 100, CRC: 1},
			{Kind: SectionLocations, Rows: 3, Pos: 968, Size: 200, CRC: 2},
		},
	}
}

func TestGoldenSegment(t *testing.T) {
	file := golden(t, "segment.golden")
	requireBytes(t, EncodeSegmentHead(goldenSegment()), file)
	got, err := DecodeSegmentHead(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, goldenSegment())
	if len(file) != SegmentHeadSize(3) {
		t.Fatalf("it has %d bytes, not %d", len(file), SegmentHeadSize(3))
	}
}

// TestSegmentFieldTable builds the head of a segment only from the table in the comment.
func TestSegmentFieldTable(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	h := goldenSegment()
	head := u64(u64(append([]byte(nil), h.Cluster[:]...), 5), 0x0102030405060708)
	head = u32(u32(head, 1168), 3)
	for _, s := range h.Sections {
		head = u64(u32(u32(head, uint32(s.Kind)), 0), s.Rows)
		head = u32(u32(u32(u32(head, s.Pos), s.Size), s.CRC), 0)
	}
	b := u32(u64(append([]byte("seb!"), 2, 0), goldenTime), 3)
	b = u32(append(b, 4, 0), uint32(len(head)))
	b = u32(b, crc32.Checksum(head, castagnoli))
	b = u32(b, crc32.Checksum(b, castagnoli))
	requireBytes(t, golden(t, "segment.golden"), append(b, head...))
}

func TestInvalidSegmentHeads(t *testing.T) {
	for name, change := range map[string]func(h *SegmentHead){
		"no sections":            func(h *SegmentHead) { h.Sections = nil },
		"no batches":             func(h *SegmentHead) { h.Sections[0].Kind = 5 },
		"no locations":           func(h *SegmentHead) { h.Sections[2].Kind = 5 },
		"locations are not last": func(h *SegmentHead) { h.Sections[1].Kind, h.Sections[2].Kind = 2, 77 },
		"a kind twice":           func(h *SegmentHead) { h.Sections[1].Kind = SectionBatches },
		"a gap":                  func(h *SegmentHead) { h.Sections[1].Pos++ },
		"an overlap":             func(h *SegmentHead) { h.Sections[1].Pos-- },
		"object too large":       func(h *SegmentHead) { h.Ref.Size++ },
		"object too small":       func(h *SegmentHead) { h.Ref.Size-- },
		"batches":                func(h *SegmentHead) { h.Batches++ },
		"rows of batches":        func(h *SegmentHead) { h.Sections[0].Rows++ },
		"rows of locations":      func(h *SegmentHead) { h.Sections[2].Rows++ },
		"more than 4 GiB":        func(h *SegmentHead) { h.Sections[2].Size = math.MaxUint32 },
		"too many sections": func(h *SegmentHead) {
			h.Sections = append(make([]Section, SegmentSectionsMax), h.Sections...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := goldenSegment()
			change(h)
			_, err := DecodeSegmentHead(EncodeSegmentHead(h))
			requireIs(t, err, ErrCorrupt)
		})
	}
	for _, at := range []int{PrologueSize + segmentFixedSize + 4, PrologueSize + segmentFixedSize + 28} {
		b := EncodeSegmentHead(goldenSegment())
		b[at] = 1
		seal(b)
		_, err := DecodeSegmentHead(b)
		requireIs(t, err, ErrCorrupt)
	}
	_, err := DecodeSegmentHead(golden(t, "data.golden"))
	requireIs(t, err, ErrForeign)
}

func goldenRow() *SegmentBatch {
	return &SegmentBatch{
		Topic: 3, Partition: 1, Base: 1 << 40, Span: 1000, Records: 990, MaxTime: -1, Pos: 168, Size: 300, CRC: 0xdeadbeef,
		Commits: []CommitPart{
			{Base: 1 << 40, Seq: 7, Time: goldenTime},
			{Base: 1<<40 + 10, Seq: 8, Time: goldenTime}, // as old logs have it: the time does not rise
			{Base: 1<<40 + 999, Seq: 1 << 40, Time: goldenTime + 1_000_000},
		},
	}
}

func TestGoldenLocationRow(t *testing.T) {
	x := goldenRow()
	row := append(LocationKey(x.Topic, x.Partition, x.Base), x.AppendValue(nil)...)
	requireBytes(t, row, golden(t, "location.golden"))
	got, err := DecodeSegmentBatch(row[:LocationKeySize], row[LocationKeySize:])
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, x)
}

func TestLocationKeysSortLikeNumbers(t *testing.T) {
	var last []byte
	for _, topic := range []TopicID{0, 1, 255, 256, math.MaxUint64} {
		for _, partition := range []Partition{0, 1, 255, 256, math.MaxInt32} {
			for _, base := range []Offset{0, 1, 255, 256, 1 << 32, math.MaxInt64} {
				key := LocationKey(topic, partition, base)
				if bytes.Compare(key, last) <= 0 {
					t.Fatalf("%x is not after %x", key, last)
				}
				last = key
			}
		}
	}
}

func TestInvalidLocationRows(t *testing.T) {
	for name, change := range map[string]func(x *SegmentBatch){
		"negative base":             func(x *SegmentBatch) { x.Base = -1; x.Commits = []CommitPart{{Base: -1, Seq: 1}} },
		"end beyond int64":          func(x *SegmentBatch) { x.Base = math.MaxInt64 - 998; x.Commits = []CommitPart{{Base: x.Base, Seq: 1}} },
		"negative partition":        func(x *SegmentBatch) { x.Partition = -1 },
		"no span":                   func(x *SegmentBatch) { x.Span, x.Records = 0, 0 },
		"no records":                func(x *SegmentBatch) { x.Records = 0 },
		"span too large":            func(x *SegmentBatch) { x.Span, x.Records = SpanMax+1, SpanMax+1 },
		"size of a header":          func(x *SegmentBatch) { x.Size = batchSizeMin - 1 },
		"beyond 4 GiB":              func(x *SegmentBatch) { x.Pos = math.MaxUint32 - x.Size + 1 },
		"no commits":                func(x *SegmentBatch) { x.Commits = nil },
		"slot 0":                    func(x *SegmentBatch) { x.Commits = []CommitPart{{Base: x.Base}} },
		"the same slot":             func(x *SegmentBatch) { x.Commits[1].Seq = 7 },
		"the same offset":           func(x *SegmentBatch) { x.Commits[1].Base = x.Base },
		"a commit above the span":   func(x *SegmentBatch) { x.Commits[2].Base++ },
		"a commit not at the base":  func(x *SegmentBatch) { x.Commits[0].Base++ },
		"slots that overflow":       func(x *SegmentBatch) { x.Commits[2].Seq = 6 },
		"times that fall":           func(x *SegmentBatch) { x.Commits[2].Time = goldenTime - 1 },
		"a first time before 1970":  func(x *SegmentBatch) { x.Commits[0].Time = -1 },
		"offsets that fall":         func(x *SegmentBatch) { x.Commits[2].Base = x.Base + 5 },
		"more records than offsets": func(x *SegmentBatch) { x.Records = 1001 },
	} {
		t.Run(name, func(t *testing.T) {
			x := goldenRow()
			change(x)
			_, err := DecodeSegmentBatch(LocationKey(x.Topic, x.Partition, x.Base), x.AppendValue(nil))
			requireIs(t, err, ErrCorrupt)
		})
	}
	x := goldenRow()
	key, value := LocationKey(x.Topic, x.Partition, x.Base), x.AppendValue(nil)
	for n := range value {
		_, err := DecodeSegmentBatch(key, value[:n])
		requireIs(t, err, ErrCorrupt)
	}
	_, err := DecodeSegmentBatch(key, append(value, 0))
	requireIs(t, err, ErrCorrupt)
	_, err = DecodeSegmentBatch(key[1:], value)
	requireIs(t, err, ErrCorrupt)
}

func FuzzDecodeSegment(f *testing.F) {
	f.Add(golden(f, "segment.golden"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindSegment, func(b []byte) (*SegmentHead, []byte, error) {
			h, err := DecodeSegmentHead(b)
			if err != nil {
				return nil, nil, err
			}
			return h, EncodeSegmentHead(h), nil
		})
	})
}

func FuzzDecodeLocation(f *testing.F) {
	row := golden(f, "location.golden")
	f.Add(row[:LocationKeySize], row[LocationKeySize:])
	f.Fuzz(func(t *testing.T, key, value []byte) {
		x, err := DecodeSegmentBatch(key, value)
		if err != nil {
			requireIs(t, err, ErrCorrupt)
			return
		}
		again, err := DecodeSegmentBatch(LocationKey(x.Topic, x.Partition, x.Base), x.AppendValue(nil))
		if err != nil {
			t.Fatalf("what was accepted is refused when it is written again: %v", err)
		}
		requireEqual(t, again, x)
	})
}
