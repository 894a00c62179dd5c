package state

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// How long dead objects stay is a matter of the log, not of one broker's flags: another broker, or seb gc, would not know them. At
// least it is the delay with which the level of the log was raised. Somebody who copies the log holds it.

const (
	// HoldsMax is how many holds a log has at most.
	HoldsMax = 64
	// HoldMax is how long a hold lasts at most without being renewed.
	HoldMax = 7 * 24 * time.Hour
	// DelayMax is how long dead objects may stay at most.
	DelayMax = 10 * 365 * 24 * time.Hour

	holdMemory = int64(unsafe.Sizeof(format.Held{}))
)

// keeping says how long dead objects stay. Its zero value says that they stay for the log's first delay.
type keeping struct {
	delay time.Duration // from now on; 0 is the log's first delay
	next  time.Duration // from the time from on, if that is not 0
	from  int64         // the log's time in microseconds
	holds []format.Held // by id; a View shares the list
}

// Keeps returns how long dead objects stay at a time of the log in microseconds, and 0 below [format.LevelSegments].
func (s *State) Keeps(now int64) time.Duration { return s.collecting.keeps(now) }

// NextKeeps returns how long dead objects will stay from a later time of the log on; from is 0 if no change is due.
func (s *State) NextKeeps() (delay time.Duration, from int64) {
	k := &s.collecting.keeping
	return max(s.collecting.delay, k.next), k.from
}

// Holds returns the holds that a time of the log, in microseconds, has not ended, by id.
func (s *State) Holds(now int64) []format.Held {
	return slices.DeleteFunc(slices.Clone(s.collecting.holds), func(x format.Held) bool { return x.Until <= now })
}

func (c *collecting) keeps(now int64) time.Duration {
	delay := c.keeping.delay
	if c.from != 0 && now >= c.from {
		delay = c.next
	}
	return max(c.delay, delay)
}

// holding reports whether the state has a hold, even one that has ended.
func (c *collecting) holding(id uint64) bool {
	return slices.ContainsFunc(c.holds, func(x format.Held) bool { return x.ID == id })
}

// held returns the first slot after which something may be live that a hold protects; ok is false if nothing is held.
func (c *collecting) held(now int64) (slot format.Seq, ok bool) {
	for _, x := range c.holds {
		if x.Until > now && (!ok || x.Slot < slot) {
			slot, ok = x.Slot, true
		}
	}
	return slot, ok
}

// CheckDelay checks an entry that says how long dead objects stay. The error wraps [ErrNonsense].
func (d *Draft) CheckDelay(x *format.DelaySet) error {
	switch c := &d.s.collecting; {
	case d.s.level < format.LevelSegments:
		return fmt.Errorf("%w: an entry about dead objects at level %d of the log", ErrNonsense, d.s.level)
	case x.Delay < c.delay || x.Delay > DelayMax || x.Delay%time.Microsecond != 0:
		return fmt.Errorf("%w: dead objects can't stay for %v: whole microseconds between %v and %v are possible", ErrNonsense, x.Delay, c.delay, DelayMax)
	}
	return nil
}

// setDelay applies an entry that [Draft.Take] has accepted. A shorter delay comes into force once the log's first delay is over: so
// that a mistake can be seen, and put right, before something is deleted.
func (s *State) setDelay(x *format.DelaySet, now int64) {
	c := &s.collecting
	if present := c.keeps(now); x.Delay < present {
		c.keeping.delay, c.next, c.from = present, x.Delay, now+c.delay.Microseconds()
		return
	}
	c.keeping.delay, c.next, c.from = x.Delay, 0, 0
}

func (d *Draft) takeHeld(x *format.Held) error {
	err := d.CheckHeld(x)
	if err == nil && x.Until > d.time {
		d.holds++
	}
	return err
}

// CheckHeld checks an entry that holds the log, without adding the entry to the commit. The error wraps [ErrNonsense].
func (d *Draft) CheckHeld(x *format.Held) error {
	c := &d.s.collecting
	known := slices.ContainsFunc(c.holds, func(y format.Held) bool { return y.ID == x.ID && y.Until > d.time })
	switch {
	case d.s.level < format.LevelSegments:
		return fmt.Errorf("%w: an entry about dead objects at level %d of the log", ErrNonsense, d.s.level)
	case x.Until <= d.time:
		return nil // it ends a hold
	case x.Until > d.time+HoldMax.Microseconds():
		return fmt.Errorf("%w: a hold can last for at most %v", ErrNonsense, HoldMax)
	case x.Slot < c.collected.Slot || x.Slot > d.s.seq:
		return fmt.Errorf("%w: the log can't be held as of slot %d: what died up to slot %d is deleted, and the last slot is %d", ErrNonsense, x.Slot, c.collected.Slot, d.s.seq)
	case !known && len(d.s.Holds(d.time))+d.holds >= HoldsMax:
		return fmt.Errorf("%w: %d copies of the log are being made, and no further one may be begun", ErrNonsense, HoldsMax)
	}
	return nil
}

// hold applies an entry that takeHeld has accepted, and forgets the holds that have ended.
func (s *State) hold(x *format.Held, now int64) {
	c := &s.collecting
	before := len(c.holds)
	holds := slices.DeleteFunc(slices.Clone(c.holds), func(y format.Held) bool { return y.ID == x.ID || y.Until <= now })
	if x.Until > now {
		i, _ := slices.BinarySearchFunc(holds, x.ID, compareHold)
		holds = slices.Insert(holds, i, *x)
	}
	c.holds = holds
	s.memory += int64(len(holds)-before) * holdMemory
}

func compareHold(x format.Held, id uint64) int {
	switch {
	case x.ID < id:
		return -1
	case x.ID > id:
		return 1
	}
	return 0
}

// section returns the section of the snapshot about how long dead objects stay.
func (k *keeping) section() []byte {
	if k.isZero() {
		return []byte{0}
	}
	b := []byte{1}
	for _, u := range []uint64{uint64(k.delay.Microseconds()), uint64(k.next.Microseconds()), uint64(k.from), uint64(len(k.holds))} {
		b = binary.AppendUvarint(b, u)
	}
	for _, x := range k.holds {
		b = binary.AppendUvarint(binary.LittleEndian.AppendUint64(b, x.ID), uint64(x.Slot))
		b = binary.AppendUvarint(b, uint64(x.Until))
	}
	return b
}

func (k *keeping) isZero() bool { return k.delay == 0 && k.from == 0 && len(k.holds) == 0 }

// decodeKeeping reads the section, and reports whether it has something.
func (s *State) decodeKeeping(r *reader) bool {
	if r.max(1) == 0 {
		return false
	}
	k := &s.collecting.keeping
	delay := func() time.Duration { return time.Duration(r.max(math.MaxInt64/1000)) * time.Microsecond }
	k.delay, k.next, k.from = delay(), delay(), r.int64()
	for range r.count(10) {
		x := format.Held{ID: r.fixed64(), Slot: format.Seq(r.uvarint()), Until: r.int64()}
		if n := len(k.holds); r.err == nil && (n > 0 && x.ID <= k.holds[n-1].ID || n == HoldsMax) {
			r.fail("there are more than %d holds, or %016x is listed twice", HoldsMax, x.ID)
		}
		if r.err != nil {
			return false
		}
		k.holds = append(k.holds, x)
		s.memory += holdMemory
	}
	if r.err == nil && (k.isZero() || (k.from == 0) != (k.next == 0)) {
		r.fail("how long dead objects stay is invalid: %v, and %v from %d µs since 1970 on", k.delay, k.next, k.from)
	}
	return true
}
