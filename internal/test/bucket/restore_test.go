package bucket_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/restore"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// compactSoon makes brokers compact after few commits.
func compactSoon(t *testing.T) {
	bounds := engine.Compaction
	t.Cleanup(func() { engine.Compaction = bounds })
	engine.Compaction = engine.Bounds{
		SegmentBytes: 1 << 20, BatchBytes: 1000, Rows: 1000, Group: 3, Large: 1 << 20, PageBytes: 100, RaiseCommits: 3, RaiseNew: true,
		RetainMin: time.Minute, RetainMax: time.Hour, RetainGrace: time.Hour,
	}
}

func options(at offline.Moment) restore.Options {
	return restore.Options{At: at, Memory: 16 << 20, Boot: kit.InVirtualTime(seb.Options{}).BootClock}
}

// copyLog copies a log, checks every byte of the copy, and opens a broker on it.
func copyLog(t *testing.T, from objstore.Store, o restore.Options) (*restore.Result, *seb.Broker, objstore.Store) {
	t.Helper()
	plan, err := restore.Prepare(t.Context(), from, o)
	must(t, err)
	to := objstore.NewMemory()
	said := int64(0)
	r, err := plan.Run(t.Context(), to, func(_ int, bytes int64) { said = max(said, bytes) })
	must(t, err)
	if said != plan.Bytes && len(r.Unreadable) == 0 {
		t.Errorf("progress ends at %d bytes of %d", said, plan.Bytes)
	}
	report, err := fsck.Check(t.Context(), to, fsck.Options{Deep: true})
	must(t, err)
	for _, f := range report.Findings {
		if f.Class.Damage() && len(r.Unreadable) == 0 || f.Class == fsck.Newer || f.Class == fsck.Stray {
			t.Errorf("fsck of the copy: %+v", f)
		}
	}
	return r, kit.OpenOnly(t, to, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10})), to
}

// withoutSizes returns what describe says without what compaction changes.
func withoutSizes(text string) string { return withoutTopic(text, " ") }

// Logs of earlier versions can be copied: the copy has the same contents, and brokers go on with it.
func TestRestoreOfEarlierVersions(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*")
	must(t, err)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(dir, "contents.txt"))
			must(t, err)
			store, err := objstore.OpenDirReadOnly(filepath.Join(dir, "bucket"))
			must(t, err)
			defer func() { must(t, store.Close()) }()
			_, b, to := copyLog(t, store, options(offline.Moment{}))
			if diff := cmp.Diff(withoutSizes(string(want)), withoutSizes(describe(t, b))); diff != "" {
				t.Errorf("(-log +copy)\n%s", diff)
			}
			goOn(t, b)
			must(t, b.Close())
			report, err := fsck.Check(t.Context(), to, fsck.Options{Deep: true})
			must(t, err)
			if report.Damage() > 0 {
				t.Errorf("%+v", report.Findings)
			}
		})
	}
}

// moment is what a log held at some time.
type moment struct {
	slot format.Seq
	at   time.Time
	text string
}

// A log that is compacted, trimmed and cleaned all the time can be restored as of each moment of the last delay, by slot and by time.
func TestRestoreAtEachMoment(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10, Cluster: seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}}))
		ctx := t.Context()
		kit.MustCreateTopic(t, b, "t", 3)
		kit.MustCreateTopic(t, b, "u", 1)
		kit.MustSet(t, b.Queue("t", "q"), seb.QueueUpdate{})
		var moments []moment
		for i := range 240 { // 20 hours
			kit.AppendTo(t, b, int32(i%3), 1+i%2)
			switch i % 12 {
			case 5:
				info, err := b.Topic(ctx, "t")
				must(t, err)
				for _, p := range info.Partitions {
					_, err := b.DeleteRecords(ctx, "t", p.Partition, max(p.Start, p.End-9))
					must(t, err)
				}
			case 8:
				must(t, b.DeleteTopic(ctx, "u"))
			case 10:
				kit.MustCreateTopic(t, b, "u", 1)
				kit.MustAppend(t, b, "u", fmt.Sprint(i))
			}
			time.Sleep(time.Minute)
			if i%6 == 0 {
				log, err := offline.Open(ctx, store, nil, offline.Moment{})
				must(t, err)
				moments = append(moments, moment{log.State.Seq(), time.Now(), withoutSizes(describe(t, b))})
			}
			time.Sleep(4 * time.Minute)
		}
		must(t, b.Close())
		now, early := time.Now(), 0
		for _, m := range moments {
			for _, at := range []offline.Moment{{Slot: m.slot}, {Time: m.at.UnixMicro()}} {
				if _, err := restore.Prepare(ctx, store, options(at)); err != nil {
					x, ok := errors.AsType[*restore.TooEarlyError](err)
					if !ok || now.Sub(m.at) < 4*time.Hour || x.Slot <= m.slot || !x.Time.After(m.at.Add(-time.Hour)) || now.Sub(x.Time) < 4*time.Hour {
						t.Fatalf("%v ago: %v", now.Sub(m.at), err)
					}
					early++
					continue
				}
				r, copied, _ := copyLog(t, store, options(at))
				if diff := cmp.Diff(m.text, withoutSizes(describe(t, copied))); diff != "" {
					t.Errorf("%v ago, %+v (-then +copy)\n%s", now.Sub(m.at), at, diff)
				}
				offset := kit.MustAppend(t, copied, "t", "more")
				if len(r.Unreadable) > 0 || r.Next < m.slot+1<<32 || offset == 0 {
					t.Errorf("%+v, appended at offset %d", r, offset)
				}
				must(t, copied.Close())
			}
		}
		if early < 20 || early == 2*len(moments) {
			t.Errorf("%d of %d moments are too long ago", early, 2*len(moments))
		}
		for _, at := range []offline.Moment{{Slot: 1 << 40}} {
			if _, err := restore.Prepare(ctx, store, options(at)); !errors.Is(err, restore.ErrLate) {
				t.Errorf("%+v: %v", at, err)
			}
		}
	})
}

// source returns a log with segments and with records that no segment has.
func source(t *testing.T) *objstore.Memory {
	t.Helper()
	store := objstore.NewMemory()
	b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10}))
	kit.MustCreateTopic(t, b, "t", 1)
	kit.MustSet(t, b.Queue("t", "q"), seb.QueueUpdate{})
	for i := range 15 {
		kit.MustAppend(t, b, "t", fmt.Sprint(i))
		time.Sleep(time.Second)
	}
	must(t, b.Close())
	return store
}

// Until seb.json is written, no broker opens a copy, and a second attempt is refused; whatever the store does meanwhile.
func TestCopyThatEndsEarly(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		from := source(t)
		plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{}))
		must(t, err)
		whole := objstore.NewMemory()
		_, err = plan.Run(t.Context(), whole, func(int, int64) {})
		must(t, err)
		objects := len(kit.Keys(t, whole, ""))
		if objects < 7 {
			t.Fatalf("the copy has only %d objects", objects)
		}
		for n := range objects + 1 { // the first one is deleted at the end
			memory, faulty := kit.NewFaulty()
			faulty.On(objstore.VerbCreate, "", storetest.After(n, storetest.Fail))
			plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{}))
			must(t, err)
			if _, err := plan.Run(t.Context(), faulty, func(int, int64) {}); err == nil {
				t.Fatalf("the copy succeeds without object %d", n)
			}
			if keys := kit.Keys(t, memory, ""); len(keys) != n || strings.Contains(strings.Join(keys, " "), format.ClusterKey) {
				t.Errorf("after %d creates the target has %q", n, keys)
			}
			if n < 2 { // for a broker, the bucket is empty
				continue
			}
			if b, err := seb.Open(t.Context(), memory, kit.InVirtualTime(seb.Options{})); err == nil {
				t.Errorf("a broker opens a copy with %d of %d objects", n, objects)
				must(t, b.Close())
			}
			plan, err = restore.Prepare(t.Context(), from, options(offline.Moment{}))
			must(t, err)
			if _, err := plan.Run(t.Context(), memory, func(int, int64) {}); !errors.Is(err, restore.ErrOccupied) {
				t.Errorf("a second attempt: %v", err)
			}
		}
	})
}

// Lost replies, failed requests and damaged answers do no harm to a copy.
func TestCopyWithFaults(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		from := source(t)
		flaky := storetest.NewFaulty(from)
		flaky.On(objstore.VerbGet, "", storetest.Times(3, storetest.Fail))
		flaky.On(objstore.VerbGet, "data/", storetest.Times(2, storetest.FlipByte(150)))
		flaky.On(objstore.VerbGet, "log/", storetest.Times(2, storetest.Truncate(100)))
		plan, err := restore.Prepare(t.Context(), flaky, options(offline.Moment{}))
		must(t, err)
		to, faulty := kit.NewFaulty()
		faulty.On(objstore.VerbCreate, "", storetest.Times(4, storetest.LoseReply))
		_, err = plan.Run(t.Context(), faulty, func(int, int64) {})
		must(t, err)
		b := kit.OpenOnly(t, to, kit.InVirtualTime(seb.Options{Batching: seb.Immediate()}))
		kit.WantValues(t, b, "t", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14")
		must(t, b.Close())

		// A target that stores other bytes than it is sent.
		_, lying := kit.NewFaulty()
		lying.On(objstore.VerbGet, "data/", storetest.FlipByte(150))
		plan, err = restore.Prepare(t.Context(), from, options(offline.Moment{}))
		must(t, err)
		if _, err := plan.Run(t.Context(), lying, func(int, int64) {}); err == nil || !strings.Contains(err.Error(), "other bytes than were written") {
			t.Errorf("%v", err)
		}
	})
}

// What is missing or damaged in the source is named, and is left out only if the caller says so. The rest can be read.
func TestCopyOfDamagedLog(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		for _, prefix := range []string{format.DataPrefix, format.LogPrefix} {
			from := source(t)
			live := kit.Keys(t, from, prefix)
			key := live[len(live)-1]
			if prefix == format.LogPrefix {
				key = live[len(live)-2] // the last one is the commit of a checkpoint or a segment
			}
			body := kit.Body(t, from, key)
			_, err := from.Delete(t.Context(), key)
			must(t, err)
			body[len(body)-1] ^= 1
			_, err = from.Create(t.Context(), key, body)
			must(t, err)
			plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{}))
			must(t, err)
			_, err = plan.Run(t.Context(), objstore.NewMemory(), func(int, int64) {})
			if x, ok := errors.AsType[*restore.UnreadableError](err); !ok || !strings.Contains(x.What, key) {
				t.Fatalf("%s: %v", key, err)
			}
			o := options(offline.Moment{})
			o.SkipUnreadable = true
			r, b, _ := copyLog(t, from, o)
			if len(r.Unreadable) != 1 || !strings.Contains(r.Unreadable[0], key) {
				t.Errorf("%s: %q", key, r.Unreadable)
			}
			read := 0
			for offset := range seb.Offset(15) {
				f, err := b.Fetch(t.Context(), "t", 0, seb.At(offset), seb.FetchOptions{Limit: 1})
				if err == nil && string(f.Records[0].Value) == fmt.Sprint(offset) {
					read++
				} else {
					kit.WantCode(t, err, seb.CodeDataLost)
				}
			}
			if read == 0 || read == 15 {
				t.Errorf("%s: %d records of 15 can be read", key, read)
			}
			must(t, b.Close())
		}
	})
}

// A batch that compaction could not read is copied as it is if it can be read now.
func TestCopyOfWhatCompactionLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := source(t)
		var key string
		for _, k := range kit.Keys(t, from, format.LogPrefix) {
			if strings.HasSuffix(k, "008") {
				key = k
			}
		}
		body := kit.Body(t, from, key)
		replace := func(b []byte) {
			t.Helper()
			_, err := from.Delete(t.Context(), key)
			must(t, err)
			_, err = from.Create(t.Context(), key, b)
			must(t, err)
		}
		bad := slices.Clone(body)
		bad[len(bad)-1] ^= 1
		replace(bad)
		compactSoon(t)
		b := kit.OpenOnly(t, from, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10}))
		for i := range 60 {
			kit.MustAppend(t, b, "t", fmt.Sprint(15+i))
			time.Sleep(10 * time.Second)
		}
		must(t, b.Close())
		plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{}))
		must(t, err)
		_, err = plan.Run(t.Context(), objstore.NewMemory(), func(int, int64) {})
		if x, ok := errors.AsType[*restore.UnreadableError](err); !ok || !strings.Contains(x.What, "what compaction has left in "+key) {
			t.Fatal(err)
		}
		replace(body)
		r, copied, to := copyLog(t, from, options(offline.Moment{}))
		if len(r.Unreadable) > 0 || !slices.Contains(kit.Keys(t, to, ""), key) {
			t.Errorf("%+v, %q", r, kit.Keys(t, to, ""))
		}
		var want []string
		for i := range 75 {
			want = append(want, fmt.Sprint(i))
		}
		kit.WantValues(t, copied, "t", want...)
		must(t, copied.Close())
	})
}

// A copy does not push records to the URLs of the source, unless the caller says so.
func TestCopyStopsPush(t *testing.T) {
	compactSoon(t)
	for _, keep := range []bool{false, true} {
		from := objstore.NewMemory()
		b := kit.OpenOnly(t, from, seb.Options{Batching: seb.Immediate()})
		kit.PushedQueue(t, b, seb.QueueUpdate{}, "https://example.com/hook")
		must(t, b.Close())
		o := options(offline.Moment{})
		o.KeepPush = keep
		r, copied, _ := copyLog(t, from, o)
		info, err := copied.Queue("t", "work").Push(t.Context())
		must(t, err)
		if stopped := info.Stopped != ""; stopped == keep || stopped != (len(r.Stopped) == 1 && r.Stopped[0] == "t/work") {
			t.Errorf("keep %v: %+v, %+v", keep, info, r)
		}
		must(t, copied.Close())
	}
}

func TestNothingToCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := objstore.NewMemory()
		if _, err := restore.Prepare(t.Context(), empty, options(offline.Moment{})); !errors.Is(err, offline.ErrNoLog) {
			t.Error(err)
		}
		b := kit.OpenOnly(t, empty, kit.InVirtualTime(seb.Options{}))
		must(t, b.Close())
		if _, err := restore.Prepare(t.Context(), empty, options(offline.Moment{})); !errors.Is(err, restore.ErrEmpty) {
			t.Error(err)
		}
		from := source(t)
		if _, err := restore.Prepare(t.Context(), from, options(offline.Moment{Time: 1})); !errors.Is(err, restore.ErrEmpty) {
			t.Error(err)
		}
		// A commit in the middle is gone.
		b = kit.OpenOnly(t, from, kit.InVirtualTime(seb.Options{Batching: seb.Immediate()}))
		for range 3 {
			kit.MustAppend(t, b, "t", "1")
		}
		kit.Kill(t, b)
		log, err := offline.Open(t.Context(), from, nil, offline.Moment{})
		must(t, err)
		slot := log.Checkpoints[len(log.Checkpoints)-1] + 1
		_, err = from.Delete(t.Context(), format.LogKey(slot))
		must(t, err)
		for _, at := range []offline.Moment{{}, {Slot: slot + 1}} {
			_, err = restore.Prepare(t.Context(), from, options(at))
			if x, ok := errors.AsType[*offline.MissingError](err); !ok || x.Slot != slot {
				t.Errorf("%+v: %v", at, err)
			}
		}
		plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{Slot: slot - 1})) // before the damage
		must(t, err)
		if plan.Damage == nil {
			t.Error("the damage is not told")
		}
		_, err = plan.Run(t.Context(), objstore.NewMemory(), func(int, int64) {})
		must(t, err)
	})
}

// A log of an earlier version is raised, compacted, expires, is collected, opened again, and copied as it was at a moment.
func TestLifeOfEarlierVersion(t *testing.T) {
	compactSoon(t)
	dirs, err := filepath.Glob("testdata/*")
	must(t, err)
	for _, dir := range dirs {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(28 * 365 * 24 * time.Hour) // virtual time begins before the log's
			store := memoryOf(t, filepath.Join(dir, "bucket"))
			ctx, o := t.Context(), kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10})
			b := kit.OpenOnly(t, store, o)
			for range 60 { // RaiseAfter is 0 here
				kit.MustAppend(t, b, "empty", "x")
				time.Sleep(time.Minute)
			}
			before := kit.Keys(t, store, "")
			day := 24 * time.Hour
			_, err := b.UpdateTopic(ctx, "orders", seb.TopicUpdate{Retention: &day})
			must(t, err)
			for range 4 * 24 {
				kit.MustAppend(t, b, "empty", "x")
				time.Sleep(time.Hour)
			}
			info, err := b.Topic(ctx, "orders")
			must(t, err)
			if p := info.Partitions[0]; p.Start != p.End || p.End == 0 {
				t.Errorf("partition 0 has the records from %d to %d", p.Start, p.End)
			}
			if gone := slices.DeleteFunc(before, func(k string) bool { return slices.Contains(kit.Keys(t, store, ""), k) }); len(gone) < 20 {
				t.Errorf("of the objects that were dead, only %q are deleted", gone)
			}
			must(t, b.Close())
			b = kit.OpenOnly(t, store, o)
			then, want := time.Now(), withoutSizes(describe(t, b))
			time.Sleep(time.Hour)
			must(t, b.DeleteTopic(ctx, "work"))
			must(t, b.Close())
			_, copied, _ := copyLog(t, store, options(offline.Moment{Time: then.UnixMicro()}))
			if diff := cmp.Diff(want, withoutSizes(describe(t, copied))); diff != "" {
				t.Errorf("(-then +copy)\n%s", diff)
			}
			must(t, copied.Close())
			report, err := fsck.Check(ctx, store, fsck.Options{Deep: true})
			must(t, err)
			if report.Damage() > 0 {
				t.Errorf("%+v", report.Findings)
			}
		})
	}
}

// memoryOf returns a store in memory with the objects of a directory.
func memoryOf(t *testing.T, dir string) *objstore.Memory {
	t.Helper()
	store := objstore.NewMemory()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err == nil {
			_, err = store.Create(t.Context(), filepath.ToSlash(key), body)
		}
		return err
	}))
	return store
}

// Of two copies into one target, at most one succeeds, and what it has made is whole.
func TestTwoCopiesIntoOneTarget(t *testing.T) {
	compactSoon(t)
	for delay := range 8 {
		synctest.Test(t, func(t *testing.T) {
			from, to := source(t), objstore.NewMemory()
			target := storetest.Slow(to, 3*time.Millisecond)
			results := make(chan error, 2)
			for i := range 2 {
				go func() {
					time.Sleep(time.Duration(i*delay) * time.Millisecond)
					plan, err := restore.Prepare(t.Context(), from, options(offline.Moment{}))
					if err == nil {
						_, err = plan.Run(t.Context(), target, func(int, int64) {})
					}
					results <- err
				}()
			}
			made := 0
			for range 2 {
				if err := <-results; err == nil {
					made++
				} else if !errors.Is(err, restore.ErrOccupied) {
					t.Error(err)
				}
			}
			if made == 2 {
				t.Fatal("both succeed")
			}
			report, err := fsck.Check(t.Context(), to, fsck.Options{Deep: true})
			if made == 1 && (err != nil || len(report.Of(fsck.Foreign))+report.Damage() > 0) {
				t.Errorf("%v, %+v", err, report.Findings)
			}
		})
	}
}

// If nothing that is in no segment can be read, all else is copied.
func TestCopyOfUnreadableTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := source(t) // nothing is in a segment
		for _, key := range kit.Keys(t, from, format.LogPrefix) {
			body := kit.Body(t, from, key)
			if c, err := format.DecodeCommit(body); err != nil || c.PayloadSize == 0 {
				must(t, err)
				continue
			}
			body[len(body)-1] ^= 1
			_, err := from.Delete(t.Context(), key)
			must(t, err)
			_, err = from.Create(t.Context(), key, body)
			must(t, err)
		}
		o := options(offline.Moment{})
		o.SkipUnreadable = true
		r, b, _ := copyLog(t, from, o)
		_, err := b.Fetch(t.Context(), "t", 0, seb.Earliest, seb.FetchOptions{})
		kit.WantCode(t, err, seb.CodeDataLost)
		if offset := kit.MustAppend(t, b, "t", "more"); len(r.Unreadable) != 15 || offset != 15 {
			t.Errorf("%d batches are not copied, the next offset is %d", len(r.Unreadable), offset)
		}
		must(t, b.Close())
	})
}

// API keys that were revoked since then don't work in the copy, and workers of the copy need not wait for leases of others.
func TestCopyOfAccessAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := source(t)
		b := kit.OpenOnly(t, from, kit.InVirtualTime(seb.Options{Batching: seb.Immediate()}))
		_, good := kit.CreateKey(t, b, seb.KeyOptions{Name: "good"})
		leaked, secret := kit.CreateKey(t, b, seb.KeyOptions{Name: "leaked"})
		kit.MustSet(t, b.Queue("t", "q"), seb.QueueUpdate{Lease: new(time.Hour)})
		if got := kit.MustReceive(t, b.Queue("t", "q"), 15, 0); len(got) != 15 {
			t.Fatalf("%d messages", len(got))
		}
		log, err := offline.Open(t.Context(), from, nil, offline.Moment{})
		must(t, err)
		_, err = b.RevokeKey(t.Context(), leaked.ID)
		must(t, err)
		kit.Kill(t, b)
		r, copied, _ := copyLog(t, from, options(offline.Moment{Slot: log.State.Seq()}))
		if len(r.Revoked) != 1 || r.Revoked[0] != "leaked" {
			t.Errorf("%+v", r)
		}
		kit.AsCaller(t, copied, kit.BySecret(good))
		if _, err := copied.Authenticate(t.Context(), kit.BySecret(secret)); err == nil {
			t.Error("a revoked key works in the copy")
		}
		if got := kit.MustReceive(t, copied.Queue("t", "q"), 15, time.Second); len(got) != 15 {
			t.Errorf("workers of the copy get %d messages", len(got))
		}
		must(t, copied.Close())
	})
}
