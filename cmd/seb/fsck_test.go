package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// inDirectory writes the bucket to a directory.
func (b bucket) inDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for key, body := range b {
		name := filepath.Join(dir, filepath.FromSlash(key))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, body, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFsckExitCodes(t *testing.T) {
	good := func(*testing.T, bucket) {}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, b bucket)
		args []string
		code int
		out  string
		err  string
	}{
		{"whole", good, nil, exitOK, "verdict: whole (batches were not read", ""},
		{"whole, deep", good, []string{"--deep"}, exitOK, "verdict: whole\n", ""},
		{"whole, with notes", func(_ *testing.T, b bucket) { b["probe/1"], b["x/y"] = []byte("x"), []byte("y") }, nil, exitOK, "leftover: 1: probe/1\nstray: 1: x/y\nverdict: whole", ""},
		{"quiet", adding("probe/1", "x"), []string{"--quiet"}, exitOK, "", ""},
		{"damaged", deleting(slot(5)), nil, exitDamage, "missing   " + slot(5) + ": it holds records, according to " + cp(11) + "; lost with it: topic orders partition 1 offsets 0 to 0\n", "the log is damaged: 1 missing"},
		{"damaged, quiet", deleting(slot(5)), []string{"--quiet"}, exitDamage, "missing   " + slot(5), "docs/trouble.md"},
		{"many slots", deleting(slot(8), slot(9), slot(10), slot(11)), nil, exitDamage, "missing   " + slot(8) + " to " + slot(11) + " (4 slots): it holds records, according to " + cp(11) + "; lost with it: topic orders partition 0 offsets 9 to 9 and 3 more batches\n", "1 missing"},
		{"data object", func(t *testing.T, b bucket) { b.delete(t, b.key(t, "data/")) }, nil, exitDamage,
			": " + slot(6) + " refers to it; lost with it: topic orders partition 0 offsets 2 to ", "1 missing"},
		{"newer slot", func(_ *testing.T, b bucket) { b.edit(slot(9), func(x []byte) []byte { x[4] = 3; return reseal(x) }) },
			nil, exitFailure, "verdict: needs another version of seb", "1 object was not checked"},
		{"newer bucket", func(_ *testing.T, b bucket) {
			b.edit("seb.json", func(x []byte) []byte { return bytes.Replace(x, []byte(`"format": 2`), []byte(`"format": 3`), 1) })
		}, nil, exitFailure, "", "needs another version of seb: its format is 3"},
		{"no log", func(_ *testing.T, b bucket) { clear(b) }, nil, exitRefused, "", "the store holds no log"},
		{"other files", func(_ *testing.T, b bucket) { clear(b); b["notes.txt"] = []byte("x") }, nil, exitRefused, "", "the store holds no log"},
		{"wrong usage", good, []string{"--output=json", "--quiet"}, exitUsage, "", "not both"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := copyOf(t, goodBucket)
			test.do(t, b)
			dir := b.inDirectory(t)
			r := runSeb(t, nil, append([]string{"fsck", "--store", dir}, test.args...)...)
			r.want(t, test.code, test.err)
			if !strings.Contains(r.out, test.out) || test.out == "" && len(test.args) > 0 && r.out != "" {
				t.Errorf("it does not write %q:\n%s", test.out, r.out)
			}
			if after := readDirectory(t, dir); len(after) != len(b) {
				t.Errorf("the directory has %d files, not %d", len(after), len(b))
			}
		})
	}
	if r := runSeb(t, nil, "fsck", "--store", t.TempDir()); r.out != "" || !strings.Contains(r.err, "--store") {
		t.Errorf("of no log it tells %q, %q", r.out, r.err)
	}
	runSeb(t, nil, "fsck", "--store", filepath.Join(t.TempDir(), "nowhere")).want(t, exitRefused, "there is no directory ", "`seb serve`")
}

// readDirectory returns the names of all files, also of those that are not objects.
func readDirectory(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() || err == nil && d.Name() == ".tmp" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFsckReportsAsJSON(t *testing.T) {
	b := copyOf(t, goodBucket)
	b.delete(t, slot(5))
	b["probe/1"] = []byte("x")
	r := runSeb(t, nil, "fsck", "--output=json", "--deep", "--store", b.inDirectory(t))
	r.want(t, exitDamage)
	var report struct {
		Store string
		fsck.Report
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	if !report.Complete || !report.Deep || report.Store == "" || report.Last != 11 || report.Commits != 10 {
		t.Errorf("it says %+v", report)
	}
	if got := strings.Join(found(&report.Report), ", "); got != "missing "+slot(5)+", leftover probe/1" {
		t.Errorf("it found %s", got)
	}
}

// fsck names all damaged objects, and sums up harmless ones.
func TestFsckNamesAllDamageAndFewOrphans(t *testing.T) {
	b := copyOf(t, goodBucket)
	for id := range uint64(5) {
		b[format.DataRef{Seq: 3, ID: id}.Key()] = dataObject(t, b, 3, id, batchOf("late"))
	}
	for _, s := range []format.Seq{3, 5, 8, 9, 10} {
		b[slot(s)] = []byte("rubbish")
	}
	r := runSeb(t, nil, "fsck", "--store", b.inDirectory(t))
	r.want(t, exitDamage, "5 corrupt")
	if n := strings.Count(r.out, "corrupt   log/"); n != 5 {
		t.Errorf("it names %d of 5 damaged slots:\n%s", n, r.out)
	}
	want := "possibly in use: 5, 760 B: data/00000000000000000003-0000000000000000, data/00000000000000000003-0000000000000001, " +
		"data/00000000000000000003-0000000000000002 and 2 more (--output json shows all)"
	if !strings.Contains(r.out, want) {
		t.Errorf("it does not say %q:\n%s", want, r.out)
	}
}

// An interrupt prints what was found, and how far the check came.
func TestFsckInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := copyOf(t, goodBucket)
		b[slot(2)] = []byte("rubbish")
		f := storetest.NewFaulty(b.store(t))
		held := make(chan struct{}, 1)
		f.On(objstore.VerbGet, slot(9), func(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			held <- struct{}{}
			<-ctx.Done()
			return storetest.Answer{}, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-held
			synctest.Wait() // the check has read all other slots
			cancel()
		}()
		var out, errs bytes.Buffer
		err := (&fsckCmd{storeFlag: storeFlag{Store: "bucket"}}).check(ctx, streams{nil, &out, &errs}, f)
		if err == nil || errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "interrupted") || !strings.Contains(err.Error(), " of 15 objects") {
			t.Errorf("it ended with %v", err)
		}
		if strings.Contains(out.String(), "verdict") || errs.Len() > 0 {
			t.Errorf("it wrote\n%s%s", &out, &errs)
		}
	})
}

// fsck tells a store that can't be reached from a damaged one.
func TestFsckOfAStoreThatFails(t *testing.T) {
	f := storetest.NewFaulty(copyOf(t, goodBucket).store(t))
	f.On(objstore.VerbList, "", func(context.Context, storetest.Request, storetest.Next) (storetest.Answer, error) {
		return storetest.Answer{}, objstore.ErrStopped
	})
	var out, errs bytes.Buffer
	err := (&fsckCmd{}).check(t.Context(), streams{nil, &out, &errs}, f)
	if !errors.Is(err, objstore.ErrStopped) || errors.Is(err, errDamaged) {
		t.Errorf("it ended with %v", err)
	}
}

// Brokers append, upload and write checkpoints while fsck runs again and again: it never finds damage.
func TestFsckOfABucketInUse(t *testing.T) {
	t.Run("memory", func(t *testing.T) { inUse(t, objstore.NewMemory()) })
	t.Run("versitygw", func(t *testing.T) { inUse(t, s3test.Open(t, s3test.VersityGW(t))) })
}

func inUse(t *testing.T, store objstore.Store) {
	const writers, checks = 4, 4
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	brokers := make([]*seb.Broker, 2)
	for i := range brokers {
		b, err := seb.Open(ctx, store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 3})
		if err != nil {
			t.Fatal(err)
		}
		brokers[i] = b
	}
	enough := make(chan struct{})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-enough:
					return
				default:
				}
				value := make([]byte, 100<<(i%2*10)) // 100 KiB goes to a data object while brokers race
				if _, err := brokers[w%2].Append(ctx, "events", []seb.Record{{Value: value}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var last *fsck.Report
	grown := 0
	for i := 0; grown < checks && ctx.Err() == nil; i++ {
		r, err := fsck.Check(ctx, store, fsck.Options{Deep: i%2 == 0})
		switch {
		case errors.Is(err, fsck.ErrNoLog):
			t.Fatal("a broker was opened, and there is no log")
		case err != nil:
			t.Fatal(err)
		case r.Damage()+len(r.Of(fsck.Newer))+len(r.Of(fsck.Deleted))+len(r.Of(fsck.Orphaned)) > 0:
			t.Fatalf("check %d: %v", i, found(r))
		}
		if last != nil && r.Last > last.Last && r.Checkpoints > last.Checkpoints && r.DataObjects > last.DataObjects {
			grown++
		}
		last = r
	}
	close(enough)
	all.Wait()
	for _, b := range brokers {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if grown < checks {
		t.Errorf("the log grew under %d checks only; the last one: %+v", grown, last)
	}
	r, err := fsck.Check(ctx, store, fsck.Options{Deep: true})
	if err != nil || r.Damage() > 0 || r.Commits < last.Commits || int64(r.Last) != r.Commits {
		t.Errorf("at rest: %v, %+v", err, r)
	}
	t.Logf("%d commits, %d checkpoints, %d data objects", r.Commits, r.Checkpoints, r.DataObjects)
}
