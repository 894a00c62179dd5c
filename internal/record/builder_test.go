package record

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Generators of the parts of a record; they draw both nil and empty.
var (
	anyBytes = rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 200))
	anyTime  = rapid.OneOf(rapid.Int64Range(0, 1<<42), rapid.Int64())
	anyName  = rapid.OneOf(rapid.SampledFrom([]string{"", "a", "trace"}), rapid.String())
	anyRec   = rapid.Custom(func(t *rapid.T) Record {
		r := Record{Key: anyBytes.Draw(t, "key"), Value: anyBytes.Draw(t, "value"), Timestamp: anyTime.Draw(t, "time")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{anyName.Draw(t, "name"), anyBytes.Draw(t, "header value")})
		}
		return r
	})
	anyRecs = rapid.SliceOfN(anyRec, 1, 100)
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := anyRecs.Draw(t, "records")
		codec := rapid.SampledFrom([]Codec{None, Gzip, Snappy, LZ4, Zstd}).Draw(t, "codec")
		base := rapid.Int64Range(0, 1<<60).Draw(t, "base")

		var b Builder
		bound, latest := HeaderSize, int64(math.MinInt64)
		for i := range rs {
			before := b.Size()
			b.Append(&rs[i])
			if grown := b.Size() - before; grown > SizeOf(&rs[i]) {
				t.Fatalf("record %d took %d bytes, over SizeOf %d", i, grown, SizeOf(&rs[i]))
			}
			bound += SizeOf(&rs[i])
			latest = max(latest, rs[i].Timestamp)
		}
		size := b.Size()
		p, err := b.FinishWith(codec)
		if err != nil {
			t.Fatal(err)
		}
		if codec == None && len(p) != size {
			t.Fatalf("Size said %d, the batch has %d", size, len(p))
		}
		if b.Count() != 0 || b.Size() != HeaderSize {
			t.Fatal("the builder is not empty after Finish")
		}
		x, err := Check(p, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if x.Count != len(rs) || x.Size != len(p) || x.Codec != codec || x.MaxTimestamp != latest {
			t.Fatalf("header %+v", x)
		}
		for i := range rs {
			rs[i].Offset = base + int64(i)
		}
		i := 0
		for r, err := range x.Records(p, base, Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rs[i], r); diff != "" {
				t.Fatal(diff)
			}
			i++
		}
		if i != len(rs) {
			t.Fatalf("%d records of %d", i, len(rs))
		}
	})
}

func TestWithoutLeavesRecordsOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := anyRecs.Draw(t, "records")
		var skip []Span
		for range rapid.IntRange(0, 4).Draw(t, "spans") {
			from := rapid.IntRange(0, len(rs)).Draw(t, "from")
			skip = append(skip, Span{from, rapid.IntRange(from, len(rs)).Draw(t, "to")})
		}
		var all, want Builder
		for i := range rs {
			all.Append(&rs[i])
			if !slices.ContainsFunc(skip, func(s Span) bool { return s.From <= i && i < s.To }) {
				want.Append(&rs[i])
			}
		}
		got, wantCount := all.Without(skip), want.Count()
		if got.Count() != wantCount || all.Count() != len(rs) {
			t.Fatalf("%d records remain, want %d; the original has %d of %d", got.Count(), wantCount, all.Count(), len(rs))
		}
		if g, w := got.Finish(), want.Finish(); !bytes.Equal(g, w) {
			t.Fatalf("got\n%x, want\n%x", g, w)
		}
	})
}

func TestBuilderKeepsNothingOfARecord(t *testing.T) {
	value := []byte("before")
	var b Builder
	b.Append(&Record{Value: value})
	copy(value, "after!")
	if got := read(t, b.Finish(), 0); string(got[0].Value) != "before" {
		t.Fatalf("value %q", got[0].Value)
	}
}

func TestBatchesAreIndependent(t *testing.T) {
	var b Builder
	b.Append(&Record{Value: []byte("one")})
	first := b.Finish()
	b.Append(&Record{Value: []byte("two")})
	b.Finish()
	if got := read(t, first, 0); string(got[0].Value) != "one" {
		t.Fatalf("value %q", got[0].Value)
	}
}

func TestEmptyBuilder(t *testing.T) {
	var b Builder
	if p := b.Finish(); p != nil {
		t.Fatalf("an empty batch of %d bytes", len(p))
	}
	b.Grow(100)
	if p, err := b.FinishWith(Zstd); p != nil || err != nil {
		t.Fatalf("an empty batch of %d bytes, %v", len(p), err)
	}
	if n := b.Without([]Span{{0, 1}}).Count(); n != 0 {
		t.Fatalf("%d records", n)
	}
}

func TestFinishWithUnknownCodecKeepsTheRecords(t *testing.T) {
	var b Builder
	b.Append(&Record{})
	if _, err := b.FinishWith(5); err == nil {
		t.Fatal("codec 5 is known")
	}
	if b.Count() != 1 {
		t.Fatalf("%d records remain", b.Count())
	}
}

func TestGrowMakesRoomForAll(t *testing.T) {
	r := Record{Value: make([]byte, 1000), Headers: []Header{{"h", make([]byte, 10)}}}
	var b Builder
	allocs := testing.AllocsPerRun(10, func() {
		b.Grow(100 * SizeOf(&r))
		for range 100 {
			b.Append(&r)
		}
		b.Finish()
	})
	if allocs > 2 { // one allocation, and one more under the race detector
		t.Fatalf("%v allocations per batch", allocs)
	}
}

func TestReadingAllocatesNothingPerRecord(t *testing.T) {
	rs := slices.Repeat([]Record{{Key: []byte("k"), Value: make([]byte, 100)}}, 1000)
	p := build(t, None, rs)
	x, err := Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(10, func() {
		for _, err := range x.Records(p, 0, Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs > 5 {
		t.Fatalf("%v allocations per batch of 1000", allocs)
	}
}

func TestStoppingTheWalkEarly(t *testing.T) {
	p := build(t, Zstd, []Record{{Value: []byte("a")}, {Value: []byte("b")}})
	x, err := Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range x.Records(p, 0, Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		break
	}
	if n != 1 {
		t.Fatal(n)
	}
	for _, err := range x.Records(p[:HeaderSize], 0, Limits{}) {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a batch shorter than its header says: %v", err)
		}
	}
}

// Compress changes how records are stored, and nothing else.
func TestCompressKeepsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := anyRecs.Draw(t, "records")
		codec := rapid.SampledFrom([]Codec{None, Gzip, Snappy, LZ4, Zstd}).Draw(t, "codec")
		var b Builder
		for i := range rs {
			b.Skip(rapid.Int64Range(0, 2).Draw(t, "gap"))
			rs[i].Offset = b.Span()
			b.Append(&rs[i])
		}
		raw := b.Finish()
		before := slices.Clone(raw)
		p, err := Compress(raw, codec)
		if err != nil || !bytes.Equal(raw, before) {
			t.Fatalf("%v, or the batch was changed", err)
		}
		x, err := Check(p, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if len(p) >= len(raw) != (x.Codec == None) || x.Codec != None && x.Codec != codec {
			t.Fatalf("%d bytes became %d with the codec %v", len(raw), len(p), x.Codec)
		}
		if x.Count != plain.Count || x.Span != plain.Span || x.MaxTimestamp != plain.MaxTimestamp {
			t.Fatalf("header %+v, was %+v", x, plain)
		}
		i := 0
		for r, err := range x.Records(p, 0, Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rs[i], r); diff != "" {
				t.Fatal(diff)
			}
			i++
		}
		if i != len(rs) {
			t.Fatalf("%d records of %d", i, len(rs))
		}
	})
}

// A builder that has made a compressed batch uses its memory for the next one, which changes nothing of the first.
func TestBuilderIsUsedAgain(t *testing.T) {
	var b Builder
	batch := func(v byte) []byte {
		for range 10 {
			b.Append(&Record{Value: bytes.Repeat([]byte{v}, 1000)})
		}
		p, err := b.FinishSmaller(Zstd)
		if err != nil || b.Count() != 0 || b.Size() != HeaderSize || b.Span() != 0 {
			t.Fatalf("%v, %d records, %d bytes, %d offsets are left", err, b.Count(), b.Size(), b.Span())
		}
		return p
	}
	first, second := batch('a'), batch('b')
	for p, v := range map[*[]byte]byte{&first: 'a', &second: 'b'} {
		x, err := Check(*p, Limits{})
		if err != nil || x.Count != 10 {
			t.Fatal(x, err)
		}
		for r, err := range x.Records(*p, 0, Limits{}) {
			if err != nil || len(r.Value) != 1000 || r.Value[0] != v || r.Value[999] != v {
				t.Fatalf("%q, %v", r.Value, err)
			}
		}
	}
}
