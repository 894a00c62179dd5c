package bucket_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/restore"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

// trimmed returns a log from which most records were just deleted, and a plan to copy it as it was before.
func trimmed(t *testing.T) (*seb.Broker, *objstore.Memory, *restore.Plan) {
	t.Helper()
	store := objstore.NewMemory()
	b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10, Cluster: seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}}))
	kit.MustCreateTopic(t, b, "t", 1)
	appends(t, b, time.Hour)
	log, err := offline.Open(t.Context(), store, nil, offline.Moment{})
	must(t, err)
	_, err = b.DeleteRecords(t.Context(), "t", 0, 11)
	must(t, err)
	plan, err := restore.Prepare(t.Context(), store, options(offline.Moment{Slot: log.State.Seq()}))
	must(t, err)
	return b, store, plan
}

// appends lets a broker append a record every five minutes.
func appends(t *testing.T, b *seb.Broker, lasts time.Duration) {
	t.Helper()
	for range lasts / (5 * time.Minute) {
		kit.MustAppend(t, b, "t", "x")
		time.Sleep(5 * time.Minute)
	}
}

func holds(t *testing.T, store objstore.Store) int {
	t.Helper()
	log, err := offline.Open(t.Context(), store, nil, offline.Moment{})
	must(t, err)
	return len(log.State.Holds(log.State.Time()))
}

// While a log is held, brokers delete nothing that the copy needs, however long that takes; and afterwards they do.
func TestHeldLogKeepsWhatIsCopied(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		b, store, plan := trimmed(t)
		var said strings.Builder
		end, err := plan.Hold(t.Context(), store, &said)
		must(t, err)
		appends(t, b, 40*time.Hour)
		if n := holds(t, store); n != 1 {
			t.Errorf("%d holds", n)
		}
		_, err = plan.Run(t.Context(), objstore.NewMemory(), func(int, int64) {})
		must(t, err)
		end()
		if n := holds(t, store); n != 0 || said.Len() > 0 {
			t.Errorf("%d holds, %q", n, said.String())
		}
		appends(t, b, 8*time.Hour)
		_, err = restore.Prepare(t.Context(), store, options(offline.Moment{Slot: plan.Slot}))
		if _, ok := errors.AsType[*restore.TooEarlyError](err); !ok {
			t.Errorf("nothing was deleted after the copy: %v", err)
		}
		must(t, b.Close())
	})
}

// Without a hold, a copy that takes too long fails; it never leaves out records that brokers have deleted meanwhile.
func TestCopyThatTakesTooLong(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		b, _, plan := trimmed(t)
		appends(t, b, 20*time.Hour)
		_, err := plan.Run(t.Context(), objstore.NewMemory(), func(int, int64) {})
		if _, ok := errors.AsType[*restore.DeletedError](err); !ok {
			t.Error(err)
		}
		must(t, b.Close())
	})
}

// A hold whose process was killed ends by itself.
func TestHoldEndsByItself(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		b, store, plan := trimmed(t)
		e := engine.New(store, tool())
		must(t, e.Open(t.Context()))
		must(t, e.Hold(t.Context(), 1, plan.Slot, 6*time.Hour))
		must(t, e.Shutdown(nil))
		before := len(kit.Keys(t, store, format.CheckpointPrefix))
		appends(t, b, 5*time.Hour)
		if n := holds(t, store); n != 1 || before == 0 {
			t.Errorf("%d holds", n)
		}
		appends(t, b, 12*time.Hour)
		_, err := restore.Prepare(t.Context(), store, options(offline.Moment{Slot: plan.Slot}))
		if _, ok := errors.AsType[*restore.TooEarlyError](err); !ok {
			t.Errorf("nothing was deleted after the hold: %v", err)
		}
		// What is deleted can't be held.
		if _, err := plan.Hold(t.Context(), store, io.Discard); !errors.Is(err, state.ErrNonsense) {
			t.Error(err)
		}
		must(t, b.Close())
	})
}

func tool() engine.Options {
	o := engine.ToolOptions(io.Discard)
	o.Boot, o.NoMaintenance = kit.InVirtualTime(seb.Options{}).BootClock, true
	return o
}

// The longest --keep-deleted of all brokers counts, also for those that have none.
func TestBrokersKeepDeleted(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		b, store, plan := trimmed(t)
		other := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10, KeepDeleted: 48 * time.Hour, NoMaintenance: true}))
		kit.MustAppend(t, other, "t", "x")
		must(t, other.Close())
		appends(t, b, 40*time.Hour)
		_, err := restore.Prepare(t.Context(), store, options(offline.Moment{Slot: plan.Slot}))
		must(t, err)
		appends(t, b, 24*time.Hour)
		_, err = restore.Prepare(t.Context(), store, options(offline.Moment{Slot: plan.Slot}))
		if _, ok := errors.AsType[*restore.TooEarlyError](err); !ok {
			t.Errorf("nothing is deleted after 48 hours: %v", err)
		}
		// A shorter time counts after the delete delay.
		e := engine.New(store, tool())
		must(t, e.Open(t.Context()))
		must(t, e.SetDelay(t.Context(), 4*time.Hour))
		if err := e.SetDelay(t.Context(), time.Hour); !errors.Is(err, state.ErrNonsense) {
			t.Error(err)
		}
		must(t, e.Shutdown(nil))
		log, err := offline.Open(t.Context(), store, nil, offline.Moment{})
		must(t, err)
		if keeps, from := log.State.NextKeeps(); keeps != 4*time.Hour || log.State.Keeps(from-1) != 48*time.Hour {
			t.Errorf("%v from %d", keeps, from)
		}
		must(t, b.Close())
	})
}

// A broker that leaves maintenance to others writes no checkpoint, compacts and deletes nothing.
func TestNoMaintenance(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10, NoMaintenance: true, Cluster: seb.ClusterOptions{DeleteDelay: 4 * time.Hour, Margin: time.Hour}}))
		kit.MustCreateTopic(t, b, "t", 1)
		appends(t, b, 20*time.Hour)
		must(t, b.Close())
		if n := len(kit.Keys(t, store, format.CheckpointPrefix)) + len(kit.Keys(t, store, format.DataPrefix)); n > 0 {
			t.Errorf("it has written %d checkpoints and segments", n)
		}
	})
}
