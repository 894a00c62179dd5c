package commitlog

import (
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// The cost of a List of a directory grows with the log, so a broker looks up each slot by its
// key instead.
func TestHoleInADirectoryIsFoundWithoutAList(t *testing.T) {
	dir, err := objstore.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}()
	lists := 0
	store := objstore.Observe(dir, func(op objstore.Op) {
		if op.Verb == objstore.VerbList && op.Key == format.LogPrefix {
			lists++
		}
	})
	r := &rig{T: t, start: time.Now()}
	if r.constants, err = OpenCluster(t.Context(), store, testDelay, testMargin, time.Now()); err != nil {
		t.Fatal(err)
	}
	b := &broker{rig: r}
	b.Log = NewLog(store, r.constants, b, Clock{Now: time.Now, Boot: func() time.Duration { return time.Since(r.start) }}, time.Second)
	if err := b.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.fill(6)
	lists = 0
	if err := b.FindHole(t.Context(), 1, 6); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Delete(t.Context(), format.LogKey(3)); err != nil {
		t.Fatal(err)
	}
	requireIs(t, b.FindHole(t.Context(), 1, 6), ErrRolledBack)
	requireIs(t, b.FindHole(t.Context(), 3, 3), ErrRolledBack)
	if err := b.FindHole(t.Context(), 4, 6); err != nil {
		t.Fatal(err)
	}
	if lists != 0 {
		t.Errorf("%d Lists of the log", lists)
	}
}

// Slots that a checkpoint covers may be deleted. What is gone behind the newest checkpoint is lost, whatever else is gone.
func TestHoleBehindTheNewestCheckpointIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.open()
		a.fill(3)
		a.checkpoint()
		a.fill(5)
		a.checkpoint()
		a.fill(9)
		r.remove(format.LogKey(1), format.LogKey(2), format.LogKey(4))
		if err := a.FindHole(t.Context(), 1, 9); err != nil {
			t.Fatal(err)
		}
		r.remove(format.LogKey(7))
		requireIs(t, a.FindHole(t.Context(), 1, 9), ErrRolledBack)
		if err := a.FindHole(t.Context(), 1, 6); err != nil {
			t.Fatal(err)
		}
		requireIs(t, a.FindHole(t.Context(), 6, 9), ErrRolledBack)
	})
}
