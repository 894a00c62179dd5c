package consumers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
	"github.com/simple-event-broker/seb/sebprom"
)

func mustCommit(t testing.TB, c *seb.Consumer, offsets seb.Offsets) string {
	t.Helper()
	version, err := c.Commit(t.Context(), offsets)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// followed returns the next n records that a consumer has not committed, each as "partition/offset".
// They are sorted, since the follower may begin with any partition.
func followed(t testing.TB, c *seb.Consumer, n int) []string {
	t.Helper()
	f, err := c.Follower(t.Context(), seb.AllPartitions)
	if err != nil {
		t.Fatal(err)
	}
	got := take(t, f, n)
	slices.Sort(got)
	return got
}

func TestConsumerGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := immediate()
		opts.CheckpointCommits = 2
		b := open(t, memory, opts)
		mustCreateTopic(t, b, "t", 2)
		appendTo(t, b, 0, 3)
		appendTo(t, b, 1, 2)
		c := b.Consumer("t", "billing")
		_, err := c.Describe(t.Context())
		wantCode(t, err, seb.CodeConsumerNotFound)
		if got := fmt.Sprint(followed(t, c, 5)); got != "[0/0 0/1 0/2 1/0 1/1]" {
			t.Fatalf("it reads %v", got)
		}
		wantAt(t, c, 0, 0) // reading creates the consumer, and only commits move it
		mustCommit(t, c, seb.After(seb.Record{Partition: 0, Offset: 1}, seb.Record{Partition: 1}, seb.Record{Partition: 0}))
		for name, reader := range map[string]*seb.Broker{"the same": b, "another": open(t, memory, opts)} {
			c := reader.Consumer("t", "billing")
			info := wantAt(t, c, 2, 1)
			if p := info.Positions[0]; p.Lag() != 1 || p.Missed() != 0 || p.End != 3 || info.Created.IsZero() || info.Moved.Before(info.Created) {
				t.Fatalf("%s broker: %+v", name, info)
			}
			if got := fmt.Sprint(followed(t, c, 2)); got != "[0/2 1/1]" {
				t.Fatalf("%s broker: it reads %v", name, got)
			}
		}
		mustCommit(t, c, seb.Offsets{0: 1}) // a commit may move it back
		for range 5 {
			mustAppend(t, b, "t", "more") // enough commits for a checkpoint
		}
		wantAt(t, open(t, memory, opts).Consumer("t", "billing"), 1, 1)
	})
}

func TestFollowIteratesOverWhatIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		mustAppend(t, b, "t", "a", "b", "c")
		var got []string
		for range 3 { // each one like a reader that restarts after a crash
			for r, err := range b.Consumer("t", "c").Follow(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(r.Value))
				mustCommit(t, b.Consumer("t", "c"), seb.After(r))
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for r, err := range b.Consumer("t", "c").Follow(ctx) {
			if seb.CodeOf(err) != seb.CodeCanceled {
				t.Fatal(r, err)
			}
		}
		if fmt.Sprint(got) != "[a b c]" {
			t.Fatalf("it reads %v", got)
		}
	})
}

func TestResetMovesAConsumerAnywhereInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 2)
		for p := range int32(2) {
			if _, err := b.Append(t.Context(), "t", timed(100, 200, 300), seb.ToPartition(p)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.DeleteRecords(t.Context(), "t", 1, 1); err != nil {
			t.Fatal(err)
		}
		c := b.Consumer("t", "c")
		for _, test := range []struct {
			from seb.Position
			want []seb.Offset
		}{
			{seb.Earliest, []seb.Offset{0, 1}},
			{seb.Latest, []seb.Offset{3, 3}},
			{seb.Last(1), []seb.Offset{2, 2}},
			{seb.AtTime(time.UnixMilli(150)), []seb.Offset{1, 1}},
			{seb.AtTime(time.UnixMilli(999)), []seb.Offset{3, 3}},
		} {
			mustReset(t, c, test.from)
			wantAt(t, c, test.want...)
		}
		_, _, err := c.Reset(t.Context(), seb.At(1))
		wantCode(t, err, seb.CodeInvalidRequest)
		if _, created, err := c.ResetTo(t.Context(), seb.Offsets{1: 2}); err != nil || created {
			t.Fatal(created, err)
		}
		wantAt(t, c, 3, 2) // the other partition stays
		fresh := b.Consumer("t", "fresh")
		if _, created, err := fresh.ResetTo(t.Context(), seb.Offsets{0: 2}); err != nil || !created {
			t.Fatal(created, err)
		}
		wantAt(t, fresh, 2, 1) // the other partition is at its start
		for _, o := range []seb.Offsets{{1: 0}, {0: 4}} {
			_, _, err := c.ResetTo(t.Context(), o)
			e := wantError(t, err, seb.CodeOffsetOutOfRange)
			if e.Outcome != seb.NotCommitted || e.End != 3 {
				t.Fatalf("%v: %+v", o, e)
			}
		}
		_, _, err = c.ResetTo(t.Context(), seb.Offsets{2: 0})
		wantCode(t, err, seb.CodePartitionNotFound)
		wantAt(t, c, 3, 2)
	})
}

func TestCommitOutsideOfTheLogMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 2)
		appendTo(t, b, 0, 3)
		c := b.Consumer("t", "c")
		mustReset(t, c, seb.Earliest)
		_, err := c.Commit(t.Context(), seb.Offsets{0: 4, 1: 0})
		if e := wantError(t, err, seb.CodeOffsetOutOfRange); e.Outcome != seb.NotCommitted || e.End != 3 {
			t.Fatalf("%+v", e)
		}
		_, err = c.Commit(t.Context(), seb.Offsets{0: 1, 2: 0})
		wantCode(t, err, seb.CodePartitionNotFound)
		for _, o := range []seb.Offsets{nil, {0: -1}, {-1: 0}} {
			_, err = c.Commit(t.Context(), o)
			wantCode(t, err, seb.CodeInvalidRequest)
		}
		_, err = b.Consumer("t", "nobody").Commit(t.Context(), seb.Offsets{0: 1})
		wantCode(t, err, seb.CodeConsumerNotFound)
		_, err = b.Consumer("nothing", "c").Commit(t.Context(), seb.Offsets{0: 1})
		wantCode(t, err, seb.CodeTopicNotFound)
		for _, partition := range []int32{-2, 2, 1 << 30} {
			for _, name := range []string{"c", "new"} {
				_, err = b.Consumer("t", name).Follower(t.Context(), partition)
				wantCode(t, err, seb.CodePartitionNotFound)
			}
		}
		_, err = b.Consumer("t", "new").Describe(t.Context())
		wantCode(t, err, seb.CodeConsumerNotFound) // a refused read creates no consumer
		_, err = b.Consumer("t", "a/b").Commit(t.Context(), seb.Offsets{0: 1})
		wantCode(t, err, seb.CodeInvalidRequest)
		wantAt(t, c, 0, 0)
	})
}

// A commit is not refused because this broker does not know yet what another broker has just done.
func TestCommitIsNotRefusedForWhatOnlyThisBrokerDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		other := open(t, memory, immediate())
		mustAppend(t, b, "t", "a")
		mustReset(t, b.Consumer("t", "c"), seb.Earliest)
		mustCommit(t, other.Consumer("t", "c"), seb.Offsets{0: 1})
		mustAppend(t, b, "t", "b")
		mustCommit(t, other.Consumer("t", "c"), seb.Offsets{0: 2})
		wantAt(t, other.Consumer("t", "c"), 2)
	})
}

// If retention deletes records that a consumer has not read, the consumer's reads fail until it is
// reset.
func TestConsumerWhoseRecordsWereDeletedGetsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustAppend(t, b, "t", "a", "b", "c", "d")
		c := b.Consumer("t", "c")
		mustReset(t, c, seb.Earliest)
		mustCommit(t, c, seb.Offsets{0: 1})
		if _, err := b.DeleteRecords(t.Context(), "t", 0, 3); err != nil {
			t.Fatal(err)
		}
		if p := wantAt(t, c, 1).Positions[0]; p.Missed() != 2 || p.Lag() != 1 {
			t.Fatalf("%+v", p)
		}
		_, err := c.Follower(t.Context(), seb.AllPartitions)
		if e := wantError(t, err, seb.CodeOffsetOutOfRange); e.Start != 3 || e.End != 4 || e.Outcome != "" {
			t.Fatalf("%+v", e)
		}
		mustCommit(t, c, seb.Offsets{0: 2}) // for a record that it had read before
		mustReset(t, c, seb.Earliest)
		if got := fmt.Sprint(followed(t, c, 1)); got != "[0/3]" {
			t.Fatalf("it reads %v", got)
		}
	})
}

// Two readers, each of which believes to be the only one, commit through any brokers. One of them gets
// a conflict.
func TestCommitIfVersionIsWonByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		brokers := []*seb.Broker{open(t, memory, immediate()), open(t, memory, immediate())}
		mustAppend(t, brokers[0], "t", make([]string, 50)...)
		version := mustReset(t, brokers[0].Consumer("t", "c"), seb.Earliest).Version
		for round := range 20 {
			var (
				wg       sync.WaitGroup
				versions [4]string
				errs     [4]error
			)
			for i := range versions {
				wg.Go(func() {
					c := brokers[i%2].Consumer("t", "c")
					versions[i], errs[i] = c.Commit(t.Context(), seb.Offsets{0: seb.Offset(round + i)}, seb.IfVersion(version))
				})
			}
			wg.Wait()
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner < 0:
					winner = i
				case err == nil:
					t.Fatalf("%d and %d both moved it from version %s", winner, i, version)
				default:
					wantCode(t, err, seb.CodePositionConflict)
				}
			}
			if winner < 0 {
				t.Fatalf("nobody moved it: %v", errs)
			}
			version = versions[winner]
			for _, b := range brokers {
				_, err := b.Consumer("t", "c").Commit(t.Context(), seb.Offsets{0: 0}, seb.IfVersion(version+"1"))
				wantCode(t, err, seb.CodePositionConflict) // after a sync
				if info := wantAt(t, b.Consumer("t", "c"), seb.Offset(round+winner)); info.Version != version {
					t.Fatalf("version %s, want %s", info.Version, version)
				}
			}
		}
	})
}

// If a caller gives up its commit before the commit is under way, nothing moves. After that, the
// outcome is unknown.
func TestCommitThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, kit.InVirtualTime(seb.Options{})) // which collects requests before it commits
		mustAppend(t, b, "t", "a", "b")
		c := b.Consumer("t", "c")
		mustReset(t, c, seb.Earliest)
		giveUp := func(offset seb.Offset, after time.Duration, want seb.Outcome) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			_, err := c.Commit(ctx, seb.Offsets{0: offset})
			if got := seb.OutcomeOf(err); err == nil || got != want {
				t.Fatalf("the outcome is %q, want %q: %v", got, want, err)
			}
		}
		giveUp(1, time.Millisecond, seb.NotCommitted)
		time.Sleep(time.Second)
		wantAt(t, c, 0)

		held := make(chan struct{})
		faulty.On(objstore.VerbCreate, "log/", storetest.Hold(held))
		giveUp(2, time.Second, seb.Unknown)
		mustAppend(t, open(t, memory, immediate()), "t", "c") // wins the slot, so that the commit is built again
		close(held)
		synctest.Wait()
		wantAt(t, c, 2)
	})
}

// A read that creates its consumer must not reset a consumer that another client has created and
// moved.
func TestConsumerIsCreatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		mustAppend(t, b, "t", "a", "b", "c")
		_ = readAll(t, other, "t", 0) // so that it has just synced
		mustReset(t, b.Consumer("t", "c"), seb.Earliest)
		mustCommit(t, b.Consumer("t", "c"), seb.Offsets{0: 2})
		if got := fmt.Sprint(followed(t, other.Consumer("t", "c"), 1)); got != "[0/2]" {
			t.Fatalf("through the other broker it reads %v", got)
		}
	})
}

func TestConsumersAreListedAndDeletedWithTheirTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Limits.Consumers = 3
		b := open(t, objstore.NewMemory(), opts)
		mustAppend(t, b, "t", "a")
		mustAppend(t, b, "u", "a")
		for _, c := range []*seb.Consumer{b.Consumer("t", "z"), b.Consumer("t", "a"), b.Consumer("u", "a")} {
			mustReset(t, c, seb.Latest)
		}
		names := func(topic string) (names []string) {
			for i, err := range b.Consumers(t.Context(), topic, seb.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, i.Topic+"/"+i.Name)
			}
			return names
		}
		if got := fmt.Sprint(names("t"), names("u")); got != "[t/a t/z] [u/a]" {
			t.Fatalf("there are %s", got)
		}
		_, _, err := b.Consumer("t", "more").Reset(t.Context(), seb.Latest)
		wantCode(t, err, seb.CodeTooManyConsumers)
		_, err = b.Consumer("t", "more").Follower(t.Context(), 0)
		wantCode(t, err, seb.CodeTooManyConsumers)
		if err := b.Consumer("t", "z").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, b.Consumer("t", "z").Delete(t.Context()), seb.CodeConsumerNotFound)
		if err := b.DeleteTopic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		for i, err := range b.Consumers(t.Context(), "t", seb.ListOptions{}) {
			wantCode(t, err, seb.CodeTopicNotFound)
			if i.Name != "" {
				t.Fatalf("consumer %+v", i)
			}
		}
		mustAppend(t, b, "t", "of another life")
		_, err = b.Consumer("t", "a").Describe(t.Context())
		wantCode(t, err, seb.CodeConsumerNotFound)
		if got := fmt.Sprint(names("t"), names("u")); got != "[] [u/a]" {
			t.Fatalf("there are %s", got)
		}
	})
}

// While records are appended, commits of positions need no commits of their own.
func TestPositionsRideInTheCommitsOfRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, kit.InVirtualTime(seb.Options{}))
		mustAppend(t, b, "t", "first")
		c := b.Consumer("t", "c")
		mustReset(t, c, seb.Earliest)
		hundred := func(commits bool) int {
			before := faulty.Count(objstore.VerbCreate, "") + faulty.Count(objstore.VerbGet, "") + faulty.Count(objstore.VerbList, "")
			for range 100 {
				var wg sync.WaitGroup
				wg.Go(func() { mustAppend(t, b, "t", "v") })
				if commits {
					wg.Go(func() { mustCommit(t, c, seb.Offsets{0: 1}) })
				}
				wg.Wait()
			}
			return faulty.Count(objstore.VerbCreate, "") + faulty.Count(objstore.VerbGet, "") + faulty.Count(objstore.VerbList, "") - before
		}
		without, with := hundred(false), hundred(true)
		if with > without {
			t.Errorf("100 appends took %d requests, with as many commits of positions %d", without, with)
		}
	})
}

// The metrics of consumers agree with the state, and leave out deleted consumers.
func TestMetricsShowPositionsOfConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		b := open(t, objstore.NewMemory(), immediate())
		metrics.MustRegister(sebprom.NewCollector(b.Metrics))
		mustCreateTopic(t, b, "t", 2)
		appendTo(t, b, 0, 5)
		appendTo(t, b, 1, 4)
		slow := mustReset(t, b.Consumer("t", "slow"), seb.Earliest).Moved
		mustReset(t, b.Consumer("t", "gone"), seb.Earliest)
		time.Sleep(time.Hour)
		quick := mustReset(t, b.Consumer("t", "quick"), seb.Latest).Moved
		if _, err := b.DeleteRecords(t.Context(), "t", 0, 2); err != nil {
			t.Fatal(err)
		}
		if err := b.Consumer("t", "gone").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`
# HELP seb_consumer_lag_records Records in the topic that the consumer has not committed.
# TYPE seb_consumer_lag_records gauge
seb_consumer_lag_records{consumer="quick",topic="t"} 0
seb_consumer_lag_records{consumer="slow",topic="t"} 7
# HELP seb_consumer_missed_records Records that were deleted before the consumer committed them.
# TYPE seb_consumer_missed_records gauge
seb_consumer_missed_records{consumer="quick",topic="t"} 0
seb_consumer_missed_records{consumer="slow",topic="t"} 2
# HELP seb_consumer_moved_timestamp_seconds When the consumer was last committed or reset, in seconds since 1970.
# TYPE seb_consumer_moved_timestamp_seconds gauge
seb_consumer_moved_timestamp_seconds{consumer="quick",topic="t"} %v
seb_consumer_moved_timestamp_seconds{consumer="slow",topic="t"} %v
# HELP seb_consumers Consumers of all topics.
# TYPE seb_consumers gauge
seb_consumers 2
`, float64(quick.UnixMicro())/1e6, float64(slow.UnixMicro())/1e6)
		if past := quick.Sub(slow).Round(time.Millisecond); past < time.Hour || past > time.Hour+time.Second {
			t.Errorf("they were moved %v one after the other", past)
		}
		err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "seb_consumer_lag_records", "seb_consumer_missed_records",
			"seb_consumer_moved_timestamp_seconds", "seb_consumers")
		if err != nil {
			t.Error(err)
		}
	})
}
