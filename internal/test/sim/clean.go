package sim

import (
	"fmt"
	"slices"
	"strings"
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
	then, err := s.objectsAt(floor)
	if err != nil {
		return nil, err
	}
	var dead []string
	for key, lives := range then {
		if strings.HasPrefix(key, format.DataPrefix) && !lives && s.bucket.stands(key) {
			dead = append(dead, key)
		}
	}
	slices.Sort(dead)
	slots, err := s.bucket.seqs(format.LogPrefix)
	for _, q := range slots {
		if key := format.LogKey(q); q <= floor && !then[key] {
			dead = append(dead, key)
		}
	}
	return dead, err
}

// objectsAt returns the keys of the objects that the state in the checkpoint at a slot knows, and whether they are live.
func (s *simulation) objectsAt(slot format.Seq) (map[string]bool, error) {
	c, err := format.DecodeCheckpoint(s.bucket.original(format.CheckpointKey(slot)))
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", slot, err)
	}
	st, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d: %w", slot, err)
	}
	objects := map[string]bool{}
	for o, lives := range st.AllObjects() {
		objects[objectKey(o)] = lives
	}
	return objects, nil
}

func objectKey(o state.Object) string {
	if o.Data {
		return format.DataRef{Seq: format.Seq(o.Seq), ID: o.Tag}.Key()
	}
	return format.LogKey(format.Seq(o.Seq))
}

// checkDelete expects that the log's rules allow a broker to delete the object under a key: a checkpoint that is as old as the
// log's delete delay, and that is not the newest one, says that the object is dead. An orphan is in no checkpoint.
func (s *simulation) checkDelete(broker, key string) {
	s.deleting.Lock()
	defer s.deleting.Unlock()
	why, err := s.notDeletable(key)
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		s.history.violate("FloorSafe", "%s deletes %s: %s", broker, key, why)
	}
}

func (s *simulation) notDeletable(key string) (why string, err error) {
	standing, err := s.bucket.seqs(format.CheckpointPrefix)
	if err != nil {
		return "", err
	}
	if q, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok {
		for _, old := range s.oldCheckpoints() {
			if q < old && (!slices.Contains(standing, q) || slices.Index(standing, q) < len(standing)-2) {
				return "", nil
			}
		}
		return "it is a checkpoint that may still be needed", nil
	}
	slot, isCommit := format.ParseSeqKey(format.LogPrefix, key)
	orphan := !isCommit
	for _, q := range s.allCheckpoints() {
		if s.objects[q] == nil {
			if s.objects[q], err = s.objectsAt(q); err != nil {
				return "", err
			}
		}
		if _, known := s.objects[q][key]; known {
			orphan = false
		}
	}
	for _, q := range s.oldCheckpoints() {
		lives, known := s.objects[q][key]
		if !lives && (isCommit && slot <= q || known) {
			return "", nil
		}
	}
	if orphan {
		return "", nil // checkLiveObjects checks that no commit ever refers to it
	}
	return "no checkpoint that is old enough says that it is dead", nil
}

// allCheckpoints returns the slots of all checkpoints that ever were in the bucket, in order.
func (s *simulation) allCheckpoints() []format.Seq {
	return s.bucket.made(format.CheckpointPrefix)
}

// oldCheckpoints returns the slots of the checkpoints that were created as long ago as the log's delete delay, but for the newest
// checkpoint.
func (s *simulation) oldCheckpoints() (old []format.Seq) {
	all := s.allCheckpoints()
	for i, q := range all {
		if i < len(all)-1 && time.Since(s.bucket.visible(format.CheckpointKey(q))) >= s.plan.delay {
			old = append(old, q)
		}
	}
	return old
}

// checkLiveObjects expects all objects that have live data at the end of the log to be in the bucket.
func (s *simulation) checkLiveObjects(end *state.State) {
	for o, lives := range end.AllObjects() {
		if key := objectKey(o); lives && !s.bucket.stands(key) {
			s.history.violate("AckDurable", "%s has live data, and is gone", key)
		}
	}
}
