package commit_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/test/kit"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestCommitDoesAllOfItInOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		worker := withWorker(t, b, 3)
		mustCreateTopic(t, b, "a", 3)
		mustCreateTopic(t, b, "b", 1)
		before := len(keys(t, memory, format.LogPrefix))
		c := counted(0, 2, appends("b", "x"), appends("a", "1", "2"), appends("b", "y", "z"))
		c.Appends[1].Options = []seb.AppendOption{seb.ToPartitions([]int32{2, 1})}
		got := mustCommitAll(t, b, c)
		want := seb.Committed{Appends: []seb.Appended{
			{Topic: "b", Count: 1, Ranges: []seb.Range{{Offset: 0, Count: 1}}},
			{Topic: "a", Count: 2, Ranges: []seb.Range{{Partition: 1, Count: 1}, {Partition: 2, Count: 1}}},
			{Topic: "b", Count: 2, Ranges: []seb.Range{{Offset: 1, Count: 2}}},
		}, Versions: []string{wantAt(t, worker, 2).Version}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the answer (-want +got):\n%s", diff)
		}
		if n := len(keys(t, memory, format.LogPrefix)) - before; n != 1 {
			t.Errorf("it took %d slots", n)
		}
		for _, b := range []*seb.Broker{b, open(t, memory, immediate())} {
			wantValues(t, b, "b", "x", "y", "z")
			if got := readAll(t, b, "a", 2); fmt.Sprint(got) != "[1]" {
				t.Errorf("partition 2 holds %v", got)
			}
		}
		wantAt(t, worker, 2)
	})
}

// If one part is refused, nothing of the commit is done, and the error names that part.
func TestCommitIsRefusedAsAWhole(t *testing.T) {
	tests := map[string]struct {
		spoil func(c *seb.Commit)
		code  seb.Code
		part  string
	}{
		"position is elsewhere":          {func(c *seb.Commit) { c.Positions[0].Expect[0] = 1 }, seb.CodePositionConflict, "positions/0"},
		"position of another version":    {func(c *seb.Commit) { c.Positions[0].Version = "1.7" }, seb.CodePositionConflict, "positions/0"},
		"position in no partition":       {func(c *seb.Commit) { c.Positions[0].Expect[7] = 0 }, seb.CodePartitionNotFound, "positions/0"},
		"position beyond the end":        {func(c *seb.Commit) { c.Positions[0].Offsets[0] = 4 }, seb.CodeOffsetOutOfRange, "positions/0"},
		"position of no offsets":         {func(c *seb.Commit) { c.Positions[0].Offsets = nil }, seb.CodeInvalidRequest, "positions/0"},
		"no such consumer":               {func(c *seb.Commit) { c.Positions[0].Consumer = "nobody" }, seb.CodeConsumerNotFound, "positions/0"},
		"no name of a consumer":          {func(c *seb.Commit) { c.Positions[0].Consumer = "" }, seb.CodeInvalidRequest, "positions/0"},
		"no such topic to read":          {func(c *seb.Commit) { c.Positions[0].Topic = "none" }, seb.CodeTopicNotFound, "positions/0"},
		"the same consumer twice":        {func(c *seb.Commit) { c.Positions = append(c.Positions, c.Positions[0]) }, seb.CodeInvalidRequest, "positions/1"},
		"no such partition":              {func(c *seb.Commit) { c.Appends[1].Options = []seb.AppendOption{seb.ToPartition(1)} }, seb.CodePartitionNotFound, "appends/1"},
		"no name of a topic":             {func(c *seb.Commit) { c.Appends[0].Topic = "?" }, seb.CodeInvalidTopicName, "appends/0"},
		"no records":                     {func(c *seb.Commit) { c.Appends[1].Records = nil }, seb.CodeInvalidRequest, "appends/1"},
		"another end":                    {func(c *seb.Commit) { c.Appends[1].Options = []seb.AppendOption{seb.IfOffset(2)} }, seb.CodeOffsetConflict, "appends/1"},
		"an end before":                  {func(c *seb.Commit) { c.Appends[1].Options = []seb.AppendOption{seb.IfOffset(0)} }, seb.CodeOffsetConflict, "appends/1"},
		"no offset":                      {func(c *seb.Commit) { c.Appends[1].Options = []seb.AppendOption{seb.IfOffset(-1)} }, seb.CodeInvalidRequest, "appends/1"},
		"a key within":                   {func(c *seb.Commit) { c.Appends[1].Options = []seb.AppendOption{seb.IdempotencyKey("k")} }, seb.CodeInvalidRequest, "appends/1"},
		"a record that is too large":     {func(c *seb.Commit) { c.Appends[1] = appends("b", large("v", 9<<20)) }, seb.CodeRecordTooLarge, "appends/1"},
		"all together is too large":      {func(c *seb.Commit) { c.Appends = []seb.CommitAppend{big("a"), big("b"), big("a"), big("b"), big("c")} }, seb.CodeRequestTooLarge, ""},
		"too many parts":                 {func(c *seb.Commit) { c.Appends = make([]seb.CommitAppend, 1000) }, seb.CodeRequestTooLarge, ""},
		"no parts":                       {func(c *seb.Commit) { *c = seb.Commit{} }, seb.CodeInvalidRequest, ""},
		"offsets are not those expected": {func(c *seb.Commit) { c.Positions[0].Expect[0] = -1 }, seb.CodeInvalidRequest, "positions/0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				b, other := open(t, memory, immediate()), open(t, memory, immediate())
				worker := withWorker(t, b, 3)
				mustAppend(t, b, "a", "0")
				mustAppend(t, b, "b", "0")
				for _, b := range []*seb.Broker{b, other} {
					c := counted(0, 2, appends("a", "no"), appends("b", "no"))
					test.spoil(&c)
					_, err := b.Commit(t.Context(), c, seb.IdempotencyKey("k"))
					wantPart(t, err, test.code, test.part)
				}
				wantValues(t, b, "a", "0")
				wantValues(t, b, "b", "0")
				wantAt(t, worker, 0)
				if n := kit.MemoryInUse(b); n != 0 {
					t.Errorf("%d bytes are still taken", n)
				}
				mustCommitAll(t, b, counted(0, 2, appends("a", "yes")), seb.IdempotencyKey("k")) // the idempotency key is free
				wantAt(t, worker, 2)
			})
		})
	}
}

func big(topic string) seb.CommitAppend { return appends(topic, large("v", 7<<20)) }

func TestCommitHasNoOptionsOfAnAppend(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{})
	for _, opt := range []seb.AppendOption{seb.ToPartition(0), seb.ToPartitions([]int32{0}), seb.IfOffset(0), seb.IdempotencyKey("")} {
		_, err := b.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{appends("a", "v")}}, opt)
		wantPart(t, err, seb.CodeInvalidRequest, "")
	}
}

// The offset that an append has as its condition counts the records of the appends before it in the
// commit.
func TestConditionsWithinACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustAppend(t, b, "t", "0")
		two := func(first, second seb.Offset) error {
			one, other := appends("t", "1", "2"), appends("t", "3")
			one.Options, other.Options = []seb.AppendOption{seb.IfOffset(first)}, []seb.AppendOption{seb.IfOffset(second)}
			_, err := b.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{one, other}})
			return err
		}
		err := two(1, 1)
		wantPart(t, err, seb.CodeOffsetConflict, "appends/1")
		wantConflict(t, err, 3)
		if err := two(1, 3); err != nil {
			t.Fatal(err)
		}
		wantValues(t, b, "t", "0", "1", "2", "3")
	})
}

// Commits share a slot with other requests that wait. A refused commit leaves no trace in the slot,
// however its records were encoded.
func TestCommitLeavesItsNeighboursAlone(t *testing.T) {
	for _, size := range []int{1, 3 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := open(t, faulty, immediate())
				worker := withWorker(t, b, 9)
				mustCreateTopic(t, b, "a", 1)
				mustCreateTopic(t, b, "b", 1)
				release := make(chan struct{})
				undo := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
				var (
					wg     sync.WaitGroup
					served [11]error
					count  int
				)
				next := func(do func() error) {
					at := &served[count]
					count++
					wg.Go(func() { *at = do() })
					synctest.Wait()
				}
				app := func(topic, v string) {
					next(func() error { _, err := b.Append(t.Context(), topic, values(large(v, size))); return err })
				}
				commit := func(from, to seb.Offset, v string) {
					next(func() error {
						_, err := b.Commit(t.Context(), counted(from, to, appends("a", large(v, size)), appends("b", large(v, size))))
						return err
					})
				}
				app("a", "0")
				app("a", "1")
				app("b", "0")
				commit(0, 2, "2")
				commit(0, 3, "no")
				app("a", "3")
				app("b", "3")
				commit(2, 5, "4")
				commit(3, 5, "no")
				app("a", "5")
				commit(5, 9, "6")
				undo()
				close(release)
				wg.Wait()
				var refused []int
				for i, err := range served {
					if err != nil {
						wantPart(t, err, seb.CodePositionConflict, "positions/0")
						refused = append(refused, i)
					}
				}
				if fmt.Sprint(refused) != "[4 8]" {
					t.Errorf("refused were %v", refused)
				}
				other := open(t, memory, immediate())
				l := func(v string) string { return large(v, size) }
				wantValues(t, other, "a", l("0"), l("1"), l("2"), l("3"), l("4"), l("5"), l("6"))
				wantValues(t, other, "b", l("0"), l("2"), l("3"), l("4"), l("6"))
				wantAt(t, worker, 9)
			})
		})
	}
}

// Whether a commit is refused depends on the log, not on what its broker knows.
func TestCommitIsNotRefusedForWhatOnlyItsBrokerDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, stale := open(t, memory, immediate()), open(t, memory, immediate())
		worker := withWorker(t, b, 3)
		mustCommitAll(t, stale, counted(0, 1, appends("out", "a")))
		mustCommitAll(t, b, counted(1, 2, appends("out", "b")))
		mustAppend(t, b, "in", "more")
		mustCommitAll(t, stale, counted(2, 4, appends("out", "c")))
		_, err := b.Commit(t.Context(), counted(2, 4, appends("out", "no")))
		wantPart(t, err, seb.CodePositionConflict, "positions/0")
		wantText(t, err, "offset 4")
		wantValues(t, b, "out", "a", "b", "c")
		wantAt(t, worker, 4)
	})
}

func TestRetryOfACommitGetsTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := immediate()
		opts.CheckpointCommits = 3
		b, other := open(t, memory, opts), open(t, memory, opts)
		worker := withWorker(t, b, 3)
		mustCreateTopic(t, b, "a", 3)
		c := func() seb.Commit { return counted(0, 2, appends("a", "1", "2"), appends("b", "x"), appends("a", "3")) }
		first := mustCommitAll(t, b, c(), seb.IdempotencyKey("k"))
		mustReset(t, worker, seb.At(1)) // so that the positions that the commit expects no longer hold
		again := func(b *seb.Broker) {
			t.Helper()
			want := first
			want.Replayed, want.Versions = true, nil
			if diff := cmp.Diff(want, mustCommitAll(t, b, c(), seb.IdempotencyKey("k"))); diff != "" {
				t.Errorf("the retry's answer (-want +got):\n%s", diff)
			}
		}
		again(b)
		again(other) // which has not synced since
		for range 4 {
			mustAppend(t, b, "t", "more")
		}
		again(open(t, memory, opts)) // a broker that started from a checkpoint
		if err := b.DeleteTopic(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		again(b) // since the other parts were done too
		again(other)
		wantValues(t, b, "b", "x")
		wantAt(t, worker, 1)
	})
}

func TestRetryOfACommitWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b, other := open(t, memory, immediate()), open(t, memory, immediate())
		worker := withWorker(t, b, 3)
		mustCommitAll(t, b, counted(0, 2), seb.IdempotencyKey("k"))
		for _, b := range []*seb.Broker{b, other, open(t, memory, immediate())} {
			if done := mustCommitAll(t, b, counted(0, 2), seb.IdempotencyKey("k")); !done.Replayed || len(done.Appends) > 0 {
				t.Errorf("the retry's answer is %+v", done)
			}
			_, err := b.Commit(t.Context(), counted(0, 1), seb.IdempotencyKey("k"))
			wantPart(t, err, seb.CodeIdempotencyKeyReused, "")
		}
		wantAt(t, worker, 2)
	})
}

func TestAnotherCommitUnderAUsedKeyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		worker := withWorker(t, b, 3)
		mustCommitAll(t, b, counted(0, 1, appends("a", "1"), appends("b", "1")), seb.IdempotencyKey("k"))
		to := func(p int32, a seb.CommitAppend) seb.CommitAppend {
			a.Options = []seb.AppendOption{seb.ToPartition(p)}
			return a
		}
		elsewhere := counted(0, 1, appends("a", "1"), appends("b", "1"))
		elsewhere.Positions[0].Consumer = "other"
		for name, c := range map[string]seb.Commit{
			"another value":       counted(0, 1, appends("a", "1"), appends("b", "2")),
			"another topic":       counted(0, 1, appends("a", "1"), appends("c", "1")),
			"the other order":     counted(0, 1, appends("b", "1"), appends("a", "1")),
			"another partition":   counted(0, 1, to(0, appends("a", "1")), appends("b", "1")),
			"fewer appends":       counted(0, 1, appends("a", "1")),
			"no appends":          counted(0, 1),
			"another offset":      counted(0, 2, appends("a", "1"), appends("b", "1")),
			"another expectation": counted(1, 1, appends("a", "1"), appends("b", "1")),
			"another consumer":    elsewhere,
			"no positions":        {Appends: []seb.CommitAppend{appends("a", "1"), appends("b", "1")}},
			"a record more":       counted(0, 1, appends("a", "1", "1"), appends("b", "1")),
		} {
			_, err := b.Commit(t.Context(), c, seb.IdempotencyKey("k"))
			if seb.CodeOf(err) != seb.CodeIdempotencyKeyReused {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantAt(t, worker, 1)
		wantValues(t, b, "a", "1")
		if a, err := b.Append(t.Context(), "a", values("2"), seb.IdempotencyKey("k")); err != nil || a.Replayed {
			t.Errorf("the same key for an append: %+v, %v", a, err)
		}
	})
}

// Each append of a commit is remembered separately, so each takes room in the state.
func TestCommitThatThereIsNoRoomToRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := immediate()
		opts.Limits.IdempotencyKeys = 3
		b := open(t, objstore.NewMemory(), opts)
		three := seb.Commit{Appends: []seb.CommitAppend{appends("a", "1"), appends("a", "2"), appends("a", "3")}}
		two := seb.Commit{Appends: three.Appends[:2]}
		mustCommitAll(t, b, two, seb.IdempotencyKey("k"))
		_, err := b.Commit(t.Context(), two, seb.IdempotencyKey("l"))
		wantPart(t, err, seb.CodeIdempotencyKeysFull, "")
		mustCommitAll(t, b, seb.Commit{Appends: three.Appends[2:]}, seb.IdempotencyKey("l"))
		if !mustCommitAll(t, b, two, seb.IdempotencyKey("k")).Replayed {
			t.Error("the first was forgotten")
		}
		wantValues(t, b, "a", "1", "2", "3")
	})
}

// Retries that come while the first call is under way wait for its result.
func TestRetriesJoinTheCommitThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		worker := withWorker(t, b, 3)
		mustCreateTopic(t, b, "out", 1)
		release := make(chan struct{})
		defer faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))()
		var (
			wg       sync.WaitGroup
			mu       sync.Mutex
			replayed int
		)
		for range 3 {
			wg.Go(func() {
				done, err := b.Commit(t.Context(), counted(0, 1, appends("out", "v")), seb.IdempotencyKey("k"))
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(done.Appends) != 1 || done.Appends[0].Ranges[0].Offset != 0 {
					t.Errorf("%+v, %v", done, err)
				}
				if done.Replayed {
					replayed++
				}
			})
		}
		synctest.Wait()
		if _, err := b.Commit(t.Context(), counted(0, 1), seb.IdempotencyKey("k")); seb.CodeOf(err) != seb.CodeIdempotencyKeyReused {
			t.Errorf("another commit under a key that is under way: %v", err)
		}
		close(release)
		wg.Wait()
		if replayed != 2 {
			t.Errorf("%d of 3 were replayed", replayed)
		}
		wantValues(t, b, "out", "v")
		wantAt(t, worker, 1)
	})
}

func TestCommitOfAllThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		worker := withWorker(t, b, 3)
		mustCreateTopic(t, b, "out", 1)
		release := make(chan struct{})
		undo := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		brief := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) }
		for i, want := range []seb.Outcome{seb.Unknown, seb.NotCommitted} { // the first was sent, and the second waits behind it
			ctx, cancel := brief()
			_, err := b.Commit(ctx, counted(0, seb.Offset(i+1), appends("out", fmt.Sprint(i))))
			cancel()
			wantCode(t, err, seb.CodeCanceled)
			wantOutcome(t, err, want)
		}
		undo()
		close(release)
		synctest.Wait()
		wantValues(t, b, "out", "0")
		wantAt(t, worker, 1)
		if n := kit.MemoryInUse(b); n != 0 {
			t.Errorf("%d bytes are still taken", n)
		}
	})
}

// Two readers read different partitions with one consumer. If both commits require the same version,
// only one succeeds.
func TestCommitOfAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		mustCreateTopic(t, b, "in", 2)
		for p := range int32(2) {
			if _, err := b.Append(t.Context(), "in", values("v", "v"), seb.ToPartition(p)); err != nil {
				t.Fatal(err)
			}
		}
		worker := b.Consumer("in", "worker")
		version := mustReset(t, worker, seb.Earliest).Version
		moves := func(partition int32, version string) seb.Commit {
			return seb.Commit{Appends: []seb.CommitAppend{appends("out", "v")}, Positions: []seb.CommitPositions{
				{Topic: "in", Consumer: "worker", Version: version, Offsets: seb.Offsets{partition: 1}},
			}}
		}
		done := mustCommitAll(t, b, moves(0, version))
		_, err := b.Commit(t.Context(), moves(1, version))
		wantPart(t, err, seb.CodePositionConflict, "positions/0")
		wantAt(t, worker, 1, 0)
		mustCommitAll(t, b, moves(1, done.Versions[0]))
		wantAt(t, worker, 1, 1)
		wantValues(t, b, "out", "v", "v")
	})
}

func TestErrorOfAPartNamesIt(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{})
	_, err := b.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{appends("a", "v"), appends("a")}})
	if err == nil || !strings.HasPrefix(err.Error(), "invalid_request: appends/1: the append has no records") {
		t.Errorf("the error is %v", err)
	}
}

// Steps before a commit is submitted, such as the creation of a topic, count against its timeout.
func TestCommitToANewTopicKeepsToItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		o := immediate()
		o.AppendTimeout = 10 * time.Second
		b := open(t, faulty, o)
		remove := faulty.On(objstore.VerbCreate, "log/", storetest.Delay(6*time.Second))
		defer remove()
		began := time.Now()
		_, err := b.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{{Topic: "new", Records: values("a")}}})
		wantOutcome(t, err, seb.Unknown)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the commit took %v, want the 10s of its timeout", took)
		}
	})
}
