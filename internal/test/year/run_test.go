package year_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

// row is what happened in a part of a run.
type row struct {
	At      time.Duration // when it ended, since the load began
	Commits int
	Causes  map[string]seb.StoreUse // requests to the store, of the broker that runs all the time

	// The most at any sample of the row.
	Held        map[kind]tally
	State       int64 // bytes
	Checkpoint  int64 // bytes of the last one
	TailBatches int64 // batches in the state
	Segments    int64 // that have live records
	Dead        int64 // data objects and segments that are remembered as dead
	LiveBytes   int64 // of batches in segments
	DeadBytes   int64

	// Restarts of a broker at the end of the row, by the time that each request takes.
	Restarts []restart
}

type restart struct {
	Takes    time.Duration // of a request
	Requests int64
	Received int64 // bytes
	Lasts    time.Duration
}

// result is a run of a shape.
type result struct {
	Shape   shape
	Rows    []row
	Version string
	Machine string
	Real    time.Duration // how long the run took
}

const (
	requestTakes = 30 * time.Millisecond
	slowTakes    = 100 * time.Millisecond
)

// run runs a shape in virtual time. It calls done after each row.
func run(t *testing.T, x shape, done func(row)) {
	synctest.Test(t, func(t *testing.T) {
		l := &load{shape: x, t: t, bucket: newBucket(t), targets: x.targets(), events: x.events()}
		opts := kit.Immediate() // each append is a commit of its own: so it is with a linger too, since that is shorter than the time between two
		opts.Cluster = seb.ClusterOptions{DeleteDelay: x.Delay, Margin: x.Margin}
		opts.CheckpointCommits = x.Checkpoint
		l.broker = kit.Open(t, store{l.bucket, requestTakes, x.refuses}, opts)
		for i := range x.Topics {
			if _, _, err := l.broker.CreateTopic(t.Context(), topicName(i), seb.TopicOptions{Partitions: x.Partitions, Config: seb.TopicConfig{Retention: x.Retention}}); err != nil {
				t.Fatal(err)
			}
		}
		l.begun = time.Now()
		before := l.broker.Usage().Causes
		for i := range x.Rows {
			var r row
			for j := range x.Samples {
				for until := l.begun.Add(x.Span / time.Duration(x.Rows*x.Samples) * time.Duration(i*x.Samples+j+1)); time.Now().Before(until); {
					l.step(&r)
				}
				r.sample(l.bucket, l.broker)
			}
			for l.replay() < x.Checkpoint-checkpointSoon {
				l.step(&r)
			}
			r.At = time.Since(l.begun)
			now := l.broker.Usage().Causes
			r.Causes = map[string]seb.StoreUse{}
			for cause, use := range now {
				r.Causes[cause] = minus(use, before[cause])
			}
			before = now
			for _, takes := range []time.Duration{requestTakes, slowTakes} {
				r.Restarts = append(r.Restarts, measureRestart(t, l.bucket, takes, opts))
			}
			done(r)
		}
	})
}

// checkpointSoon: restarts are measured at most so many commits before a checkpoint is due, when most commits have to be replayed.
const checkpointSoon = 10

// load is a shape that runs.
type load struct {
	shape
	t       *testing.T
	bucket  *bucket
	broker  *seb.Broker
	targets []target
	events  [][]byte
	begun   time.Time
	commits int
}

// step makes a commit, and waits until the next one is due.
func (l *load) step(r *row) {
	if _, err := l.broker.Commit(l.t.Context(), seb.Commit{Appends: l.commitOf(l.commits, l.targets, l.events)}); err != nil {
		l.t.Fatal(err)
	}
	l.commits++
	r.Commits++
	time.Sleep(l.Every - time.Since(l.begun)%l.Every)
	if today := time.Since(l.begun) % day; l.Active > 0 && today >= l.Active {
		time.Sleep(day - today)
	}
}

// replay returns how many commits came after the last checkpoint, about.
func (l *load) replay() int { return int(l.broker.Status().Applied) % l.Checkpoint }

func minus(x, y seb.StoreUse) seb.StoreUse {
	return seb.StoreUse{
		Creates: x.Creates - y.Creates, Gets: x.Gets - y.Gets, Lists: x.Lists - y.Lists, Deletes: x.Deletes - y.Deletes,
		SentBytes: x.SentBytes - y.SentBytes, ReceivedBytes: x.ReceivedBytes - y.ReceivedBytes,
	}
}

// sample notes what the bucket and the broker hold.
func (r *row) sample(bucket *bucket, b *seb.Broker) {
	held := bucket.holds()
	if r.Held == nil {
		r.Held = map[kind]tally{}
	}
	for k, n := range held {
		most := r.Held[k]
		r.Held[k] = tally{max(most.Objects, n.Objects), max(most.Bytes, n.Bytes)}
	}
	for _, f := range b.Metrics() {
		to := map[string]*int64{
			"seb_state_bytes": &r.State, "seb_checkpoint_bytes": &r.Checkpoint, "seb_batches": &r.TailBatches, "seb_segments": &r.Segments, "seb_dead_objects": &r.Dead,
		}[f.Name]
		if to != nil {
			*to = max(*to, int64(f.Series[0].Value))
		}
		if f.Name == "seb_segment_batches_bytes" {
			for _, s := range f.Series {
				to := &r.LiveBytes
				if slices.Contains(s.Labels, "dead") {
					to = &r.DeadBytes
				}
				*to = max(*to, int64(s.Value))
			}
		}
	}
}

// measureRestart opens another broker on the bucket, as after a crash, and ends it at once.
func measureRestart(t *testing.T, bucket *bucket, takes time.Duration, opts seb.Options) restart {
	begun := time.Now()
	b := kit.OpenOnly(t, store{bucket: bucket, takes: takes}, opts)
	r := restart{Takes: takes, Lasts: time.Since(begun)}
	use := b.Usage().Store
	r.Requests, r.Received = use.Creates+use.Gets+use.Lists+use.Deletes, use.ReceivedBytes
	kit.Kill(t, b)
	return r
}

// objects returns how many objects the bucket had.
func (r *row) objects() (n int64) {
	for _, k := range slices.Sorted(maps.Keys(r.Held)) {
		n += r.Held[k].Objects
	}
	return n
}

// flat returns an error for each figure of the last third of a run that is more than a tenth above what it was before, and above some.
func (x *result) flat() (errs []error) {
	third := len(x.Rows) / 3
	for _, f := range []struct {
		name string
		of   func(r *row) int64
	}{
		{"objects", (*row).objects},
		{"bytes of the state", func(r *row) int64 { return r.State }},
		{"bytes of a checkpoint", func(r *row) int64 { return r.Checkpoint }},
	} {
		before, last := int64(0), int64(0)
		for i := range x.Rows {
			n := f.of(&x.Rows[i])
			switch {
			case i >= len(x.Rows)-third:
				last = max(last, n)
			case i >= len(x.Rows)-2*third:
				before = max(before, n)
			}
		}
		if last > before+before/10 {
			errs = append(errs, fmt.Errorf("%s: at most %d %s in the last third, and %d in the one before", x.Shape.Name, last, f.name, before))
		}
	}
	return errs
}
