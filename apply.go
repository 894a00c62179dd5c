package seb

import (
	"bytes"
	"fmt"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// observer learns of changes of the state. The commit loop calls it without holding a lock.
type observer interface {
	// loaded is called after a checkpoint took the place of the state.
	loaded(s *state.State)
	// applying is called before the state has the entries of a commit, which is applied at that time.
	applying(entries []format.Entry, at logTime)
	// applied is called after that.
	applied(s *state.State, entries []format.Entry, at logTime)
}

// rider adds entries to commits that are made anyway.
type rider interface {
	// Ride returns entries for a commit that has these entries, which the draft has applied.
	Ride(d *state.Draft, entries []format.Entry) []format.Entry
}

// fold receives commits from the log. It runs in the commit loop.
type fold Broker

// Load replaces the state by a checkpoint. The checkpoint must continue the state: what this
// broker has acknowledged and served must still hold.
func (f *fold) Load(c *format.Checkpoint) error {
	s, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return err
	}
	if err := s.Continues(f.live.State); err != nil {
		return fmt.Errorf("%w: %w", commitlog.ErrFork, err)
	}
	f.live.Lock()
	f.live.State = s
	f.loads++
	f.live.Unlock()
	f.lastCheckpoint = c.Seq
	f.recovery.loaded(c.Seq)
	f.sound.Store(uint64(c.Seq))
	for _, o := range f.observers {
		o.loaded(s)
	}
	return nil
}

// Apply puts the records of a commit into the cache, applies the commit to the state, and wakes
// readers: in this order, so that a reader that is woken finds the records in the cache.
func (f *fold) Apply(c *format.Commit, object []byte) error {
	own := f.building != nil && f.building.commit == c
	if own {
		f.rememberOwn(c)
	} else {
		f.rememberRead(c, object)
	}
	at := f.timeOf(c, own)
	for _, o := range f.observers {
		o.applying(c.Entries, at)
	}
	f.live.Lock()
	err := f.live.State.Apply(c)
	f.live.Unlock()
	if err != nil {
		return err
	}
	if own { // before readers wake, which would otherwise ask the store for this proof
		f.tail.proven(f.building.begun)
	}
	for _, o := range f.observers {
		o.applied(f.live.State, c.Entries, at)
	}
	if !f.recovered {
		f.recovery.applied(c.Seq)
	} else if !own {
		f.tail.foreign()
	}
	return nil
}

// rememberOwn puts the batches of this broker's own commit into the cache, as they were built.
func (f *fold) rememberOwn(c *format.Commit) {
	in := make(map[*format.Batch]bool, len(c.Entries))
	for _, entry := range c.Entries {
		if x, ok := entry.(*format.Batch); ok {
			in[x] = true
		}
	}
	for _, g := range f.building.sets {
		for _, t := range g.batches {
			if in[&t.row] {
				f.remember(c, &t.row, t.bytes)
			}
		}
	}
}

// rememberRead puts the batches of a commit that was read from the store into the cache, as far
// as they came with it.
func (f *fold) rememberRead(c *format.Commit, object []byte) {
	if object == nil {
		return
	}
	for _, entry := range c.Entries {
		x, ok := entry.(*format.Batch)
		if !ok || x.Object != 0 {
			continue
		}
		at := c.PayloadStart + x.Pos
		if raw := object[at : at+x.Size]; record.Verify(raw, x.CRC) == nil {
			f.remember(c, x, bytes.Clone(raw))
		}
	}
}

// remember puts a committed batch into the cache.
func (f *fold) remember(c *format.Commit, x *format.Batch, raw []byte) {
	r := cache.Range{
		Object: cache.Object{Kind: byte(format.KindCommit), Seq: uint64(c.Seq), Tag: c.Nonce.Tag()},
		Pos:    c.PayloadStart + x.Pos,
		Size:   x.Size,
		CRC:    x.CRC,
	}
	if x.Object > 0 {
		ref := c.Data[x.Object-1]
		r.Object = cache.Object{Kind: byte(format.KindData), Seq: uint64(ref.Seq), Tag: ref.ID}
		r.Pos = format.DataPayloadStart + x.Pos
	}
	f.cache.Add(r, raw)
}
