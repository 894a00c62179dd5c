package state

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// reload replaces the state by the one that its snapshot has, and checks that this is the same.
func (x *collectedLog) reload() {
	x.t.Helper()
	body := x.View().Encode()
	s, err := Decode(x.Seq(), body)
	if err != nil {
		x.t.Fatal(err)
	}
	if !bytes.Equal(s.View().Encode(), body) || s.Memory() != x.Memory() {
		x.t.Fatalf("the snapshot changes when it is loaded, or its memory of %d bytes, to %d", x.Memory(), s.Memory())
	}
	x.State = s
}

// dying returns a log in which a checkpoint was seen that shows a dead segment, and a newer one.
func dying(t *testing.T) (x collectedLog, slot format.Seq) {
	x = newCollectedLog(t)
	x.append()
	x.segment(7)
	x.apply(&format.StartMoved{Topic: 1, Start: 1})
	slot = x.Seq()
	x.see(slot)
	x.apply()
	x.see(x.Seq())
	return x, slot
}

func TestDelaySet(t *testing.T) {
	x, slot := dying(t)
	for _, bad := range []time.Duration{24*time.Hour - 1000, DelayMax + 1000, 72*time.Hour + 500} {
		if err := x.try(&format.DelaySet{Delay: bad}); !errors.Is(err, ErrNonsense) {
			t.Errorf("a delay of %v: %v", bad, err)
		}
	}
	x.apply(&format.DelaySet{Delay: 72 * time.Hour})
	x.reload()
	x.wait(60)
	if plan := x.plan(); plan != nil || x.Keeps(x.Time()) != 72*time.Hour {
		t.Fatalf("%+v, %v", plan, x.Keeps(x.Time()))
	}
	if err := x.try(&format.Collected{Slot: slot, Bottom: 1}); !errors.Is(err, ErrNonsense) {
		t.Errorf("a collection before the delay is over: %v", err)
	}
	w, until := x.Waiting(CollectOptions{Now: x.Time(), Since: x.Time(), Sight: func(format.Seq) int64 { return 0 }}, func(*Seen) bool { return true })
	if w != WaitSight && w != WaitAge || until != x.Seen()[0].Time+72*anHour {
		t.Errorf("waits for %s until %d", w, until)
	}
	// A shorter delay counts a day later.
	x.apply(&format.DelaySet{Delay: 30 * time.Hour})
	begun := x.Time()
	x.reload()
	if next, from := x.NextKeeps(); next != 30*time.Hour || from != begun+24*anHour || x.plan() != nil || x.Keeps(from-1) != 72*time.Hour || x.Keeps(from) != 30*time.Hour {
		t.Errorf("%v from %d", next, from)
	}
	x.wait(12)
	if x.plan() == nil { // now the first delay is over
		t.Error("72 hours are over")
	}
	// A longer one at once, also while a shorter one is to come.
	x.apply(&format.DelaySet{Delay: 100 * time.Hour})
	x.reload()
	if _, from := x.NextKeeps(); from != 0 || x.plan() != nil || x.Keeps(x.Time()+1000*anHour) != 100*time.Hour {
		t.Errorf("%v", x.Keeps(x.Time()))
	}
	x.wait(24)
	x.reload()
	if plan := x.plan(); plan == nil {
		t.Error("100 hours are over, and nothing may be deleted")
	} else {
		x.wait(1)
		x.apply(&plan.Collected)
	}
}

func TestHolds(t *testing.T) {
	x, slot := dying(t)
	hold := func(id uint64, slot format.Seq, hours int64) *format.Held {
		return &format.Held{ID: id, Slot: slot, Until: x.Time() + anHour + hours*anHour}
	}
	for _, bad := range []*format.Held{hold(1, x.Seq()+1, 1), hold(1, x.Seq(), 7*24+1)} {
		if err := x.try(bad); !errors.Is(err, ErrNonsense) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	x.apply(hold(7, slot-1, 40), hold(3, slot, 100))
	x.reload()
	if holds := x.Holds(x.Time()); len(holds) != 2 || holds[0].ID != 3 {
		t.Fatalf("%+v", holds)
	}
	x.wait(30)
	if plan := x.plan(); plan != nil {
		t.Errorf("held as of slot %d, and %+v may be deleted", slot-1, plan)
	}
	if w, _ := x.Waiting(CollectOptions{Now: x.Time(), Since: x.Time(), Sight: func(format.Seq) int64 { return 0 }}, func(*Seen) bool { return true }); w != WaitHold {
		t.Errorf("waits for %s", w)
	}
	if err := x.try(&format.Collected{Slot: slot, Bottom: 1}); !errors.Is(err, ErrNonsense) {
		t.Errorf("a collection of what is held: %v", err)
	}
	x.wait(11) // the first one has ended
	plan := x.plan()
	if plan == nil || plan.Collected.Slot != slot {
		t.Fatalf("%+v", plan)
	}
	x.apply(hold(7, slot-1, 1)) // what was live then is still there
	if x.plan() != nil {
		t.Error("a hold has no effect")
	}
	x.apply(&format.Held{ID: 7, Slot: slot - 1})
	x.reload()
	if len(x.Holds(0)) != 1 || x.plan() == nil {
		t.Errorf("%+v", x.Holds(0))
	}
	x.apply(&plan.Collected)
	if err := x.try(hold(8, slot-1, 1)); !errors.Is(err, ErrNonsense) {
		t.Errorf("a hold of what is deleted: %v", err)
	}
	x.apply(hold(3, slot-1, -1), hold(3, slot, 2)) // ended, and begun again
	for id := range uint64(HoldsMax - 1) {
		x.apply(hold(100+id, slot, 100))
	}
	if err := x.try(hold(9, slot, 50)); err != nil {
		t.Errorf("a hold after one has ended: %v", err)
	}
	if err := x.try(hold(10, slot, 1)); !errors.Is(err, ErrNonsense) {
		t.Errorf("hold %d: %v", HoldsMax+1, err)
	}
	if err := x.try(hold(9, slot, 5)); err != nil {
		t.Errorf("a hold that is renewed: %v", err)
	}
	x.reload()
	x.wait(8) // hold 9 has ended, but is in the list
	x.apply(hold(10, slot, 5))
	x.reload()
	if err := x.try(hold(11, slot, 5), hold(9, slot, 5)); !errors.Is(err, ErrNonsense) {
		t.Errorf("one hold too many: %v", err)
	}
	x.reload()
}

// Below the level with segments, nothing dies.
func TestNoHoldsBelowSegments(t *testing.T) {
	s := New()
	for _, x := range []format.Entry{&format.Held{ID: 1, Slot: 1, Until: 5}, &format.DelaySet{Delay: time.Hour}} {
		if err := s.Apply(&format.Commit{Seq: 1, Time: 1, Entries: []format.Entry{x}}); !errors.Is(err, ErrNonsense) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func TestInvalidKeepingIsNotRead(t *testing.T) {
	x := newCollectedLog(t)
	body := x.View().Encode()
	hold := func(id byte) []byte { return []byte{id, 0, 0, 0, 0, 0, 0, 0, 1, 9} }
	for _, end := range [][]byte{
		{0, 0, 0}, {0, 0, 2}, {0, 0, 1, 0, 0, 0, 0}, {0, 0, 1, 1, 0, 0, 1}, {0, 0, 1, 0, 1, 0, 0},
		append([]byte{0, 0, 1, 0, 0, 0, 2}, append(hold(2), hold(1)...)...), append([]byte{0, 0, 1, 0, 0, 0, 2}, hold(2)...),
	} {
		if _, err := Decode(x.Seq(), append(bytes.Clone(body), end...)); err == nil {
			t.Errorf("a snapshot that ends with %v is read", end)
		}
	}
	if _, err := Decode(x.Seq(), append(bytes.Clone(body), append([]byte{0, 0, 1, 0, 0, 0, 1}, hold(2)...)...)); err != nil {
		t.Error(err)
	}
}
