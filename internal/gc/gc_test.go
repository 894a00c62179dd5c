package gc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/gc"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/loglines"
	"github.com/simple-event-broker/seb/objstore"
)

// machine is a start of a machine.
type machine struct {
	began time.Time
	id    format.BootID
}

func start(id byte) machine { return machine{time.Now().Add(-100 * 24 * time.Hour), format.BootID{id}} }

func (m machine) boot() time.Duration { return time.Since(m.began) }

func (m machine) options() gc.Options { return gc.Options{Boot: m.boot, BootID: m.id} }

type atOnce struct{}

func (atOnce) Wait(engine.Fill) time.Duration { return 0 }
func (atOnce) Admits(engine.Fill) bool        { return true }

// broker is an engine that compacts after some commits, and a topic.
type broker struct {
	*engine.Engine
	t     *testing.T
	topic format.TopicID
}

func serve(t *testing.T, store objstore.Store, m machine, commits int) *broker {
	t.Helper()
	return serveWith(t, store, m, commits, false)
}

// serveWith is serve with a broker that may hold the level of the log.
func serveWith(t *testing.T, store objstore.Store, m machine, commits int, hold bool) *broker {
	t.Helper()
	e := engine.New(store, engine.Options{
		Batching: atOnce{}, AppendTimeout: 30 * time.Second, StaleMax: time.Second, CheckpointCommits: commits, CheckpointLarge: 1 << 20, IdempotencyKeys: 100,
		Memory: 16 << 20, StateMemory: 16 << 20, Session: format.SessionID{1}, DeleteDelay: 24 * time.Hour, Margin: time.Hour,
		Logger: loglines.Text(t, t.Output(), slog.LevelWarn), Boot: m.boot, BootID: m.id, Wall: time.Now, HoldLevel: hold,
	})
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &broker{e, t, 1}
	e.View(func(s *state.State) {
		if s.TopicCount() == 0 {
			b.topic = 0
		}
	})
	if b.topic == 0 {
		b.topic = 1
		b.commit(&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"})
	}
	return b
}

func (b *broker) raise() {
	b.t.Helper()
	if err := b.RaiseLevel(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) close() {
	b.t.Helper()
	if err := b.Shutdown(nil); err != nil {
		b.t.Fatal(err)
	}
}

// entry is a change of one entry.
type entry struct{ of format.Entry }

func (x entry) Apply(*state.Draft) ([]format.Entry, error) { return []format.Entry{x.of}, nil }

func (b *broker) commit(e format.Entry) {
	b.t.Helper()
	if err := b.Commit(b.t.Context(), &engine.Request{Change: entry{e}, Synced: true}); err != nil {
		b.t.Fatal(err)
	}
}

type values []string

func (vs values) Record(i int, r *record.Record) { r.Value = []byte(vs[i]) }

func (b *broker) append(n int, every time.Duration) {
	b.t.Helper()
	for range n {
		r := &engine.Request{Appends: []*engine.Append{{ID: b.topic, Topic: "t", Count: 1, Bytes: 1024, IfEnd: -1, Records: values{strings.Repeat("x", 100)}}}}
		ticket, err := b.Submit(b.t.Context(), r)
		if err == nil {
			err = ticket.Wait(b.t.Context())
		}
		if err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(every)
	}
}

// trim moves the start of the topic to its last n records.
func (b *broker) trim(n format.Offset) {
	b.t.Helper()
	var end format.Offset
	b.View(func(s *state.State) { end = s.TopicByID(b.topic).Partitions[0].End })
	b.commit(&format.StartMoved{Topic: b.topic, Start: end - n})
}

// days serves for days: a record every ten minutes, of which a hundred are left at the end of a day.
func (b *broker) days(n int) {
	b.t.Helper()
	for range n {
		b.append(144, 10*time.Minute)
		b.trim(100)
	}
	synctest.Wait()
}

func keys(t *testing.T, store objstore.Store) (all []string) {
	t.Helper()
	for after := ""; ; {
		page, err := store.List(t.Context(), "", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Keys...)
		if !page.More {
			return all
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

// gone returns how many keys of each kind are in before, and not in after.
func gone(before, after []string) (n map[string]int64) {
	n = map[string]int64{}
	for _, key := range before {
		if !slices.Contains(after, key) {
			n[key[:strings.Index(key, "/")]]++
		}
	}
	return n
}

// verbs counts the requests to a store.
type verbs struct{ creates, deletes, others atomic.Int64 }

func (v *verbs) of(store objstore.Store) objstore.Store {
	return objstore.Observe(store, func(op objstore.Op) {
		switch op.Verb {
		case objstore.VerbCreate:
			v.creates.Add(1)
		case objstore.VerbDelete:
			v.deletes.Add(1)
		default:
			v.others.Add(1)
		}
	})
}

// preview previews, and checks that this has changed nothing.
func preview(t *testing.T, store objstore.Store, m machine) *gc.Report {
	t.Helper()
	before := keys(t, store)
	var v verbs
	r, err := gc.Preview(t.Context(), v.of(store), m.options())
	if err != nil {
		t.Fatal(err)
	}
	if v.creates.Load() > 0 || v.deletes.Load() > 0 || v.others.Load() == 0 {
		t.Errorf("a preview has sent %d creates and %d deletes", v.creates.Load(), v.deletes.Load())
	}
	if after := keys(t, store); !slices.Equal(before, after) {
		t.Errorf("a preview has changed %q to %q", before, after)
	}
	return r
}

func run(t *testing.T, store objstore.Store, m machine) gc.Result {
	t.Helper()
	r, err := gc.Run(t.Context(), store, m.options(), io.Discard, func(gc.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// waits returns what a report says that objects wait for.
func waits(r *gc.Report) (all string) {
	for _, w := range r.Waiting {
		all += fmt.Sprintf("%s %d/%d/%d/%d; ", w.For, w.Commits, w.Data, w.Checkpoints, w.Orphans)
	}
	return all
}

func count(r *gc.Report, reason state.Wait) (n int64) {
	for _, w := range r.Waiting {
		if w.For == reason {
			n += w.Objects()
		}
	}
	return n
}

// What a preview counts is what a run deletes, and nothing else: not more, after a broker that has deleted until yesterday, and
// with compaction to be done first.
func TestRunDeletesWhatThePreviewTells(t *testing.T) {
	for name, after := range map[string]time.Duration{"soon": 0, "half a day": 12 * time.Hour, "a day": 25 * time.Hour, "a week": 7 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, m := objstore.NewMemory(), start(1)
				b := serve(t, store, m, 10)
				b.raise()
				b.days(4)
				b.close()
				var orphans []string
				for _, seq := range []format.Seq{1, 50, 100_000} {
					orphans = append(orphans, (format.DataRef{Seq: seq, ID: 77}).Key())
					if _, err := store.Create(t.Context(), orphans[len(orphans)-1], []byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(after)

				r := preview(t, store, m)
				t.Logf("due %+v, waits for %s", r.Due, waits(r))
				if r.Problem != "" || r.PartlyDead == 0 && r.DeadBytes > 0 {
					t.Errorf("%+v", r)
				}
				before := keys(t, store)
				done := run(t, store, m)
				n := gone(before, keys(t, store))
				t.Logf("%+v, gone %v", done, n)
				if n["log"] != r.Due.Commits || n["data"] != r.Due.Data+r.Due.Orphans || n["checkpoint"] != r.Due.Checkpoints {
					t.Errorf("gone are %v; the preview has told %+v", n, r.Due)
				}
				if done.Deleted != r.Due && r.Due.Objects() > 0 {
					t.Errorf("deleted %+v; the preview has told %+v", done.Deleted, r.Due)
				}
				if after > 24*time.Hour && (r.Due.Commits < 20 || r.Due.Data == 0 || r.Due.Checkpoints == 0 || r.Due.Orphans == 0 || r.Due.Bytes == 0) {
					t.Errorf("due %+v", r.Due)
				}
				if left := keys(t, store); !slices.Contains(left, orphans[2]) {
					t.Error("an object is gone whose upload may be under way")
				}
				if again := preview(t, store, m); again.Due.Objects() != 0 {
					t.Errorf("a second run would delete %+v", again.Due)
				}
				// The log is whole.
				b = serve(t, store, m, 10)
				b.append(1, 0)
				b.close()
			})
		})
	}
}

// A log in which nothing happens any longer: runs delete all that is dead, and then a run writes nothing.
func TestIdleLogBecomesClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 1000)
		b.raise()
		b.append(100, time.Second)
		b.close()
		b = serve(t, store, m, 5000)
		b.append(950, time.Second)
		b.trim(1010)
		b.close()
		time.Sleep(2 * time.Hour)
		if r := preview(t, store, m); !r.Compaction {
			t.Fatalf("no compaction is due: %+v", r)
		}
		if r := run(t, store, m); r.Jobs == 0 || r.Checkpoint == 0 || r.Deleted.Objects() != 0 || count(r.After, state.WaitAge) < 1000 {
			t.Fatalf("%+v, %s", r, waits(r.After))
		}
		for range 3 {
			time.Sleep(25 * time.Hour)
			run(t, store, m)
		}
		r := preview(t, store, m)
		if r.Due.Objects() != 0 || count(r, state.WaitAge)+count(r, state.WaitSeen)+count(r, state.WaitNewer) > 0 {
			t.Errorf("due %+v, waits for %s", r.Due, waits(r))
		}
		before := keys(t, store)
		if len(before) > 30 {
			t.Errorf("%d objects: %q", len(before), before)
		}
		time.Sleep(25 * time.Hour)
		run(t, store, m)
		if after := keys(t, store); !slices.Equal(before, after) {
			t.Errorf("a run in an idle log has changed %q to %q", before, after)
		}
	})
}

// On a machine where no process has seen the checkpoints, the delay counts from now, so nothing is deleted there at first; after a
// run there, it counts from that.
func TestOtherMachineCountsFromItsFirstRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 10)
		b.raise()
		b.days(4)
		b.close()
		time.Sleep(48 * time.Hour)
		if r := preview(t, store, m); r.Due.Objects() == 0 {
			t.Fatalf("due on the machine of the broker: %+v", r)
		}
		other := start(2)
		for i := range 2 {
			r := preview(t, store, other)
			if r.Due.Objects() != 0 || count(r, state.WaitSight) < 20 && count(r, state.WaitAge) < 20 || i == 0 && count(r, state.WaitAge) > 0 {
				t.Errorf("on another machine, run %d: due %+v, waits for %s", i, r.Due, waits(r))
			}
			for _, w := range r.Waiting {
				if w.For == state.WaitSight && w.Until.After(time.Now()) {
					t.Errorf("a broker would delete only from %v on", w.Until)
				}
			}
			before := keys(t, store)
			done := run(t, store, other)
			if n := gone(before, keys(t, store)); len(n) > 0 || done.Deleted.Objects() > 0 || done.Checkpoint == 0 {
				t.Errorf("run %d on another machine has deleted %v, and says %+v", i, n, done)
			}
			time.Sleep(12 * time.Hour)
		}
		time.Sleep(time.Hour)
		r := preview(t, store, other)
		done := run(t, store, other)
		if r.Due.Commits < 20 || done.Deleted != r.Due {
			t.Errorf("a day after the first run: due %+v, deleted %+v", r.Due, done.Deleted)
		}
		time.Sleep(2 * time.Hour)
		b = serve(t, store, m, 10)
		b.days(1)
		b.close()
		for range 3 {
			time.Sleep(2 * time.Hour)
			done = run(t, store, other)
		}
		if done.Checkpoint != 0 {
			t.Errorf("all that is dead is covered by what this machine has seen, and it writes another checkpoint: %+v", done)
		}
		if done = run(t, store, start(3)); done.Checkpoint == 0 {
			t.Errorf("a third machine has read no checkpoint: %+v", done)
		}
	})
}

// Each thing that dead objects can wait for is named.
func TestWaitsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		hold := true
		do := func(f func(b *broker)) {
			b := serveWith(t, store, m, 5000, hold) // it compacts nothing itself
			f(b)
			b.close()
		}
		// want compares what commits, data objects and orphans wait for.
		want := func(all string) *gc.Report {
			t.Helper()
			r := preview(t, store, m)
			got := ""
			for _, w := range r.Waiting {
				for _, kind := range []struct {
					name string
					n    int64
				}{{"commits", w.Commits}, {"data", w.Data}, {"orphans", w.Orphans}} {
					if kind.n > 0 {
						got += kind.name + ": " + string(w.For) + "; "
					}
				}
				if left := time.Until(w.Until); w.For == state.WaitAge && (left < 22*time.Hour || left > 24*time.Hour+time.Second) {
					t.Errorf("%v from now", left)
				}
			}
			if got != all || r.Due.Objects() > 0 {
				t.Errorf("%q, not %q; due %+v", got, all, r.Due)
			}
			return r
		}
		do(func(b *broker) {
			b.append(1001, time.Second)
			b.trim(1)
		})
		want("commits: level; ")
		before := keys(t, store)
		if r := run(t, store, m); r.Deleted.Objects() > 0 || count(r.After, state.WaitLevel) == 0 {
			t.Errorf("a run below the level: %+v", r)
		}
		if after := keys(t, store); !slices.Equal(before, after) {
			t.Error("a run below the level writes")
		}

		hold = false
		do((*broker).raise)
		want("commits: compaction; ")

		time.Sleep(2 * time.Minute)
		run(t, store, m)
		want("commits: compaction; commits: age; ")

		do(func(b *broker) { b.trim(0) })
		want("data: checkpoint; commits: compaction; commits: age; ")

		time.Sleep(time.Hour)
		run(t, store, m)
		want("commits: compaction; commits: age; data: age; ")
		if r := preview(t, store, start(2)); count(r, state.WaitSight) == 0 || count(r, state.WaitAge) > 0 {
			t.Errorf("on another machine: %s", waits(r))
		}

		do(func(b *broker) { b.append(1001, time.Second) })
		time.Sleep(2 * time.Minute)
		run(t, store, m)
		r := want("commits: compaction; commits: newer checkpoint; commits: age; data: age; ")
		key := (format.DataRef{Seq: format.Seq(r.Applied), ID: 7}).Key()
		if _, err := store.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
		want("commits: compaction; orphans: floor; commits: newer checkpoint; commits: age; data: age; ")
	})
}

// A run raises the data floor, and then deletes the orphans below it, as the preview tells; and it counts the checkpoint that it
// writes, when a broker died before it wrote one at its end.
func TestPreviewForeseesWhatARunWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 5000)
		b.raise()
		b.append(1051, time.Second)
		b.trim(1010)
		b.close()
		time.Sleep(2 * time.Hour)
		first := run(t, store, m)
		orphan := (format.DataRef{Seq: 5, ID: 77}).Key()
		if _, err := store.Create(t.Context(), orphan, []byte("x")); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys(t, store) {
			if slot, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok && uint64(slot) > first.Checkpoint {
				if _, err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(25 * time.Hour)
		r, before := preview(t, store, m), keys(t, store)
		done := run(t, store, m)
		if r.Due.Orphans != 1 || r.Due.Checkpoints == 0 || done.Deleted != r.Due {
			t.Errorf("due %+v, deleted %+v of %q", r.Due, done.Deleted, before[:4])
		}
		if slices.Contains(keys(t, store), orphan) {
			t.Error("the orphan is still there")
		}
	})
}

// refusing is a store that refuses deletes, except those of probes.
type refusing struct {
	objstore.Store
	err     error
	deletes atomic.Int64
}

func (s *refusing) Delete(ctx context.Context, key string) (time.Time, error) {
	if strings.HasPrefix(key, format.ProbePrefix) {
		return s.Store.Delete(ctx, key)
	}
	s.deletes.Add(1)
	return time.Time{}, s.err
}

func TestStoreRefusesDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 10)
		b.raise()
		b.days(3)
		b.close()
		time.Sleep(25 * time.Hour)
		due := preview(t, store, m).Due
		for _, refusal := range []error{
			&objstore.Failure{Detail: "access denied", Hint: "allow it", Setup: true, Err: errors.New("403")},
			&fs.PathError{Op: "unlink", Path: "x", Err: fs.ErrPermission},
		} {
			refusing, begun := &refusing{Store: store, err: refusal}, time.Now()
			_, err := gc.Run(t.Context(), refusing, m.options(), io.Discard, func(gc.Progress) {})
			if e, ok := errors.AsType[*gc.Error](err); !ok || !e.Refused || !strings.Contains(err.Error(), refusal.Error()) {
				t.Errorf("%v", err)
			}
			if n := refusing.deletes.Load(); n == 0 || n > 16 || time.Since(begun) > time.Second {
				t.Errorf("%d deletes were tried in %v", n, time.Since(begun))
			}
		}
		// What was refused goes at the next run.
		if r := run(t, store, m); due.Commits == 0 || r.Deleted.Commits < due.Commits {
			t.Errorf("due %+v, deleted %+v", due, r.Deleted)
		}
	})
}

// A broker that serves meanwhile is not harmed, and both delete only what may go.
func TestRunBesideABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 10)
		b.raise()
		b.days(3)
		for range 20 {
			b.append(30, 10*time.Minute)
			b.trim(100)
			run(t, store, m)
		}
		if err := b.Usable(); err != nil {
			t.Fatal(err)
		}
		b.View(func(s *state.State) {
			if s.Collected().Slot == 0 || len(s.Dead()) > 200 {
				t.Errorf("%+v, %d dead", s.Collected(), len(s.Dead()))
			}
		})
		b.close()
		time.Sleep(25 * time.Hour)
		run(t, store, m)
		b = serve(t, store, m, 10)
		b.append(1, 0)
		b.close()
	})
}

// A hold keeps what is dead until a run ends it. Other holds, and ids that are wrong, change nothing.
func TestRunEndsAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 10)
		b.raise()
		slot := b.Applied()
		for id, slot := range map[uint64]format.Seq{0xa1: slot, 0xb2: b.Applied()} {
			if err := b.Hold(t.Context(), id, slot, 100*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		b.days(3)
		if held := metricOf(t, b, "seb_holds"); held != 2 {
			t.Errorf("seb_holds is %v", held)
		}
		if end := time.Unix(int64(metricOf(t, b, "seb_holds_end_timestamp_seconds")), 0); end.Before(time.Now()) || end.After(time.Now().Add(28*time.Hour)) {
			t.Errorf("the last hold ends at %v", end)
		}
		if delay := metricOf(t, b, "seb_delete_delay_seconds"); delay != b.delay().Seconds() {
			t.Errorf("seb_delete_delay_seconds is %v", delay)
		}
		r := preview(t, store, m)
		if len(r.Holds) != 2 || r.Holds[0].ID != "00000000000000a1" || r.Holds[0].Slot != uint64(slot) || !r.Holds[0].Until.After(r.Now) {
			t.Fatalf("holds %+v", r.Holds)
		}
		end := func(id string) (gc.Result, error) {
			opts := m.options()
			opts.EndHold = id
			return gc.Run(t.Context(), store, opts, io.Discard, func(gc.Progress) {})
		}
		for _, id := range []string{"00000000000000c3", "a1", "x"} {
			if _, err := end(id); err == nil || err.Error() != fmt.Sprintf("the log has no hold %q; its holds are 00000000000000a1, 00000000000000b2", id) {
				t.Errorf("end the hold %s: %v", id, err)
			}
		}
		if r, err := end("00000000000000a1"); err != nil || r.EndedHold != "00000000000000a1" || r.Deleted.Objects() != 0 || len(r.After.Holds) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err := end("00000000000000b2"); err != nil || r.After.Holds != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if held := metricOf(t, b, "seb_holds"); held != 2 { // the broker has not read the log since
			t.Errorf("seb_holds is %v", held)
		}
		b.append(1, 0)
		if held, end := metricOf(t, b, "seb_holds"), metricOf(t, b, "seb_holds_end_timestamp_seconds"); held != 0 || end != 0 {
			t.Errorf("seb_holds is %v, and the last one ends at %v", held, end)
		}
		if _, err := end("00000000000000b2"); err == nil || err.Error() != `the log has no hold "00000000000000b2": nothing holds it` {
			t.Errorf("end a hold that was ended: %v", err)
		}
		time.Sleep(2 * b.delay())
		b.append(30, 10*time.Minute)
		synctest.Wait()
		b.View(func(s *state.State) {
			if s.Collected().Slot < slot {
				t.Errorf("nothing was deleted after the holds: %+v", s.Collected())
			}
		})
		b.close()
	})
}

// delay returns how long dead objects stay.
func (b *broker) delay() (delay time.Duration) {
	b.View(func(s *state.State) { delay = s.Keeps(s.Time()) })
	return delay
}

// metricOf returns a metric without labels.
func metricOf(t *testing.T, b *broker, name string) float64 {
	t.Helper()
	for _, f := range b.Metrics() {
		if f.Name == name && len(f.Series) == 1 {
			return f.Series[0].Value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A run that is interrupted ends soon, and a later one goes on.
func TestRunIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, m := objstore.NewMemory(), start(1)
		b := serve(t, store, m, 10)
		b.raise()
		b.days(3)
		b.close()
		time.Sleep(25 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		slow := &interrupting{store, cancel}
		begun := time.Now()
		if _, err := gc.Run(ctx, slow, m.options(), io.Discard, func(gc.Progress) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		if r := run(t, store, m); r.Deleted.Commits == 0 {
			t.Errorf("%+v", r)
		}
	})
}

// interrupting is a store that interrupts the run at the first delete of a commit.
type interrupting struct {
	objstore.Store
	interrupt func()
}

func (s *interrupting) Delete(ctx context.Context, key string) (time.Time, error) {
	if strings.HasPrefix(key, format.LogPrefix) {
		s.interrupt()
		return time.Time{}, ctx.Err()
	}
	return s.Store.Delete(ctx, key)
}

func TestNoLog(t *testing.T) {
	store := objstore.NewMemory()
	m := start(1)
	if _, err := gc.Preview(t.Context(), store, m.options()); !errors.Is(err, offline.ErrNoLog) {
		t.Errorf("preview: %v", err)
	}
	if _, err := gc.Run(t.Context(), store, m.options(), io.Discard, func(gc.Progress) {}); !errors.Is(err, offline.ErrNoLog) {
		t.Errorf("run: %v", err)
	}
	if all := keys(t, store); len(all) > 0 {
		t.Errorf("it has made %q", all)
	}
}

// TestRunFreesDeletedRecordsOfASmallLog checks that what was deleted can be freed by two runs, a delete delay apart, although too
// few records are left for a job of compaction.
func TestRunFreesDeletedRecordsOfASmallLog(t *testing.T) {
	for name, left := range map[string]format.Offset{"no record is left": 0, "an older record is left": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, m := objstore.NewMemory(), start(1)
				b := serve(t, store, m, 1000)
				b.raise()
				if left > 0 { // in another topic, before the records that are deleted
					b.commit(&format.TopicCreated{ID: 2, Partitions: 1, Name: "other"})
					b.topic = 2
					b.append(1, time.Second)
					b.topic = 1
				}
				b.append(20, time.Second)
				b.trim(0)
				b.close()
				time.Sleep(10 * time.Minute)
				before := keys(t, store)
				for range 3 {
					run(t, store, m)
					time.Sleep(25 * time.Hour)
				}
				if n := gone(before, keys(t, store))["log"]; n < 20 {
					t.Errorf("%d commits are gone: those with the 20 deleted records should be; %s", n, waits(preview(t, store, m)))
				}
			})
		})
	}
}
