package state

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
)

// LeaveTail leaves the batches of a plan, which are in the tail, where they are: nobody can read them. So they are in no segment, and
// not in the tail.
func (s *State) LeaveTail(plan *Plan) error {
	x := &format.SegmentAdded{}
	for _, r := range plan.Ranges {
		for i := range r.Batches {
			b := &r.Batches[i]
			x.Ranges = append(x.Ranges, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: b.Base, End: b.End(), Stays: true})
		}
	}
	fits, err := s.fit(x, func(format.TopicID) bool { return false })
	if err != nil {
		return err
	}
	for _, f := range fits {
		left := s.letStay(f)
		s.cutTail(f.p, f.batches)
		s.replaceParts(f.p, len(f.p.parts()), len(f.p.parts()), left)
	}
	s.dying = s.dying[:0] // who rebases the state forgets what is dead
	s.objects.cutDead()
	return nil
}

// Rebase makes the state that of another log, which has the same segments, and nothing else of what the first log had in its
// bucket: no commit, no checkpoint, no page and no dead object. Its brokers have spent nothing yet. slot is the last one that the other log counts as applied. It returns an error
// unless all batches are in segments.
func (s *State) Rebase(slot format.Seq) error {
	if s.level < format.LevelSegments || s.batches > 0 || slot < s.seq {
		return fmt.Errorf("the state of slot %d, at level %d and with %d batches in no segment, can't be that of slot %d of another log", s.seq, s.level, s.batches, slot)
	}
	c := &s.collecting
	s.memory -= int64(len(c.holds))*holdMemory + int64(len(s.dead))*deadMemory + int64(len(c.seen))*seenMemory + int64(len(s.sessions))*sessionMemory
	s.dead, c.seen, c.holds, s.sessions = nil, nil, nil, nil
	s.forgetPages()
	s.dropSpending()
	s.seq, s.bottom = slot, slot+1
	c.collected = format.Collected{Slot: slot, Bottom: slot + 1}
	return nil
}
