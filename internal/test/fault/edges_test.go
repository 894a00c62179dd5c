package fault_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/objstore"
)

func TestPositionsAtTheEdgeOfNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustAppend(t, b, "t", "a", "b", "c")
		for from, want := range map[seb.Position]int{
			seb.Last(0): 0, seb.Last(1): 1, seb.Last(math.MaxInt64): 3,
			seb.At(0): 3, seb.At(3): 0, seb.At(4): -1, seb.At(1 << 62): -1, seb.At(math.MaxInt64): -1,
			seb.At(-1): -1, seb.At(math.MinInt64): -1,
			seb.Last(-1): 0, seb.Last(math.MinInt64): 0,
		} {
			f, err := b.Fetch(t.Context(), "t", 0, from, seb.FetchOptions{})
			switch {
			case want < 0:
				if err == nil {
					t.Errorf("%v: %d records, want an error", from, len(f.Records))
				}
			case err != nil || len(f.Records) != want:
				t.Errorf("%v: %d records, %v, want %d", from, len(f.Records), err, want)
			}
		}
		for _, opts := range []seb.FetchOptions{
			{Limit: math.MaxInt, MaxBytes: math.MaxInt64}, {Wait: math.MaxInt64}, {Limit: 1, MaxBytes: 1},
		} {
			if f, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, opts); err != nil || len(f.Records) == 0 {
				t.Errorf("%+v: %d records, %v", opts, len(f.Records), err)
			}
		}
	})
}

func TestTimestampsAtTheEdgeOfNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := open(t, store, immediate())
		times := []time.Time{time.UnixMilli(-1), time.UnixMilli(math.MaxInt64), time.UnixMilli(math.MinInt64), time.UnixMilli(0), time.Unix(1<<62, 0)}
		var rs []seb.Record
		for _, at := range times {
			rs = append(rs, seb.Record{Timestamp: at, Value: []byte("v")})
		}
		for range 3 {
			if _, err := b.Append(t.Context(), "t", rs); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, store, immediate())
		f, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
		if err != nil || len(f.Records) != 15 {
			t.Fatal(len(f.Records), err)
		}
		for i, r := range f.Records {
			if r.Timestamp.UnixMilli() != times[i%5].UnixMilli() {
				t.Errorf("record %d: %v, want %v", i, r.Timestamp, times[i%5])
			}
		}
	})
}

// forge writes a commit whose entry names more records than its batch holds.
func forge(t *testing.T, store objstore.Store, slot format.Seq, count uint32) {
	t.Helper()
	prev, err := format.DecodeCommit(body(t, store, format.LogKey(slot-1)))
	if err != nil {
		t.Fatal(err)
	}
	var x record.Builder
	x.Append(&record.Record{Value: []byte("v")})
	raw := x.Finish()
	c := &format.Commit{
		Cluster: prev.Cluster, Seq: slot, Prev: prev.Hash, Time: prev.Time, PayloadSize: uint32(len(raw)),
		Entries: []format.Entry{&format.Batch{Topic: 1, Base: 0, Count: count, Size: uint32(len(raw)), CRC: record.CRC(raw)}},
	}
	if _, err := store.Create(t.Context(), format.LogKey(slot), format.EncodeCommit(c), raw); err != nil {
		t.Fatal(err)
	}
}

// If an entry names more records than its batch holds, a reader must not loop for ever, nor take
// memory for the missing records.
func TestBatchWithFewerRecordsThanItsRowSaysIsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := openOnly(t, store, immediate())
		mustCreateTopic(t, b, "t", 1)
		kill(t, b)
		forge(t, store, 2, 1<<20)
		b = openOnly(t, store, immediate())
		defer kill(t, b)
		_, err := b.Fetch(t.Context(), "t", 0, seb.At(5), seb.FetchOptions{})
		wantCode(t, err, seb.CodeDataLost)
	})
}

// AtOrAfter begins at the offset while its record exists, and otherwise at the first record after it
// that exists.
func TestReadAtOrAfterAnOffset(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustAppend(t, b, "t", "a", "b", "c")
	if _, err := b.DeleteRecords(t.Context(), "t", 0, 1); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[seb.Offset]string{0: "b", 1: "b", 2: "c"} {
		p := seb.AtOrAfter(offset)
		if o, named := p.Offset(); named {
			t.Errorf("%v names the offset %d, but a read may begin after it", p, o)
		}
		f, err := b.Fetch(t.Context(), "t", 0, p, seb.FetchOptions{Limit: 1})
		if err != nil || len(f.Records) != 1 || string(f.Records[0].Value) != want {
			t.Errorf("%v: %+v, %v, want %s", p, f.Records, err, want)
		}
	}
	_, err := b.Fetch(t.Context(), "t", 0, seb.AtOrAfter(4), seb.FetchOptions{})
	wantCode(t, err, seb.CodeOffsetOutOfRange)
	if o, named := seb.At(3).Offset(); !named || o != 3 {
		t.Errorf("At(3) names the offset %d (%v), want 3", o, named)
	}
}
