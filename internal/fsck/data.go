package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// dataResult is the result of the check of a data object.
type dataResult struct {
	ref     format.DataRef // if the object is sound, Size is the object's size
	absent  bool
	damage  error // an error about the object, see classOf
	batches int
}

// contents is what the log looks for in a data object.
type contents struct {
	rows []row
	page *format.Page // what the log says about the page; nil if the object is not a page, or if the check does not know it
	dead bool         // the log no longer needs the object, which may have records or idempotency keys
}

// checkData reads and checks a data object. ref.Size is 0 if the caller knows nothing that refers to
// the object. If checkData returns an error, the whole check ends.
func (c *checker) checkData(ctx context.Context, ref format.DataRef, want contents) (dataResult, error) {
	r := dataResult{ref: ref}
	err := believe(ctx, func() (err error) {
		r.ref.Size, r.batches, err = c.readData(ctx, ref, want)
		return err
	})
	c.objects.Add(1)
	_, damaged := classOf(err)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		r.absent = true
	case damaged:
		r.damage = err
	case err != nil:
		return r, err
	}
	return r, nil
}

// readData reads a data object's head, and in a deep check the whole object.
func (c *checker) readData(ctx context.Context, ref format.DataRef, want contents) (size uint32, batches int, err error) {
	key := ref.Key()
	o, err := c.get(ctx, key, 0, format.DataPayloadStart)
	if err != nil {
		return 0, 0, err
	}
	p, err := format.DecodePrologue(o.Body)
	switch {
	case err == nil && p.Kind == format.KindSegment:
		return c.readSegment(ctx, ref, p, want)
	case err == nil && p.Kind == format.KindIntroduction:
		size, err = c.readIntroduction(ctx, ref, want)
		return size, 0, err
	}
	h, err := format.DecodeDataHead(o.Body)
	switch {
	case err != nil:
		return 0, 0, err
	case want.page != nil:
		return 0, 0, fmt.Errorf("%w: it has records, and the log looks for idempotency keys in it", format.ErrCorrupt)
	case h.Cluster != c.cluster || h.Ref.Key() != key:
		return 0, 0, fmt.Errorf("%w: it is %s of cluster %v", format.ErrForeign, h.Ref.Key(), h.Cluster)
	case int64(h.Ref.Size) != o.Size:
		return 0, 0, wrongSize(o.Size, int64(h.Ref.Size))
	case o.Size > format.ObjectBytesMax:
		return 0, 0, tooLarge(o.Size, format.ObjectBytesMax)
	case ref.Size != 0 && h.Ref.Size != ref.Size:
		return 0, 0, wrongSize(o.Size, int64(ref.Size))
	case !c.opts.Deep:
		return h.Ref.Size, 0, nil
	}
	release, err := c.hold(ctx, int64(h.PayloadSize))
	if err != nil {
		return 0, 0, err
	}
	defer release()
	o, err = c.get(ctx, key, format.DataPayloadStart, int64(h.PayloadSize))
	if err != nil {
		return 0, 0, err
	}
	if len(o.Body) != int(h.PayloadSize) {
		return 0, 0, wrongSize(o.Size, int64(h.Ref.Size))
	}
	if batches, err = checkBatches(o.Body, want.rows); err == nil && batches != int(h.Batches) {
		err = fmt.Errorf("%w: it holds %d batches instead of %d", format.ErrCorrupt, batches, h.Batches)
	}
	return h.Ref.Size, batches, err
}

// readIntroduction reads an introduction, to which no commit may refer.
func (c *checker) readIntroduction(ctx context.Context, ref format.DataRef, want contents) (size uint32, err error) {
	o, err := c.get(ctx, ref.Key(), 0, format.IntroductionBytes)
	if err != nil {
		return 0, err
	}
	x, err := format.DecodeIntroduction(o.Body)
	switch {
	case err != nil:
		return 0, err
	case x.Cluster != c.cluster || x.Ref.Key() != ref.Key():
		return 0, fmt.Errorf("%w: it is %s of cluster %v", format.ErrForeign, x.Ref.Key(), x.Cluster)
	case o.Size != format.IntroductionBytes:
		return 0, wrongSize(o.Size, format.IntroductionBytes)
	case ref.Size != 0 || want.page != nil:
		return 0, fmt.Errorf("%w: it introduces a broker, and the log looks for records or idempotency keys in it", format.ErrCorrupt)
	}
	return format.IntroductionBytes, nil
}

// tookData records the result of the check of a data object to which commit s refers. If s is 0, only
// a checkpoint refers to the object.
func (c *checker) tookData(r dataResult, s format.Seq) error {
	key := keyOf(r.ref)
	use, known := c.data[key]
	if known && s > 0 {
		c.foundTwice(s, key)
	}
	if !known {
		use = dataUse{size: r.ref.Size, commit: s, live: true}
	}
	use.checked, use.absent = true, r.absent
	c.data[key] = use
	if r.damage != nil {
		return c.blame(key.String(), fmt.Errorf("%w (%s)", r.damage, use.referrer()))
	}
	if !r.absent {
		c.report.DataObjects++
		c.report.Batches += int64(r.batches)
	}
	return nil
}

// foundTwice adds a finding: commit s refers to a data object to which an earlier commit refers already.
func (c *checker) foundTwice(s format.Seq, key dataKey) {
	c.found(Corrupt, format.LogKey(s), "%v: it refers to %s, to which an earlier commit refers already: the log has the same records twice", format.ErrCorrupt, key)
}

// remaining is a data object that the walk did not check, since no commit that the walk read refers to it.
type remaining struct {
	ref    format.DataRef // Size is 0 if no known commit or checkpoint refers to the object
	want   contents
	result dataResult
	err    error
}

// checkRemainingData checks the data objects that the walk did not check. Some are known only from a
// checkpoint's state, since their commits are deleted. Others are known only from the List.
func (c *checker) checkRemainingData(ctx context.Context) error {
	todo := make(map[dataKey]*remaining)
	for key, use := range c.data {
		if !use.checked && use.live {
			todo[key] = &remaining{ref: format.DataRef{Seq: key.seq, ID: key.id, Size: use.size}}
		}
	}
	for _, key := range c.inv.data {
		if use, known := c.data[key]; !known || !use.checked {
			todo[key] = &remaining{ref: format.DataRef{Seq: key.seq, ID: key.id, Size: use.size}, want: contents{dead: !use.live}}
		}
	}
	for key, page := range pagesOf(c.base, c.state) {
		if t := todo[key]; t != nil {
			t.want.page = page
		}
	}
	if c.opts.Deep && c.state != nil {
		eachRow(c.state, func(o state.Object, r row) {
			if t := todo[dataKey{format.Seq(o.Seq), o.Tag}]; o.Data && t != nil {
				t.want.rows = append(t.want.rows, r)
			}
		})
	}
	feed := func(yield func(*remaining) bool) {
		for _, t := range todo {
			if !yield(t) {
				return
			}
		}
	}
	return inOrder(ctx, feed, func(ctx context.Context, t *remaining) *remaining {
		t.result, t.err = c.checkData(ctx, t.ref, t.want)
		return t
	}, func(t *remaining) error {
		defer c.progress()
		if t.err != nil {
			return t.err
		}
		if t.ref.Size > 0 {
			return c.tookData(t.result, 0)
		}
		return c.tookUnused(t.result)
	})
}

// tookUnused adds a finding about a data object to which no known commit or checkpoint refers.
func (c *checker) tookUnused(r dataResult) error {
	key := r.ref.Key()
	switch {
	case r.absent:
		return nil // a broker deleted it after it was listed
	case r.damage != nil:
		return c.blame(key, r.damage)
	}
	c.report.DataObjects++
	c.report.Batches += int64(r.batches)
	class, detail := c.judgeUnused(r.ref.Seq)
	c.report.Findings = append(c.report.Findings, Finding{Class: class, Key: key, Detail: detail, Bytes: int64(r.ref.Size)})
	return nil
}

// inFlightSlots estimates how many slots brokers commit while one data object is uploaded. A data
// object whose upload began within the last inFlightSlots slots of the log may still get its commit.
const inFlightSlots = 1000

// judgeUnused judges a data object to which no known commit refers, and whose upload began when slot s was
// the last slot. It returns [InUse] if a missing, damaged or later commit may refer to the object, else
// [Orphaned]. The answer is certain only if s is below the state's data floor: no later commit may
// refer to a data object whose upload began that early.
func (c *checker) judgeUnused(s format.Seq) (Class, string) {
	switch {
	case c.state != nil && s < c.state.DataFloor():
		return Orphaned, "no commit refers to it, and none ever will"
	case c.lost > c.covered:
		return InUse, "a commit that is missing or damaged may refer to it"
	case s+inFlightSlots >= c.pos:
		return InUse, "no commit refers to it yet; its upload began near the end of the log"
	}
	return Orphaned, "no commit refers to it"
}
