package explore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// commit is a commit of the model, with all that it was built on: one byte per
// slot, slot 1 the lowest. The byte is the payload, from 1; a payload is never
// used twice, so it stands for the nonce as well.
//
// A commit is also the log up to it: what a broker that has applied it holds,
// and what a checkpoint as of it contains. 0 is the empty log.
type commit uint64

const (
	slotBits = 8
	slotsMax = 64 / slotBits
)

// seq returns the commit's slot.
func (c commit) seq() int { return (bits.Len64(uint64(c)) + slotBits - 1) / slotBits }

// at returns the byte of a slot.
func (c commit) at(slot int) uint8 { return uint8(c >> (slotBits * (slot - 1))) }

// prefix returns the log up to a slot.
func (c commit) prefix(slot int) commit { return c & (1<<(slotBits*slot) - 1) }

func (c commit) payload() int { return int(c.at(c.seq())) }

// prev returns the commit before.
func (c commit) prev() commit { return c.prefix(c.seq() - 1) }

// then returns the commit after c with that payload.
func (c commit) then(payload int) commit {
	return c | commit(payload)<<(slotBits*c.seq())
}

func (c commit) hash() (h commitlog.Hash) {
	if c != 0 {
		binary.LittleEndian.PutUint64(h[:], uint64(c))
	}
	return h
}

// name is how stories call the content of one slot.
func name(x uint8) string {
	if x == 0 {
		return "nothing"
	}
	return fmt.Sprintf("p%d", x)
}

// String lists what the log up to the commit consists of.
func (c commit) String() string {
	var names []string
	for s := range c.seq() {
		names = append(names, name(c.at(s+1)))
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
