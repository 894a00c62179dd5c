package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The entry 30, spent, says which requests to the store its writer has sent since its last such entry, failed ones too. In varints
// (all unsigned):
//
//	number of causes; then for each, ascending
//	  cause, minus the one before: 1 start, 2 append, 3 follow, 4 read, 5 checkpoint, 6 compact, 7 delete; 31 at most
//	  creates, gets, lists, deletes, bytes sent, bytes received; one of these is not 0
//
// Bytes are those of the bodies of creates and gets.
const entrySpent = 30

// Cause is what a request to the store is for.
type Cause uint32

// The causes. Later versions of Seb may have more, up to [CausesMax].
const (
	CauseStart      Cause = iota + 1 // opening the log: the test of the store, and reading up to the end
	CauseAppend                      // commits and data objects
	CauseFollow                      // reading the log: commits of other brokers, where the log ends, and whether all of it is there
	CauseRead                        // records for readers
	CauseCheckpoint                  // writing checkpoints and pages
	CauseCompact                     // moving records into segments
	CauseDelete                      // deleting dead objects

	CausesMax Cause = 31 // bounds what the state keeps
)

// String returns the name of a cause.
func (c Cause) String() string {
	switch c {
	case CauseStart:
		return "start"
	case CauseAppend:
		return "append"
	case CauseFollow:
		return "follow"
	case CauseRead:
		return "read"
	case CauseCheckpoint:
		return "checkpoint"
	case CauseCompact:
		return "compact"
	case CauseDelete:
		return "delete"
	default:
		return fmt.Sprintf("cause %d", uint32(c))
	}
}

// StoreUse counts requests to a store, failed ones too, and the bytes of their bodies.
type StoreUse struct {
	Creates, Gets, Lists, Deletes int64
	SentBytes, ReceivedBytes      int64 // bodies of creates; bodies of gets
}

// Plus returns the sum of two uses. A number that would be too large is the largest one.
func (u StoreUse) Plus(v StoreUse) StoreUse {
	sum, add := u.numbers(), v.numbers()
	for i := range sum {
		if sum[i] += add[i]; sum[i] < 0 {
			sum[i] = math.MaxInt64
		}
	}
	return useOf(sum)
}

// Minus returns what is in u and not in v. Each number of v is at most that of u.
func (u StoreUse) Minus(v StoreUse) StoreUse {
	left, sub := u.numbers(), v.numbers()
	for i := range left {
		left[i] -= sub[i]
	}
	return useOf(left)
}

// Covers reports whether each number of v is at most that of u.
func (u StoreUse) Covers(v StoreUse) bool {
	all, part := u.numbers(), v.numbers()
	for i := range all {
		if all[i] < part[i] {
			return false
		}
	}
	return true
}

func (u StoreUse) numbers() [6]int64 {
	return [6]int64{u.Creates, u.Gets, u.Lists, u.Deletes, u.SentBytes, u.ReceivedBytes}
}

func useOf(n [6]int64) StoreUse { return StoreUse{n[0], n[1], n[2], n[3], n[4], n[5]} }

// AppendUse appends a use in six unsigned varints.
func AppendUse(b []byte, u StoreUse) []byte {
	for _, n := range u.numbers() {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// ReadUse reads what AppendUse has written, from a function that returns the next number.
func ReadUse(next func() int64) StoreUse {
	var n [6]int64
	for i := range n {
		n[i] = next()
	}
	return useOf(n)
}

// CauseUse is the use of a store for a cause.
type CauseUse struct {
	Cause Cause
	StoreUse
}

// Spent says which requests to the store the writer of the commit, or of the bundle, has sent since its last such entry.
type Spent struct {
	Causes []CauseUse // ascending; each has a number that is not 0
}

func (*Spent) kind() uint16 { return entrySpent }

// Bytes returns the body of the entry.
func (x *Spent) Bytes() []byte { return x.append(nil) }

func (x *Spent) size() int { return len(x.append(nil)) }

func (x *Spent) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.Causes)))
	var before Cause
	for _, c := range x.Causes {
		b = binary.AppendUvarint(b, uint64(c.Cause-before))
		b = AppendUse(b, c.StoreUse)
		before = c.Cause
	}
	return b
}

// DecodeSpent reads the body of the entry.
func DecodeSpent(b []byte) (*Spent, error) {
	v := varints{rest: b}
	x := &Spent{}
	var before Cause
	for range v.unsigned(uint64(CausesMax)) {
		more := Cause(v.unsigned(uint64(CausesMax - before)))
		c := CauseUse{before + more, ReadUse(func() int64 { return int64(v.unsigned(math.MaxInt64)) })}
		if v.bad || more == 0 || c.StoreUse == (StoreUse{}) {
			return nil, Corrupt("an entry of kind %d is cut off, or its causes don't ascend or have no requests", entrySpent)
		}
		x.Causes, before = append(x.Causes, c), c.Cause
	}
	if v.bad || len(v.rest) > 0 || len(x.Causes) == 0 {
		return nil, Corrupt("an entry of kind %d is cut off or too long, or has no causes", entrySpent)
	}
	return x, nil
}
