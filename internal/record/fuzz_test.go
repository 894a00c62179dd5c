package record

import (
	"bytes"
	"errors"
	"testing"
)

func addSeeds(f *testing.F) {
	f.Add(unhex(f, golden))
	for _, c := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		f.Add(build(f, c, goldenRecords()))
	}
	var gaps Builder
	for i, r := range goldenRecords() {
		gaps.Skip(int64(i) * 24)
		gaps.Append(&r)
	}
	gaps.Skip(3)
	f.Add(gaps.Finish())
}

// fuzzLimits keep hostile inputs from slowing down the fuzzer.
var fuzzLimits = Limits{DecompressedBytes: 1 << 20, RecordHeaders: 1000}

// FuzzCheck checks that the records of an accepted batch can be read, and built into a batch
// again. It corrects length and CRC first, since Check would refuse nearly all inputs otherwise.
func FuzzCheck(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		if _, err := Check(p, fuzzLimits); err == nil && len(p) < HeaderSize {
			t.Fatal("Check takes less than a header")
		}
		if len(p) < HeaderSize {
			return
		}
		p = reseal(p)
		x, err := Check(p, fuzzLimits)
		if err != nil {
			return
		}
		var b Builder
		for r, err := range x.Records(p, 0, fuzzLimits) {
			if err != nil {
				t.Fatalf("passed Check, but: %v", err)
			}
			if r.Offset < b.Span() || r.Offset >= x.Span {
				t.Fatalf("record %d has offset %d; the next one is %d, and the batch spans %d", b.Count(), r.Offset, b.Span(), x.Span)
			}
			b.Skip(r.Offset - b.Span())
			b.Append(&r)
		}
		if b.Count() != x.Count {
			t.Fatalf("%d records of %d", b.Count(), x.Count)
		}
		b.Skip(x.Span - b.Span())
		if x.Dense() != (b.Span() == int64(b.Count())) {
			t.Fatalf("Dense says %t of %d records in %d offsets", x.Dense(), b.Count(), b.Span())
		}
		again := b.Finish()
		y, err := Check(again, fuzzLimits)
		if err != nil || y.Count != x.Count || y.Span != x.Span || y.MaxTimestamp != x.MaxTimestamp {
			t.Fatalf("built again: %+v, %v; was %+v", y, err, x)
		}
	})
}

// FuzzRecords checks that reading any bytes as a batch ends, without a panic.
func FuzzRecords(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		before := bytes.Clone(p)
		x, err := Parse(p)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrMagic) {
				t.Fatalf("%v is no sentinel", err)
			}
			return
		}
		count, next := 0, int64(7)
		for r, err := range x.Records(p, 7, fuzzLimits) {
			if err != nil {
				break
			}
			if r.Offset < next || r.Offset >= 7+x.Span {
				t.Fatalf("record %d has offset %d; the next one is %d, and the batch spans %d", count, r.Offset, next, x.Span)
			}
			next = r.Offset + 1
			count++
		}
		if count > x.Count || !bytes.Equal(p, before) {
			t.Fatalf("%d records of %d, or the input changed", count, x.Count)
		}
	})
}
