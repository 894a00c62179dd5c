package fsck

import (
	"context"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/segment"
)

// readSegment reads the head of a segment whose prologue is p, and in a deep check all of the segment, or the same of
// a page.
func (c *checker) readSegment(ctx context.Context, ref format.DataRef, p format.Prologue, want contents) (size uint32, batches int, err error) {
	key := ref.Key()
	if p.End() > int64(format.SegmentHeadSize(format.SegmentSectionsMax)) {
		return 0, 0, fmt.Errorf("%w: the head has %d bytes", format.ErrCorrupt, p.End())
	}
	o, err := c.get(ctx, key, 0, p.End())
	if err != nil {
		return 0, 0, err
	}
	if want.page != nil || format.IsPage(o.Body) {
		size, err := c.checkPage(ctx, ref, o.Body, o.Size, want)
		return size, 0, err
	}
	h, err := format.DecodeSegmentHead(o.Body)
	switch {
	case err != nil:
		return 0, 0, err
	case h.Cluster != c.cluster || h.Ref.Key() != key:
		return 0, 0, fmt.Errorf("%w: it is %s of cluster %v", format.ErrForeign, h.Ref.Key(), h.Cluster)
	case int64(h.Ref.Size) != o.Size:
		return 0, 0, wrongSize(o.Size, int64(h.Ref.Size))
	case ref.Size != 0 && h.Ref.Size != ref.Size:
		return 0, 0, wrongSize(o.Size, int64(ref.Size))
	case !c.opts.Deep:
		return h.Ref.Size, 0, nil
	}
	release, err := c.hold(ctx, o.Size)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	if o, err = c.get(ctx, key, 0, o.Size); err != nil {
		return 0, 0, err
	}
	_, ranges, err := segment.Check(o.Body)
	if err != nil {
		return 0, 0, err
	}
	return h.Ref.Size, int(h.Batches), checkRanges(ranges, want.rows)
}

// checkRanges checks that a segment has all offsets that the state looks for in it.
func checkRanges(ranges []segment.Range, rows []row) error {
	for _, r := range rows {
		found := false
		for _, x := range ranges {
			end := r.base + format.Offset(r.span)
			found = found || x.Topic == r.topic && int(x.Partition) == r.partition && x.Base <= r.base && end <= x.End
		}
		if !found {
			return fmt.Errorf("%w: it does not have all of the offsets %d to %d of topic %d partition %d, which are in it according to the log", format.ErrCorrupt, r.base, r.base+format.Offset(r.span)-1, r.topic, r.partition)
		}
	}
	return nil
}
