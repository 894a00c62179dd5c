package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/gc"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// gcBucket returns a bucket of which a broker has raised the level, and from which records were deleted. It takes a few hours.
func gcBucket(t *testing.T, clock func() time.Duration) objstore.Store {
	t.Helper()
	store := objstore.NewMemory()
	b, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10, BootClock: clock})
	if err != nil {
		t.Fatal(err)
	}
	for range 1200 {
		if _, err := b.Append(t.Context(), "orders", []seb.Record{{Value: []byte("one")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
	}
	if _, err := b.DeleteRecords(t.Context(), "orders", 0, 1190); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour) // so that the next checkpoint that is read does not give way to later ones
	return store
}

// collectGarbage runs seb gc on a store.
func collectGarbage(ctx context.Context, t *testing.T, store objstore.Store, opts gc.Options, c gcCmd) result {
	t.Helper()
	c.Store, c.Memory, c.StateMemory = "s3://bucket", 128<<20, 256<<20
	var out, stderr bytes.Buffer
	err := c.collect(ctx, streams{nil, &out, &stderr}, store, opts)
	if err != nil {
		report(&stderr, err)
	}
	return result{exitCode(ctx, err), out.String(), stderr.String()}
}

// The commands tell and delete the same, a delete delay after the first of them on a machine without brokers.
func TestGCDeletesWhatTheDryRunTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		opts := gc.Options{Boot: func() time.Duration { return time.Since(began) }, BootID: format.BootID{1}}
		store := gcBucket(t, opts.Boot)
		dry := gcCmd{DryRun: true}
		r := collectGarbage(t.Context(), t, store, opts, dry)
		r.want(t, exitOK)
		for _, want := range []string{"would be deleted now: nothing\n", "dead, and waits:\n", " commits", "data object", "no checkpoint was read since they died"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("the dry run lacks %q:\n%s", want, r.out)
			}
		}
		r = collectGarbage(t.Context(), t, store, opts, gcCmd{})
		r.want(t, exitOK)
		for _, want := range []string{"said so in the log\n", "deleted: nothing\n", "is younger than the delete delay (24h0m0s) until 2000-01-02T"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("the first run lacks %q:\n%s", want, r.out)
			}
		}
		r = collectGarbage(t.Context(), t, store, gc.Options{Boot: opts.Boot, BootID: format.BootID{2}}, dry)
		if r.want(t, exitOK); !strings.Contains(r.out, "for this process the delete delay (24h0m0s) counts from now on") {
			t.Errorf("on another machine:\n%s", r.out)
		}
		time.Sleep(25 * time.Hour)

		inJSON := outputFlag{Output: "json"}
		dry.outputFlag = inJSON
		var told struct {
			DryRun  bool         `json:"dry_run"`
			Due     gc.Counts    `json:"due"`
			Waiting []gc.Waiting `json:"waiting"`
		}
		r = collectGarbage(t.Context(), t, store, opts, dry)
		r.want(t, exitOK)
		if err := json.Unmarshal([]byte(r.out), &told); err != nil || !told.DryRun || told.Due.Commits < 100 || told.Due.Data == 0 || told.Due.Checkpoints == 0 {
			t.Fatalf("%v, %s", err, r.out)
		}
		var done struct {
			Done    bool      `json:"done"`
			Deleted gc.Counts `json:"deleted"`
		}
		r = collectGarbage(t.Context(), t, store, opts, gcCmd{outputFlag: inJSON})
		r.want(t, exitOK)
		if err := json.Unmarshal([]byte(r.out), &done); err != nil || !done.Done || done.Deleted != told.Due {
			t.Errorf("%v, told %+v, done %s", err, told.Due, r.out)
		}
		b, err := seb.Open(t.Context(), store, seb.Options{BootClock: opts.Boot})
		if err != nil {
			t.Fatal(err)
		}
		if topic, err := b.Topic(t.Context(), "orders"); err != nil || topic.Partitions[0].Start != 1190 || topic.Partitions[0].End != 1200 {
			t.Errorf("%+v, %v", topic, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// noDeletes is a store that refuses deletes, except those of probes.
type noDeletes struct{ objstore.Store }

func (s noDeletes) Delete(ctx context.Context, key string) (time.Time, error) {
	if strings.HasPrefix(key, format.ProbePrefix) {
		return s.Store.Delete(ctx, key)
	}
	return time.Time{}, &objstore.Failure{Detail: "access denied", Hint: "see the policy", Setup: true, Err: errors.New("403")}
}

func TestGCSaysWhyItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		opts := gc.Options{Boot: func() time.Duration { return time.Since(began) }, BootID: format.BootID{1}}
		store := gcBucket(t, opts.Boot)
		collectGarbage(t.Context(), t, store, opts, gcCmd{}).want(t, exitOK)
		time.Sleep(25 * time.Hour)
		collectGarbage(t.Context(), t, noDeletes{store}, opts, gcCmd{}).want(t, exitUsage, "access denied", "s3:DeleteObject")
		collectGarbage(t.Context(), t, noDeletes{store}, opts, gcCmd{DryRun: true}).want(t, exitOK)
		interrupted, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []gcCmd{{}, {DryRun: true}} {
			collectGarbage(interrupted, t, store, opts, c).want(t, 130, "interrupted")
		}
	})
	for _, test := range []struct {
		err  error
		code int
	}{
		{&gc.Error{Damage: true, Hint: "restore", Err: errors.New("x")}, exitDamage},
		{&gc.Error{Unavailable: true, Err: errors.New("x")}, exitUnreachable},
		{offline.ErrNoLog, exitRefused},
		{errors.New("x"), exitFailure},
	} {
		if code := exitCode(t.Context(), (&gcCmd{}).failed(t.Context(), "look into", test.err)); code != test.code {
			t.Errorf("%v: %d, not %d", test.err, code, test.code)
		}
	}
}

// A dry run changes no file of a directory; below level 6, neither does a run change the log.
func TestGCInADirectory(t *testing.T) {
	dir := copyOf(t, lowBucket).inDirectory(t)
	before := readDirectory(t, dir)
	r := runSeb(t, nil, "gc", "--dry-run", "--store", dir)
	if r.want(t, exitOK); !strings.Contains(r.out, "the level of the log is 5") {
		t.Errorf("%s", r.out)
	}
	if after := readDirectory(t, dir); !slices.Equal(before, after) {
		t.Error("a dry run has changed the directory")
	}
	if r = runSeb(t, nil, "gc", "--store", dir); r.code != exitOK || !strings.Contains(r.out, "deleted: nothing\n") {
		t.Errorf("%+v", r)
	}
	after := slices.DeleteFunc(readDirectory(t, dir), func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	if !slices.Equal(before, after) {
		t.Error("a run has changed the log")
	}
	for _, args := range [][]string{{"gc"}, {"gc", "--dry-run"}} {
		empty := t.TempDir()
		runSeb(t, nil, append(args, "--store", empty)...).want(t, exitRefused, "there is no log in --store", "`seb serve`")
		runSeb(t, nil, append(args, "--store", empty+"/nowhere")...).want(t, exitRefused, "there is no log in --store")
		if after := readDirectory(t, empty); len(after) > 0 {
			t.Errorf("it has made %d files", len(after))
		}
		runSeb(t, nil, append(args, "--store", "memory:")...).want(t, exitUsage, "memory:")
		runSeb(t, nil, append(args, "--memory", "1MiB", "--store", dir)...).want(t, exitUsage, "--memory")
	}
}

// Each reason to wait has a sentence.
func TestGCKnowsEveryWait(t *testing.T) {
	for _, w := range []state.Wait{state.WaitLevel, state.WaitCompaction, state.WaitSeen, state.WaitNewer, state.WaitAge, state.WaitSight, state.WaitHold, state.WaitFloor, state.WaitNext} {
		if text := waitReason(&gc.Report{}, gc.Waiting{For: w}); len(text) < 30 {
			t.Errorf("%s: %q", w, text)
		}
	}
}
