package seb_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/objstore"
)

// A collector describes the families only once, so they must always be the same, even after the broker
// has ended.
func TestMetricsHaveTheSameFamiliesAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		families := func(b *seb.Broker) (without []metric.Family) {
			for _, f := range b.Metrics() {
				for _, s := range f.Series {
					if len(s.Labels) != len(f.Labels) || (s.Distribution != nil) != (f.Kind == metric.Histogram) {
						t.Errorf("%s has the series %+v", f.Name, s)
					}
				}
				f.Series = nil
				without = append(without, f)
			}
			return without
		}
		b := openOnly(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		first := families(b)
		mustCreateTopic(t, b, "t", 1)
		mustReset(t, b.Consumer("t", "reader"), seb.Earliest)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 2)
		mustReceive(t, q, 1, 0)
		time.Sleep(time.Minute)
		if diff := cmp.Diff(first, families(b)); diff != "" {
			t.Error(diff)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, families(b)); diff != "" {
			t.Error("of a closed broker:", diff)
		}
	})
}

// Records count where they are committed, and where they are read, however the program does that.
func TestMetricsCountWhatTopicsTakeAndGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		mustCreateTopic(t, b, "t", 2)
		var want [4]float64 // appended records and bytes, read records and bytes
		check := func(after string, records ...float64) {
			t.Helper()
			for i, n := range records {
				want[i] += n
			}
			var got [4]float64
			for i, name := range []string{"seb_topic_appended_records_total", "seb_topic_appended_bytes_total", "seb_topic_read_records_total", "seb_topic_read_bytes_total"} {
				for _, f := range b.Metrics() {
					if f.Name != name {
						continue
					}
					for _, s := range f.Series {
						if s.Labels[0] != "t" {
							t.Errorf("%s has a series of topic %q", name, s.Labels[0])
						}
						got[i] += s.Value
					}
				}
			}
			if got != want {
				t.Errorf("after %s: %v, want %v", after, got, want)
			}
		}
		check("a start")
		ctx := t.Context()
		rs := []seb.Record{{Key: []byte("key"), Value: []byte("value"), Headers: []seb.Header{{Name: "h", Value: []byte("1")}}}, {Value: []byte("value")}}
		for range 2 { // the second time, nothing is appended
			if _, err := b.Append(ctx, "t", rs, seb.ToPartitions([]int32{0, 1}), seb.IdempotencyKey("once")); err != nil {
				t.Fatal(err)
			}
		}
		check("an append", 2, 15)
		_, err := b.Append(ctx, "t", rs, seb.ToPartition(0), seb.IfOffset(7))
		wantCode(t, err, seb.CodeOffsetConflict)
		check("a refused append")
		if _, err := b.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: "t", Records: rs[1:]}}}); err != nil {
			t.Fatal(err)
		}
		check("a commit", 1, 5)
		if _, err := b.Fetch(ctx, "t", 0, seb.Earliest, seb.FetchOptions{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		check("a fetch", 0, 0, 1, 10)
		if _, err := b.Fetch(ctx, "t", 0, seb.Earliest, seb.FetchOptions{Reserve: func(context.Context, int, int64) (int, int64, error) { return 0, 0, nil }}); err != nil {
			t.Fatal(err)
		}
		check("a fetch that only waits")
		f, err := b.NewFollower(ctx, "t", 0, seb.Earliest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Next(ctx, seb.FetchOptions{Limit: 1, MaxBytes: 1}); err != nil {
			t.Fatal(err)
		}
		check("a follower", 0, 0, 1, 10)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		check("a new queue")
		if got := len(mustReceive(t, q, 3, 0)); got != 3 {
			t.Fatalf("received %d records", got)
		}
		check("a receive", 0, 0, 3, 20)
	})
}
