package year_test

import (
	"errors"
	"flag"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/test/kit"
)

var fullState = flag.Int64("year.full", 1<<20, "the --state-memory of TestFullLogMakesRoom, in bytes: 256 MiB are 4.5 million commits")

// A log of commits from before level 6 that fills the memory for the state opens, and makes room once its level is raised: its state
// falls below a tenth of the limit, on a store whose requests take 30 ms. This takes two hours at most, for the part of the default
// limit that the log has.
func TestFullLogMakesRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long with the race detector")
	}
	was := engine.Compaction
	t.Cleanup(func() { engine.Compaction = was })
	engine.Compaction.RaiseNew = false
	synctest.Test(t, func(t *testing.T) {
		bucket := newBucket(t)
		opts := kit.Immediate()
		opts.StateMemory = *fullState
		b := kit.OpenOnly(t, store{bucket: bucket}, opts)
		kit.MustCreateTopic(t, b, "t", 1)
		commits := 0
		refused := func() bool {
			_, err := b.Append(t.Context(), "t", []seb.Record{{Value: []byte("x")}})
			if e, ok := errors.AsType[*seb.Error](err); ok && e.Code == seb.CodeOverStateBudget {
				return true
			} else if err != nil {
				t.Fatal(err)
			}
			commits++
			return false
		}
		for !refused() {
		}
		full := commits
		kit.Kill(t, b)
		time.Sleep(time.Hour)

		slow := store{bucket: bucket, takes: requestTakes}
		begun := time.Now()
		b = kit.OpenOnly(t, slow, opts)
		opened := time.Since(begun)
		if !refused() {
			t.Error("the state of the opened log is not full")
		}
		begun = time.Now()
		upgrade(t, slow)
		state := func() int64 { return metricOf(t, b, "seb_state_bytes") }
		for state() > *fullState/10 && time.Since(begun) < 3*time.Hour {
			refused() // a client tries once a second
			time.Sleep(time.Second)
		}
		took := time.Since(begun)
		part := float64(*fullState) / (256 << 20)
		working := took - engine.Compaction.TailAge // for so long, all that is older counts as new
		t.Logf("%d commits fill a state of %d bytes; the log opened in %v, and its state was below a tenth %v after its level was raised, with %d GETs; 256 MiB are %.0f times as much: %v",
			full, *fullState, opened, took.Round(time.Second), b.Usage().Causes["compact"].Gets, 1/part, (engine.Compaction.TailAge + time.Duration(float64(working)/part)).Round(time.Second))
		if most := time.Duration(float64(2*time.Hour)*part) + 2*time.Minute; took > most {
			t.Errorf("it took %v, at most %v were expected", took, most)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// upgrade raises the level of a log, as seb upgrade does.
func upgrade(t *testing.T, s store) {
	t.Helper()
	e := engine.New(s, engine.ToolOptions(io.Discard))
	err := e.Open(t.Context())
	if err == nil {
		err = errors.Join(e.RaiseLevel(t.Context()), e.Shutdown(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// metricOf returns a metric without labels.
func metricOf(t *testing.T, b *seb.Broker, name string) int64 {
	t.Helper()
	for _, f := range b.Metrics() {
		if f.Name == name {
			return int64(f.Series[0].Value)
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
