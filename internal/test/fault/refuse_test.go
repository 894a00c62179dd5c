package fault_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// aLog returns a store with a log of that many appends, and no checkpoint.
func aLog(t *testing.T, appends int) *objstore.Memory {
	t.Helper()
	store := objstore.NewMemory()
	b := openOnly(t, store, immediate())
	mustCreateTopic(t, b, "t", 1)
	for i := range appends {
		mustAppend(t, b, "t", fmt.Sprint(i))
	}
	kill(t, b)
	if n := len(keys(t, store, format.CheckpointPrefix)); n != 0 {
		t.Fatalf("%d checkpoints", n)
	}
	return store
}

// replaceByForeignCommit puts a commit of another log into a slot.
func replaceByForeignCommit(t *testing.T, store objstore.Store, slot format.Seq) {
	t.Helper()
	other := aLog(t, int(slot))
	replace(t, store, format.LogKey(slot), body(t, other, format.LogKey(slot)))
}

// closedLog returns a store whose log ends in a checkpoint.
func closedLog(t *testing.T, appends int) *objstore.Memory {
	t.Helper()
	store := aLog(t, appends)
	if err := openOnly(t, store, immediate()).Close(); err != nil {
		t.Fatal(err)
	}
	return store
}

func flipped(b []byte, at int) []byte {
	b = append([]byte(nil), b...)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 0x40
	return b
}

// A bucket that contradicts itself is refused. The error names the object, and says what to do.
func TestDamagedBucketIsRefused(t *testing.T) {
	newest := format.CheckpointKey(5)
	tests := map[string]struct {
		log    func(*testing.T, int) *objstore.Memory
		damage func(t *testing.T, s *objstore.Memory)
		text   []string
	}{
		"missing slot": {aLog,
			func(t *testing.T, s *objstore.Memory) { remove(t, s, format.LogKey(3)) },
			[]string{"slot 3", "slot 5", "restore"}},
		"missing first slot": {aLog,
			func(t *testing.T, s *objstore.Memory) { remove(t, s, format.LogKey(1)) },
			[]string{"slot 1", "restore"}},
		"commit of another cluster": {aLog,
			func(t *testing.T, s *objstore.Memory) { replaceByForeignCommit(t, s, 4) },
			[]string{format.LogKey(4), "cluster", "remove it or put back the log's own object"}},
		"another cluster's seb.json": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				replace(t, s, format.ClusterKey, body(t, aLog(t, 1), format.ClusterKey))
			}, []string{format.LogPrefix, "cluster", "remove it or put back the log's own object"}},
		"commit under another slot's key": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				replace(t, s, format.LogKey(4), body(t, s, format.LogKey(3)))
			}, []string{format.LogKey(4), "slot 3"}},
		"commit of an unknown version": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				b := body(t, s, format.LogKey(4))
				b[4] = 9
				replace(t, s, format.LogKey(4), b)
			}, []string{format.LogKey(4), "version is 9", "newer seb"}},
		"seb.json of an unknown format": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				replace(t, s, format.ClusterKey, []byte(`{"format":9}`))
			}, []string{format.ClusterKey, "format is 9", "newer seb"}},
		"damaged seb.json": {aLog,
			func(t *testing.T, s *objstore.Memory) { replace(t, s, format.ClusterKey, []byte(`{`)) },
			[]string{format.ClusterKey, "damaged", "restore"}},
		"seb.json gone": {aLog,
			func(t *testing.T, s *objstore.Memory) { remove(t, s, format.ClusterKey) },
			[]string{format.ClusterKey, "restore"}},
		"damaged head of a commit": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				replace(t, s, format.LogKey(4), flipped(body(t, s, format.LogKey(4)), 60))
			}, []string{format.LogKey(4), "damaged", "restore"}},
		"truncated commit": {aLog,
			func(t *testing.T, s *objstore.Memory) {
				b := body(t, s, format.LogKey(4))
				replace(t, s, format.LogKey(4), b[:len(b)-1])
			}, []string{format.LogKey(4), "damaged"}},
		"damaged newest checkpoint": {closedLog,
			func(t *testing.T, s *objstore.Memory) { replace(t, s, newest, flipped(body(t, s, newest), -1)) },
			[]string{newest, "damaged", "restore"}},
		"truncated newest checkpoint": {closedLog,
			func(t *testing.T, s *objstore.Memory) { replace(t, s, newest, body(t, s, newest)[:50]) },
			[]string{newest, "damaged", "restore"}},
		"checkpoint of another cluster": {closedLog,
			func(t *testing.T, s *objstore.Memory) {
				replace(t, s, newest, body(t, closedLog(t, 4), newest))
			}, []string{newest, "cluster"}},
		"something else in the bucket": {func(*testing.T, int) *objstore.Memory { return objstore.NewMemory() },
			func(t *testing.T, s *objstore.Memory) { replace(t, s, "photos/cat.jpg", []byte("cat")) },
			[]string{"photos/cat.jpg", "empty directory or prefix"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := test.log(t, 4)
				test.damage(t, memory)
				before := keys(t, memory, "")
				b, err := seb.Open(t.Context(), memory, immediate())
				if err == nil {
					kill(t, b)
				}
				wantText(t, err, test.text...)
				wantCode(t, err, seb.CodeBrokerStopped)
				if after := keys(t, memory, ""); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("the bucket was changed: %v, before %v", after, before)
				}
			})
		})
	}
}

func TestRunningBrokerStopsWhenTheBucketIsRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		opts := immediate()
		opts.Cluster = seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}
		b := openOnly(t, memory, opts)
		defer kill(t, b)
		for _, v := range numbered("v", 4) {
			mustAppend(t, b, "t", v)
		}
		remove(t, memory, format.LogKey(4))
		remove(t, memory, format.LogKey(5))
		time.Sleep(5 * time.Hour) // so that its next claim begins with a List
		_, err := b.Append(t.Context(), "t", values("lost"))
		wantCode(t, err, seb.CodeBrokerStopped)
		wantOutcome(t, err, seb.NotCommitted)
		wantText(t, err, "slot 5", "rolled back", "restore")
		if n := len(keys(t, memory, format.LogPrefix)); n != 3 {
			t.Errorf("%d commits, want the 3 that were left", n)
		}
	})
}

// A broker sleeps while others go on. When it wakes, others have written its next slot, checkpointed
// it and deleted it. The broker's Create succeeds, and must not count.
func TestBrokerThatWakesAfterItsSlotWasDeletedDoesNotAcknowledge(t *testing.T) {
	cluster := seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}
	for _, asleep := range []time.Duration{5 * time.Hour, 100 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			memory, faulty := newFaulty()
			opts := immediate()
			opts.Cluster, opts.AppendTimeout = cluster, 1000*time.Hour
			sleeper := open(t, faulty, opts)
			mustAppend(t, sleeper, "t", "first")

			// The sleeper's Create of slot 3 is on its way when the machine is suspended. Nothing
			// moves until it wakes; then the request is sent.
			wake := make(chan struct{})
			hung := faulty.On(objstore.VerbCreate, format.LogKey(3), storetest.Times(1,
				func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
					<-wake
					return next(context.WithoutCancel(ctx), r)
				}))
			defer hung()
			p, err := sleeper.AppendAsync(t.Context(), "t", values("sleeper's"))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()

			// Meanwhile another broker takes the slot, goes on, and leaves a checkpoint.
			opts.CheckpointCommits = 2
			other := openOnly(t, memory, opts)
			for _, v := range numbered("v", 6) {
				mustAppend(t, other, "t", v)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(asleep)
			for s := format.Seq(1); s <= 7; s++ { // below the newest checkpoint, older than D
				remove(t, memory, format.LogKey(s))
			}
			close(wake)
			_, err = p.Wait(t.Context())
			wantOutcome(t, err, seb.Unknown)
			remove(t, memory, format.LogKey(3)) // what the Create left behind

			if at := mustAppend(t, sleeper, "t", "awake"); at != 7 {
				t.Errorf("the sleeper goes on at %d, want 7", at)
			}
		})
	}
}

// A broker sleeps without a request under way, and meanwhile its next slot is written and deleted by
// others. The machine's clock ran on, or stood still, as in a virtual machine that was restored from a
// snapshot.
func TestIdleBrokerThatWakesAfterItsSlotWasDeletedGoesOnAtTheEnd(t *testing.T) {
	for _, clock := range []string{"ran on", "stood still"} {
		t.Run(clock, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := objstore.NewMemory()
				opts := forgetful()
				stopped := opts
				if clock == "stood still" {
					stopped.BootClock = func() time.Duration { return time.Hour }
				}
				sleeper := open(t, memory, stopped)
				mustAppend(t, sleeper, "t", "first")
				other := openOnly(t, memory, opts)
				for _, v := range numbered("v", 6) {
					mustAppend(t, other, "t", v)
				}
				if err := other.Close(); err != nil {
					t.Fatal(err)
				}
				sleepPastDeletion(t, memory, 7)
				if clock == "stood still" {
					// Only the store's time tells the broker that it slept. The broker gets this
					// time with the answer to a Create, and so does not rely on that answer.
					_, err := sleeper.Append(t.Context(), "t", values("asleep"))
					wantOutcome(t, err, seb.Unknown)
				}
				if at := mustAppend(t, sleeper, "t", "awake"); at != 7 {
					t.Errorf("the sleeper goes on at %d, want 7", at)
				}
				if at := mustAppend(t, open(t, memory, opts), "t", "after"); at != 8 {
					t.Errorf("a new broker goes on at %d, want 8", at)
				}
			})
		})
	}
}

func TestCheckpointsStandWhereTheyShould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		onlyProbesAreDeleted(t, faulty)
		opts := immediate()
		opts.CheckpointCommits = 5
		b := openOnly(t, faulty, opts)
		mustCreateTopic(t, b, "t", 1)
		for _, v := range numbered("v", 12) {
			mustAppend(t, b, "t", v)
			synctest.Wait() // until a checkpoint that is due is written
		}
		want := []string{format.CheckpointKey(5), format.CheckpointKey(10)}
		if got := keys(t, memory, format.CheckpointPrefix); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("checkpoints %v, want %v", got, want)
		}
		if n := faulty.Count(objstore.VerbGet, format.CheckpointPrefix); n != 2 {
			t.Errorf("checkpoints were read back %d times, want 2", n)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		want = append(want, format.CheckpointKey(13))
		if got := keys(t, memory, format.CheckpointPrefix); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("checkpoints after Close %v, want %v", got, want)
		}
		gets := faulty.Count(objstore.VerbGet, format.LogPrefix)
		again := openOnly(t, faulty, opts)
		if n := faulty.Count(objstore.VerbGet, format.LogPrefix) - gets; n > 1 {
			t.Errorf("recovery from a final checkpoint read %d slots", n)
		}
		wantValues(t, again, "t", numbered("v", 12)...)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if got := keys(t, memory, format.CheckpointPrefix); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("checkpoints after a session without commits %v, want %v", got, want)
		}
	})
}

func TestCheckpointThatFailsIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.CheckpointCommits = 5
		b := open(t, faulty, opts)
		heal := faulty.On("", format.CheckpointPrefix, storetest.Times(2, storetest.LoseReply))
		defer heal()
		for _, v := range numbered("v", 6) {
			mustAppend(t, b, "t", v)
		}
		time.Sleep(time.Minute)
		if got := keys(t, memory, format.CheckpointPrefix); len(got) != 1 || got[0] != format.CheckpointKey(5) {
			t.Errorf("checkpoints %v", got)
		}
		if n := faulty.Count(objstore.VerbGet, format.CheckpointPrefix); n == 0 {
			t.Error("it was not read back")
		}
	})
}

// A checkpoint that is too large for an object is not encoded again and again.
func TestCheckpointThatIsTooLargeIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.CheckpointCommits = 5
		b := open(t, faulty, opts)
		heal := faulty.On(objstore.VerbCreate, format.CheckpointPrefix, func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
			return storetest.Answer{}, objstore.ErrTooLarge
		})
		for _, v := range numbered("v", 6) {
			mustAppend(t, b, "t", v)
		}
		time.Sleep(time.Minute)
		if n := faulty.Count(objstore.VerbCreate, format.CheckpointPrefix); n != 1 {
			t.Errorf("the checkpoint was tried %d times, want 1", n)
		}
		heal()
		for _, v := range numbered("v", 6) {
			mustAppend(t, b, "t", v)
		}
		synctest.Wait()
		if got := keys(t, memory, format.CheckpointPrefix); len(got) != 1 || got[0] != format.CheckpointKey(10) {
			t.Errorf("checkpoints %v after the state became small enough", got)
		}
	})
}

// forgetful returns options for a bucket whose slots may be deleted after hours, with frequent
// checkpoints.
func forgetful() seb.Options {
	opts := immediate()
	opts.Cluster = seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}
	opts.CheckpointCommits = 2
	return opts
}

// sleepPastDeletion lets the delay of a forgetful bucket pass. Then it deletes the slots up to last,
// as brokers may once a checkpoint above them is that old.
func sleepPastDeletion(t testing.TB, store objstore.Store, last format.Seq) {
	t.Helper()
	time.Sleep(5 * time.Hour)
	for s := format.Seq(1); s <= last; s++ {
		remove(t, store, format.LogKey(s))
	}
}

// Two brokers whose store ignores conditions both win each slot, and neither has to read what the
// other wrote. There is only one state at a slot: if another broker's checkpoint has another history,
// the log has forked.
func TestCheckpointOfAnotherHistoryStopsTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := storetest.NewBucket()
		opts := immediate()
		opts.CheckpointCommits = 4
		var bs [2]*seb.Broker
		for i := range bs {
			faulty := storetest.NewFaulty(bucket)
			bs[i] = openOnly(t, faulty, opts)
			defer kill(t, bs[i])
			if i == 0 {
				mustCreateTopic(t, bs[0], "t", 1)
			}
			faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.Overwrite(bucket))
		}
		for n := range 10 {
			for _, b := range bs {
				if _, err := b.Append(t.Context(), "t", values("v")); err != nil {
					wantCode(t, err, seb.CodeBrokerStopped)
					wantText(t, err, "fork", format.CheckpointKey(4), "restore")
					wantOutcome(t, err, seb.NotCommitted)
					if n > 5 {
						t.Errorf("it stopped only at append %d", n)
					}
					return
				}
				synctest.Wait() // until a checkpoint that is due is written
			}
		}
		t.Error("both brokers go on, each with a different log")
	})
}

// A store that ignored a condition has given one slot to two brokers. One of them sleeps beyond its
// lease and loads the other's checkpoint. It must not contradict what it has acknowledged.
func TestCheckpointThatContradictsWhatWasAcknowledgedStopsTheBroker(t *testing.T) {
	for _, differs := range []string{"records", "end"} {
		t.Run(differs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := storetest.NewBucket()
				opts := forgetful()
				faulty := storetest.NewFaulty(bucket)
				seldom := opts
				seldom.CheckpointCommits = 1000 // so that the two don't write the same checkpoint
				sleeper := openOnly(t, faulty, seldom)
				defer kill(t, sleeper)
				mustCreateTopic(t, sleeper, "t", 1)
				other := openOnly(t, bucket, opts)
				mustAppend(t, other, "t", "the other's")
				faulty.On(objstore.VerbCreate, format.LogPrefix, storetest.AllWin(bucket))
				own := []string{"the sleeper's"}
				if differs == "end" {
					own = append(own, "more")
				}
				if at := mustAppend(t, sleeper, "t", own...); at != 0 {
					t.Fatalf("the store did not ignore the condition, so this test shows nothing: the record is at offset %d", at)
				}
				for _, v := range numbered("v", 4) {
					mustAppend(t, other, "others", v)
				}
				if err := other.Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Hour)
				_, err := sleeper.Topic(t.Context(), "unknown")
				wantCode(t, err, seb.CodeBrokerStopped)
				wantText(t, err, "fork", format.CheckpointPrefix, "restore")
			})
		})
	}
}

// withCheckpoint returns a broker that has appended that often, from slot 2 on, and has written a
// checkpoint at slot 8.
func withCheckpoint(t *testing.T, store objstore.Store, appends int) *seb.Broker {
	t.Helper()
	opts := immediate()
	opts.CheckpointCommits = 8
	b := openOnly(t, store, opts)
	for _, v := range numbered("v", appends) {
		mustAppend(t, b, "t", v)
	}
	synctest.Wait()
	return b
}

// A broker whose bucket is rolled back while it appends goes on above the hole, since its next slot is
// free. No checkpoint may hide the hole.
func TestBrokerThatAppendsAboveAHoleStopsAtTheNextCheckpoint(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b *seb.Broker) error{
		"under way": func(t *testing.T, b *seb.Broker) error {
			for i := range 10 {
				if _, err := b.Append(t.Context(), "t", values(fmt.Sprint("more", i))); err != nil {
					return err
				}
				synctest.Wait()
			}
			return nil
		},
		"at the end": func(_ *testing.T, b *seb.Broker) error { return b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := withCheckpoint(t, faulty, 12)
				defer kill(t, b)
				before := keys(t, memory, format.CheckpointPrefix)
				remove(t, memory, format.LogKey(12))
				remove(t, memory, format.LogKey(13))
				mustAppend(t, b, "t", "above")
				err := end(t, b)
				wantText(t, err, "slot 12", "rolled back")
				if after := keys(t, memory, format.CheckpointPrefix); len(after) != len(before) {
					t.Errorf("checkpoints %v, before %v", after, before)
				}
			})
		})
	}
}

// Slots that others have deleted behind a checkpoint are no hole.
func TestSlotsDeletedBelowACheckpointAreNoHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := withCheckpoint(t, faulty, 12)
		defer kill(t, b)
		other := immediate()
		other.CheckpointCommits = 1
		o := openOnly(t, memory, other)
		mustAppend(t, o, "t", "and a checkpoint")
		synctest.Wait()
		kill(t, o)
		remove(t, memory, format.LogKey(12))
		for _, v := range numbered("w", 8) {
			mustAppend(t, b, "t", v)
			synctest.Wait()
		}
	})
}

// A broker that finds a hole while a commit is under way acknowledges nothing above the hole, and no
// checkpoint hides it later.
func TestHoleFoundDuringACommitEndsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		opts := immediate()
		opts.CheckpointCommits = 1
		b := openOnly(t, faulty, opts)
		defer kill(t, b)
		for _, v := range numbered("v", 5) { // slots 2 to 6
			mustAppend(t, b, "t", v)
			synctest.Wait()
		}
		faulty.On(objstore.VerbList, format.LogPrefix, storetest.Delay(time.Second))
		faulty.On(objstore.VerbCreate, format.LogKey(8), storetest.Delay(5*time.Second))
		mustAppend(t, b, "t", "seven")
		remove(t, memory, format.LogKey(7))
		begun := time.Now()
		_, err := b.Append(t.Context(), "t", values("above"))
		wantCode(t, err, seb.CodeBrokerStopped)
		wantOutcome(t, err, seb.Unknown)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it was told after %v", took)
		}
		<-b.Stopped()
		time.Sleep(10 * time.Second)
		if all := keys(t, memory, format.CheckpointPrefix); all[len(all)-1] > format.CheckpointKey(6) {
			t.Errorf("a checkpoint covers the hole: %v", all)
		}
	})
}

// The operator is told of the hole even if the broker is being closed.
func TestHoleFoundDuringShutdownIsReported(t *testing.T) {
	for appends, name := range []string{"no checkpoint under way", "a checkpoint under way"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := withCheckpoint(t, faulty, 13)
				remove(t, memory, format.LogKey(12))
				faulty.On(objstore.VerbList, format.LogPrefix, storetest.Delay(time.Second))
				for range 2 * appends {
					mustAppend(t, b, "t", "above")
				}
				err := b.Close()
				wantCode(t, err, seb.CodeBrokerStopped)
				wantText(t, err, "slot 12", "restore")
				wantCode(t, b.Status().Err, seb.CodeBrokerStopped)
			})
		})
	}
}
