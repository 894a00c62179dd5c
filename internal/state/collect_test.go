package state

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/internal/format"
)

// collected is a log of level 6 whose commits are an hour apart; objects stay for 24 hours.
type collectedLog struct {
	t *testing.T
	*State
}

const anHour = int64(time.Hour / time.Microsecond)

func newCollectedLog(t *testing.T) collectedLog {
	x := collectedLog{t, New()}
	x.apply(&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"}, &format.LevelRaised{Level: format.LevelSegments, DeleteDelay: 24 * time.Hour})
	return x
}

func (x collectedLog) try(entries ...format.Entry) error {
	c := &format.Commit{Seq: x.Seq() + 1, Time: x.Time() + anHour, Entries: entries}
	for _, it := range entries {
		if b, ok := it.(*format.Batch); ok {
			c.PayloadSize += b.Size
		}
	}
	return x.Apply(c)
}

func (x collectedLog) apply(entries ...format.Entry) {
	x.t.Helper()
	if err := x.try(entries...); err != nil {
		x.t.Fatal(err)
	}
}

// wait lets hours pass, with a commit each.
func (x collectedLog) wait(hours int) {
	for range hours {
		x.apply()
	}
}

// append appends a record in a commit of its own.
func (x collectedLog) append() {
	_, end := x.Topic("t").Partitions[0].Start, x.Topic("t").Partitions[0].End
	x.apply(&format.Batch{Topic: 1, Base: end, Count: 1, Size: 100})
}

// segment moves all batches of the tail into a segment.
func (x collectedLog) segment(id uint64) {
	p := &x.Topic("t").Partitions[0]
	x.apply(&format.SegmentAdded{
		Ref: format.DataRef{Seq: x.Seq(), ID: id, Size: 1000}, Level: 1, Slot: x.Seq(), Table: format.TableRef{Pos: 900, IndexSize: 50},
		First: format.CommitTime{Seq: 1}, Last: format.CommitTime{Seq: x.Seq(), Time: x.Time()},
		Ranges: []format.SegmentRange{{Topic: 1, Base: p.tailBase(), End: p.End, Records: 1, Bytes: 10}},
	})
}

func (x collectedLog) see(slot format.Seq) {
	x.apply(&format.CheckpointSeen{Slot: slot, Bottom: x.Bottom()})
}

// plan returns what a collector plans whose clocks agree with the log.
func (x collectedLog) plan() *Collection {
	return x.PlanCollection(CollectOptions{Now: x.Time(), Since: x.Time(), Sight: func(format.Seq) int64 { return 0 }})
}

func TestCollection(t *testing.T) {
	x := newCollectedLog(t)
	x.append()
	x.append()
	x.segment(7) // the commits 2 and 3 are dead
	if x.Bottom() != 4 || len(x.Dead()) != 0 {
		t.Fatalf("bottom %d, dead %v", x.Bottom(), x.Dead())
	}
	x.see(4)
	x.wait(30)
	if plan := x.plan(); plan != nil {
		t.Fatalf("the newest checkpoint counts: %+v", plan)
	}
	x.see(x.Seq())
	x.apply(&format.StartMoved{Topic: 1, Start: 2}) // the segment is dead
	plan := x.plan()
	want := &Collection{Collected: format.Collected{Slot: 4, Bottom: 4}, From: 1, Keep: map[format.Seq]bool{}, Known: map[DataKey]bool{}}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Fatal(diff)
	}
	second := x.Seen()[1].Slot
	x.wait(1)
	for _, bad := range []format.Collected{{Slot: 3, Bottom: 4}, {Slot: second, Bottom: 4}, {Slot: 4, Bottom: 5}} {
		if err := x.try(&bad); !errors.Is(err, ErrNonsense) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	x.apply(&plan.Collected)
	x.apply(&plan.Collected) // by another broker
	if x.plan() != nil || len(x.Seen()) != 2 {
		t.Fatalf("%+v, %+v", x.plan(), x.Seen())
	}

	x.see(x.Seq()) // it takes the place of no other: the last is more than 45 minutes after the one before
	x.wait(24)
	x.see(x.Seq())
	plan = x.plan()
	if plan == nil || len(plan.Data) != 1 || plan.Data[0].ID != 7 {
		t.Fatalf("%+v", plan)
	}
	x.apply(&plan.Collected)
	if len(x.Dead()) != 0 {
		t.Fatalf("%+v", x.Dead())
	}
}

// TestDeletedRecordsNeedNoSegment checks that commits go whose records were deleted, although nothing is left to compact, and that
// the log rests after that.
func TestDeletedRecordsNeedNoSegment(t *testing.T) {
	x := newCollectedLog(t)
	x.append() // commits 2 to 4
	x.append()
	x.append()
	x.apply(&format.StartMoved{Topic: 1, Start: 1})
	if x.Bottom() != 3 {
		t.Fatalf("bottom %d: the first commit with a record is 3", x.Bottom())
	}
	x.apply(&format.StartMoved{Topic: 1, Start: 3})
	deleted := x.Seq()
	if x.Bottom() != deleted {
		t.Fatalf("bottom %d: no record is left, so only the last commit stays", x.Bottom())
	}
	x.see(deleted)
	x.see(x.Seq())
	x.wait(30)
	plan := x.plan()
	if plan == nil || plan.Collected.Bottom != deleted || plan.Collected.Slot != deleted {
		t.Fatalf("%+v", plan)
	}
	x.apply(&plan.Collected)
	if x.Bottom() != deleted || x.CoversDead() != nil || x.plan() != nil {
		t.Fatalf("bottom %d, plan %+v: the commit that says what is deleted must not be the next to delete", x.Bottom(), x.plan())
	}
}

// TestSeenIsThinned checks that some checkpoint always grows as old as the delay, however often one is seen.
func TestSeenIsThinned(t *testing.T) {
	x := newCollectedLog(t)
	most := 0
	for range 10_000 {
		c := &format.Commit{Seq: x.Seq() + 1, Time: x.Time() + anHour/60, Entries: []format.Entry{&format.CheckpointSeen{Slot: x.Seq(), Bottom: x.Bottom()}}}
		if err := x.Apply(c); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(x.Seen()))
		if plan := x.plan(); plan != nil {
			x.apply(&plan.Collected)
		}
	}
	if collected := x.Collected().Slot; most > seenShare+4 || x.Seq()-collected > 2000 {
		t.Fatalf("%d checkpoints are remembered; of %d slots, %d are collected", most, x.Seq(), collected)
	}
}

func TestAgeOfACheckpoint(t *testing.T) {
	const hour = anHour
	here, elsewhere := format.BootID{1}, format.BootID{2}
	for _, test := range []struct {
		name       string
		seenBy     format.BootID
		now, since int64 // hours since the checkpoint was seen by the store's clock, and by this machine's
		want       int64
	}{
		{"both clocks agree", here, 30, 30, 30},
		{"this machine's clock is behind", here, 30, 20, 20},
		{"the store's clock has jumped", here, 1000, 2, 2},
		{"the store's clock is behind", here, 10, 10, 10},
		{"this machine's clock is ahead: what counts is when this process first knew it", here, 10, 30, 5},
		{"this machine's clock has gone back", here, 10, -3, 5},
		{"another machine has seen it", elsewhere, 30, 30, 5},
		{"no boot is known", format.BootID{}, 30, 30, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := Seen{CheckpointSeen: format.CheckpointSeen{Slot: 9, Boot: test.seenBy, Since: 100 * hour}, Time: 500 * hour}
			since := (100 + test.since) * hour
			boot := here
			if test.seenBy == (format.BootID{}) {
				boot = test.seenBy
			}
			o := CollectOptions{Now: (500 + test.now) * hour, Since: since, Boot: boot, Error: time.Hour, Sight: func(slot format.Seq) int64 {
				if slot != 9 {
					t.Errorf("slot %d", slot)
				}
				return since - 5*hour
			}}
			if got := x.age(o); got != time.Duration(test.want)*time.Hour {
				t.Errorf("%v", got)
			}
		})
	}
}
