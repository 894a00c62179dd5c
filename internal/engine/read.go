package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	batchReadTries = 3
	// ReadsMax is how many batches one reader reads at once.
	ReadsMax = 16
	// readsSmall is how many small objects one reader reads at once.
	readsSmall = 128
	// A read of an object asks for at least readWindowBytes, unless the object ends before. Readers share the
	// requests for the same window of an object: the bytes from a multiple of readWindowBytes to the next.
	readWindowBytes = 1 * mib
)

// window identifies a window of an object. Its type keeps flights of this package apart from others.
type window struct {
	object state.Object
	number uint32
}

// batchOf identifies a batch that is being read.
type batchOf cache.Range

func rangeOf(l state.Location) cache.Range {
	kind := format.KindCommit
	if l.Object.Data {
		kind = format.KindData
	}
	return cache.Range{
		Object: cache.Object{Kind: byte(kind), Seq: l.Object.Seq, Tag: l.Object.Tag},
		Pos:    l.Pos, Size: l.Size, CRC: l.CRC,
	}
}

func objectKey(o state.Object) string {
	if o.Data {
		return format.DataRef{Seq: format.Seq(o.Seq), ID: o.Tag}.Key()
	}
	return format.LogKey(format.Seq(o.Seq))
}

// readWaitsFor is how long a read waits for further batches once its first batch has come. Then the
// caller gets the batches that have come, and asks for the others in another read: a proxy in front of the
// broker might not wait for all of them. The read sends no request that would probably be answered too
// late. For example, if the first batch took 300 ms, the read sends no request in the last 300 ms of
// readWaitsFor. It never sends a request in the last readLast of readWaitsFor.
const (
	readWaitsFor = time.Second
	readLast     = readWaitsFor / 4
)

// readFound returns the bytes of the batches in c.found, in order. The result ends before the first batch
// that can't be read, or that comes too late: see readWaitsFor. readFound sends up to ReadsMax requests to
// the store at the same time: one after the other, the batches of a thousand small commits would take a
// thousand round trips. It reads neighbours in one object with one request. Where a batch has moved since it
// was found, readFound changes c.found. missed says that the cache did not have all of them.
func (c *Cursor) readFound(ctx context.Context) (_ [][]byte, missed bool, err error) {
	if len(c.found) == 0 {
		return nil, false, nil // return before WithCancel, whose memory ctx would keep while the caller waits
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		raws   = make([][]byte, len(c.found))
		errs   = make([]error, len(c.found))
		failed atomic.Bool // a read failed, so that later batches are of no use
		begun  = 0         // only batches with a lower index were requested
		first  = firstBatch{began: time.Now(), giveUp: cancel}
		wg     sync.WaitGroup
		places = make(chan struct{}, c.readsAtOnce())
	)
	defer first.forget()
	for begun < len(raws) && !first.isLongAgo() {
		i := begun
		if raws[i] = c.e.cache.Get(rangeOf(c.found[i])); raws[i] != nil {
			if i == 0 {
				first.isThere()
			}
			begun++
			continue
		}
		missed = true
		places <- struct{}{}
		if failed.Load() {
			break
		}
		begun += extent(c.found[begun:])
		from, to := i, begun
		wg.Go(func() {
			errs[from] = c.readExtent(ctx, c.found[from:to], raws[from:to])
			switch {
			case errs[from] != nil:
				failed.Store(true)
			case from == 0:
				first.isThere()
			}
			<-places
		})
	}
	wg.Wait()
	for i, raw := range raws[:begun] {
		if errs[i] != nil {
			err = errs[i]
		}
		if raw == nil {
			return raws[:i], missed, err
		}
	}
	return raws[:begun], missed, nil
}

// readsAtOnce returns how many requests a read sends at once.
func (c *Cursor) readsAtOnce() int {
	for i := range c.found {
		if _, n := extentOf(c.found[i:i+1], c.around); n > aheadWhole || c.found[i].Row != nil {
			return ReadsMax
		}
	}
	return readsSmall
}

// extent returns how many batches, from the first one on, are to be read with one request: all that lie in the same
// object, one behind the other, within readWindowBytes.
func extent(ls []state.Location) (n int) {
	first := ls[0]
	for end := first.Pos; n < len(ls); n++ {
		l := ls[n]
		if l.Object != first.Object || l.Pos < end || n > 0 && int64(l.Pos)+int64(l.Size)-int64(first.Pos) > readWindowBytes {
			break
		}
		end = l.Pos + l.Size
	}
	return n
}

// readExtent reads batches that an extent has, into raws. If one of them can't be read, the later ones are nil.
func (c *Cursor) readExtent(ctx context.Context, ls []state.Location, raws [][]byte) (err error) {
	if len(ls) > 1 {
		// If this request fails, each batch is read for itself: one damaged batch must not hide the others.
		if err := c.e.fetchShared(ctx, ls, c.around, c.loads, raws); err != nil {
			c.e.logger.Debug("could not read neighbouring batches at once", "object", objectKey(ls[0].Object), "batches", len(ls), "err", err)
		}
	}
	for i := range ls {
		if raws[i] == nil {
			if ls[i], raws[i], err = c.readBatch(ctx, ls[i]); err != nil {
				clear(raws[i:])
				return err
			}
		}
	}
	return nil
}

// firstBatch notes when the first batch of a read came, and ends the read when readWaitsFor has passed
// since then.
type firstBatch struct {
	began  time.Time // when the read began
	giveUp func()    // ends the read

	mu    sync.Mutex
	came  time.Time // when the first batch came; zero until then
	timer *time.Timer
}

func (f *firstBatch) isThere() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = time.Now()
	f.timer = time.AfterFunc(readWaitsFor, f.giveUp)
}

// isLongAgo tells whether the first batch came so long ago that a batch requested now would come too late.
func (f *firstBatch) isLongAgo() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.came.IsZero() && time.Since(f.came) >= readWaitsFor-max(f.came.Sub(f.began), readLast)
}

// forget stops the timer. It is called when the read ends.
func (f *firstBatch) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}

// readBatch returns the bytes of a batch, from the cache or from the store, and where the batch is: it may have moved
// since it was found. The bytes have the CRC that the state has for the batch. They are shared: the caller must not
// change them.
func (c *Cursor) readBatch(ctx context.Context, l state.Location) (state.Location, []byte, error) {
	raw := make([][]byte, 1)
	offset := max(l.Base, c.Offset)
	err := c.tries(ctx, offset, &l, func(loads uint64) (err error) {
		if l.Segment != nil { // the batch has moved into a segment
			if l, err = c.row(ctx, l, offset, loads); err != nil {
				return err
			}
		}
		if raw[0] = c.e.cache.Get(rangeOf(l)); raw[0] != nil {
			return nil
		}
		return c.e.fetchShared(ctx, []state.Location{l}, c.around, loads, raw)
	})
	return l, raw[0], err
}

// tries calls read, which reads what the state has at an offset, until it succeeds, at most batchReadTries times. at is
// where read looks; before each further try, tries sets it to where the state has the offset then. A try does not count
// if the records have moved meanwhile: what the store has at the old place says nothing about them.
func (c *Cursor) tries(ctx context.Context, offset format.Offset, at *state.Location, read func(loads uint64) error) error {
	var (
		e     = c.e
		loads = c.loads
		last  error
	)
	for try := 0; try < batchReadTries; {
		before := *at
		err := read(loads)
		_, full := errors.AsType[*budget.FullError](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case e.life.Err() != nil:
			return ErrClosed
		case full:
			return err // no retry, since the flight has already waited for memory
		}
		var gone error
		if *at, loads, gone = c.relocate(offset); gone != nil {
			return gone
		}
		switch {
		case at.Object != before.Object || at.Segment == nil && *at != before:
			last = nil
		case errors.Is(err, errMoved):
			try++
		default:
			// The last error decides whether the batch is lost. But after an attempt that failed for
			// another reason, such as a timeout, a corrupt answer is ignored; a missing object is not.
			if last == nil || lost(last) || errors.Is(err, objstore.ErrNotFound) {
				last = err
			}
			e.logger.Warn("could not read a batch", "object", objectKey(at.Object), "offset", offset, "err", err)
			pause(ctx, try)
			try++
		}
	}
	if lost(last) {
		return e.dataLost(*at, last)
	}
	return &StoreError{Doing: fmt.Sprintf("offset %d could not be read", offset), RetryAfter: retryMax, Err: last}
}

// errMoved says that a checkpoint has replaced the state that told the reader where a batch is. The batch
// may be in another place now, and the log lease says nothing about the old place.
var errMoved = errors.New("a checkpoint has replaced the state")

// lost tells whether err says that an object is missing, or differs from what the log says. A batch with an
// unknown magic is damaged: every batch had a known magic when it was committed.
func lost(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrNotRegular) || errors.Is(err, record.ErrCorrupt) ||
		errors.Is(err, record.ErrMagic) || errors.Is(err, format.ErrCorrupt) || errors.Is(err, sst.ErrCorrupt)
}

// dataLost counts a batch that is missing or damaged, and returns the error for readers. err is the
// cause.
func (e *Engine) dataLost(l state.Location, err error) error {
	e.metrics.dataLost.Add(1)
	return &DataLostError{Key: objectKey(l.Object), First: l.Base, Last: l.End() - 1, Err: err}
}

// fetchShared reads batches that lie in one object, one behind the other, into raws. loads is how many checkpoints the
// engine had loaded when the batches were found. If another reader is just reading the same batches, or, with around, the
// same windows of the object, fetchShared waits for that reader, and then goes on with what that reader did not put into the
// cache.
func (e *Engine) fetchShared(ctx context.Context, ls []state.Location, around bool, loads uint64, raws [][]byte) error {
	for tries := len(ls); ; tries-- {
		off, n := extentOf(ls, around)
		keys := flightKeys(ls, withOthers(ls[0], around))
		if tries == 0 {
			keys = nil // this request is for this reader alone, so that it need not wait for others again
		}
		var (
			mine bool
			got  [][]byte
		)
		err := e.cache.Flight(ctx, keys, func(ctx context.Context) (err error) {
			if keys != nil && e.cache.Has(rangeOf(ls[0])) {
				return nil // another flight has landed since this read looked into the cache
			}
			mine = true
			got, err = e.fetchExtent(ctx, ls, off, n, loads)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err() // the flight may still be writing mine and got
		case mine:
			copy(raws, got)
			return err
		case err != nil && !lost(err) && !errors.Is(err, errMoved):
			return err // it says something about the store, not about other batches
		}
		for i, l := range ls {
			raws[i] = e.cache.Get(rangeOf(l))
		}
		for len(raws) > 0 && raws[0] != nil {
			ls, raws = ls[1:], raws[1:]
		}
		if len(raws) == 0 {
			return nil
		}
	}
}

// flightKeys returns the keys of a flight that reads batches which lie in one object: those of the batches, and, with windows, those
// of the windows of the object that are read with them.
func flightKeys(ls []state.Location, windows bool) (keys []any) {
	for _, l := range ls {
		keys = append(keys, batchOf(rangeOf(l)))
	}
	if windows {
		off, n := extentOf(ls, true)
		for number := off / readWindowBytes; number*readWindowBytes < off+n; number++ {
			keys = append(keys, window{ls[0].Object, uint32(number)})
		}
	}
	return keys
}

// withOthers tells whether a read of a batch reads other batches of the object. In segments, the neighbours mostly are of no use to
// others. In small objects of the tail, they cost nothing. In larger ones, the caller decides with around.
func withOthers(l state.Location, around bool) bool {
	return l.Row == nil && (around || l.Object.Size <= aheadWhole)
}

// extentOf returns which bytes of the object are read for the batches of ls: the batches alone; or also their neighbours, which are
// the whole object if it is small, and else what follows the batches.
func extentOf(ls []state.Location, around bool) (off, n int64) {
	first, last := ls[0], ls[len(ls)-1]
	size := int64(first.Object.Size)
	off = int64(first.Pos)
	n = int64(last.Pos) + int64(last.Size) - off
	switch {
	case !withOthers(first, around):
		return off, n
	case size <= readWindowBytes:
		return 0, size
	default:
		return off, min(max(n, readWindowBytes), size-off)
	}
}

// fetchExtent reads n bytes of an object from off on. They contain the batches of ls, which it returns, and it puts all
// batches in them into the cache: see cacheAround.
func (e *Engine) fetchExtent(ctx context.Context, ls []state.Location, off, n int64, loads uint64) (raws [][]byte, err error) {
	err = e.readObject(ctx, ls[0].Object, off, n, loads, func(body []byte) error {
		wanted := int64(0)
		for _, l := range ls {
			at := int64(l.Pos) - off
			raw := body[at : at+int64(l.Size) : at+int64(l.Size)]
			if err := record.Verify(raw, l.CRC); err != nil {
				return err
			}
			raws = append(raws, raw)
			wanted += int64(l.Size)
		}
		if wanted < n/2 { // else the batches would keep much more in memory than the reader knows of
			for i := range raws {
				raws[i] = bytes.Clone(raws[i])
			}
		}
		e.cacheAround(rangeOf(ls[0]), body, off)
		return nil
	})
	return raws, err
}

// readObject reads n bytes of an object from off on, and passes them to use. ctx belongs to a flight. loads is how many
// checkpoints the engine had loaded when the state named the object.
func (e *Engine) readObject(ctx context.Context, object state.Object, off, n int64, loads uint64, use func(body []byte) error) error {
	// ctx does not end when a reader gives up. So make it end when the engine ends.
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(e.life, end)()
	key := objectKey(object)
	// Fetches are a class of their own in the budget, for two reasons: requests that hold memory of the
	// budget wait for fetches, so fetches must not wait for these requests; and appends must not wait
	// behind fetches.
	if err := e.budget.Take(ctx, budget.Fetches, n); err != nil {
		return err
	}
	defer e.budget.Give(budget.Fetches, n)
	rctx, cancel := storeContext(ctx, n)
	defer cancel()
	o, err := e.readStore(ctx).Get(rctx, key, off, n)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	if cerr := e.covered(ctx, o, loads); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	if o.Size != int64(object.Size) || int64(len(o.Body)) != n {
		return fmt.Errorf("%s: %w: the object has %d bytes, and a read of %d bytes from offset %d on returned %d; the log says that the object has %d bytes", key, format.ErrCorrupt, o.Size, n, off, len(o.Body), object.Size)
	}
	if err := use(o.Body); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// covered returns nil if the engine may rely on an answer of the store about data of the log: because the
// log lease covers the answer, or because a List after the answer shows that the answer was right. loads
// is how many checkpoints the engine had loaded when the state said where the data is.
func (e *Engine) covered(ctx context.Context, o objstore.Object, loads uint64) error {
	if !e.log.Covers(o.Time) {
		if err := e.sync(ctx, &syncRequest{relist: true}); err != nil {
			return err
		}
	}
	if e.loadCount() != loads {
		return errMoved
	}
	return nil
}

func (e *Engine) loadCount() (loads uint64) {
	e.View(func(*state.State) { loads = e.loads })
	return loads
}

// cacheAround puts the batches in window into the cache, up to the first batch that is cut off or does
// not verify. window has the bytes of an object from off on, and contains the batch r. Each batch is
// copied, so that the cache can free one batch without the others.
func (e *Engine) cacheAround(r cache.Range, window []byte, off int64) {
	at := int64(r.Pos) - off
	if off == 0 {
		p, err := format.DecodePrologue(window)
		if err != nil {
			return
		}
		at = p.End()
	}
	for at < int64(len(window)) {
		head, err := record.Parse(window[at:])
		if err != nil {
			return // the window ends inside a batch
		}
		raw := window[at : at+int64(head.Size)]
		if record.Verify(raw, head.CRC) != nil {
			return
		}
		x := cache.Range{Object: r.Object, Pos: uint32(off + at), Size: uint32(head.Size), CRC: head.CRC}
		e.cache.AddFetched(x, append([]byte(nil), raw...))
		at += int64(head.Size)
	}
}
