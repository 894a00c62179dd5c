package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// batchesToUnpack returns batches of one record each, with values of so many bytes, in one object.
func batchesToUnpack(t *testing.T, codec record.Codec, count, size int) (ls []state.Location, raws [][]byte) {
	t.Helper()
	pos := uint32(100)
	for i := range count {
		var b record.Builder
		b.Append(&record.Record{Value: bytes.Repeat(fmt.Append(nil, i%10), size)})
		raw, err := b.FinishWith(codec)
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, state.Location{
			Object: state.Object{Data: true, Seq: 1, Size: 1 << 20}, Base: format.Offset(i), Span: 1, Records: 1, Pos: pos, Size: uint32(len(raw)), CRC: record.CRC(raw),
		})
		raws = append(raws, raw)
		pos += uint32(len(raw))
	}
	return ls, raws
}

// onCores lets the test run on so many cores.
func onCores(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// wantUnpacked checks what an unpacker returns for the first batch of ls.
func wantUnpacked(t *testing.T, u *unpacker, ls []state.Location, raws [][]byte) {
	t.Helper()
	head, err := record.Parse(raws[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := head.Unpack(raws[0], record.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got := u.at(ls, raws); !bytes.Equal(got, want) {
		t.Errorf("batch at offset %d: %d bytes, want %d", ls[0].Base, len(got), len(want))
	}
}

func TestBatchesAreUnpackedSideBySide(t *testing.T) {
	onCores(t, 4)
	const count, size, page = 24, 100 << 10, 5
	ls, raws := batchesToUnpack(t, record.Zstd, count, size)
	a := &ahead{readers: map[aheadPlace]*aheadReader{}, unpacking: newUnpacking(1 << 30)}
	e, r := &Engine{}, &aheadReader{}
	e.ahead.unpacking = a.unpacking
	a.readers[r.place] = r
	for from := 0; from < count; from += page {
		u := e.unpackerFor(r)
		if left := len(u.next); from > 0 && left < 4 {
			t.Errorf("the read from offset %d found %d batches decompressed", from, left)
		}
		end := min(from+page, count)
		for i := from; i < end; i++ {
			for _, x := range u.next {
				<-x.done // else the goroutines have no place for another batch
			}
			wantUnpacked(t, u, ls[i:], raws[i:])
			if n := len(u.next); n != min(4, count-1-i) {
				t.Errorf("%d batches behind offset %d are decompressed", n, i)
			}
		}
		at := ls[end-1].End()
		if end < count {
			at-- // the read ends inside of its last batch, so the next one begins with it
		}
		u.close(a, r, at)
		if len(a.unpacking.places) > 0 {
			t.Error("a goroutine outlives its read")
		}
		if end < count {
			u := e.unpackerFor(r)
			if len(u.next) == 0 || u.next[0].of != rangeOf(ls[end-1]) {
				t.Error("the batch that was read in part is not kept")
			}
			u.close(a, r, at)
			if held := a.unpacking.bytes.Load(); held < size || held > 6*unpackMax {
				t.Errorf("%d bytes are held", held)
			}
		}
	}
	if held := a.unpacking.bytes.Load(); held != 0 {
		t.Errorf("in the end, %d bytes are held", held)
	}
}

// What was decompressed for a reader that is forgotten, or that goes on elsewhere, is let go.
func TestUnpackedBatchesAreForgotten(t *testing.T) {
	onCores(t, 4)
	ls, raws := batchesToUnpack(t, record.Zstd, 12, 1000)
	for name, forget := range map[string]func(*Engine, *aheadReader){
		"the reader goes away": func(e *Engine, r *aheadReader) { e.ahead.forget(r) },
		"the reader goes on later": func(e *Engine, r *aheadReader) {
			u := e.unpackerFor(r)
			u.at(ls[11:], raws[11:])
			u.close(&e.ahead, r, 12)
		},
		"the batches have moved": func(e *Engine, r *aheadReader) {
			moved := append([]state.Location(nil), ls...)
			for i := range moved {
				moved[i].Object.Seq = 2
			}
			u := e.unpackerFor(r)
			for i := range moved {
				wantUnpacked(t, u, moved[i:], raws[i:])
			}
			u.close(&e.ahead, r, 12)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{}
			e.ahead = ahead{readers: map[aheadPlace]*aheadReader{}, unpacking: newUnpacking(1 << 30)}
			r := &aheadReader{}
			e.ahead.readers[r.place] = r
			u := e.unpackerFor(r)
			u.at(ls, raws)
			u.close(&e.ahead, r, 1)
			if e.ahead.unpacking.bytes.Load() == 0 {
				t.Fatal("nothing is decompressed")
			}
			forget(e, r)
			if held := e.ahead.unpacking.bytes.Load(); held != 0 {
				t.Errorf("%d bytes are held", held)
			}
		})
	}
}

// A read decompresses all by itself on one core, for a reader that has not gone on, without memory, and of batches that are large
// or not compressed.
func TestBatchesAreUnpackedByTheirReader(t *testing.T) {
	for name, x := range map[string]struct {
		cores, size int
		memory      int64
		codec       record.Codec
	}{
		"one core":       {1, 1000, 1 << 30, record.Zstd},
		"no memory":      {4, 1000, unpackMax, record.Zstd},
		"large batches":  {4, unpackMax + 1, 1 << 30, record.Zstd},
		"not compressed": {4, 1000, 1 << 30, record.None},
	} {
		t.Run(name, func(t *testing.T) {
			onCores(t, x.cores)
			ls, raws := batchesToUnpack(t, x.codec, 6, x.size)
			a := &ahead{readers: map[aheadPlace]*aheadReader{}, unpacking: newUnpacking(x.memory)}
			e, r := &Engine{}, &aheadReader{}
			e.ahead.unpacking = a.unpacking
			u := e.unpackerFor(r)
			for i := range ls {
				if x.codec == record.None {
					if got := u.at(ls[i:], raws[i:]); got != nil {
						t.Errorf("offset %d: %d bytes", i, len(got))
					}
				} else {
					wantUnpacked(t, u, ls[i:], raws[i:])
				}
				for _, next := range u.next {
					if <-next.done; next.records != nil {
						t.Errorf("the batch at offset %d is decompressed before its reader is there", next.base)
					}
				}
			}
			u.close(a, r, 6)
			if held := a.unpacking.bytes.Load(); held != 0 {
				t.Errorf("%d bytes are held", held)
			}
		})
	}
	var e Engine
	u := e.unpackerFor(nil)
	ls, raws := batchesToUnpack(t, record.Zstd, 2, 1000)
	if got := u.at(ls, raws); got != nil {
		t.Error("a batch is decompressed for a reader that has not gone on")
	}
	u.close(&e.ahead, nil, 0)
}

// A damaged batch fails its reader, when the reader is there.
func TestDamagedBatchIsNotUnpacked(t *testing.T) {
	onCores(t, 4)
	ls, raws := batchesToUnpack(t, record.Zstd, 3, 1000)
	raws[1] = append([]byte(nil), raws[1]...)
	raws[1][record.HeaderSize] ^= 0xff
	e := &Engine{}
	e.ahead.unpacking = newUnpacking(1 << 30)
	u := e.unpackerFor(&aheadReader{})
	wantUnpacked(t, u, ls, raws)
	if got := u.at(ls[1:], raws[1:]); got != nil {
		t.Errorf("%d bytes of a damaged batch", len(got))
	}
	wantUnpacked(t, u, ls[2:], raws[2:])
}

// BenchmarkUnpack decompresses batches like those of segments, as a reader does for whom the engine reads ahead.
func BenchmarkUnpack(b *testing.B) {
	const count = 64
	var (
		ls   []state.Location
		raws [][]byte
		size int64
		r    = rand.New(rand.NewPCG(1, 2))
	)
	for i := range count {
		var x record.Builder
		for x.Size() < 256<<10 {
			v := fmt.Appendf(nil, `{"customer":"%016x%016x","price":%d.%02d,"currency":"EUR"}`, r.Uint64(), r.Uint64(), r.IntN(1000), r.IntN(100))
			x.Append(&record.Record{Value: v})
		}
		size += int64(x.Size())
		raw, err := x.FinishWith(record.Zstd)
		if err != nil {
			b.Fatal(err)
		}
		ls = append(ls, state.Location{Object: state.Object{Data: true, Size: 1 << 30}, Base: format.Offset(i), Span: 1, Pos: uint32(i) << 20, Size: uint32(len(raw))})
		raws = append(raws, raw)
	}
	for _, cores := range []int{1, runtime.GOMAXPROCS(0)} {
		b.Run(fmt.Sprintf("cores=%d", cores), func(b *testing.B) {
			e := &Engine{}
			e.ahead.unpacking = newUnpacking(1 << 30)
			if cores == 1 {
				e.ahead.unpacking.places = nil
			}
			best := time.Hour
			for b.Loop() {
				begun := time.Now()
				u := e.unpackerFor(&aheadReader{})
				for i := range ls {
					u.at(ls[i:], raws[i:])
				}
				best = min(best, time.Since(begun))
			}
			b.ReportMetric(float64(size)/1e6/best.Seconds(), "MB/s-at-best")
		})
	}
}

// A read that ends may still wait for batches that are being decompressed while the next read from there has come and gone.
func TestReadsThatEndOutOfOrderKeepNothing(t *testing.T) {
	onCores(t, 4)
	ls, raws := batchesToUnpack(t, record.Zstd, 12, 1000)
	e, r := &Engine{}, &aheadReader{}
	e.ahead.readers, e.ahead.unpacking = map[aheadPlace]*aheadReader{r.place: r}, newUnpacking(1<<30)
	slow, fast := e.unpackerFor(r), e.unpackerFor(r)
	slow.at(ls, raws)
	for _, x := range slow.next {
		<-x.done // else the goroutines have no place for another batch
	}
	fast.at(ls[4:], raws[4:])
	fast.close(&e.ahead, r, 5)
	slow.close(&e.ahead, r, 1)
	if len(r.unpacked) == 0 || r.unpacked[0].base != 5 {
		t.Errorf("what the later read has left is lost: %+v", r.unpacked)
	}
	e.ahead.forget(r)
	if held := e.ahead.unpacking.bytes.Load(); held != 0 {
		t.Errorf("in the end, %d bytes are held", held)
	}
}
