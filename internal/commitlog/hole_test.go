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
