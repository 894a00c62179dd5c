package state

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// What may be deleted is decided here, from the state and two clocks. docs/rfcs/0003 explains the rules.

// Seen is a checkpoint of which the log says that a broker has read all of it.
type Seen struct {
	format.CheckpointSeen
	Time int64 // of the commit that says so: the log's time in microseconds since 1970
}

// collecting is what the state knows about deletion.
type collecting struct {
	delay     time.Duration // how long dead objects stay at least
	floored   int64         // the log's time at which the data floor rose last
	collected format.Collected
	seen      []Seen // by slot; a View shares it
	keeping
}

const (
	seenMemory = int64(unsafe.Sizeof(Seen{}))
	// seenShare bounds how many seen checkpoints the state has: while the last one is less than 1/seenShare of the delay behind the
	// one before it, it gives way to a new one. So some checkpoint always becomes as old as the delay.
	seenShare = 32
)

// Seen returns checkpoints that brokers have read, by slot: the last one, and others of which it may delete what they no
// longer need. The caller must not change the list.
func (s *State) Seen() []Seen { return s.collecting.seen }

// Collected returns up to where brokers have deleted dead objects; zero if they have deleted none.
func (s *State) Collected() format.Collected { return s.collecting.collected }

// DeleteDelay returns how long dead objects stay at least, and 0 below [format.LevelSegments]. See [State.Keeps].
func (s *State) DeleteDelay() time.Duration { return s.collecting.delay }

// Floored returns the log's time, in microseconds since 1970, at which the data floor rose last; 0 if it never did.
func (s *State) Floored() int64 { return s.collecting.floored }

func (d *Draft) takeSeen(x *format.CheckpointSeen) error {
	if d.seen {
		return fmt.Errorf("%w: a commit names two checkpoints", ErrNonsense)
	}
	d.seen = true
	return d.s.CheckSeen(x)
}

// CheckSeen checks an entry for the next commit. The error wraps [ErrNonsense].
func (s *State) CheckSeen(x *format.CheckpointSeen) error {
	last := format.CheckpointSeen{}
	if seen := s.collecting.seen; len(seen) > 0 {
		last = seen[len(seen)-1].CheckpointSeen
	}
	switch {
	case s.level < format.LevelSegments:
		return fmt.Errorf("%w: an entry about a checkpoint at level %d of the log", ErrNonsense, s.level)
	case x.Slot > s.seq || x.Bottom > s.bottom:
		return fmt.Errorf("%w: the checkpoint of slot %d with the bottom %d is not of an earlier state: the last slot is %d, the bottom %d", ErrNonsense, x.Slot, x.Bottom, s.seq, s.bottom)
	case x.Slot < last.Slot || x.Bottom < last.Bottom:
		return fmt.Errorf("%w: the checkpoint of slot %d with the bottom %d is older than that of slot %d with the bottom %d, which was seen before", ErrNonsense, x.Slot, x.Bottom, last.Slot, last.Bottom)
	}
	return nil
}

// see applies an entry that takeSeen has accepted.
func (s *State) see(x *format.CheckpointSeen, now int64) {
	c := &s.collecting
	n := len(c.seen)
	if n > 0 && c.seen[n-1].Slot == x.Slot {
		return
	}
	if n > 1 && c.givesWay(n-1) {
		n--
		s.memory -= seenMemory
	}
	c.seen = append(slices.Clip(c.seen[:n]), Seen{*x, now})
	s.memory += seenMemory
}

func (d *Draft) takeCollected(x *format.Collected) error {
	if d.collected {
		return fmt.Errorf("%w: a commit says twice what is deleted", ErrNonsense)
	}
	d.collected = true
	return d.CheckCollected(x)
}

// CheckCollected checks an entry that says what is deleted, without adding the entry to the commit. The error wraps
// [ErrNonsense].
func (d *Draft) CheckCollected(x *format.Collected) error {
	c := &d.s.collecting
	if d.s.level < format.LevelSegments {
		return fmt.Errorf("%w: an entry about deleted objects at level %d of the log", ErrNonsense, d.s.level)
	}
	if x.Slot <= c.collected.Slot && x.Bottom <= c.collected.Bottom {
		return nil // another broker has said so
	}
	i := slices.IndexFunc(c.seen, func(y Seen) bool { return y.Slot == x.Slot })
	hold, held := c.held(d.time)
	switch {
	case i < 0 || i == len(c.seen)-1:
		return fmt.Errorf("%w: objects that died up to slot %d can't be deleted: no checkpoint of that slot was seen, or no later one", ErrNonsense, x.Slot)
	case d.time-c.seen[i].Time < c.keeps(d.time).Microseconds():
		return fmt.Errorf("%w: objects that died up to slot %d can't be deleted: the checkpoint was seen %v ago, less than %v", ErrNonsense, x.Slot, time.Duration(d.time-c.seen[i].Time)*time.Microsecond, c.keeps(d.time))
	case held && x.Slot > hold:
		return fmt.Errorf("%w: objects that died up to slot %d can't be deleted: somebody copies the log as of slot %d", ErrNonsense, x.Slot, hold)
	case x.Bottom > max(c.seen[i].Bottom, c.collected.Bottom):
		return fmt.Errorf("%w: commits below %d can't be deleted: the bottom after slot %d was %d", ErrNonsense, x.Bottom, x.Slot, c.seen[i].Bottom)
	}
	return nil
}

// DeleteDelay is [State.DeleteDelay].
func (d *Draft) DeleteDelay() time.Duration { return d.s.collecting.delay }

// NextFloor returns the slot to which the data floor may rise: one whose checkpoint was seen at least the given time ago. It
// returns 0 if no such checkpoint was seen, or if the floor has risen within the delay.
func (d *Draft) NextFloor(age time.Duration) (floor format.Seq) {
	c := &d.s.collecting
	if c.floored > 0 && d.time-c.floored < c.delay.Microseconds() {
		return 0
	}
	for _, x := range c.seen {
		if d.time-x.Time >= age.Microseconds() && x.Slot > d.dataFloor {
			floor = x.Slot
		}
	}
	return floor
}

// collect applies an entry that takeCollected has accepted: the state forgets what is deleted.
func (s *State) collect(x *format.Collected) {
	c := &s.collecting
	c.collected = format.Collected{Slot: max(c.collected.Slot, x.Slot), Bottom: max(c.collected.Bottom, x.Bottom)}
	n := slices.IndexFunc(s.dead, func(d Dead) bool { return d.Slot > c.collected.Slot })
	if n < 0 {
		n = len(s.dead)
	}
	s.dead = slices.Clone(s.dead[n:]) // so that the memory of the others is free
	s.memory -= int64(n) * deadMemory
	old := slices.IndexFunc(c.seen, func(y Seen) bool { return y.Slot >= c.collected.Slot })
	c.seen = slices.Clone(c.seen[max(old, 0):])
	s.memory -= int64(max(old, 0)) * seenMemory
}

// CollectOptions are the clocks of a broker that deletes objects.
type CollectOptions struct {
	Now int64 // the store's time in microseconds since 1970
	// Delay is how long dead objects stay, if that is longer than the log says.
	Delay time.Duration
	// Error is by how much the broker's clock may be ahead of the store's.
	Error time.Duration
	// Boot and Since are the boot of this machine, and the time since then in microseconds.
	Boot  format.BootID
	Since int64
	// Sight tells when this process first knew that a checkpoint was seen, in microseconds since the boot of this machine.
	Sight func(slot format.Seq) int64

	// Newer and Floor are for a preview of what may be deleted once a newer checkpoint was seen, and the data floor has risen.
	Newer bool
	Floor format.Seq
}

// Collection is what a broker may delete: commits below a bottom, other objects that died up to a slot, and data objects that
// the log can never refer to.
type Collection struct {
	// Collected tells which objects are deleted when the collection is done.
	Collected format.Collected
	// From is the first slot whose commit may still exist; the commits before it are deleted, but for those in Keep.
	From format.Seq
	// Keep has the commits below Collected.Bottom that have to stay.
	Keep map[format.Seq]bool
	// Data are the data objects that may go.
	Data []format.DataRef
	// Known has the data objects below Floor that the log knows, except those in Data. All others below Floor are orphans, and may go.
	Known map[DataKey]bool
	Floor format.Seq
	// Pages are those that the next checkpoint needs. If one is missing, nothing may go: without it, the log can be opened only from
	// older objects.
	Pages []format.Page
}

// DataKey names a data object.
type DataKey struct {
	Seq format.Seq
	ID  uint64
}

// PlanCollection returns what a broker may delete; nil if no checkpoint has become old enough since the last collection.
func (s *State) PlanCollection(o CollectOptions) *Collection {
	c := &s.collecting
	old := s.oldEnough(o)
	if old == nil || old.Slot <= c.collected.Slot {
		return nil
	}
	x := &Collection{
		Collected: format.Collected{Slot: old.Slot, Bottom: max(old.Bottom, c.collected.Bottom)}, From: max(c.collected.Bottom, 1), Floor: max(s.dataFloor, o.Floor),
		Keep: map[format.Seq]bool{}, Known: map[DataKey]bool{}, Pages: s.Pages(),
	}
	for object := range s.AllObjects() {
		x.keep(object)
	}
	for _, d := range s.dead {
		if d.Slot > old.Slot {
			continue
		}
		if key := (DataKey{format.Seq(d.Seq), d.Tag}); d.Data {
			x.Data = append(x.Data, format.DataRef{Seq: key.Seq, ID: key.ID, Size: d.Size})
			delete(x.Known, key)
		} else {
			delete(x.Keep, format.Seq(d.Seq))
		}
	}
	return x
}

func (x *Collection) keep(o Object) {
	switch slot := format.Seq(o.Seq); {
	case o.Data && slot < x.Floor:
		x.Known[DataKey{slot, o.Tag}] = true
	case !o.Data && slot < x.Collected.Bottom:
		x.Keep[slot] = true
	}
}

// oldEnough returns the newest checkpoint that was seen long enough ago and before another one, so that it is not the newest
// one; nil if no such checkpoint was seen.
func (s *State) oldEnough(o CollectOptions) *Seen {
	c := &s.collecting
	hold, held := c.held(o.Now)
	for i := s.beforeNewest(o) - 1; i >= 0; i-- {
		if c.seen[i].age(o) >= max(c.keeps(o.Now), o.Delay) && (!held || c.seen[i].Slot <= hold) {
			return &c.seen[i]
		}
	}
	return nil
}

// beforeNewest returns how many of the seen checkpoints, the first ones, are not the newest one.
func (s *State) beforeNewest(o CollectOptions) int {
	c := &s.collecting
	n := len(c.seen)
	if o.Newer && (n < 2 || !c.givesWay(n-1)) {
		return n
	}
	return max(n-1, 0)
}

// givesWay tells whether the seen checkpoint i, the last one, gives way to a newer one.
func (c *collecting) givesWay(i int) bool {
	return c.seen[i].Time-c.seen[i-1].Time < c.keeps(c.seen[i].Time).Microseconds()/seenShare
}

// age returns how long ago a checkpoint was seen, at least: by the store's clock and by one that goes on while this machine is
// suspended. If another machine has seen it, or this one before it was started, or if the clocks disagree, it counts from
// when this process first knew it.
func (x *Seen) age(o CollectOptions) time.Duration {
	store := o.Now - x.Time
	local := o.Since - o.Sight(x.Slot)
	if x.sameBoot(o) {
		local = o.Since - x.Since
	}
	return time.Duration(min(store, local)) * time.Microsecond
}

// sameBoot tells whether a process of this boot of this machine has seen the checkpoint, and the clocks agree about when.
func (x *Seen) sameBoot(o CollectOptions) bool {
	since := o.Since - x.Since
	return x.Boot == o.Boot && x.Boot != (format.BootID{}) && since >= 0 && since <= o.Now-x.Time+o.Error.Microseconds()
}
