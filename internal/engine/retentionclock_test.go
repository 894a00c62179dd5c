package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
)

// What no wrong clock must do: delete a record that is younger than its topic keeps it.

const year = 365 * 24 * time.Hour

// The store's clock steps ahead while a broker is idle. The broker hears of it by the sync before it deletes anything.
func TestClockThatStepsBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x shifted
		store := x.store()
		a := openWith(t, store, func(*engine.Options) {})
		topic := create(t, a, "t")
		keep(t, a, "t", 2*time.Hour, 0, false)
		appendValues(t, a, topic, "0")
		time.Sleep(100 * time.Minute)
		for range 5 {
			appendValues(t, a, topic, "young")
		}
		time.Sleep(10 * time.Minute)
		x.by.Store(int64(year))
		b := openAs(t, format.SessionID{2}, store)
		for range 20 {
			appendValues(t, b, topic, "b")
		}
		time.Sleep(time.Hour)
		if start, _, _ := bounds(a, topic); start > 1 {
			t.Errorf("the partition starts at %d", start)
		}
	})
}

// A machine boots with the clock of its last shutdown, a month behind, and its clock is set right while a broker runs.
func TestClockThatWasBehind(t *testing.T) {
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		var x shifted
		store := x.store()
		e := engine.New(store, options(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		keep(t, e, "t", 7*day, 0, false)
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * day)
		var behind atomic.Int64
		behind.Store(int64(30*day - time.Minute))
		x.by.Store(-behind.Load())
		began := time.Now()
		f := openWith(t, store, func(o *engine.Options) {
			o.Wall = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
			o.Boot = func() time.Duration { return time.Since(began) }
		})
		for range 10 {
			appendValues(t, f, topic, "x")
		}
		time.Sleep(5 * time.Minute)
		behind.Store(0)
		x.by.Store(0)
		for range 10 {
			appendValues(t, f, topic, "x")
		}
		time.Sleep(7 * day)
		wantStart(t, f, topic, 0)
	})
}

// The clocks of the store and of the machine step ahead together while a broker runs.
func TestClocksThatStepTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			x    shifted
			wall atomic.Int64
		)
		e := openWith(t, x.store(), func(o *engine.Options) {
			o.Wall = func() time.Time { return time.Now().Add(time.Duration(wall.Load())) }
		})
		topic := create(t, e, "t")
		keep(t, e, "t", 30*24*time.Hour, 0, false)
		for range 30 {
			appendValues(t, e, topic, "x")
			time.Sleep(time.Minute)
		}
		x.by.Store(int64(year))
		wall.Store(int64(year))
		for range 48 * 60 {
			appendValues(t, e, topic, "y")
			time.Sleep(time.Minute)
		}
		wantStart(t, e, topic, 0)
	})
}
