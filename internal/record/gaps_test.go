package record

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gapped returns a batch of records with these offset deltas, which has span offsets.
func gapped(t testing.TB, c Codec, span int64, deltas ...int64) []byte {
	t.Helper()
	var b Builder
	for i, delta := range deltas {
		b.Skip(delta - b.Span())
		b.Append(&Record{Value: fmt.Append(nil, delta), Timestamp: int64(i)})
	}
	b.Skip(span - b.Span())
	p, err := b.FinishWith(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGapsAreKept(t *testing.T) {
	for _, codec := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		for _, x := range []struct {
			span   int64
			deltas []int64
		}{
			{1, []int64{0}},
			{2, []int64{0}},             // at the end
			{2, []int64{1}},             // at the beginning
			{5, []int64{0, 1, 3, 4}},    // in the middle
			{20, []int64{2, 3, 10, 19}}, // several
			{SpanMax, []int64{0, SpanMax - 1}},
		} {
			p := gapped(t, codec, x.span, x.deltas...)
			head, err := Check(p, Limits{})
			if err != nil {
				t.Fatalf("%v %+v: %v", codec, x, err)
			}
			if dense := x.span == int64(len(x.deltas)); head.Span != x.span || head.Count != len(x.deltas) || head.Dense() != dense {
				t.Errorf("%v %+v: the header says %+v", codec, x, head)
			}
			var got []int64
			for _, r := range read(t, p, 1<<40) {
				if got = append(got, r.Offset-1<<40); string(r.Value) != fmt.Sprint(r.Offset-1<<40) {
					t.Errorf("%v %+v: offset %d has %q", codec, x, r.Offset, r.Value)
				}
			}
			if diff := cmp.Diff(x.deltas, got); diff != "" {
				t.Errorf("%v %+v: %s", codec, x, diff)
			}
		}
	}
}

// Records of a gapped batch must have ascending deltas below its span.
func TestImpossibleDeltasAreCorrupt(t *testing.T) {
	p := gapped(t, None, 8, 2, 3)
	const first, second = HeaderSize + 3, HeaderSize + 3 + 8 // where the deltas are: each record has 8 bytes
	if p[first] != 2*2 || p[second] != 3*2 {
		t.Fatalf("%x", p)
	}
	for _, x := range [][2]byte{{3, 3}, {3, 2}, {0, 8}, {8, 3}} {
		p[first], p[second] = 2*x[0], 2*x[1]
		if _, err := Check(reseal(p), Limits{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("deltas %d: %v", x, err)
		}
	}
	p[first], p[second] = 1, 6 // -1
	if _, err := Check(reseal(p), Limits{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a negative delta: %v", err)
	}
}

func TestSpanIsBounded(t *testing.T) {
	for name, f := range map[string]func(b *Builder){
		"a gap too large":        func(b *Builder) { b.Skip(SpanMax) },
		"a negative gap":         func(b *Builder) { b.Skip(-1) },
		"a record behind a span": func(b *Builder) { b.Skip(math.MaxInt32); b.Append(&Record{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var b Builder
			b.Append(&Record{})
			defer func() {
				if recover() == nil {
					t.Errorf("the builder has a span of %d", b.Span())
				}
			}()
			f(&b)
		})
	}
}
