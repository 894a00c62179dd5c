package commit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestAppendIfOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		b := open(t, memory, immediate())
		stale := open(t, memory, immediate())
		mustCreateTopic(t, b, "t", 2)
		at := func(b *seb.Broker, end seb.Offset, v string) error {
			_, err := b.Append(t.Context(), "t", values(v), seb.ToPartition(1), seb.IfOffset(end))
			return err
		}
		wantConflict(t, at(b, 1, "too far"), 0)
		if err := at(b, 0, "a"); err != nil {
			t.Fatal(err)
		}
		wantConflict(t, at(b, 0, "again"), 1)
		wantConflict(t, at(stale, 0, "from another broker"), 1)
		if err := at(b, 1, "b"); err != nil {
			t.Fatal(err)
		}
		if err := at(stale, 2, "c"); err != nil { // beyond what that broker has seen
			t.Fatal(err)
		}
		wantConflict(t, at(b, 4, "too far"), 3)
		if got := fmt.Sprint(readAll(t, stale, "t", 1)); got != "[a b c]" {
			t.Errorf("partition 1 holds %s", got)
		}
		mustAppend(t, b, "t", "in partition 0")    // the condition is not about this partition
		for _, end := range []seb.Offset{-1, -2} { // offsets that a caller may have that has read nothing
			wantCode(t, at(b, end, "no offset"), seb.CodeInvalidRequest)
		}
		if got := fmt.Sprint(readAll(t, b, "t", 1)); got != "[a b c]" {
			t.Errorf("partition 1 holds %s", got)
		}

		_, err := b.Append(t.Context(), "t", []seb.Record{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}, {Key: []byte("d")}}, seb.IfOffset(1))
		wantCode(t, err, seb.CodeInvalidRequest)
	})
}

// If the broker picks the partition, the caller can't know its offset: a retry would be appended to
// another partition.
func TestAppendIfOffsetNeedsAPartitionThatIsChosen(t *testing.T) {
	b := open(t, objstore.NewMemory(), immediate())
	mustCreateTopic(t, b, "t", 2)
	keyed := seb.Record{Key: []byte("k")}
	for name, refused := range map[string]struct {
		records []seb.Record
		opts    []seb.AppendOption
	}{
		"neither":             {values("v"), nil},
		"a key for one":       {[]seb.Record{keyed, {}}, nil},
		"a partition for one": {values("v", "w"), []seb.AppendOption{seb.ToPartitions([]int32{1, -1})}},
	} {
		for range 2 { // without a refusal, one of the two would go to the partition of the condition
			_, err := b.Append(t.Context(), "t", refused.records, append(refused.opts, seb.IfOffset(0))...)
			if e := wantError(t, err, seb.CodeInvalidRequest); e.Outcome != seb.NotCommitted || e.Hint == "" {
				t.Errorf("%s: the refusal is %+v", name, e)
			}
		}
	}
	for i, opts := range [][]seb.AppendOption{nil, {seb.ToPartitions([]int32{-1})}} {
		if _, err := b.Append(t.Context(), "t", []seb.Record{keyed}, append(opts, seb.IfOffset(seb.Offset(i)))...); err != nil {
			t.Errorf("with a key: %v", err)
		}
	}
}

// Appends with a condition share a commit with other appends. If one is refused, only that one is left
// out.
func TestAppendIfOffsetLeavesItsNeighboursAlone(t *testing.T) {
	for _, size := range []int{1, 3 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := open(t, faulty, immediate())
				mustCreateTopic(t, b, "t", 1)
				other := open(t, memory, immediate())
				release := make(chan struct{})
				undo := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
				var pending []*seb.Pending
				async := func(v string, opts ...seb.AppendOption) {
					t.Helper()
					p, err := b.AppendAsync(t.Context(), "t", values(large(v, size)), opts...)
					if err != nil {
						t.Fatal(err)
					}
					pending = append(pending, p)
				}
				async("0")
				synctest.Wait()
				async("1")
				async("2", seb.IfOffset(2))
				async("no", seb.IfOffset(2))
				async("3")
				async("4", seb.IfOffset(4))
				async("5", seb.IfOffset(5))
				async("6")
				async("no", seb.IfOffset(6))
				undo()
				close(release)
				var got []string
				for _, p := range pending {
					a, err := p.Wait(t.Context())
					if err != nil {
						got = append(got, fmt.Sprint(seb.CodeOf(err)))
						continue
					}
					got = append(got, fmt.Sprint(a.Ranges[0].Offset))
				}
				if want := "[0 1 2 offset_conflict 3 4 5 6 offset_conflict]"; fmt.Sprint(got) != want {
					t.Errorf("got %v, want %s", got, want)
				}
				time.Sleep(2 * time.Second)
				wantValues(t, other, "t", large("0", size), large("1", size), large("2", size), large("3", size), large("4", size), large("5", size), large("6", size))
			})
		})
	}
}

// The condition of an append may become true or false when its slot is lost to another broker.
func TestConditionIsDecidedAgainAfterALostRace(t *testing.T) {
	for name, test := range map[string]struct {
		elsewhere []string
		want      seb.Code
	}{
		"it comes true":  {[]string{"x", "y"}, ""},
		"it comes false": {[]string{"x", "y", "z"}, seb.CodeOffsetConflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := open(t, faulty, immediate())
				mustCreateTopic(t, b, "t", 1)
				other := open(t, memory, immediate())
				release := make(chan struct{})
				faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.Hold(release)))
				first, err := b.AppendAsync(t.Context(), "t", values("a"))
				if err != nil {
					t.Fatal(err)
				}
				second, err := b.AppendAsync(t.Context(), "t", values("b"), seb.IfOffset(3))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for _, v := range test.elsewhere {
					mustAppend(t, other, "t", v)
				}
				close(release)
				if _, err := first.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if _, err := second.Wait(t.Context()); seb.CodeOf(err) != test.want {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// A broker may learn late that its own commit is in the log. It must not tell the end of that commit
// as the partition's end if others have appended since.
func TestConflictNamesTheEndOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		other := open(t, memory, immediate())
		release := make(chan struct{})
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.HoldReply(release)))
		first, err := b.AppendAsync(t.Context(), "t", values("a"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustAppend(t, other, "t", "from another broker")
		second, err := b.AppendAsync(t.Context(), "t", values("b"), seb.IfOffset(0))
		if err != nil {
			t.Fatal(err)
		}
		close(release)
		if _, err := first.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		_, err = second.Wait(t.Context())
		wantConflict(t, err, 2)
	})
}

// Several clients read a counter, add one, and append if nothing came in between. No count is lost.
func TestReadComputeAppendThroughThreeBrokersLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Slow(objstore.NewMemory(), 5*time.Millisecond)
		const each = 15
		var bs []*seb.Broker
		for range 3 {
			bs = append(bs, open(t, store, immediate()))
		}
		mustCreateTopic(t, bs[0], "t", 1)
		var wg sync.WaitGroup
		for _, b := range bs {
			wg.Go(func() {
				end := seb.Offset(0)
				for done := 0; done < each; {
					_, err := b.Append(t.Context(), "t", values(fmt.Sprint(end)), seb.IfOffset(end))
					switch seb.CodeOf(err) {
					case "":
						done, end = done+1, end+1
					case seb.CodeOffsetConflict:
						end = wantError(t, err, seb.CodeOffsetConflict).End
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Second) // no broker has synced recently
		got := readAll(t, bs[0], "t", 0)
		for i, v := range got {
			if v != fmt.Sprint(i) {
				t.Errorf("offset %d holds %s", i, v)
			}
		}
		if len(got) != 3*each {
			t.Errorf("%d records, want %d", len(got), 3*each)
		}
	})
}

func TestRetryOfAConditionThatHeldGetsTheFirstAnswer(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustCreateTopic(t, b, "t", 1)
	for i := range 2 {
		a, err := b.Append(t.Context(), "t", values("v"), seb.IfOffset(0), seb.IdempotencyKey("k"))
		if err != nil || a.Replayed != (i == 1) {
			t.Errorf("try %d: %+v, %v", i, a, err)
		}
	}
	_, err := b.Append(t.Context(), "t", values("v"), seb.IfOffset(0), seb.IdempotencyKey("another"))
	wantConflict(t, err, 1)
	wantValues(t, b, "t", "v")
}

// The time of the log decides whether a key is remembered, not the clock of a broker, which is a day
// ahead here. The retry's condition was true at the first attempt.
func TestRetryOfAConditionIsNoConflictWhereTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := func() time.Time { return time.Now().Add(-30 * time.Hour) }
		b := open(t, objstore.NewMemory(objstore.WithClock(behind)), immediate())
		mustCreateTopic(t, b, "t", 1)
		for i := range 2 {
			a, err := b.Append(t.Context(), "t", values("v"), seb.IfOffset(0), seb.IdempotencyKey("k"))
			if err != nil || a.Replayed != (i == 1) {
				t.Errorf("try %d: %+v, %v", i, a, err)
			}
		}
		wantValues(t, b, "t", "v")
	})
}

// A refused append to a topic that does not exist does not create the topic.
func TestRefusedAppendCreatesNoTopic(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	try := func(records []seb.Record, opts ...seb.AppendOption) error {
		t.Helper()
		_, err := b.Append(t.Context(), "t", records, opts...)
		if topics, listErr := seb.Collect(b.Topics(t.Context(), seb.ListOptions{})); len(topics) > 0 || listErr != nil {
			t.Fatalf("after %v there are topics %v, %v", err, topics, listErr)
		}
		return err
	}
	wantConflict(t, try(values("v"), seb.IfOffset(1)), 0)
	wantConflict(t, try(values("v"), seb.IfOffset(1), seb.IdempotencyKey("k")), 0)
	if e := wantError(t, try(values("v"), seb.ToPartition(1)), seb.CodePartitionNotFound); !strings.HasPrefix(e.Detail, `there is no topic "t"`) {
		t.Errorf("it is told of a topic that is not there: %s", e.Detail)
	}
	wantCode(t, try(values("v"), seb.ToPartitions([]int32{3})), seb.CodePartitionNotFound)
	wantCode(t, try(values("v"), seb.IdempotencyKey("")), seb.CodeInvalidRequest)
	for _, opts := range [][]seb.AppendOption{nil, {seb.IfOffset(0)}, {seb.IfOffset(1)}, {seb.IdempotencyKey("k")}} {
		if e := wantError(t, try(nil, opts...), seb.CodeInvalidRequest); e.Outcome != seb.NotCommitted || e.Hint == "" {
			t.Errorf("an append without records is refused with %+v", e)
		}
	}
	if _, err := b.Append(t.Context(), "t", values("v"), seb.IfOffset(0)); err != nil {
		t.Error(err)
	}
	wantValues(t, b, "t", "v")
}
