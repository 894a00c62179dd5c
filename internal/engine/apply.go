package engine

import (
	"bytes"
	"fmt"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// fold is the Engine as package commitlog sees it: it applies checkpoints and commits to the state. The
// commit loop calls it.
type fold Engine

// Load replaces the state by the state in a checkpoint. It returns an error if the new state contradicts
// the old state, because this broker's earlier answers rely on the old state.
func (e *fold) Load(c *format.Checkpoint, read func([]format.Page) ([][]byte, error)) error {
	s, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return err
	}
	if s.Unread() {
		bodies, err := read(s.Pages())
		if err == nil {
			err = s.ReadPages(bodies)
		}
		if err != nil {
			return err
		}
	}
	if err := s.Continues(e.live.State); err != nil {
		return fmt.Errorf("%w: %w", commitlog.ErrFork, err)
	}
	e.live.Lock()
	e.live.State = s
	e.loads++
	e.live.Unlock()
	e.levels = levels{}
	(*Engine)(e).loadedSpending(s)
	e.lastCheckpoint = c.Seq
	e.collector.read(c.Seq, s.Bottom())
	e.recovery.loaded(c.Seq)
	e.joining = joining{}
	e.sound.Store(uint64(c.Seq))
	for _, o := range e.observers {
		o.Loaded(s)
	}
	if e.recovered {
		e.wonLast.Store(false)
		signal(e.retention.changed)
		(*Engine)(e).loadedCheckpoint(c.Seq, c.Hash)
	}
	return nil
}

// Apply puts the records of a commit into the cache, and applies the commit to the state. Then it wakes
// readers, which find the records in the cache.
func (e *fold) Apply(c *format.Commit, object []byte) error {
	own := e.building != nil && e.building.commit == c
	if own {
		e.rememberOwn(c)
	} else {
		e.rememberRead(c, object)
	}
	at := e.timeOf(c, own)
	for _, o := range e.observers {
		o.Applying(c.Entries, at)
	}
	if e.recovered {
		(*Engine)(e).rehearse(c)
	}
	e.live.Lock()
	err := e.live.State.Apply(c)
	if err == nil {
		(*Engine)(e).appliedSpending(c)
	}
	e.live.Unlock()
	if err != nil {
		return err
	}
	e.levels.applied(c)
	if own { // before Applied wakes readers: so a reader at the end of a partition needs no sync
		e.tail.proven(e.building.begun)
	}
	for _, o := range e.observers {
		o.Applied(e.live.State, c.Entries, at)
	}
	if !e.recovered {
		e.recovery.applied(c.Seq)
		(*Engine)(e).noteWriter(c)
		return nil
	}
	e.wakeJobs(c, own)
	e.writer = format.SessionID{}
	if m := c.Mark(); m != nil {
		e.writer = m.Session
		e.mesh.Seen(m.Session, m.Address, e.log.ByWire())
	}
	if !own && !e.mesh.Connected(e.writer) { // a connected broker sends its further commits
		e.tail.foreign()
	}
	(*Engine)(e).watchState()
	(*Engine)(e).appliedCommit(c, own)
	return nil
}

// rememberOwn puts the batches of this broker's own commit into the cache.
func (e *fold) rememberOwn(c *format.Commit) {
	for _, set := range e.building.all {
		for _, t := range set.batches {
			if t.in == c.Seq {
				e.remember(c, &t.row, t.bytes)
			}
		}
	}
}

// rememberRead caches the batches of a commit object that was read from the store, or that another
// broker sent. It skips batches in data objects, because a commit object does not have their bytes.
func (e *fold) rememberRead(c *format.Commit, object []byte) {
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
			e.remember(c, x, bytes.Clone(raw))
		}
	}
}

// remember puts a committed batch into the cache.
func (e *fold) remember(c *format.Commit, x *format.Batch, raw []byte) {
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
	e.cache.Add(r, raw)
}
