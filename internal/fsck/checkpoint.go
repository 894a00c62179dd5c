package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// checkpoint is one that was read and is sound in itself.
type checkpoint struct {
	*format.Checkpoint
	state *state.State
}

// readCheckpoint reads a checkpoint and checks it for itself.
func (c *checker) readCheckpoint(ctx context.Context, s format.Seq) (cp checkpoint, err error) {
	key := format.CheckpointKey(s)
	err = believe(ctx, func() error {
		o, err := c.get(ctx, key, 0, format.CheckpointBodyStart) // its size says how long reading it may take
		if err == nil && o.Size > format.CheckpointBytesMax {
			return fmt.Errorf("%w: it has %d bytes, and may have %d", format.ErrCorrupt, o.Size, int64(format.CheckpointBytesMax))
		}
		if err == nil {
			err = format.CheckCheckpointStart(o.Body, o.Size)
		}
		if err == nil {
			o, err = c.get(ctx, key, 0, o.Size)
		}
		if err != nil {
			return err
		}
		if cp.Checkpoint, err = format.DecodeCheckpoint(o.Body); err != nil {
			return err
		}
		if cp.Cluster != c.cluster || cp.Seq != s {
			return fmt.Errorf("%w: it is slot %d of cluster %v", format.ErrForeign, cp.Seq, cp.Cluster)
		}
		cp.state, err = state.Decode(cp.Seq, cp.Body)
		return err
	})
	return cp, err
}

// passCheckpoint compares a checkpoint with the walk, which is at its slot
// or before a gap that includes it. If the walk has lost the state, it goes on
// with that of the checkpoint.
func (c *checker) passCheckpoint(ctx context.Context, s format.Seq) error {
	defer c.progress()
	key := format.CheckpointKey(s)
	cp, err := c.readCheckpoint(ctx, s)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		c.pruned = append(c.pruned, s)
		return nil
	case err != nil:
		return c.blame(key, err)
	}
	c.objects.Add(1)
	if c.pos < s {
		c.move(s) // its slot is not there
		c.forgetState()
		c.lost = s
	}
	if c.hash != nil && *c.hash != cp.Hash {
		c.found(Corrupt, key, "%v: it follows a commit with the hash %v, %s has %v", format.ErrCorrupt, cp.Hash, format.LogKey(s), *c.hash)
		return nil
	}
	compared := c.state
	if compared == nil {
		compared = cp.state // with itself: its form is canonical
	}
	if !compared.View().Is(cp.Body) {
		c.found(Corrupt, key, "%v: it is not the state that the log gives", format.ErrCorrupt)
		return nil
	}
	if c.state == nil {
		// The walk changes its own, and the checkpoint's is still needed.
		if c.state, err = state.Decode(s, cp.Body); err != nil {
			return err
		}
	}
	c.hash = &cp.Hash
	c.covered, c.base = s, cp.state
	c.report.Checkpoints++
	return nil
}

// cover decides what the log needs by the newest sound checkpoint: brokers may
// delete what it does not point into.
func (c *checker) cover() {
	if c.base == nil {
		return
	}
	newest := format.CheckpointKey(c.covered)
	for o, live := range c.base.AllObjects() {
		switch at := format.Seq(o.Seq); {
		case o.Data:
			c.coverData(dataKey{at, o.Tag}, o.Size, live)
		case live && !c.present(at):
			c.needed = append(c.needed, at)
		case live:
			known, ok := c.unapplied[at]
			if ok && known != (unappliedCommit{o.Tag, int64(o.Size)}) {
				c.found(Corrupt, format.LogKey(at), "%v: %s knows another commit there", format.ErrCorrupt, newest)
			}
		}
	}
}

// coverData takes note of a data object that the newest sound checkpoint knows.
func (c *checker) coverData(key dataKey, size uint32, live bool) {
	use, known := c.data[key]
	if !known {
		use.size = size
	}
	if use.commit > c.covered {
		c.foundTwice(use.commit, key)
		live = true
	}
	use.live = live
	c.data[key] = use
}

// present reports whether a slot was listed, and no Get has found it gone since.
func (c *checker) present(s format.Seq) bool { return c.inv.slots.has(s) && !c.gone[s] }

// eachRow calls its function with the location of every batch of a state.
func eachRow(s *state.State, each func(state.Object, row)) {
	const atOnce = 1024
	var locations []state.Location
	for _, t := range s.Topics() {
		for p := range t.Partitions {
			for offset := t.Partitions[p].Start; offset < t.Partitions[p].End; {
				locations = s.Locate(locations[:0], t, int32(p), offset, 1<<62, atOnce)
				for _, l := range locations {
					start := uint32(format.DataPayloadStart)
					if !l.Object.Data {
						start = 0
					}
					each(l.Object, row{topic: t.ID, partition: p, base: l.Base, count: l.Count, pos: l.Pos - start, size: l.Size, crc: l.CRC})
					offset = l.Base + l.Count
				}
			}
		}
	}
}
