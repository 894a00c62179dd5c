package commitlog

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// commitHeadBytes is the size of the prologue and the fixed fields of a commit.
const commitHeadBytes = format.PrologueSize + 88

func TestHeadThatWasBentOnItsWayIsReadAgain(t *testing.T) {
	for i := range commitHeadBytes {
		inBubble(t, func(t *testing.T, r *rig) {
			a, b := r.open(), r.open()
			a.fill(2)
			b.store.On(objstore.VerbGet, format.LogKey(1), storetest.Times(damagedReadsMax-1, storetest.FlipByte(i)))
			if err := b.Sync(t.Context()); err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
			b.requireAt(2)
			requireEqual(t, b.applied, a.applied)
		})
	}
}

func TestDamageThatHealsIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		for s := range format.Seq(4) {
			a.mustCommit(s+1, "x")
			b.store.On(objstore.VerbGet, format.LogKey(s+1), storetest.Times(damagedReadsMax-1, storetest.FlipByte(format.PrologueSize)))
			b.mustLook()
			b.requireAt(s + 1)
		}
	})
}

// A bad network damages the reads of two slots. Damage is counted per slot, so the broker does
// not halt.
func TestBentReadsOfDifferentSlotsDoNotAddUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(3)
		bent := storetest.Times(damagedReadsMax-1, storetest.FlipByte(format.PrologueSize))
		b.store.On(objstore.VerbGet, format.LogKey(2), bent)
		b.store.On(objstore.VerbGet, format.LogKey(3), storetest.Times(damagedReadsMax-1, storetest.Fail))
		b.store.On(objstore.VerbGet, format.LogKey(3), storetest.Times(damagedReadsMax-1, storetest.FlipByte(format.PrologueSize)))
		for b.Sync(t.Context()) != nil {
			if err := b.Err(); err != nil {
				t.Fatal(err)
			}
		}
		b.requireAt(3)
	})
}

func TestTruncatedReadIsNeverApplied(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		c := a.mustCommit(1, "payload")
		for n := range int(c.Size()) {
			b := r.openEmpty(1, storetest.Times(1, storetest.Truncate(n)))
			b.mustLook()
			b.requireAt(1)
			requireEqual(t, b.applied, a.applied)
		}
	})
}

func TestDamageThatStaysHalts(t *testing.T) {
	head := commitHeadBytes
	for _, c := range []struct {
		name string
		bend func(object []byte) []byte
		want error
	}{
		{"bent head", func(b []byte) []byte { return flip(b, head-1) }, format.ErrCorrupt},
		{"bent prologue", func(b []byte) []byte { return flip(b, 10) }, format.ErrCorrupt},
		{"cut off", func(b []byte) []byte { return b[:head-1] }, format.ErrCorrupt},
		{"payload cut off", func(b []byte) []byte { return b[:len(b)-1] }, format.ErrCorrupt},
		{"payload too long", func(b []byte) []byte { return append(b, 0) }, format.ErrCorrupt},
		{"empty", func([]byte) []byte { return nil }, format.ErrCorrupt},
		{"of another version", func(b []byte) []byte { b[4] = 3; return b }, format.ErrVersion},
		{"a data object", func([]byte) []byte { return format.EncodeDataHead(&format.DataHead{}) }, format.ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				a, b := r.open(), r.open()
				a.fill(3)
				r.replace(format.LogKey(2), c.bend(r.get(format.LogKey(2))))
				b.requireHalted(b.Sync(t.Context()), c.want)
				b.requireAt(1)
				if n := b.store.Count(objstore.VerbGet, format.LogKey(2)); n != damagedReadsMax {
					t.Fatalf("read %d times", n)
				}
				requireIs(t, r.newBroker().Recover(t.Context()), c.want)
			})
		})
	}
}

func TestCommitOfAnotherClusterHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		b := r.open()
		r.put(format.LogKey(1), format.EncodeCommit(&format.Commit{Cluster: format.ClusterID{1}, Seq: 1}))
		_, err := b.commit(t.Context(), "x")
		requireIs(t, err, format.ErrForeign)
		requireIs(t, err, ErrUnknown) // the claim was sent, so its commit may be in the log
		b.requireHalted(b.Sync(t.Context()), format.ErrForeign)
	})
}

func TestCommitUnderAnotherSlotsKeyHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(1)
		r.put(format.LogKey(2), r.get(format.LogKey(1)))
		b.requireHalted(b.Sync(t.Context()), format.ErrForeign)
		b.requireAt(1)
	})
}

func TestForkHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.fill(1)
		b.mustLook()
		r.put(format.LogKey(2), format.EncodeCommit(&format.Commit{Cluster: r.constants.ID, Seq: 2, Prev: format.Hash{1}}))
		b.requireHalted(b.Sync(t.Context()), ErrFork)
		b.requireAt(1)
	})
}

func TestMissingSlotHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(5)
		b := r.newBroker()
		r.remove(format.LogKey(3))
		b.requireHalted(b.Recover(t.Context()), ErrLoss)
		b.requireAt(2)
	})
}

func TestRollbackOfTheBucketHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(5)
		r.remove(format.LogKey(4), format.LogKey(5))
		a.requireHalted(a.Relist(t.Context()), ErrRolledBack)
	})
}

func TestStoreClockThatFallsHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.mustCommit(1, "x")
		offset := -testMargin
		a.store.On("", "", storetest.ShiftTime(func() time.Duration { return offset }))
		a.mustCommit(2, "y")
		offset -= time.Second
		_, err := a.commit(t.Context(), "z")
		requireIs(t, err, ErrClock)
		a.requireHalted(err, ErrClock)
	})
}

func TestAnswersWithoutADateCostAList(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := r.open(), r.open()
		a.store.On(objstore.VerbCreate, "", storetest.NoTime)
		b.store.On(objstore.VerbGet, "", storetest.NoTime)
		for s := range format.Seq(3) {
			lists := a.store.Count(objstore.VerbList, format.CheckpointPrefix)
			a.mustCommit(s+1, "x")
			if n := a.store.Count(objstore.VerbList, format.CheckpointPrefix) - lists; n != 1 {
				t.Fatalf("%d Lists", n)
			}
			b.mustLook()
			b.requireAt(s + 1)
		}
	})
}

func TestListsWithoutADateAreUnavailability(t *testing.T) {
	for _, prefix := range []string{format.CheckpointPrefix, format.LogPrefix} {
		inBubble(t, func(t *testing.T, r *rig) {
			b := r.newBroker()
			b.store.On(objstore.VerbList, prefix, storetest.NoTime)
			if err := b.Recover(t.Context()); err == nil {
				t.Fatal("recovered without knowing the time")
			}
			if n := b.store.Count(objstore.VerbList, prefix); n != attemptsMax {
				t.Fatalf("%d attempts", n)
			}
		})
	}
}

func TestSlotThatIsListedButNotFoundIsUnavailability(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(2)
		missing := func(_ context.Context, q storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{Time: time.Now()}, fmt.Errorf("get %s: %w", q.Key, objstore.ErrNotFound)
		}
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.LogKey(2), storetest.Times(2, missing))
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(2)

		b = r.newBroker()
		b.store.On(objstore.VerbGet, format.LogKey(2), missing)
		requireIs(t, b.Recover(t.Context()), objstore.ErrNotFound)
		// The first Get is sent together with that of slot 1, so its 404 proves nothing.
		if n := b.store.Count(objstore.VerbGet, format.LogKey(2)); n != 1+attemptsMax {
			t.Fatalf("asked %d times", n)
		}
	})
}

func TestRecoveryGetsAheadOnABadStore(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(300)
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.LogPrefix, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if s, _ := format.ParseSeqKey(format.LogPrefix, q.Key); s%5 == 0 && b.store.Count(objstore.VerbGet, q.Key) < 3 {
				return storetest.Fail(ctx, q, next)
			}
			return next(ctx, q)
		})
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(300)
		if n := b.store.Count(objstore.VerbGet, format.LogPrefix); n != 300+2*60 {
			t.Fatalf("%d Gets of 300 slots, of which 60 fail twice", n)
		}
	})
}

func TestRecoveryOfManyCommitsAfterACheckpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(100)
		a.checkpoint()
		a.fill(1300)
		b := r.open()
		b.requireAt(1300)
		requireEqual(t, b.applied, a.applied)
		// The first List shows only 1,000 keys. The broker reads a Window of slots beyond them,
		// so fewer than Window Gets find nothing. That may happen only once.
		if n := b.store.Count(objstore.VerbGet, format.LogPrefix); n < 1200 || n >= 1200+Window {
			t.Fatalf("%d Gets for 1200 commits", n)
		}
		if b.Stats().Loads.Load() != 1 || b.Contended() {
			t.Fatalf("%d loads, contended: %v", b.Stats().Loads.Load(), b.Contended())
		}
		b.mustCommit(1301, "on top")
	})
}

func TestRecoveryListsTheLogAsOftenWhateverItsLength(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		for _, length := range []format.Seq{listPageKeys + 500, 5*listPageKeys + 500} {
			a.fill(length)
			b := r.open()
			b.requireAt(length)
			if n := b.store.Count(objstore.VerbList, format.LogPrefix); n != 2 {
				t.Errorf("%d Lists for %d commits, want 2", n, length)
			}
		}
	})
}

func TestRecoveryWithHeadsLargerThanAFirstRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		large := string(make([]byte, headRead+1000))
		a.mustCommit(1, large)
		a.mustCommit(2, "small")
		b := r.open()
		b.requireAt(2)
		requireEqual(t, b.applied, a.applied)
		if b.objects != 1 {
			t.Fatalf("%d objects came along with their heads", b.objects)
		}
	})
}

// changed changes a checkpoint and corrects its checksums.
func changed(b []byte, change func(*format.Checkpoint)) []byte {
	c, err := format.DecodeCheckpoint(b)
	if err != nil {
		panic(err)
	}
	change(c)
	return append(format.EncodeCheckpoint(c), c.Body...)
}

func TestCheckpointThatDoesNotVerifyHalts(t *testing.T) {
	for _, c := range []struct {
		name string
		bend func(b []byte) []byte
		want error
	}{
		{"bent body", func(b []byte) []byte { return flip(b, len(b)-1) }, format.ErrCorrupt},
		{"bent head", func(b []byte) []byte { return flip(b, format.PrologueSize) }, format.ErrCorrupt},
		{"cut off", func(b []byte) []byte { return b[:len(b)-1] }, format.ErrCorrupt},
		{"of another version", func(b []byte) []byte { b[4] = 9; return b }, format.ErrVersion},
		{"of another cluster", func(b []byte) []byte { return changed(b, func(c *format.Checkpoint) { c.Cluster[0]++ }) }, format.ErrForeign},
		{"of another slot", func(b []byte) []byte { return changed(b, func(c *format.Checkpoint) { c.Seq++ }) }, format.ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				a := r.open()
				a.fill(2)
				a.checkpoint()
				a.fill(4)
				a.checkpoint()
				r.replace(format.CheckpointKey(4), c.bend(r.get(format.CheckpointKey(4))))
				b := r.newBroker()
				b.requireHalted(b.Recover(t.Context()), c.want)
				b.requireAt(0) // the broker did not load the older checkpoint
			})
		})
	}
}

func TestCheckpointThatWasBentOnItsWayIsReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(2)
		a.checkpoint()
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.CheckpointPrefix, storetest.Times(damagedReadsMax-1, storetest.FlipByte(-1)))
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(2)
	})
}

func TestFoldThatRefusesHalts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(2)
		b := r.open()
		b.applied = b.applied[:1] // so that the fold refuses slot 3
		a.fill(3)
		if err := b.Sync(t.Context()); err == nil {
			t.Fatal("applied nonsense")
		}
		requests := b.store.Count("", "")
		if err := b.Sync(t.Context()); err == nil || b.store.Count("", "") != requests {
			t.Fatalf("went on: %v", err)
		}
		if !slices.Equal(b.applied, a.applied[:1]) {
			t.Fatal("the fold has changed")
		}
	})
}

// Answers about slots above a checkpoint stay valid after it is loaded.
func TestSlotsReadBeforeALoadAreAppliedAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(5)
		five := r.open()
		a.fill(20)
		b := r.newBroker()
		// The answer about slot 1 has no date, so the broker lists again, and finds a checkpoint
		// that did not exist before.
		b.store.On(objstore.VerbGet, format.LogKey(1), func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			five.checkpoint()
			return storetest.NoTime(ctx, q, next)
		})
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(20)
		requireEqual(t, b.applied, a.applied)
		if n := b.store.Count(objstore.VerbGet, format.LogPrefix); n != 20 {
			t.Fatalf("%d Gets of 20 slots", n)
		}
	})
}

// Between two slots are more than a page of keys that are not slots.
func TestStrangeKeysAreNoHole(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(6)
		for i := range listPageKeys + 1 {
			if _, err := a.store.Create(t.Context(), fmt.Sprintf("%s.part%04d", format.LogKey(4), i)); err != nil {
				t.Fatal(err)
			}
		}
		before := a.store.Count(objstore.VerbList, format.LogPrefix)
		if err := a.FindHole(t.Context(), 1, 6); err != nil {
			t.Fatal(err)
		}
		if n := a.store.Count(objstore.VerbList, format.LogPrefix) - before; n != 2 {
			t.Errorf("%d Lists, want 2", n)
		}
	})
}
