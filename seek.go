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
		l, from, found, err := c.reader.LocateTime(c.offset, ms)
		if err != nil {
			return err
		}
		if c.offset = from; !found {
			return nil
		}
		raw, err := c.reader.ReadBatch(ctx, l)
		if err != nil {
			return err
		}
		found, err = c.seekIn(raw, l, ms)
		if err != nil {
			return c.b.engine.DataLost(l, err)
		}
		if found {
			return nil
		}
		c.offset = l.Base + l.Count
	}
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
