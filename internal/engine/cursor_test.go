package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// all has bounds that no test reaches.
var all = engine.ReadOptions{Records: 1000, Bytes: 1 << 20}

// waiting is all, for a read that waits at the end of the partition.
func waiting(d time.Duration) engine.ReadOptions {
	return engine.ReadOptions{Records: all.Records, Bytes: all.Bytes, Wait: d}
}

// sink collects the values of records.
type sink struct {
	text    string
	batches int
}

func (s *sink) Grow(int)                         { s.batches++ }
func (s *sink) Add(r record.Record, _ time.Time) { s.text += string(r.Value) }

// wantNext checks which values Next passes, and the offset of the cursor after that.
func wantNext(t *testing.T, c *engine.Cursor, opts engine.ReadOptions, values string, offset format.Offset) {
	t.Helper()
	var got sink
	if _, _, err := c.Next(t.Context(), opts, &got); err != nil || got.text != values || c.Offset != offset {
		t.Errorf("read %q up to %d, want %q up to %d: %v", got.text, c.Offset, values, offset, err)
	}
}

func wantOutOfRange(t *testing.T, err error, want engine.OutOfRangeError) {
	t.Helper()
	if got, ok := errors.AsType[*engine.OutOfRangeError](err); !ok || *got != want {
		t.Errorf("got %v, want %v", err, &want)
	}
}

// appendValues commits values to the topic, in one batch.
func appendValues(t *testing.T, e *engine.Engine, topic format.TopicID, vs ...string) {
	t.Helper()
	commit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, vs...)}})
}

func commit(t *testing.T, e *engine.Engine, r *engine.Request) {
	t.Helper()
	if err := e.Commit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// trim is a change that deletes the records of partition 0 before an offset.
type trim struct {
	topic format.TopicID
	start format.Offset
}

func (x trim) Apply(*state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.StartMoved{Topic: x.topic, Start: x.start}}, nil
}

// A cursor at the end of the partition passes records of its own engine at once, and records of another
// engine when it syncs. It passes nothing if no records come in time.
func TestCursorWaitsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := open(t, store)
		topic := create(t, e, "t")
		other := open(t, store)
		for name, by := range map[string]struct {
			e    *engine.Engine
			late time.Duration
		}{"own": {e, 0}, "foreign": {other, engine.FollowIntervalMax}} {
			c := e.NewCursor("t", topic, 0, 0)
			_, end, err := c.Bounds()
			if err != nil {
				t.Fatal(err)
			}
			c.Offset = end
			var committed time.Time
			go func() {
				time.Sleep(time.Minute)
				if err := by.e.Commit(t.Context(), &engine.Request{Appends: []*engine.Append{appending(topic, "a", "b")}}); err != nil {
					t.Error(err)
				}
				committed = time.Now()
			}()
			wantNext(t, c, waiting(time.Hour), "ab", end+2)
			woken := time.Now()
			synctest.Wait()
			if late := woken.Sub(committed); committed.IsZero() || late > by.late {
				t.Errorf("%s records came %v after their commit, want at most %v", name, late, by.late)
			}
			wantNext(t, c, waiting(time.Minute), "", end+2)
			if waited := time.Since(woken); waited != time.Minute {
				t.Errorf("waited %v for records that don't come, want a minute", waited)
			}
			wantNext(t, c, all, "", end+2) // without a wait it returns
		}
	})
}

// Await calls ready again after each commit to the partition, and not in between.
func TestAwaitAsksOncePerCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		for _, partition := range []format.Partition{0, engine.AllPartitions} {
			go func() {
				for range 3 {
					time.Sleep(time.Second)
					if err := e.Commit(t.Context(), &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}); err != nil {
						t.Error(err)
					}
				}
			}()
			asked, tooOften := 0, errors.New("asked too often")
			err := e.Await(t.Context(), topic, partition, time.Minute, func() (bool, error) {
				if asked++; asked > 4 {
					return false, tooOften
				}
				return false, nil
			})
			if err != nil || asked != 4 {
				t.Errorf("asked %d times for 3 commits: %v", asked, err)
			}
		}
	})
}

func TestCursorThatWaitsEndsWithItsContextAndItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(objstore.NewMemory(), options(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := e.NewCursor("t", topic, 0, 0).Next(ctx, waiting(time.Hour), &sink{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the context has ended", err)
		}
		ended := make(chan error)
		go func() {
			_, _, err := e.NewCursor("t", topic, 0, 0).Next(t.Context(), waiting(time.Hour), &sink{})
			ended <- err
		}()
		synctest.Wait()
		if err := e.Shutdown(nil); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, engine.ErrClosed) {
			t.Errorf("got %v, want that the engine is closed", err)
		}
	})
}

// Next syncs before it refuses an offset, and before it reports the end of the partition; Read does not.
func TestCursorSyncsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := open(t, store)
		topic := create(t, e, "t")
		other := open(t, store)
		appendValues(t, e, topic, "a", "b")
		time.Sleep(time.Minute) // until the last sync of other is old

		var got sink
		if err := other.NewCursor("t", topic, 0, 0).Read(t.Context(), all, &got); err != nil || got.text != "" {
			t.Errorf("read %q without a sync: %v", got.text, err)
		}
		wantNext(t, other.NewCursor("t", topic, 0, 0), all, "ab", 2)
		appendValues(t, e, topic, "c") // other has synced within the last second, so it does not find this record yet
		wantNext(t, other.NewCursor("t", topic, 0, 2), all, "", 2)
		appendValues(t, e, topic, "d")
		wantNext(t, other.NewCursor("t", topic, 0, 3), all, "d", 4)
		_, _, err := other.NewCursor("t", topic, 0, 5).Next(t.Context(), all, &got)
		wantOutOfRange(t, err, engine.OutOfRangeError{Topic: "t", Offset: 5, End: 4})
	})
}

// The start of the partition moves past a cursor. A cursor that floats goes on at the new start, until it has
// read a record.
func TestCursorFloatsWithTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		appendValues(t, e, topic, "a", "b", "c", "d")
		fixed, floating := e.NewCursor("t", topic, 0, 0), e.NewCursor("t", topic, 0, 0)
		floating.Floats = true
		commit(t, e, &engine.Request{Change: trim{topic, 2}})
		_, _, err := fixed.Next(t.Context(), all, &sink{})
		wantOutOfRange(t, err, engine.OutOfRangeError{Topic: "t", Start: 2, End: 4})

		opts := all
		opts.Reserve = func(_ context.Context, records int, bytes int64) (int, int64, error) {
			if floating.Offset != 2 || records != 2 {
				t.Errorf("reserves %d records at %d, want 2 at 2", records, floating.Offset)
			}
			commit(t, e, &engine.Request{Change: trim{topic, 3}})
			return 1, bytes, nil // lower bounds, so the cursor finds the batches again
		}
		wantNext(t, floating, opts, "d", 4)
		appendValues(t, e, topic, "e", "f")
		commit(t, e, &engine.Request{Change: trim{topic, 5}})
		_, _, err = floating.Next(t.Context(), all, &sink{})
		wantOutOfRange(t, err, engine.OutOfRangeError{Topic: "t", Offset: 4, Start: 5, End: 6})
	})
}

// dated has the timestamps of records, in milliseconds since 1970.
type dated []int64

func (ms dated) Record(i int, r *record.Record) {
	r.Value, r.Timestamp = []byte{byte('a' + i)}, ms[i]
}

func TestCursorSeeksATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		for _, ms := range [][]int64{{500, 100}, {900, 50}, {700, 300}} {
			commit(t, e, &engine.Request{Appends: []*engine.Append{{ID: topic, Topic: "t", Count: 2, Bytes: 1024, IfEnd: -1, Records: dated(ms)}}})
		}
		for _, x := range []struct {
			from format.Offset
			ms   int64
			want format.Offset
		}{
			{0, 0, 0}, {0, 100, 0}, {1, 100, 1}, {1, 101, 2}, {0, 501, 2}, {3, 200, 4}, {5, 700, 6}, {0, 901, 6}, {6, 0, 6},
		} {
			c := e.NewCursor("t", topic, 0, x.from)
			if err := c.Seek(t.Context(), x.ms); err != nil || c.Offset != x.want {
				t.Errorf("from %d on, %d ms is at %d, want %d: %v", x.from, x.ms, c.Offset, x.want, err)
			}
		}
		commit(t, e, &engine.Request{Change: trim{topic, 3}})
		c := e.NewCursor("t", topic, 0, 0)
		if err := c.Seek(t.Context(), 0); err != nil || c.Offset != 3 {
			t.Errorf("the start is at %d, want 3: %v", c.Offset, err)
		}
	})
}

func TestCursorKeepsWithinItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		appendValues(t, e, topic, "aaaa", "b", "c")
		appendValues(t, e, topic, "d", "e")
		reserve := func(fewer int, lower int64) func(context.Context, int, int64) (int, int64, error) {
			return func(context.Context, int, int64) (int, int64, error) { return fewer, lower, nil }
		}
		for _, x := range []struct {
			opts   engine.ReadOptions
			values string
			offset format.Offset
		}{
			{all, "aaaabcde", 5},
			{engine.ReadOptions{Records: 4, Bytes: 100}, "aaaabcd", 4},
			{engine.ReadOptions{Records: 10, Bytes: 5}, "aaaab", 2},
			{engine.ReadOptions{Records: 10, Bytes: 1}, "aaaa", 1},
			{engine.ReadOptions{Records: 10, Bytes: 100, Reserve: reserve(2, 100)}, "aaaab", 2},
			{engine.ReadOptions{Records: 10, Bytes: 100, Reserve: reserve(10, 6)}, "aaaabc", 3},
			{engine.ReadOptions{Records: 1, Bytes: 100, Reserve: reserve(10, 1000)}, "aaaa", 1},
			{engine.ReadOptions{Records: 10, Bytes: 100, Reserve: reserve(0, 0)}, "", 0},
		} {
			wantNext(t, e.NewCursor("t", topic, 0, 0), x.opts, x.values, x.offset)
		}
		full := errors.New("no memory")
		opts := all
		opts.Reserve = func(context.Context, int, int64) (int, int64, error) { return 0, 0, full }
		if _, _, err := e.NewCursor("t", topic, 0, 0).Next(t.Context(), opts, &sink{}); !errors.Is(err, full) {
			t.Errorf("got %v, want the error of Reserve", err)
		}
	})
}

func TestCursorOfWhatDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, objstore.NewMemory())
		topic := create(t, e, "t")
		for _, partition := range []format.Partition{-1, 1} {
			_, _, err := e.NewCursor("t", topic, partition, 0).Next(t.Context(), all, &sink{})
			if x, ok := errors.AsType[*engine.PartitionNotFoundError](err); !ok || x.Partition != partition || x.Count != 1 {
				t.Errorf("partition %d: got %v", partition, err)
			}
		}
		_, _, err := e.NewCursor("u", topic+1, 0, 0).Next(t.Context(), all, &sink{})
		if x, ok := errors.AsType[*engine.TopicDeletedError](err); !ok || x.Topic != "u" {
			t.Errorf("got %v, want that the topic was deleted", err)
		}
	})
}
