package format

import (
	"math"
	"time"
)

// The entries about the deletion of objects, by kind:
//
//	28 checkpoint seen: slot (uint64), bottom (uint64), boot id of the reader's machine (16 bytes), time since boot in
//	   microseconds (int64)
//	29 collected: slot (uint64), bottom (uint64)
//	35 delay set: delay in microseconds (int64)
//	39 held: id (uint64), slot (uint64), until (int64, microseconds since 1970)
const (
	entryCheckpointSeen = 28
	entryCollected      = 29
	entryDelaySet       = 35
	entryHeld           = 39

	checkpointSeenSize = 40
	collectedSize      = 16
	heldSize           = 24
)

// BootID names a boot of a machine; it is zero if the machine has no name for it.
type BootID [16]byte

// CheckpointSeen says that the writer of the commit has read all of a checkpoint, and that the checkpoint has the state
// that the writer had after that slot.
type CheckpointSeen struct {
	Slot Seq
	// Bottom is the bottom of that state: all batches of commits below it were in segments, or stayed where they were.
	Bottom Seq
	// Boot and Since tell when the writer began to read: in which boot of its machine, and how many microseconds after it.
	Boot  BootID
	Since int64
}

// Collected says that the writer has deleted all objects that died up to a slot, except commits from Bottom on, and that the
// store no longer lists them.
type Collected struct{ Slot, Bottom Seq }

// DelaySet says how long dead objects stay from now on. A delay that is shorter than before comes into force later.
type DelaySet struct{ Delay time.Duration }

// Held says that until some time of the log, nothing may be deleted that was live after a slot: somebody copies the log as it was
// then. It replaces an earlier entry with the same id; if Until has passed, it only ends that one.
type Held struct {
	ID    uint64
	Slot  Seq
	Until int64 // microseconds since 1970
}

func (*CheckpointSeen) kind() uint16 { return entryCheckpointSeen }
func (*Collected) kind() uint16      { return entryCollected }
func (*DelaySet) kind() uint16       { return entryDelaySet }
func (*Held) kind() uint16           { return entryHeld }

func (*CheckpointSeen) size() int { return checkpointSeenSize }
func (*Collected) size() int      { return collectedSize }
func (*DelaySet) size() int       { return 8 }
func (*Held) size() int           { return heldSize }

func (x *CheckpointSeen) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(x.Slot)), uint64(x.Bottom))
	return le.AppendUint64(append(b, x.Boot[:]...), uint64(x.Since))
}

func (x *Collected) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, uint64(x.Slot)), uint64(x.Bottom))
}

func (x *DelaySet) append(b []byte) []byte { return le.AppendUint64(b, uint64(x.Delay.Microseconds())) }

func (x *Held) append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, x.ID), uint64(x.Slot)), uint64(x.Until))
}

func decodeDelaySet(b []byte) (*DelaySet, error) {
	delay := int64(le.Uint64(b))
	if delay <= 0 || delay > math.MaxInt64/1000 {
		return nil, Corrupt("an entry of kind %d has an invalid delay of %d µs", entryDelaySet, delay)
	}
	return &DelaySet{time.Duration(delay) * time.Microsecond}, nil
}

func decodeHeld(b []byte) (*Held, error) {
	x := &Held{ID: le.Uint64(b), Slot: Seq(le.Uint64(b[8:])), Until: int64(le.Uint64(b[16:]))}
	if x.Slot == 0 || x.Until < 0 {
		return nil, Corrupt("an entry of kind %d has invalid fields: slot %d, until %d µs since 1970", entryHeld, x.Slot, x.Until)
	}
	return x, nil
}

func decodeCheckpointSeen(b []byte) (*CheckpointSeen, error) {
	x := &CheckpointSeen{Slot: Seq(le.Uint64(b)), Bottom: Seq(le.Uint64(b[8:])), Boot: BootID(b[16:32]), Since: int64(le.Uint64(b[32:]))}
	if x.Slot == 0 || x.Bottom > x.Slot+1 || x.Since < 0 {
		return nil, Corrupt("an entry of kind %d has invalid fields: slot %d, bottom %d, %d µs since boot", entryCheckpointSeen, x.Slot, x.Bottom, x.Since)
	}
	return x, nil
}

func decodeCollected(b []byte) (*Collected, error) {
	x := &Collected{Slot: Seq(le.Uint64(b)), Bottom: Seq(le.Uint64(b[8:]))}
	if x.Slot == 0 || x.Bottom > x.Slot+1 {
		return nil, Corrupt("an entry of kind %d has invalid fields: slot %d, bottom %d", entryCollected, x.Slot, x.Bottom)
	}
	return x, nil
}
