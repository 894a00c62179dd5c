package seb

import (
	"cmp"
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
	batchReadsMax  = 16 // side by side for one fetch
	// readWindowBytes is how much is read at once where a batch is smaller.
	readWindowBytes = 1 * mib
)

// flightKey makes readers of one batch share one request to the store.
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

// readWaitsFor is how long a read waits for more once its first batch is there. Its caller
// gets the batches that came by then and continues after them: all of them may take longer
// than a proxy between it and the broker waits. Toward the end of that time, for as long as
// the first batch took and at least readLast, the read begins no more requests.
const (
	readWaitsFor = time.Second
	readLast     = readWaitsFor / 4
)

// readBatches returns the batches at the cursor, in order, up to the first that could not
// be read, or did not come soon enough behind the first batch. Those that are not in the
// cache are read side by side: one after the other, a thousand small commits would take
// a thousand round trips.
func (b *Broker) readBatches(ctx context.Context, c *cursor) ([][]byte, error) {
	if len(c.locations) == 0 {
		return nil, nil // at the end: a context would stay registered with ctx while the caller waits
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		raws   = make([][]byte, len(c.locations))
		errs   = make([]error, len(c.locations))
		failed atomic.Bool // later batches are of no use
		begun  = len(raws) // those before it were asked for
		first  = firstBatch{began: time.Now(), giveUp: cancel}
		wg     sync.WaitGroup
		places = make(chan struct{}, batchReadsMax)
	)
	defer first.forget()
	for i, l := range c.locations {
		if first.isLongAgo() {
			begun = i
			break
		}
		if raws[i] = b.cache.Get(rangeOf(l)); raws[i] != nil {
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
			raws[i], errs[i] = b.readBatch(ctx, c, l)
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

// firstBatch is what a read knows of its first batch.
type firstBatch struct {
	began  time.Time
	giveUp func() // is called when the batch has been there for readWaitsFor

	mu    sync.Mutex
	came  time.Time // zero until it came
	timer *time.Timer
}

func (f *firstBatch) isThere() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = time.Now()
	f.timer = time.AfterFunc(readWaitsFor, f.giveUp)
}

// isLongAgo tells whether another batch would come too late.
func (f *firstBatch) isLongAgo() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.came.IsZero() && time.Since(f.came) >= readWaitsFor-max(f.came.Sub(f.began), readLast)
}

// forget is called when the read is over.
func (f *firstBatch) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}

// readBatch returns the bytes of a batch, whose CRC is the one in the state,
// from the cache or from the store. They are shared and read-only.
func (b *Broker) readBatch(ctx context.Context, c *cursor, l state.Location) ([]byte, error) {
	var (
		r     = rangeOf(l)
		loads = c.loads
		last  error
	)
	for try := 0; try < batchReadTries; {
		if raw := b.cache.Get(r); raw != nil {
			return raw, nil
		}
		var raw []byte
		err := b.cache.Flight(ctx, flightKey(r), func(ctx context.Context) (err error) {
			raw, err = b.fetchBatch(ctx, r, l, loads)
			return err
		})
		switch {
		case err == nil && raw != nil: // without err, the flight may still be writing raw
			return raw, nil
		case ctx.Err() != nil:
			return nil, canceled(ctx)
		case b.life.Err() != nil:
			return nil, errClosed()
		case CodeOf(err) == CodeOverMemoryBudget:
			return nil, err // Take has waited already
		case errors.Is(err, errMoved):
			if l, loads, err = c.relocate(l); err != nil {
				return nil, err
			}
			r = rangeOf(l)
			try++
		case err != nil:
			// A corrupt answer counts as damage only if every attempt got one.
			if last == nil || lost(last) || errors.Is(err, objstore.ErrNotFound) {
				last = err
			}
			b.logger.Warn("could not read a batch", "object", objectKey(l.Object), "offset", l.Base, "err", err)
			pause(ctx, try)
			try++
		}
		// Without an error another reader fetched it: the cache has it, or had.
	}
	if lost(last) {
		return nil, b.dataLost(l, last)
	}
	return nil, &Error{Code: CodeStoreUnavailable, Detail: fmt.Sprintf("offset %d could not be read", l.Base), Err: last, RetryAfter: retryMax}
}

// errMoved: a checkpoint has replaced the state since it told where to read. The batch
// may be elsewhere now, and the lease of the new state says nothing about
// where the old one looked.
var errMoved = errors.New("a checkpoint has replaced the state")

// lost tells whether err says that an object isn't what the log says it is. Every
// batch of the log had the magic that is known here when it was committed.
func lost(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrNotRegular) || errors.Is(err, record.ErrCorrupt) ||
		errors.Is(err, record.ErrMagic) || errors.Is(err, format.ErrCorrupt)
}

func (b *Broker) dataLost(l state.Location, err error) error {
	b.metrics.dataLost.Add(1)
	return &Error{
		Code:   CodeDataLost,
		Detail: fmt.Sprintf("%s, which holds offsets %d to %d, is missing or damaged", objectKey(l.Object), l.Base, l.Base+l.Count-1),
		Hint:   "restore the object from a copy or an earlier version of the bucket; other records are not affected",
		Err:    err,
	}
}

// relocate finds the batch of l in the current state, and returns how many loads that has seen.
func (c *cursor) relocate(l state.Location) (now state.Location, loads uint64, err error) {
	now = l
	var moved error
	err = c.view(func(s *state.State, seen uint64, t *state.Topic, p *state.Partition) {
		// The partition may begin in the middle of the batch.
		ls := s.Locate(nil, t, c.partition, max(l.Base, p.Start), 1, 1)
		if len(ls) == 0 || ls[0].Base != l.Base {
			moved = outOfRange(c.topic, c.partition, max(l.Base, c.offset), p.Start, p.End)
			return
		}
		now, loads = ls[0], seen
	})
	return now, loads, cmp.Or(err, moved)
}

// fetchBatch reads a batch from the store, and with it those that stand around
// it: all of a small object, or what follows in a large one. All that verify go
// into the cache. loads is the broker's when l was found.
func (b *Broker) fetchBatch(ctx context.Context, r cache.Range, l state.Location, loads uint64) ([]byte, error) {
	// A flight outlives its readers' contexts, but not the broker.
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(b.life, end)()
	key := objectKey(l.Object)
	off, n := int64(l.Pos), min(max(int64(l.Size), readWindowBytes), int64(l.Object.Size)-int64(l.Pos))
	if int64(l.Object.Size) <= readWindowBytes {
		off, n = 0, int64(l.Object.Size)
	}
	// A class of its own: adapters hold memory while they wait for this, and appends are
	// not to wait behind it.
	if err := b.budget.Take(ctx, budget.Fetches, n); err != nil {
		return nil, memoryError(err)
	}
	defer b.budget.Give(budget.Fetches, n)
	rctx, cancel := storeContext(ctx, n)
	defer cancel()
	o, err := b.store.Get(rctx, key, off, n)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) {
		return nil, err
	}
	if cerr := b.covered(ctx, o, loads); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	if o.Size != int64(l.Object.Size) || int64(len(o.Body)) != n {
		return nil, fmt.Errorf("%s: %w: %d of %d bytes, not %d of %d", key, format.ErrCorrupt, len(o.Body), o.Size, n, l.Object.Size)
	}
	at := int64(l.Pos) - off
	raw := o.Body[at : at+int64(l.Size) : at+int64(l.Size)]
	if err := record.Verify(raw, l.CRC); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	b.cacheAround(r, o.Body, off)
	return raw, nil
}

// covered makes sure that an answer about live data may be used: that the lease
// covers it, or that a List shows that it was good when it was given. loads is
// the broker's when the state told where the data is.
func (b *Broker) covered(ctx context.Context, o objstore.Object, loads uint64) error {
	if !b.log.Covers(o.Time) {
		if err := b.syncNow(ctx, true); err != nil {
			return err
		}
	}
	if b.loadCount() != loads {
		return errMoved
	}
	return nil
}

func (b *Broker) loadCount() uint64 {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.loads
}

// cacheAround puts the batches of a window of an object into the cache. Each is
// copied, so that one that is kept doesn't hold the memory of all.
func (b *Broker) cacheAround(r cache.Range, window []byte, off int64) {
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
		b.cache.AddFetched(x, append([]byte(nil), raw...))
		at += int64(head.Size)
	}
}
