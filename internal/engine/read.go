package engine

import (
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
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	batchReadTries = 3
	// ReadsMax is how many batches one reader reads at once.
	ReadsMax = 16
	// A read of an object asks for at least readWindowBytes, unless the object ends before.
	readWindowBytes = 1 * mib
)

// flightKey identifies a flight: a request to the store that all readers of one batch share.
type flightKey cache.Range

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
// that can't be read, or that comes too late: see readWaitsFor. readFound reads up to ReadsMax batches from
// the store at the same time: one after the other, the batches of a thousand small commits would take a
// thousand round trips.
func (c *Cursor) readFound(ctx context.Context) ([][]byte, error) {
	if len(c.found) == 0 {
		return nil, nil // return before WithCancel, whose memory ctx would keep while the caller waits
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		raws   = make([][]byte, len(c.found))
		errs   = make([]error, len(c.found))
		failed atomic.Bool // a read failed, so that later batches are of no use
		begun  = len(raws) // only batches with a lower index were requested
		first  = firstBatch{began: time.Now(), giveUp: cancel}
		wg     sync.WaitGroup
		places = make(chan struct{}, ReadsMax)
	)
	defer first.forget()
	for i, l := range c.found {
		if first.isLongAgo() {
			begun = i
			break
		}
		if raws[i] = c.e.cache.Get(rangeOf(l)); raws[i] != nil {
			if i == 0 {
				first.isThere()
			}
			continue
		}
		places <- struct{}{}
		if failed.Load() {
			begun = i
			break
		}
		wg.Go(func() {
			raws[i], errs[i] = c.readBatch(ctx, l)
			switch {
			case errs[i] != nil:
				failed.Store(true)
			case i == 0:
				first.isThere()
			}
			<-places
		})
	}
	wg.Wait()
	for i, err := range errs[:begun] {
		if err != nil {
			return raws[:i], err
		}
	}
	return raws[:begun], nil
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

// readBatch returns the bytes of a batch, from the cache or from the store. The bytes have the CRC that
// the state has for the batch. They are shared: the caller must not change them.
func (c *Cursor) readBatch(ctx context.Context, l state.Location) ([]byte, error) {
	var (
		e     = c.e
		at    = rangeOf(l)
		loads = c.loads
		last  error
	)
	for try := 0; try < batchReadTries; {
		if raw := e.cache.Get(at); raw != nil {
			return raw, nil
		}
		var raw []byte
		err := e.cache.Flight(ctx, flightKey(at), func(ctx context.Context) (err error) {
			raw, err = e.fetchBatch(ctx, at, l, loads)
			return err
		})
		_, full := errors.AsType[*budget.FullError](err)
		switch {
		case err == nil && raw != nil: // check err first: if err is not nil, the flight may still be writing raw
			return raw, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case e.life.Err() != nil:
			return nil, ErrClosed
		case full:
			return nil, err // no retry, since the flight has already waited for memory
		case errors.Is(err, errMoved):
			if l, loads, err = c.relocate(l); err != nil {
				return nil, err
			}
			at = rangeOf(l)
			try++
		case err != nil:
			// The last error decides whether the batch is lost. But after an attempt that failed for
			// another reason, such as a timeout, a corrupt answer is ignored; a missing object is not.
			if last == nil || lost(last) || errors.Is(err, objstore.ErrNotFound) {
				last = err
			}
			e.logger.Warn("could not read a batch", "object", objectKey(l.Object), "offset", l.Base, "err", err)
			pause(ctx, try)
			try++
		}
		// If err is nil here, another reader's flight has fetched the batch into the cache: look there again.
	}
	if lost(last) {
		return nil, e.dataLost(l, last)
	}
	return nil, &StoreError{Doing: fmt.Sprintf("offset %d could not be read", l.Base), RetryAfter: retryMax, Err: last}
}

// errMoved says that a checkpoint has replaced the state that told the reader where a batch is. The batch
// may be in another place now, and the log lease says nothing about the old place.
var errMoved = errors.New("a checkpoint has replaced the state")

// lost tells whether err says that an object is missing, or differs from what the log says. A batch with an
// unknown magic is damaged: every batch had a known magic when it was committed.
func lost(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrNotRegular) || errors.Is(err, record.ErrCorrupt) ||
		errors.Is(err, record.ErrMagic) || errors.Is(err, format.ErrCorrupt)
}

// dataLost counts a batch that is missing or damaged, and returns the error for readers. err is the
// cause.
func (e *Engine) dataLost(l state.Location, err error) error {
	e.metrics.dataLost.Add(1)
	return &DataLostError{Key: objectKey(l.Object), First: l.Base, Last: l.Base + format.Offset(l.Count) - 1, Err: err}
}

// fetchBatch reads a batch from the store, together with other batches in the same object: all batches
// of a small object, or batches that follow in a large object. It puts these batches into the cache: see
// cacheAround. loads is how many checkpoints the engine had loaded when l was found.
func (e *Engine) fetchBatch(ctx context.Context, r cache.Range, l state.Location, loads uint64) ([]byte, error) {
	// ctx belongs to the flight, and does not end when a reader gives up. So make it end when the engine ends.
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(e.life, end)()
	key := objectKey(l.Object)
	off, n := int64(l.Pos), min(max(int64(l.Size), readWindowBytes), int64(l.Object.Size)-int64(l.Pos))
	if int64(l.Object.Size) <= readWindowBytes {
		off, n = 0, int64(l.Object.Size)
	}
	// Fetches are a class of their own in the budget, for two reasons: requests that hold memory of the
	// budget wait for fetches, so fetches must not wait for these requests; and appends must not wait
	// behind fetches.
	if err := e.budget.Take(ctx, budget.Fetches, n); err != nil {
		return nil, err
	}
	defer e.budget.Give(budget.Fetches, n)
	rctx, cancel := storeContext(ctx, n)
	defer cancel()
	o, err := e.store.Get(rctx, key, off, n)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return nil, err
	}
	if cerr := e.covered(ctx, o, loads); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	if o.Size != int64(l.Object.Size) || int64(len(o.Body)) != n {
		return nil, fmt.Errorf("%s: %w: the object has %d bytes, and a read of %d bytes from offset %d on returned %d; the log says that the object has %d bytes", key, format.ErrCorrupt, o.Size, n, off, len(o.Body), l.Object.Size)
	}
	at := int64(l.Pos) - off
	raw := o.Body[at : at+int64(l.Size) : at+int64(l.Size)]
	if err := record.Verify(raw, l.CRC); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	e.cacheAround(r, o.Body, off)
	return raw, nil
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
