package state

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
)

// Rebase makes the state that of another log, which has the same segments, and nothing else of what the first log had in its
// bucket: no commit, no checkpoint and no dead object. Its brokers have spent nothing yet. slot is the last one that the other log counts as applied. It returns an error
// unless all batches are in segments.
func (s *State) Rebase(slot format.Seq) error {
	if s.level < format.LevelSegments || s.batches > 0 || slot < s.seq {
		return fmt.Errorf("the state of slot %d, at level %d and with %d batches in no segment, can't be that of slot %d of another log", s.seq, s.level, s.batches, slot)
	}
	c := &s.collecting
	s.memory -= int64(len(c.holds))*holdMemory + int64(len(s.dead))*deadMemory + int64(len(c.seen))*seenMemory + int64(len(s.sessions))*sessionMemory
	s.dead, c.seen, c.holds, s.sessions = nil, nil, nil, nil
	s.dropSpending()
	s.seq, s.bottom = slot, slot+1
	c.collected = format.Collected{Slot: slot, Bottom: slot + 1}
	return nil
}
