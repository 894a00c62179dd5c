package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// checkpoint is a checkpoint that was read and decoded without an error.
type checkpoint struct {
	*format.Checkpoint
	state *state.State
}

// readCheckpoint reads and decodes a checkpoint. (passCheckpoint compares it with the log.)
func (c *checker) readCheckpoint(ctx context.Context, s format.Seq) (cp checkpoint, err error) {
	key := format.CheckpointKey(s)
	err = believe(ctx, func() error {
		o, err := c.get(ctx, key, 0, format.CheckpointBodyStart) // reads the object's size, on which the timeout of the next Get depends
		if err == nil && o.Size > format.CheckpointBytesMax {
			return tooLarge(o.Size, format.CheckpointBytesMax)
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
			return fmt.Errorf("%w: the object is the checkpoint of slot %d of cluster %v", format.ErrForeign, cp.Seq, cp.Cluster)
		}
		cp.state, err = state.Decode(cp.Seq, cp.Body)
		return err
	})
	return cp, err
}

// passCheckpoint compares the checkpoint of slot s with c.hash and c.state, if these are known. walk calls it when
// the walk has reached slot s or, if slot s does not exist, the last existing slot before s: then they are unknown,
// and only the checkpoint itself is checked. If c.state is unknown and the checkpoint is sound, the walk continues
// with the checkpoint's state.
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
		c.move(s) // the commit of slot s is absent
		c.forgetState()
		c.lost = s
	}
	if c.hash != nil && *c.hash != cp.Hash {
		c.found(Corrupt, key, "%v: it names %v as the hash of the last commit that it covers, but %s has the hash %v", format.ErrCorrupt, cp.Hash, format.LogKey(s), *c.hash)
		return nil
	}
	compared := c.state
	if compared == nil {
		compared = cp.state // check only that the body is the encoding of the state that it decodes to
	}
	if !compared.View().Is(cp.Body) {
		c.found(Corrupt, key, "%v: its state is not the one that the commits of the log give", format.ErrCorrupt)
		return nil
	}
	if c.state == nil {
		// Decode the state a second time: the walk changes c.state, and c.base must not change.
		decoded, err := state.Decode(s, cp.Body)
		if err != nil {
			return err
		}
		if complete, err := c.readPages(ctx, key, decoded); err != nil {
			return err
		} else if complete {
			c.state = decoded
		}
	}
	hash := cp.Hash // a copy: a pointer into cp would keep the body in memory
	c.hash = &hash
	c.covered, c.base = s, cp.state
	c.report.Checkpoints++
	return nil
}

// cover finds the objects that the log needs according to the newest sound checkpoint: those in which the
// checkpoint's state has batches. Brokers may delete other objects that the checkpoint covers.
func (c *checker) cover() {
	if c.base == nil {
		return
	}
	newest := format.CheckpointKey(c.covered)
	for key, use := range c.data {
		if use.commit > 0 && use.commit <= c.covered {
			use.live = false // unless the state knows better: it forgets what brokers have deleted
			c.data[key] = use
		}
	}
	for o, live := range c.base.AllObjects() {
		switch at := format.Seq(o.Seq); {
		case o.Data:
			c.coverData(dataKey{at, o.Tag}, o.Size, live)
		case live && !c.present(at):
			c.needed = append(c.needed, at)
		case live:
			known, ok := c.unapplied[at]
			if ok && known != (unappliedCommit{o.Tag, int64(o.Size)}) {
				c.found(Corrupt, format.LogKey(at), "%v: %s refers to another commit in this slot", format.ErrCorrupt, newest)
			}
		}
	}
}

// coverData records a data object that the state of the newest sound checkpoint knows. live says whether
// that state has batches in the object.
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

// present reports whether the List showed a slot, and a Get found it.
func (c *checker) present(s format.Seq) bool { return c.inv.slots.has(s) && !c.gone[s] }

// eachRow calls the function each for every batch of a state, and for every range that is in a segment.
func eachRow(s *state.State, each func(state.Object, row)) {
	const atOnce = 1024
	var locations []state.Location
	for _, t := range s.Topics() {
		for p := range t.Partitions {
			for offset := t.Partitions[p].Start; offset < t.Partitions[p].End; {
				locations = s.Locate(locations[:0], t, format.Partition(p), offset, 1<<62, atOnce)
				for _, l := range locations {
					start := uint32(format.DataPayloadStart)
					if !l.Object.Data {
						start = 0
					}
					each(l.Object, row{topic: t.ID, partition: p, base: l.Base, span: l.Span, records: l.Records, pos: l.Pos - start, size: l.Size, crc: l.CRC, segment: l.Segment != nil})
					offset = l.End()
				}
			}
		}
	}
}
