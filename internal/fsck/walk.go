package fsck

import (
	"context"
	"math"

	"github.com/simple-event-broker/seb/internal/format"
)

// walk reads all listed slots, several at once. It checks them, and the checkpoints between them, in the
// order of the log.
func (c *checker) walk(ctx context.Context) error {
	checkpoints := c.inv.checkpoints
	passBelow := func(end format.Seq) error {
		for len(checkpoints) > 0 && checkpoints[0] < end {
			if err := c.passCheckpoint(ctx, checkpoints[0]); err != nil {
				return err
			}
			checkpoints = checkpoints[1:]
		}
		return nil
	}
	slots := func(yield func(format.Seq) bool) {
		for _, x := range c.inv.slots {
			for s := x.from; ; s++ {
				if !yield(s) {
					return
				}
				if s == x.to {
					break
				}
			}
		}
	}
	check := func(ctx context.Context, s format.Seq) slotResult { return c.checkSlot(ctx, s, headMemoryMax) }
	err := inOrder(ctx, slots, check, func(r slotResult) error {
		if r.large {
			r = c.checkSlot(ctx, r.seq, math.MaxInt64)
		}
		if r.err != nil {
			return r.err
		}
		if err := passBelow(r.seq); err != nil {
			return err
		}
		return c.passSlot(r)
	})
	if err != nil {
		return err
	}
	return passBelow(1<<64 - 1)
}

// move moves the walk to slot s. If slots between the old position and s are absent, hash and state become
// unknown.
func (c *checker) move(s format.Seq) {
	if c.pos+1 != s {
		c.forgetState()
		c.lost = s - 1
	}
	c.pos = s
}

// forgetState makes hash and state unknown, so that damage is reported once and not again at
// every later slot.
func (c *checker) forgetState() {
	c.hash, c.state = nil, nil
}

// passSlot takes the result of the check of the next listed slot.
func (c *checker) passSlot(r slotResult) error {
	defer c.progress()
	key := format.LogKey(r.seq)
	c.move(r.seq)
	if r.absent {
		c.gone[r.seq] = true
	}
	for _, err := range r.damage {
		if err := c.blame(key, err); err != nil {
			return err
		}
	}
	if r.commit == nil {
		c.forgetState()
		c.lost = r.seq
		return nil
	}
	if len(r.damage) == 0 && !r.absent {
		c.report.Commits++
		c.report.Batches += int64(r.batches)
	}
	c.follow(key, r.commit)
	for _, d := range r.data {
		if err := c.tookData(d, r.seq); err != nil {
			return err
		}
	}
	return nil
}

// follow checks that a commit fits the previous commits: the commit must name the hash of the previous commit,
// and the state after the previous commit must accept the entries of this commit.
func (c *checker) follow(key string, commit *format.Commit) {
	if c.hash != nil && *c.hash != commit.Prev {
		c.found(Corrupt, key, "%v: it names %v as the hash of the commit before it, but that commit has the hash %v: one of the two commits is of another log",
			format.ErrCorrupt, commit.Prev, *c.hash)
		c.forgetState()
	}
	c.hash = &commit.Hash
	if c.state != nil {
		if err := c.state.Apply(commit); err != nil {
			c.found(Corrupt, key, "%v: %v", format.ErrCorrupt, err)
			c.state = nil
		}
	}
	if c.state == nil {
		c.unapplied[commit.Seq] = unappliedCommit{commit.Nonce.Tag(), commit.Size()}
	}
}
