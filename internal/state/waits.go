package state

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// Wait says why dead objects may not be deleted yet.
type Wait string

// What dead objects wait for, in the order in which they do.
const (
	// WaitLevel: the log is below [format.LevelSegments], where brokers delete nothing.
	WaitLevel Wait = "level"
	// WaitCompaction: records of the same age have to be moved into segments first.
	WaitCompaction Wait = "compaction"
	// WaitSeen: no checkpoint was seen since the objects died.
	WaitSeen Wait = "checkpoint"
	// WaitNewer: a checkpoint was seen since the objects died, but no newer one.
	WaitNewer Wait = "newer checkpoint"
	// WaitAge: the checkpoint is younger than the delay.
	WaitAge Wait = "age"
	// WaitSight: the delay counts from when this process first knew the checkpoint: no process of this boot of this machine has
	// said that it has read the checkpoint, or the clocks disagree.
	WaitSight Wait = "sight"
	// WaitHold: somebody copies the log as it was before the objects died.
	WaitHold Wait = "hold"
	// WaitFloor: no commit refers to the objects, but a later one may, until the data floor rises above them.
	WaitFloor Wait = "floor"
	// WaitNext: nothing. The next collection deletes the objects.
	WaitNext Wait = "next collection"
)

// Waiting returns what dead objects wait for, if covers tells of which checkpoints they had died: all from some checkpoint
// on. It returns "" if they may be deleted. until is the time of the store's clock, in microseconds since 1970, from
// which on they may be deleted, if nothing else happens: by this process if wait is WaitAge, and if it is WaitSight, by a process
// that has run since the checkpoint was seen.
func (s *State) Waiting(o CollectOptions, covers func(*Seen) bool) (wait Wait, until int64) {
	c := &s.collecting
	delay := max(c.keeps(o.Now), o.Delay)
	hold, held := c.held(o.Now)
	wait = WaitSeen
	for i := range c.seen {
		x := &c.seen[i]
		switch {
		case !covers(x):
			continue
		case i >= s.beforeNewest(o):
			if wait == WaitSeen {
				wait = WaitNewer
			}
			continue
		}
		age := x.age(o)
		if held && x.Slot > hold && age >= delay {
			return WaitHold, 0
		}
		if age >= delay {
			return "", 0
		}
		old := x.Time + delay.Microseconds()
		if x.sameBoot(o) {
			if old = max(old, o.Now+(delay-age).Microseconds()); wait != WaitAge || old < until {
				wait, until = WaitAge, old
			}
		} else if wait != WaitAge && (wait != WaitSight || old < until) {
			wait, until = WaitSight, old
		}
	}
	return wait, until
}

// Covered tells whether all that is dead will be deleted as it becomes old, without a further checkpoint: a checkpoint that
// this boot of this machine has seen covers all of it, and is not the last one. If the boot has no name, any boot counts.
func (s *State) Covered(boot format.BootID) bool {
	c := &s.collecting
	covers := s.CoversDead()
	if covers == nil {
		return true
	}
	for i := range len(c.seen) - 1 {
		if x := &c.seen[i]; covers(x.Slot, x.Bottom) && (x.Boot == boot || boot == format.BootID{}) {
			return true
		}
	}
	return false
}

// DeadData reports whether any data object is dead.
func (s *State) DeadData() bool {
	return slices.ContainsFunc(s.dead, func(d Dead) bool { return d.Data })
}

// CoversDead returns a function that tells whether a checkpoint of a slot, with a bottom, shows that all is dead which is dead
// now; nil if nothing is.
func (s *State) CoversDead() func(slot, bottom format.Seq) bool {
	var last format.Seq
	for _, d := range s.dead {
		last = max(last, d.Slot)
	}
	if last == 0 && s.bottom <= max(s.collecting.collected.Bottom, 1) {
		return nil
	}
	return func(slot, bottom format.Seq) bool { return slot >= last && bottom >= s.bottom }
}
