package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/sst"
)

var testCluster = format.ClusterID{1, 2, 3}

// source is a batch as the log has it, and its records.
type source struct {
	Input
	span    int64
	records []record.Record
}

// randomSource returns a batch that begins at an offset, with gaps, any codec, and any attributes.
func randomSource(t *testing.T, r *rand.Rand, topic format.TopicID, partition format.Partition, base format.Offset) source {
	t.Helper()
	s := source{Input: Input{Topic: topic, Partition: partition, Base: base}}
	var b record.Builder
	count, gaps := 1+r.IntN(6), r.IntN(4) == 0
	for range count {
		if gaps {
			b.Skip(int64(r.IntN(3)))
		}
		x := record.Record{Value: fmt.Appendf(nil, "%d", r.Uint64()), Timestamp: r.Int64N(1000) - 100, Offset: int64(base) + b.Span()}
		switch r.IntN(4) {
		case 0:
			x.Key = fmt.Appendf(nil, "key %d", r.IntN(9))
		case 1:
			x.Key = []byte{}
		case 2:
			x.Value = nil
			x.Headers = []record.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "b", Value: []byte("c")}}
		}
		b.Append(&x)
		s.records = append(s.records, x)
		s.MaxTime = max(s.MaxTime, x.Timestamp)
	}
	s.MaxTime = slices.MaxFunc(s.records, func(x, y record.Record) int { return int(x.Timestamp - y.Timestamp) }).Timestamp
	if gaps {
		b.Skip(int64(r.IntN(3)))
	}
	s.span = b.Span()
	raw, err := b.FinishWith(record.Codec(r.IntN(5)))
	if err != nil {
		t.Fatal(err)
	}
	switch r.IntN(6) {
	case 0: // transactional
		raw[22] |= 0x10
	case 1: // log append time: all records have the largest timestamp
		raw[22] |= 0x08
		for i := range s.records {
			s.records[i].Timestamp = s.MaxTime
		}
	case 2: // of a producer with sequences
		binary.BigEndian.PutUint64(raw[43:], 7)
	}
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	s.Raw = raw
	return s
}

// randomLog returns batches of several partitions, in the order of a segment.
func randomLog(t *testing.T, r *rand.Rand) (log []source) {
	t.Helper()
	seq := format.Seq(1 + r.IntN(5))
	for topic := format.TopicID(1); topic <= 3; topic++ {
		for partition := range format.Partition(2) {
			base := format.Offset(r.IntN(10))
			if r.IntN(5) == 0 {
				base = 1 << 40
			}
			for range r.IntN(30) {
				s := randomSource(t, r, topic, partition, base)
				if r.IntN(3) > 0 {
					seq += format.Seq(1 + r.IntN(100))
				}
				s.Commits = []format.CommitPart{{Base: base, Seq: seq, Time: int64(seq) * 1000}}
				log = append(log, s)
				base += format.Offset(s.span)
				if r.IntN(20) == 0 {
					base += 5 // batches between these two are elsewhere
				}
			}
			seq = format.Seq(1 + r.IntN(5))
		}
	}
	return log
}

func build(t *testing.T, o Options, log []source) *Built {
	t.Helper()
	b := NewBuilder(o)
	for _, s := range log {
		if err := b.Add(s.Input); err != nil {
			t.Fatal(err)
		}
	}
	bound := b.Size()
	built, err := b.Finish(testCluster, format.DataRef{Seq: 9, ID: 77}, 1234)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(built.Object())) > bound {
		t.Fatalf("%d bytes, the bound was %d", len(built.Object()), bound)
	}
	return built
}

func tableOf(t *testing.T, built *Built) *sst.Table {
	t.Helper()
	b := built.Object()[built.Table.Pos:]
	whole, err := sst.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	end := len(b) - sst.FooterSize
	blocks := end - int(built.Table.IndexSize)
	x, err := sst.DecodeIndex(b[blocks:end], built.Table.IndexCRC, int64(blocks))
	if err != nil {
		t.Fatal(err)
	}
	part := sst.NewTable(x, func(blk sst.Block) ([]byte, error) { return b[blk.Pos : blk.Pos+blk.Size], nil })
	if row, ok, err := part.Floor([]byte{0xff}); err != nil || !ok || len(row.Key) != format.LocationKeySize {
		t.Fatalf("%x, %v, %v", row, ok, err)
	}
	return whole
}

// commitOf returns the commit of an offset.
func commitOf(commits []format.CommitPart, offset format.Offset) format.CommitPart {
	i, exact := slices.BinarySearchFunc(commits, offset, func(c format.CommitPart, o format.Offset) int { return int(c.Base - o) })
	if !exact {
		i--
	}
	return format.CommitPart{Seq: commits[i].Seq, Time: commits[i].Time}
}

// Every record that went into a segment is found at its offset, unchanged, with the commit that appended it.
func TestRecordsAreConserved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	merged := 0
	for i := range 30 {
		log := randomLog(t, r)
		if len(log) == 0 {
			continue
		}
		codec := record.Zstd
		if i%3 == 0 {
			codec = record.None
		}
		built := build(t, Options{Codec: codec, BatchBytes: 1 + r.IntN(2000)}, log)
		table := tableOf(t, built)
		object := built.Object()
		cut := len(object) / 3 // not between two batches
		for _, parts := range [][][]byte{{object}, {object[:headSize], object[headSize : headSize+cut], object[headSize+cut:]}} {
			if _, same, err := Check(parts...); err != nil || !slices.Equal(same, built.Ranges) {
				t.Fatalf("%d parts: %v, %v", len(parts), same, err)
			}
		}
		head, ranges, err := Check(built.Parts...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(built.Ranges, ranges, cmp.AllowUnexported(Sum{})); diff != "" {
			t.Fatal(diff)
		}
		if head.Ref != built.Ref || int(head.Ref.Size) != len(object) || head.Cluster != testCluster {
			t.Fatalf("%+v", head)
		}
		merged += len(log) - int(table.Rows())
		for _, s := range log {
			for o := s.Base; o < s.Base+format.Offset(s.span); o++ {
				x, ok, err := Find(table, s.Topic, s.Partition, o)
				if err != nil || !ok || x.Base > o {
					t.Fatalf("offset %d: %+v, %v, %v", o, x, ok, err)
				}
				if got := x.CommitOf(o); (format.CommitPart{Seq: got.Seq, Time: got.Time}) != commitOf(s.Commits, o) {
					t.Fatalf("offset %d is of commit %+v, not %+v", o, got, s.Commits)
				}
			}
			x, _, _ := Find(table, s.Topic, s.Partition, s.Base)
			raw := object[x.Pos : x.Pos+x.Size]
			parsed, err := record.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			var got []record.Record
			for rec, err := range parsed.Records(raw, int64(x.Base), record.Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
				if o := format.Offset(rec.Offset); o >= s.Base && o < s.Base+format.Offset(s.span) {
					got = append(got, rec)
				}
			}
			if diff := cmp.Diff(s.records, got); diff != "" {
				t.Fatalf("batch at %d: %s", s.Base, diff)
			}
			if mergeableRaw(t, s.Raw) != mergeable(parsed) || !mergeable(parsed) && !bytes.Equal(raw[12:], s.Raw[12:]) {
				t.Fatalf("a batch with attributes %#x became one with %#x", s.Raw[22], raw[22])
			}
		}
	}
	if merged == 0 {
		t.Error("no batches were merged")
	}
}

func mergeableRaw(t *testing.T, raw []byte) bool {
	t.Helper()
	head, err := record.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return mergeable(head)
}

// The batches of a segment can be the inputs of another one: sums, ranges and commits stay the same.
func TestSegmentsOfSegments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		log := randomLog(t, r)
		if len(log) == 0 {
			continue
		}
		first := build(t, Options{Codec: record.Zstd, BatchBytes: 1 + r.IntN(300)}, log)
		var again []source
		for row, err := range tableOf(t, first).All() {
			if err != nil {
				t.Fatal(err)
			}
			x, err := format.DecodeSegmentBatch(row.Key, row.Value)
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, source{Input: Input{
				Topic: x.Topic, Partition: x.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: first.Object()[x.Pos : x.Pos+x.Size], Commits: x.Commits,
			}})
		}
		second := build(t, Options{Codec: record.Zstd, BatchBytes: 10_000}, again)
		for _, built := range []*Built{first, second} {
			for i := range built.Ranges {
				built.Ranges[i].Bytes = 0
			}
		}
		if diff := cmp.Diff(first.Ranges, second.Ranges, cmp.AllowUnexported(Sum{})); diff != "" || first.First != second.First || first.Last != second.Last {
			t.Fatalf("%s%+v %+v %+v %+v", diff, first.First, second.First, first.Last, second.Last)
		}
		third := build(t, Options{Codec: record.Zstd, BatchBytes: 10_000}, log)
		if !bytes.Equal(second.Object(), third.Object()) && len(second.Object()) > len(third.Object())+len(third.Object())/10 {
			t.Errorf("%d bytes from a segment, %d from the log", len(second.Object()), len(third.Object()))
		}
	}
}

// From goes through the batches of one partition only.
func TestFromStaysInThePartition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		log := randomLog(t, r)
		if len(log) == 0 {
			continue
		}
		table := tableOf(t, build(t, Options{BatchBytes: 1}, log)) // a row for each batch
		at := log[r.IntN(len(log))]
		offset := at.Base + format.Offset(r.IntN(int(at.span)+7))
		var want, got []format.Offset
		for _, s := range log {
			if s.Topic == at.Topic && s.Partition == at.Partition && s.Base+format.Offset(s.span) > offset {
				want = append(want, s.Base)
			}
		}
		for x, err := range From(table, at.Topic, at.Partition, offset) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, x.Base)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("from %d: %s", offset, diff)
		}
		for x, err := range From(table, 99, 0, 0) {
			t.Fatalf("%+v, %v", x, err)
		}
		if x, ok, err := Find(table, 0, 0, 0); ok || err != nil {
			t.Fatalf("%+v, %v", x, err)
		}
	}
}

func TestInputsOutOfOrderAreRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	in := func(topic format.TopicID, partition format.Partition, base format.Offset) Input {
		s := randomSource(t, r, topic, partition, base)
		s.Commits = []format.CommitPart{{Base: base, Seq: 1}}
		return s.Input
	}
	for _, x := range []Input{in(1, 2, 30), in(2, 1, 50), in(2, 2, 9), in(2, 2, 10)} {
		b := NewBuilder(Options{})
		first := in(2, 2, 10)
		if err := b.Add(first); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(x); !errors.Is(err, ErrOrder) {
			t.Errorf("topic %d partition %d offset %d after offset 10 of partition 2 of topic 2: %v", x.Topic, x.Partition, x.Base, err)
		}
		if built, err := b.Finish(testCluster, format.DataRef{}, 0); err != nil || len(built.Ranges) != 1 || built.Ranges[0].End <= 10 {
			t.Errorf("%+v, %v", built, err)
		}
	}
}

// A batch that can't be decoded is refused, and the builder goes on as if it had not come.
func TestDamagedInputIsRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	log := randomLog(t, r)
	bad := log[len(log)/2]
	for !mergeableRaw(t, bad.Raw) {
		bad = randomSource(t, r, 2, 0, 1<<41)
	}
	bad.Raw = bytes.Clone(bad.Raw)
	bad.Raw = bad.Raw[:len(bad.Raw)-1]
	binary.BigEndian.PutUint32(bad.Raw[8:], uint32(len(bad.Raw)-12))
	binary.BigEndian.PutUint32(bad.Raw[17:], crc32.Checksum(bad.Raw[21:], castagnoli))
	bad.Topic, bad.Base, bad.Commits = 9, 0, []format.CommitPart{{Seq: 1}}
	b := NewBuilder(Options{Codec: record.Zstd})
	for _, s := range log {
		if err := b.Add(s.Input); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(bad.Input); !errors.Is(err, record.ErrCorrupt) {
		t.Fatal(err)
	}
	got, err := b.Finish(testCluster, format.DataRef{Seq: 9, ID: 77}, 1234)
	if want := build(t, Options{Codec: record.Zstd}, log); err != nil || !bytes.Equal(got.Object(), want.Object()) {
		t.Fatalf("%d bytes, %v; want %d", len(got.Object()), err, len(want.Object()))
	}
}

// Check notices a changed byte, wherever it is.
func TestChangedBytesAreNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	built := build(t, Options{Codec: record.Zstd}, randomLog(t, r)[:6])
	object := built.Object()
	for i := range object {
		b := bytes.Clone(object)
		b[i] ^= 1 << r.IntN(8)
		if _, _, err := Check(b); err == nil {
			t.Fatalf("byte %d of %d", i, len(b))
		}
	}
	for n := range object {
		if _, _, err := Check(object[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes", n, len(object))
		}
	}
}

// Sums tell apart what differs, and don't depend on the order.
func TestSums(t *testing.T) {
	a := record.Record{Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte("x")}}, Timestamp: 1, Offset: 2}
	sum := func(rs ...record.Record) (s Sum) {
		for i := range rs {
			s.add(&rs[i], nil)
		}
		return s
	}
	for name, change := range map[string]func(r *record.Record){
		"offset":       func(r *record.Record) { r.Offset = 3 },
		"timestamp":    func(r *record.Record) { r.Timestamp = 3 },
		"null key":     func(r *record.Record) { r.Key = nil },
		"empty key":    func(r *record.Record) { r.Key = []byte{} },
		"null value":   func(r *record.Record) { r.Value = nil },
		"moved bytes":  func(r *record.Record) { r.Key, r.Value = []byte("kv"), []byte{} },
		"no headers":   func(r *record.Record) { r.Headers = nil },
		"header name":  func(r *record.Record) { r.Headers = []record.Header{{Key: "i", Value: []byte("x")}} },
		"header value": func(r *record.Record) { r.Headers = []record.Header{{Key: "h", Value: nil}} },
	} {
		b := a
		change(&b)
		if sum(a) == sum(b) {
			t.Errorf("%s: the sums are equal", name)
		}
		if sum(a, b) != sum(b, a) || sum(a, b) == sum(a, a) {
			t.Errorf("%s: the sum depends on the order, or not on the records", name)
		}
	}
}

// A batch that is too large to be merged stays alone; it is compressed unless it is compressed already.
func TestLargeBatchStaysAlone(t *testing.T) {
	const most = 1000
	batch := func(base format.Offset, codec record.Codec, size int) Input {
		var b record.Builder
		b.Append(&record.Record{Value: bytes.Repeat([]byte("0123456789abcdef"), size/16), Timestamp: int64(base)})
		raw, err := b.FinishWith(codec)
		if err != nil {
			t.Fatal(err)
		}
		return Input{Topic: 1, Base: base, MaxTime: int64(base), Raw: raw, Commits: []format.CommitPart{{Base: base, Seq: format.Seq(base + 1)}}}
	}
	in := []Input{batch(0, record.None, 64), batch(1, record.None, 64), batch(2, record.None, 2*most), batch(3, record.None, 64), batch(4, record.LZ4, 1000*most), batch(5, record.None, 64)}
	if len(in[4].Raw) < most {
		t.Fatalf("the batch has %d bytes", len(in[4].Raw))
	}
	b := NewBuilder(Options{Codec: record.Zstd, BatchBytes: most})
	for i := range in {
		before := bytes.Clone(in[i].Raw)
		if err := b.Add(in[i]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, in[i].Raw) {
			t.Errorf("input %d was changed", i)
		}
	}
	built, err := b.Finish(testCluster, format.DataRef{Seq: 9, ID: 77}, 1234)
	if err != nil {
		t.Fatal(err)
	}
	if _, ranges, err := Check(built.Parts...); err != nil || !slices.Equal(ranges, built.Ranges) || built.Ranges[0].Records != 6 {
		t.Fatalf("%+v, %v", ranges, err)
	}
	var got []string
	object := built.Object()
	for x, err := range From(tableOf(t, built), 1, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		head, err := record.Parse(object[x.Pos : x.Pos+x.Size])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d+%d %v", x.Base, x.Span, head.Codec))
	}
	if want := []string{"0+2 zstd", "2+1 zstd", "3+1 zstd", "4+1 lz4", "5+1 zstd"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
