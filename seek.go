package seb

import (
	"context"
	"fmt"

	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// seek moves the cursor to the first record, from where it stands on, whose
// timestamp is at least ms since 1970, or to the partition's end if no record has.
//
// The state knows the largest timestamp of each batch, so that as a rule one
// batch is read. It takes more only where the record with that timestamp stands
// before the cursor.
func (c *cursor) seek(ctx context.Context, ms int64) error {
	for {
		l, found, err := c.locateTime(ms)
		if err != nil || !found {
			return err
		}
		raw, err := c.b.readBatch(ctx, c, l)
		if err != nil {
			return err
		}
		found, err = c.seekIn(raw, l, ms)
		if err != nil {
			return c.b.dataLost(l, err)
		}
		if found {
			return nil
		}
		c.offset = l.Base + l.Count
	}
}

// locateTime finds the first batch from the cursor on that reaches ms. If no
// batch does, it moves the cursor to the end.
func (c *cursor) locateTime(ms int64) (l state.Location, found bool, err error) {
	err = c.view(func(s *state.State, loads uint64, t *state.Topic, p *state.Partition) {
		c.loads = loads
		c.offset = max(c.offset, p.Start)
		l, found = s.LocateTime(t, c.partition, c.offset, ms)
		if !found {
			c.offset = max(c.offset, p.End)
		}
	})
	return l, found, err
}

// seekIn moves the cursor to the first record of a batch, from the cursor on,
// whose timestamp is at least ms, if there is one.
func (c *cursor) seekIn(raw []byte, l state.Location, ms int64) (found bool, err error) {
	head, err := record.Parse(raw)
	if err != nil {
		return false, fmt.Errorf("seek a time: %w", err)
	}
	for r, err := range head.Records(raw, l.Base, record.Limits{}) {
		if err != nil {
			return false, fmt.Errorf("seek a time: %w", err)
		}
		if r.Offset >= c.offset && r.Timestamp >= ms {
			c.offset = r.Offset
			return true, nil
		}
	}
	return false, nil
}
