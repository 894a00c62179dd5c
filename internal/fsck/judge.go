package fsck

import (
	"context"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// judge decides which absent objects the log needs, and reports these objects as missing. It runs after all
// other steps of the check.
func (c *checker) judge(ctx context.Context) error {
	missing, deleted := c.absentSlots()
	var data []dataKey
	for key, use := range c.data {
		if use.live && use.absent {
			data = append(data, key)
		}
	}
	if len(missing)+len(data)+len(c.pruned) > 0 {
		later, listed, err := c.laterCheckpoint(ctx)
		if err != nil {
			return err
		}
		if later.state != nil {
			missing, data = c.absolve(later, missing, data)
		}
		c.judgePruned(listed)
	}
	lost := c.losses(missing, data)
	for _, x := range missing {
		c.foundRun(Missing, x, c.whyNeeded(x)+lost[lossKey{seq: x.from}].String())
	}
	for _, x := range deleted {
		c.foundRun(Deleted, x, "the log does not need it: "+format.CheckpointKey(c.covered)+" covers it, and it holds no record")
	}
	for _, key := range data {
		c.found(Missing, key.String(), "%s%v", c.data[key].referrer(), lost[lossKey{true, key.seq, key.id}])
	}
	return nil
}

// absentSlots returns the absent slots that the log needs, and those that it does not need.
func (c *checker) absentSlots() (missing, deleted spans) {
	var gone, needed spans
	for _, s := range slices.Sorted(maps.Keys(c.gone)) {
		gone.add(s)
	}
	slices.Sort(c.needed)
	for _, s := range slices.Compact(c.needed) {
		needed.add(s)
	}
	end := max(c.covered, format.Seq(c.report.Last))
	for _, x := range c.inv.slots.without(gone).gaps(end) {
		if x.to > c.covered { // no checkpoint covers the slots after c.covered
			missing = append(missing, span{max(x.from, c.covered+1), x.to})
			x.to = c.covered
		}
		if x.from <= x.to {
			deleted = append(deleted, x)
		}
	}
	deleted = deleted.without(needed)
	return append(needed, missing...), deleted
}

func (c *checker) whyNeeded(x span) string {
	if x.to <= c.covered {
		return "it holds records, according to " + format.CheckpointKey(c.covered)
	}
	return "the log has later slots, and no checkpoint covers it"
}

func (c *checker) foundRun(class Class, x span, detail string) {
	f := Finding{Class: class, Key: format.LogKey(x.from), Detail: detail}
	if x.from != x.to {
		f.Through, f.Count = format.LogKey(x.to), x.count()
	}
	c.report.Findings = append(c.report.Findings, f)
}

// laterCheckpoint lists the checkpoints again. If the newest checkpoint is sound, and was written after the
// check began, it returns that checkpoint. Otherwise later.state is nil.
func (c *checker) laterCheckpoint(ctx context.Context) (later checkpoint, listed []format.Seq, err error) {
	for after := ""; ; {
		page, err := c.page(ctx, format.CheckpointPrefix, after)
		if err != nil {
			return later, nil, err
		}
		for _, k := range page.Keys {
			if s, ok := format.ParseSeqKey(format.CheckpointPrefix, k); ok {
				listed = append(listed, s)
			}
		}
		if !page.More || len(page.Keys) == 0 {
			break
		}
		after = page.Keys[len(page.Keys)-1]
	}
	if len(listed) == 0 {
		return later, nil, nil
	}
	newest := listed[len(listed)-1]
	if n := len(c.inv.checkpoints); n > 0 && newest <= c.inv.checkpoints[n-1] {
		return later, listed, nil
	}
	later, err = c.readCheckpoint(ctx, newest)
	if _, damaged := classOf(err); damaged {
		return checkpoint{}, listed, c.blame(format.CheckpointKey(newest), err)
	}
	return later, listed, err
}

// absolve returns slots and data without the objects that brokers may have deleted during the check:
// objects that the later checkpoint covers, and in which that checkpoint's state has no batches.
func (c *checker) absolve(later checkpoint, slots spans, data []dataKey) (spans, []dataKey) {
	var live []format.Seq
	liveData := map[dataKey]bool{}
	for o, isLive := range later.state.AllObjects() {
		switch {
		case isLive && o.Data:
			liveData[dataKey{format.Seq(o.Seq), o.Tag}] = true
		case isLive:
			live = append(live, format.Seq(o.Seq))
		}
	}
	slices.Sort(live)
	var dead spans // slots that the later checkpoint covers, and in which its state has no batches
	var liveSlots spans
	for _, s := range slices.Compact(live) {
		liveSlots.add(s)
	}
	dead = liveSlots.gaps(later.Seq)
	data = slices.DeleteFunc(data, func(key dataKey) bool {
		return c.data[key].commit <= later.Seq && !liveData[key]
	})
	return slots.without(dead), data
}

// judgePruned reports as missing the checkpoints that disappeared during the check although no broker may
// delete them: a broker may delete a checkpoint only if two newer checkpoints exist.
func (c *checker) judgePruned(listed []format.Seq) {
	for _, s := range c.pruned {
		newer := 0
		for _, other := range listed {
			if other > s {
				newer++
			}
		}
		if newer < 2 || slices.Contains(listed, s) {
			c.found(Missing, format.CheckpointKey(s), "a List showed it, but a Get does not find it, and no broker can have deleted it")
		}
	}
}
