package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/objstore"
)

// logTimes collects the log times of records.
type logTimes []time.Time

func (*logTimes) Grow(int) {}

func (x *logTimes) Add(_ record.Record, at time.Time) { *x = append(*x, at) }

// readLogTimes returns the log times of a partition's records from an offset on, in steps of 7 records.
func readLogTimes(t *testing.T, e *engine.Engine, topic format.TopicID, from format.Offset) (got logTimes) {
	t.Helper()
	c := e.NewCursor("t", topic, 0, from)
	for {
		_, end, err := c.Next(t.Context(), engine.ReadOptions{Records: 7, Bytes: 1 << 20}, &got)
		if err != nil {
			t.Fatalf("offset %d: %v", c.Offset, err)
		}
		if c.Offset == end {
			return got
		}
	}
}

// A record has the time of its commit, in the tail, in segments of every level, and after a restart. Records that are older than
// the level have the time at which it was raised, and none before that.
func TestRecordsKeepTheirLogTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := openWith(t, store, func(o *engine.Options) { o.HoldLevel = true })
		topic := create(t, e, "t")
		appendValues(t, e, topic, "a", "b")
		appendValues(t, e, topic, "c")
		if got := readLogTimes(t, e, topic, 0); len(got) != 3 || !got[0].IsZero() || !got[2].IsZero() {
			t.Errorf("below level 6 the log times are %v", got)
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		before := time.Now().UTC()
		e = openCompacting(t, store)
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := readLogTimes(t, e, topic, 0)
		if len(want) != 3 || want[0].Before(before) || want[0].After(time.Now()) || want[1] != want[0] || want[2] != want[0] {
			t.Fatalf("after the level was raised at %v, the log times are %v", before, want)
		}
		check := func(e *engine.Engine, when string) {
			t.Helper()
			if got := readLogTimes(t, e, topic, 0); !slices.Equal(got, want) {
				t.Fatalf("%s, the log times are %v, want %v", when, got, want)
			}
			for from := 0; from < len(want); from += 37 {
				if got := readLogTimes(t, e, topic, format.Offset(from)); !slices.Equal(got, want[from:]) {
					t.Fatalf("%s, the log times from offset %d on are %v, want %v", when, from, got, want[from:])
				}
			}
		}
		for i := range 40 {
			for k := range 11 {
				values := slices.Repeat([]string{"x"}, 1+(i+k)%3)
				before := time.Now().UTC()
				appendValues(t, e, topic, values...)
				got := readLogTimes(t, e, topic, format.Offset(len(want)))
				last := want[len(want)-1]
				if len(got) != len(values) || !got[0].After(last) || got[0].Before(before) || got[0].After(time.Now().Add(time.Millisecond)) {
					t.Fatalf("of a commit at %v after one at %v, the log times are %v", before, last, got)
				}
				if n := slices.Compact(slices.Clone(got)); len(n) != 1 {
					t.Fatalf("the records of a commit have the log times %v", n)
				}
				want = append(want, got...)
			}
			time.Sleep(2 * time.Minute)
			if i%13 == 12 {
				synctest.Wait()
				check(e, fmt.Sprintf("in round %d", i))
				if err := e.Shutdown(nil); err != nil {
					t.Fatal(err)
				}
				e = openCompacting(t, store)
			}
		}
		synctest.Wait()
		if levels, tail := segments(e); !strings.Contains(levels, "2") || tail == 0 {
			t.Fatalf("segments %q, %d batches", levels, tail)
		}
		check(e, "at the end")
		check(open(t, store), "after a restart")
	})
}

// The log does not know which commit a data object from before level 6 came with. Its records are compacted all the same.
func TestOldDataObjectsAreCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		large := func(o *engine.Options) { o.Memory, o.CheckpointCommits = 128<<20, 10 }
		e := openWith(t, store, func(o *engine.Options) {
			large(o)
			o.HoldLevel = true
		})
		topic := create(t, e, "t")
		appendValues(t, e, topic, "first")
		r, vs := rand.New(rand.NewPCG(1, 2)), []string(nil)
		for range 67 { // the last batch of the data objects is small
			vs = append(vs, noise(r, 100<<10))
		}
		a := appending(topic, vs...)
		a.Bytes = 8 << 20
		commit(t, e, &engine.Request{Appends: []*engine.Append{a}})
		for range 5 {
			appendValues(t, e, topic, "x", "y")
		}
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		e = openWith(t, store, large)
		if err := e.RaiseLevel(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := readLogTimes(t, e, topic, 0)
		if len(want) != 78 || want[0].IsZero() {
			t.Fatalf("%d records, %v", len(want), want[0])
		}
		for range 30 {
			time.Sleep(10 * time.Minute)
			appendValues(t, e, topic, "z")
		}
		synctest.Wait()
		if levels, tail := segments(e); levels == "" || tail > 10 {
			t.Errorf("segments %q, %d batches", levels, tail)
		}
		if got := readLogTimes(t, e, topic, 0); !slices.Equal(got[:len(want)], want) {
			t.Errorf("the log times are %v, want %v", got[:len(want)], want)
		}
	})
}
