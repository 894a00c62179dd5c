package fault_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestOwnSuccessSeenAsALostRaceIsRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(1, storetest.LoseReply))
		if at := mustAppend(t, b, "t", "once"); at != 0 {
			t.Errorf("appended at %d", at)
		}
		if n := faulty.Count(objstore.VerbCreate, format.LogKey(2)); n != 2 {
			t.Errorf("slot 2 was sent %d times, want 2: the second is told that it exists", n)
		}
		mustAppend(t, b, "t", "next")
		wantValues(t, b, "t", "once", "next")
		wantValues(t, open(t, memory, immediate()), "t", "once", "next")
		if n := len(keys(t, memory, format.LogPrefix)); n != 3 {
			t.Errorf("%d commits, want 3", n)
		}
	})
}

func TestLostReplyAndLostRaceInOne(t *testing.T) {
	// The first broker's Create fails without effect. Before the broker tries again, the second one
	// takes the slot. The answer "exists" must not count as the first one's success.
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		first := open(t, faulty, immediate())
		mustCreateTopic(t, first, "t", 1)
		second := open(t, memory, immediate())
		faulty.On(objstore.VerbCreate, format.LogKey(2), storetest.Times(1,
			func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
				if a, err := second.Append(context.Background(), "t", values("second")); err != nil || a.Ranges[0].Offset != 0 {
					t.Errorf("the second broker appended %+v, %v", a, err)
				}
				return storetest.Answer{}, storetest.ErrInjected
			}))
		if at := mustAppend(t, first, "t", "first"); at != 1 {
			t.Errorf("the first broker appended at %d, want 1", at)
		}
		wantValues(t, first, "t", "second", "first")
	})
}

func TestLatePutOfALivingBrokerChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		var late storetest.Late
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Times(3, late.Fault))
		mustAppend(t, b, "t", "a")
		for i, err := range late.Release() {
			if !errors.Is(err, objstore.ErrExists) {
				t.Errorf("late PUT %d: %v, want that it exists", i, err)
			}
		}
		mustAppend(t, b, "t", "b")
		wantValues(t, b, "t", "a", "b")
		wantValues(t, open(t, memory, immediate()), "t", "a", "b")
	})
}

// A PUT that was sent by a broker that then died executes at one of three moments. Its caller got
// "unknown": the record may be in the log or not, but never twice.
func TestPutThatLandsAfterTheBrokerDied(t *testing.T) {
	tests := map[string]struct {
		run  func(t *testing.T, memory *objstore.Memory, land func() error) *seb.Broker
		want []string
	}{
		"before the restart": {
			func(t *testing.T, memory *objstore.Memory, land func() error) *seb.Broker {
				if err := land(); err != nil {
					t.Error(err)
				}
				b := open(t, memory, immediate())
				mustAppend(t, b, "t", "new")
				return b
			}, []string{"old", "late", "new"}},
		"after the restart, before the next append": {
			func(t *testing.T, memory *objstore.Memory, land func() error) *seb.Broker {
				b := open(t, memory, immediate())
				if err := land(); err != nil {
					t.Error(err)
				}
				mustAppend(t, b, "t", "new")
				return b
			}, []string{"old", "late", "new"}},
		"after the next append": {
			func(t *testing.T, memory *objstore.Memory, land func() error) *seb.Broker {
				b := open(t, memory, immediate())
				mustAppend(t, b, "t", "new")
				if err := land(); !errors.Is(err, objstore.ErrExists) {
					t.Errorf("the late PUT was answered %v", err)
				}
				return b
			}, []string{"old", "new"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				dying := openOnly(t, faulty, immediate())
				mustAppend(t, dying, "t", "old")
				var late storetest.Late
				faulty.On(objstore.VerbCreate, format.LogPrefix, late.Fault)
				pending, err := dying.AppendAsync(t.Context(), "t", values("late"))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the first PUT was sent
				kill(t, dying)
				_, err = pending.Wait(t.Context())
				wantOutcome(t, err, seb.Unknown)
				b := test.run(t, memory, func() error { return late.Release()[0] })
				wantValues(t, b, "t", test.want...)
				wantValues(t, open(t, memory, immediate()), "t", test.want...)
			})
		})
	}
}

func TestCommitIsNeverSentBeforeItsDataObjectsAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		referred := dataIsThere(t, memory, faulty)
		// Uploads fail, lose their answers, and take very different times.
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Times(3, storetest.Fail))
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Times(2, storetest.LoseReply))
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Times(3, storetest.Delay(4*time.Second)))
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		var pending []*seb.Pending
		want := []string{large("a", 5<<20), "small", large("b", 7<<20), large("c", 5<<20)}
		for _, v := range want {
			p, err := b.AppendAsync(t.Context(), "t", values(v))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		for i, p := range pending {
			a, err := p.Wait(t.Context())
			if err != nil || a.Ranges[0].Offset != seb.Offset(i) {
				t.Fatalf("append %d: %+v, %v", i, a, err)
			}
		}
		if referred() < 3 {
			t.Errorf("commits referred to %d data objects, want at least 3", referred())
		}
		wantValues(t, open(t, memory, immediate()), "t", want...)
	})
}

func TestCommitWhoseDataObjectNeverGotThereIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := openOnly(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Fail)
		sent := faulty.Count(objstore.VerbCreate, format.LogPrefix)
		_, err := b.Append(t.Context(), "t", values(large("a", 6<<20)))
		wantCode(t, err, seb.CodeStoreUnavailable)
		time.Sleep(time.Minute)
		kill(t, b)
		if n := faulty.Count(objstore.VerbCreate, format.LogPrefix); n != sent {
			t.Errorf("%d commits were sent", n-sent)
		}
		wantValues(t, open(t, memory, immediate()), "t")
	})
}

func TestCrashBetweenUploadAndClaimLeavesOnlyOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		onlyProbesAreDeleted(t, faulty)
		b := openOnly(t, faulty, immediate())
		mustAppend(t, b, "t", "before")
		heal := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Fail)
		p, err := b.AppendAsync(t.Context(), "t", values(large("a", 6<<20), large("b", 6<<20)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		orphans := keys(t, memory, format.DataPrefix)
		if len(orphans) == 0 {
			t.Fatal("nothing was uploaded")
		}
		kill(t, b)
		heal()
		_, err = p.Wait(t.Context())
		wantOutcome(t, err, seb.Unknown)

		again := open(t, faulty, immediate())
		wantValues(t, again, "t", "before")
		mustAppend(t, again, "t", large("c", 6<<20))
		wantValues(t, again, "t", "before", large("c", 6<<20))
		if got := keys(t, memory, format.DataPrefix); !strings.Contains(strings.Join(got, " "), orphans[0]) {
			t.Errorf("the orphan %s is gone from %v", orphans[0], got)
		}
	})
}

// commitByHand writes entries into the slot after the last one, like another broker.
func commitByHand(t *testing.T, store objstore.Store, entries ...format.Entry) {
	t.Helper()
	slots := keys(t, store, format.LogPrefix)
	last, err := format.DecodeCommit(body(t, store, slots[len(slots)-1]))
	if err != nil {
		t.Fatal(err)
	}
	next := format.Commit{Cluster: last.Cluster, Seq: last.Seq + 1, Prev: last.Hash, Time: last.Time, Entries: entries}
	if _, err := store.Create(t.Context(), format.LogKey(next.Seq), format.EncodeCommit(&next)); err != nil {
		t.Fatal(err)
	}
}

// A sweep may delete data objects below the floor that a commit sets. A data object that was uploaded
// before and is not committed yet is uploaded again.
func TestDataObjectBelowTheFloorIsUploadedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		referred := dataIsThere(t, memory, faulty)
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		release := make(chan struct{})
		hold := faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Hold(release))
		var want []string
		var pending []*seb.Pending
		for _, v := range []string{large("a", 5<<20), "small", large("b", 5<<20)} {
			p, err := b.AppendAsync(t.Context(), "t", values(v))
			if err != nil {
				t.Fatal(err)
			}
			want, pending = append(want, v), append(pending, p)
			synctest.Wait()
		}
		swept := keys(t, memory, format.DataPrefix)
		commitByHand(t, memory, &format.DataFloor{Seq: 2})
		for _, k := range swept {
			remove(t, memory, k)
		}
		hold()
		close(release)
		for i, p := range pending {
			if a, err := p.Wait(t.Context()); err != nil || a.Ranges[0].Offset != seb.Offset(i) {
				t.Errorf("append %d: %+v, %v", i, a.Ranges, err)
			}
		}
		if referred() < 2 {
			t.Errorf("commits referred to %d data objects", referred())
		}
		wantValues(t, open(t, memory, immediate()), "t", want...)
		if used := kit.MemoryInUse(b); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}

func TestAsyncAppendsOfOneCallerKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Delay(50*time.Millisecond))
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Delay(700*time.Millisecond))
		b := open(t, faulty, immediate())
		mustCreateTopic(t, b, "t", 1)
		var (
			want    []string
			pending []*seb.Pending
		)
		for i, size := range []int{1, 5 << 20, 1, 1, 6 << 20, 2 << 20, 3 << 20, 1, 5 << 20, 1} {
			v := large(string(rune('a'+i)), size)
			p, err := b.AppendAsync(t.Context(), "t", values(v))
			if err != nil {
				t.Fatal(err)
			}
			want, pending = append(want, v), append(pending, p)
			time.Sleep(30 * time.Millisecond)
		}
		for i, p := range pending {
			a, err := p.Wait(t.Context())
			if err != nil || a.Ranges[0] != (seb.Range{Offset: seb.Offset(i), Count: 1}) {
				t.Errorf("append %d: %+v, %v", i, a.Ranges, err)
			}
		}
		wantValues(t, b, "t", want...)
		if len(keys(t, memory, format.DataPrefix)) < 2 {
			t.Error("the appends were meant to span data objects")
		}
	})
}
