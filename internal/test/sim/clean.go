package sim

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// clean deletes, again and again, all objects that the log's rules allow a broker to delete.
func (s *simulation) clean() {
	r := stream(s.cfg.Seed, "clean")
	for !s.healed() {
		s.sleep(between(r, time.Second, s.plan.delay/4))
		if err := s.cleanOnce(); err != nil {
			s.history.violate("Determinism", "clean: %v", err)
			return
		}
	}
}

func (s *simulation) cleanOnce() error {
	checkpoints, err := s.bucket.seqs(format.CheckpointPrefix)
	if err != nil {
		return err
	}
	// floor is the slot of the newest checkpoint that is at least as old as the log's delete delay.
	var floor format.Seq
	for _, q := range checkpoints {
		if time.Since(s.bucket.created(format.CheckpointKey(q))) >= s.plan.delay {
			floor = q
		}
	}
	if floor == 0 {
		return nil
	}
	dead, err := s.deadAt(floor)
	if err != nil {
		return err
	}
	for i, q := range checkpoints {
		if q < floor && i < len(checkpoints)-2 {
			dead = append(dead, format.CheckpointKey(q))
		}
	}
	s.history.note("%d objects are deleted below checkpoint %d: %v", len(dead), floor, dead)
	for _, key := range dead {
		if err := s.bucket.remove(key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.counts.Deleted += len(dead)
	s.mu.Unlock()
	return nil
}

// deadAt returns the keys of the commits and data objects in the bucket that hold no live data, according to
// the state in the checkpoint at the slot floor.
func (s *simulation) deadAt(floor format.Seq) ([]string, error) {
	c, err := format.DecodeCheckpoint(s.bucket.original(format.CheckpointKey(floor)))
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", floor, err)
	}
	st, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", floor, err)
	}
	live := map[string]bool{}
	var dead []string
	for o, lives := range st.AllObjects() {
		key := format.LogKey(format.Seq(o.Seq))
		if o.Data {
			key = format.DataRef{Seq: format.Seq(o.Seq), ID: o.Tag}.Key()
		}
		live[key] = lives
		if o.Data && !lives && s.bucket.stands(key) {
			dead = append(dead, key)
		}
	}
	slots, err := s.bucket.seqs(format.LogPrefix)
	for _, q := range slots {
		if key := format.LogKey(q); q <= floor && !live[key] {
			dead = append(dead, key)
		}
	}
	return dead, err
}
