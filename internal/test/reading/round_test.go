package reading_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

const widePartitions = 3*seb.FollowPartitionsMax + 100

// openWide returns a broker with topic "t" of very many partitions. Those listed in filled have two
// records each.
func openWide(t *testing.T, filled ...int32) *seb.Broker {
	t.Helper()
	opts := immediate()
	opts.Limits.Partitions = widePartitions
	b := open(t, objstore.NewMemory(), opts)
	mustCreateTopic(t, b, "t", widePartitions)
	for _, p := range filled {
		appendTo(t, b, p, 2)
	}
	return b
}

// nextOf returns the next records and their places; "" if there are none.
func nextOf(t *testing.T, f *seb.Follower) (records []seb.Record, places string) {
	t.Helper()
	records, err := f.Next(t.Context(), seb.FetchOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		places += fmt.Sprintf("%d:%d", r.Partition, r.Offset)
	}
	return records, places
}

func TestConsumerIsReadRoundVeryManyPartitions(t *testing.T) {
	b := openWide(t, 0, 1023, 1024, 2500, widePartitions-1)
	c := b.Consumer("t", "c")
	f, err := c.Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var committed int
	for {
		records, place := nextOf(t, f)
		if place == "" {
			break
		}
		got = append(got, place)
		if len(got)%2 == 0 { // records that were read and not committed don't come again either
			committed++
			if _, err := c.Commit(t.Context(), seb.After(records...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(got)
	if want := "[0:0 0:1 1023:0 1023:1 1024:0 1024:1 2500:0 2500:1 3171:0 3171:1]"; fmt.Sprint(got) != want {
		t.Errorf("read %v, want %s", got, want)
	}
	again, err := c.Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	for left := 0; ; left++ {
		if _, place := nextOf(t, again); place == "" {
			if left == 0 || left >= len(got) {
				t.Errorf("after %d commits a new reader gets %d records", committed, left)
			}
			break
		}
	}
}

// A partition that always has more records doesn't keep a follower from the others.
func TestRoundOfVeryManyPartitionsGetsToAll(t *testing.T) {
	b := openWide(t, 5, 3000)
	f, err := b.Consumer("t", "c").Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int32]int{}
	for range 4 {
		records, _ := nextOf(t, f)
		seen[records[0].Partition]++
		appendTo(t, b, 5, 2)
	}
	if seen[5] != 2 || seen[3000] != 2 {
		t.Errorf("records were read of %v", seen)
	}
}

// What was read for a deleted consumer has no effect on a later consumer with the same name.
func TestRoundOfVeryManyPartitionsEndsWithItsConsumer(t *testing.T) {
	b := openWide(t, 3)
	c := b.Consumer("t", "c")
	f, err := c.Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	if _, place := nextOf(t, f); place != "3:0" {
		t.Fatal(place)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	records, err := f.Next(t.Context(), seb.FetchOptions{Limit: 1})
	if seb.CodeOf(err) != seb.CodeConsumerNotFound {
		t.Errorf("read %+v, %v", records, err)
	}
}

func TestRoundOfVeryManyPartitionsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openWide(t)
		f, err := b.Consumer("t", "c").Follower(t.Context(), seb.AllPartitions)
		if err != nil {
			t.Fatal(err)
		}
		if ready, err := f.Wait(t.Context(), time.Second); ready || err != nil {
			t.Errorf("nothing is there: %v, %v", ready, err)
		}
		go func() {
			if _, err := b.Append(t.Context(), "t", make([]seb.Record, 1), seb.ToPartition(2999)); err != nil {
				t.Error(err)
			}
		}()
		records, err := f.Next(t.Context(), seb.FetchOptions{Wait: time.Hour})
		if err != nil || len(records) != 1 || records[0].Partition != 2999 {
			t.Errorf("waited for %+v, %v", records, err)
		}
		if err := b.Consumer("t", "c").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Next(t.Context(), seb.FetchOptions{}); seb.CodeOf(err) != seb.CodeConsumerNotFound {
			t.Errorf("after the consumer was deleted: %v", err)
		}
	})
}

func TestRoundOfVeryManyPartitionsReportsDeletedRecords(t *testing.T) {
	b := openWide(t, 7, 3000)
	c := b.Consumer("t", "c")
	if _, _, err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DeleteRecords(t.Context(), "t", 3000, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Follower(t.Context(), seb.AllPartitions); seb.CodeOf(err) != seb.CodeOffsetOutOfRange {
		t.Errorf("records were deleted before they were read: %v", err)
	}
}
