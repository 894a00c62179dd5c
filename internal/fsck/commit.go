package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// The first Get of a commit reads headBytes, or deepBytes in a deep check. Most heads fit in
// headBytes, and most commits in deepBytes.
const (
	headBytes = 16 << 10
	deepBytes = 256 << 10

	// headMemoryMax bounds the memory for each of the heads that workers read side by side. A larger head is
	// read when the walk comes to its slot, so that no two such heads are in memory.
	headMemoryMax = memoryMax / workers
)

// errLarge says that a head takes more than the memory that its reader may use.
var errLarge = errors.New("the head is too large to be read together with others")

// slotResult is what checkSlot found about a slot.
type slotResult struct {
	seq     format.Seq
	absent  bool
	large   bool           // nothing was checked, since the head takes more than headMemoryMax
	commit  *format.Commit // nil if it could not be read
	damage  []error        // errors about the object, see classOf
	data    []dataResult   // results for the data objects to which the commit refers
	batches int
	err     error // an error that ends the check
}

// checkSlot reads a slot's commit, and checks the data objects in the commit's list and, in a deep check, the
// commit's payload. Since it does all at once, the check need not keep the rows of all commits in memory. If the
// first Get did not read the whole head, and the head takes more than headMax bytes of memory, the result says only
// that it is large.
func (c *checker) checkSlot(ctx context.Context, s format.Seq, headMax int64) slotResult {
	r := slotResult{seq: s}
	var body []byte
	err := believe(ctx, func() (err error) {
		r.commit, body, err = c.readCommit(ctx, s, headMax)
		return err
	})
	switch _, damaged := classOf(err); {
	case errors.Is(err, errLarge):
		r.large = true
		return r
	case errors.Is(err, objstore.ErrNotFound):
		r.absent = true
		return r
	case damaged:
		r.damage = append(r.damage, err)
		return r
	case err != nil:
		r.err = err
		return r
	}
	inline, byObject := rowsOf(r.commit)
	if c.opts.Deep {
		r.batches, r.err = c.checkPayload(ctx, r.commit, body, inline)
		if _, damaged := classOf(r.err); damaged {
			r.damage, r.err = append(r.damage, r.err), nil
		}
		if errors.Is(r.err, objstore.ErrNotFound) {
			r.absent, r.err = true, nil // a broker deleted the commit after the check had read its head
		}
	}
	c.objects.Add(1)
	for i, ref := range r.commit.Data {
		if r.err != nil {
			break
		}
		var d dataResult
		d, r.err = c.checkData(ctx, ref, contents{rows: byObject[i]})
		r.data = append(r.data, d)
	}
	for _, it := range r.commit.Entries {
		if r.err != nil {
			break
		}
		var d dataResult
		switch x := it.(type) {
		case *format.SegmentAdded:
			d, r.err = c.checkData(ctx, x.Ref, contents{})
		case *format.PageStored:
			d, r.err = c.checkData(ctx, x.Ref, contents{page: &x.Page})
		default:
			continue
		}
		r.data = append(r.data, d)
	}
	return r
}

// readCommit reads and checks the head of a slot. body is the whole object if that is small, and nil
// otherwise. If the head takes more than headMax bytes of memory, readCommit returns errLarge.
func (c *checker) readCommit(ctx context.Context, s format.Seq, headMax int64) (commit *format.Commit, body []byte, err error) {
	key, size := format.LogKey(s), int64(headBytes)
	if c.opts.Deep {
		size = deepBytes
	}
	o, err := c.get(ctx, key, 0, size)
	if err != nil {
		return nil, nil, err
	}
	start, err := commitlog.StartCommit(o)
	if err != nil {
		return nil, nil, err
	}
	if !start.Whole() {
		if start.Memory() > headMax {
			return nil, nil, errLarge
		}
		if o, err = c.get(ctx, key, 0, start.End()); err != nil {
			return nil, nil, err
		}
	}
	commit, err = format.DecodeCommit(o.Body)
	switch {
	case err != nil:
		return nil, nil, err
	case commit.Cluster != c.cluster || commit.Seq != s:
		return nil, nil, fmt.Errorf("%w: the object is the commit of slot %d of cluster %v", format.ErrForeign, commit.Seq, commit.Cluster)
	case commit.Size() != o.Size:
		return nil, nil, wrongSize(o.Size, commit.Size())
	case o.Size > format.ObjectBytesMax:
		return nil, nil, tooLarge(o.Size, format.ObjectBytesMax)
	case int64(len(o.Body)) < o.Size:
		return commit, nil, nil
	}
	return commit, o.Body, nil
}

func wrongSize(has, should int64) error {
	return fmt.Errorf("%w: it has %d bytes instead of %d", format.ErrCorrupt, has, should)
}

func tooLarge(has, allowed int64) error {
	return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", format.ErrCorrupt, has, allowed)
}

// checkPayload verifies the inline batches of a commit. If body is the whole object and the batches in body
// are sound, checkPayload reads nothing from the store. Otherwise it reads the payload from the store.
func (c *checker) checkPayload(ctx context.Context, commit *format.Commit, body []byte, rows []row) (batches int, err error) {
	if int64(len(body)) == commit.Size() {
		if batches, err = checkBatches(body[commit.PayloadStart:], rows); err == nil {
			return batches, nil
		}
	}
	release, err := c.hold(ctx, int64(commit.PayloadSize))
	if err != nil {
		return 0, err
	}
	defer release()
	key := format.LogKey(commit.Seq)
	err = believe(ctx, func() error {
		o, err := c.get(ctx, key, int64(commit.PayloadStart), int64(commit.PayloadSize))
		if err != nil {
			return err
		}
		if int64(len(o.Body)) != int64(commit.PayloadSize) {
			return wrongSize(o.Size, commit.Size())
		}
		batches, err = checkBatches(o.Body, rows)
		return err
	})
	return batches, err
}

// rowsOf returns the rows of a commit's inline payload, and the rows of each data object, by
// index in c.Data.
func rowsOf(c *format.Commit) (inline []row, byObject [][]row) {
	byObject = make([][]row, len(c.Data))
	for _, it := range c.Entries {
		x, ok := it.(*format.Batch)
		if !ok {
			continue
		}
		r := row{
			topic: x.Topic, partition: int(x.Partition), base: x.Base, span: int64(x.Count), records: int64(x.Count),
			maxTime: x.MaxTime, timed: true, pos: x.Pos, size: x.Size, crc: x.CRC,
		}
		if x.Object == 0 {
			inline = append(inline, r)
		} else {
			byObject[x.Object-1] = append(byObject[x.Object-1], r)
		}
	}
	return inline, byObject
}
