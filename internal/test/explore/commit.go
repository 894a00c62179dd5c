package explore

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
)

// commit is a commit of the model, together with all earlier commits of its log. It has the entries of
// the slots, 8 bits each, with slot 1 in the lowest bits: 0x0201 has the entry 0x02 in slot 2, after the
// entry 0x01 in slot 1.
//
// So a commit also stands for a log that ends with it, such as what a broker has applied, or what a
// checkpoint contains. 0 is the empty log.
type commit uint64

const (
	slotBits = 8
	slotsMax = 64 / slotBits
)

// seq returns the commit's slot.
func (c commit) seq() int { return (bits.Len64(uint64(c)) + slotBits - 1) / slotBits }

// at returns the entry in a slot.
func (c commit) at(slot int) entry { return entry(c >> (slotBits * (slot - 1))) }

// prefix returns the log up to a slot.
func (c commit) prefix(slot int) commit { return c & (1<<(slotBits*slot) - 1) }

// last returns the entry of the commit itself.
func (c commit) last() entry { return c.at(c.seq()) }

// prev returns the previous commit.
func (c commit) prev() commit { return c.prefix(c.seq() - 1) }

// then returns the commit after c that has the entry e.
func (c commit) then(e entry) commit {
	return c | commit(e)<<(slotBits*c.seq())
}

// floor returns the slot of the newest floor entry, which is the data floor; 0 if there is none. A
// commit after that entry must not refer to a data object below the floor.
func (c commit) floor() int {
	for s := c.seq(); s > 0; s-- {
		if c.at(s).floor() {
			return s
		}
	}
	return 0
}

// slotOf returns the slot that has the entry e; 0 if there is none.
func (c commit) slotOf(e entry) int {
	for s := c.seq(); s > 0; s-- {
		if c.at(s) == e {
			return s
		}
	}
	return 0
}

func (c commit) hash() (h format.Hash) {
	if c != 0 {
		binary.LittleEndian.PutUint64(h[:], uint64(c))
	}
	return h
}

// String lists the entries of the log up to the commit.
func (c commit) String() string {
	var names []string
	for s := range c.seq() {
		names = append(names, c.at(s+1).String())
	}
	return "[" + strings.Join(names, " ") + "]"
}

// commits is a sorted set. It is never changed in place, so that worlds can share it.
type commits []commit

func (s commits) with(c commit) commits {
	i, found := slices.BinarySearch(s, c)
	if found {
		return s
	}
	return slices.Concat(s[:i], commits{c}, s[i:])
}
