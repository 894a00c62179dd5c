package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// Reading ahead: if a read begins where another one has ended, and that one needed the store, the engine reads what follows into
// the cache, so that the next reads find it there. Readers are known by where they go on, since each page of a read over HTTP has
// a cursor of its own. The requests are larger, or more at once, than those of a read: see aheadExtent and aheadRequests. Reads
// that are random, or find everything in the cache, read nothing ahead.

const (
	// The engine reads aheadTimes as much ahead as a reader has read so far, so that little is in vain if the reader does not go on: at
	// least aheadLeast and aheadLeastPieces, at most aheadMax and aheadPieces. A batch counts as aheadBatch bytes more than its records.
	aheadTimes       = 8
	aheadLeast       = 64 << 10
	aheadLeastPieces = 16
	aheadBatch       = 512
	// aheadMax is how far ahead the engine reads for one reader, in bytes.
	aheadMax = 16 * mib
	// All that is read ahead, and not read yet, takes at most 1/aheadShare of the memory budget, and half of the cache.
	aheadShare = 8
	// aheadExtent is the least size of a request, if so many bytes follow each other in the object.
	aheadExtent = 1 * mib
	// aheadRequests is how many requests for reading ahead are under way at once. The tail of a slow log has small commits: with a
	// store that takes 30 ms for each request, a reader gets 8,000 of them in a second.
	aheadRequests = 320
	// aheadPieces bounds what is read ahead for one reader: objects, or extents of objects.
	aheadPieces = 4096
	// aheadWhole is the size of a commit that is read as a whole, although only one batch of it is wanted.
	aheadWhole = 64 << 10
	// aheadTables is of how many segments the engine reads the tables before it gets there.
	aheadTables = 32
	// aheadIdle is after which time a reader that does not go on is forgotten.
	aheadIdle = 5 * time.Second
	// aheadReaders is how many readers are known at once.
	aheadReaders = 256
)

// ahead is what an engine reads ahead.
type ahead struct {
	mu       sync.Mutex
	closed   bool
	readers  map[aheadPlace]*aheadReader // those that are not reading just now, by where they go on
	bytes    int64                       // of all pieces
	requests int                         // under way
	tasks    sync.WaitGroup

	unpacking *unpacking
}

// aheadPlace is where a reader goes on.
type aheadPlace struct {
	partitionOf
	offset format.Offset
}

// aheadReader is a reader for whom the engine reads ahead. The mutex of ahead guards its fields.
type aheadReader struct {
	cursor *Cursor // finds batches; owned by the goroutine that plans
	place  aheadPlace
	used   time.Time // when it read last

	// Set once the reader has gone on:
	ctx    context.Context //nolint:containedctx // it ends when the reader is forgotten
	cancel context.CancelFunc
	idle   *time.Timer

	batches  int           // that the reader has read
	read     int64         // size of the records that the reader has read
	window   int64         // how far ahead the engine reads, in bytes
	next     format.Offset // where the next piece begins
	pieces   []aheadPiece  // from the reader's offset on, by offset
	bytes    int64         // of pieces
	planning bool          // a goroutine plans what to read
	unpacked []*unpacked   // what a read has decompressed for the next one; while no read is under way
}

// aheadPiece is what one request reads, or what the cache has anyway.
type aheadPiece struct {
	end   format.Offset
	bytes int64
}

// resume returns the reader that goes on at a cursor; nil if none is known. The cursor has found what it reads next. What of that was
// not read ahead, resume reads ahead: the requests of the read itself may be smaller.
func (e *Engine) resume(c *Cursor) *aheadReader {
	r, plan := e.resumed(c)
	if plan {
		e.planAhead(r)
	}
	return r
}

// resumed is the part of resume under the lock. plan says that the caller must call planAhead.
func (e *Engine) resumed(c *Cursor) (r *aheadReader, plan bool) {
	a := &e.ahead
	at := aheadPlace{partitionOf{c.id, c.partition}, c.Offset}
	a.mu.Lock()
	defer a.mu.Unlock()
	r = a.readers[at]
	if r == nil || a.closed {
		return nil, false
	}
	delete(a.readers, at)
	if r.ctx == nil && c.reach() >= c.end { // the reader has caught up: nothing is left to read ahead
		return nil, false
	}
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithCancel(e.life)
		r.idle = time.AfterFunc(aheadIdle, func() { a.forget(r) })
		r.next = c.Offset
	} else {
		r.idle.Stop()
	}
	r.window = min(max(aheadTimes*(r.read+int64(r.batches)*aheadBatch), aheadLeast), aheadMax)
	r.passLocked(a, c.Offset)
	if r.next < c.reach() && !r.planning {
		r.planning = true
		return r, true
	}
	e.planLocked(r)
	return r, false
}

// rest notes where a reader goes on, which has read some batches and bytes. r is what resume has returned; missed says that its read
// needed the store.
func (e *Engine) rest(r *aheadReader, c *Cursor, missed bool, batches int, bytes int64, err error) {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	if r != nil && r.ctx.Err() != nil {
		r = nil // a request has failed
	}
	switch {
	case a.closed || err != nil || c.Offset >= c.end:
		a.dropLocked(r)
		return
	case r == nil && !missed:
		return
	case r == nil:
		r = &aheadReader{cursor: e.NewCursor(c.topic, c.id, c.partition, c.Offset)}
	default:
		r.passLocked(a, c.Offset)
		r.idle.Reset(aheadIdle)
		e.planLocked(r)
	}
	r.batches, r.read = r.batches+batches, r.read+bytes
	r.place, r.used = aheadPlace{partitionOf{c.id, c.partition}, c.Offset}, time.Now()
	a.dropLocked(a.readers[r.place])
	a.readers[r.place] = r
	if len(a.readers) > aheadReaders {
		oldest := r
		for _, x := range a.readers {
			if x.used.Before(oldest.used) {
				oldest = x
			}
		}
		a.dropLocked(oldest)
	}
}

// passLocked drops the pieces below an offset: the reader has read them.
func (r *aheadReader) passLocked(a *ahead, offset format.Offset) {
	n := 0
	for n < len(r.pieces) && r.pieces[n].end <= offset {
		r.bytes, a.bytes = r.bytes-r.pieces[n].bytes, a.bytes-r.pieces[n].bytes
		n++
	}
	r.pieces = r.pieces[n:]
	r.next = max(r.next, offset)
}

// dropLocked forgets a reader, and ends its requests.
func (a *ahead) dropLocked(r *aheadReader) {
	if r == nil {
		return
	}
	if a.readers[r.place] == r {
		delete(a.readers, r.place)
	}
	a.bytes, r.bytes, r.pieces = a.bytes-r.bytes, 0, nil
	a.unpacking.drop(r.unpacked)
	r.unpacked = nil
	if r.ctx != nil {
		r.cancel()
		r.idle.Stop()
	}
}

func (a *ahead) forget(r *aheadReader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers[r.place] == r { // it is not reading just now
		a.dropLocked(r)
	}
}

// close ends all requests, and waits for them.
func (a *ahead) close() {
	a.mu.Lock()
	a.closed = true
	for _, r := range a.readers {
		a.dropLocked(r)
	}
	a.mu.Unlock()
	a.tasks.Wait()
}

// planLocked lets a goroutine plan what to read for a reader.
func (e *Engine) planLocked(r *aheadReader) {
	if r.planning || e.ahead.closed {
		return
	}
	r.planning = true
	e.ahead.tasks.Go(func() { e.planAhead(r) })
}

// planAhead finds what to read for a reader, and reads it, as far as the bounds allow.
func (e *Engine) planAhead(r *aheadReader) {
	for {
		from, room, count := e.aheadRoom(r)
		if count == 0 {
			return
		}
		ls, others, err := r.cursor.locateAhead(r.ctx, from, room, count)
		if err != nil || len(ls) == 0 {
			e.aheadFailed(r, err)
			return
		}
		for len(ls) > 0 && room > 0 {
			n := 0
			for n < len(ls) && e.cache.Has(rangeOf(ls[n])) {
				n++
			}
			if n > 0 {
				e.note(r, ls[:n], sizeOf(ls[:n]))
				room -= sizeOf(ls[:n])
			} else {
				n = extentAhead(ls)
				room -= e.launch(r, ls[:n:n], others)
			}
			ls = ls[n:]
		}
	}
}

// aheadRoom returns from which offset on the engine reads ahead for a reader, and how many bytes and pieces. If count is 0, the
// goroutine that plans ends.
func (e *Engine) aheadRoom(r *aheadReader) (from format.Offset, room int64, count int) {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	most := min(e.opts.Memory/aheadShare, e.cache.MemoryMax()/2)
	window := min(r.window, most-a.bytes+r.bytes)
	pieces := min(max(aheadTimes*r.batches, aheadLeastPieces), aheadPieces)
	room, count = window-r.bytes, min(pieces-len(r.pieces), aheadRequests-a.requests)
	if least := min(aheadExtent, most, r.window); r.ctx.Err() != nil || room < least || room <= 0 || count <= 0 {
		r.planning = false
		return 0, 0, 0
	}
	return r.next, room, count
}

// aheadFailed ends the planning for a reader. Without an error, nothing is left to read.
func (e *Engine) aheadFailed(r *aheadReader, err error) {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	r.planning = false
	if err == nil || r.ctx.Err() != nil {
		return
	}
	a.dropLocked(r)
	if !errors.Is(err, context.Canceled) {
		e.logger.Debug("could not read ahead", "topic", r.cursor.topic, "partition", int(r.cursor.partition), "err", err)
	}
}

// locateAhead returns the batches from an offset on, of about as many bytes, and in the tail at most count. Those of a segment end
// with a whole extent, or with the range. others says that the topic has other partitions, so that their batches are read too where
// that costs no further request.
func (c *Cursor) locateAhead(ctx context.Context, from format.Offset, bytes int64, count int) (ls []state.Location, others bool, err error) {
	var segments []*state.Segment
	c.Offset = from
	err = c.view(func(s *state.State, t *state.Topic, p *state.Partition) error {
		ls = s.Locate(nil, t, c.partition, from, bytes, count)
		others, c.loads = len(t.Partitions) > 1, c.e.loads
		segments = c.segmentsAhead(s, t, ls, bytes)
		return nil
	})
	if err != nil || len(ls) == 0 || ls[0].Segment == nil {
		return ls, others, err
	}
	c.e.readTables(ctx, segments, c.loads)
	end := ls[0].End()
	ls, err = c.rows(ctx, ls[0], c.loads, &ReadOptions{Records: int(^uint(0) >> 1), Bytes: bytes})
	if err == nil && ls[len(ls)-1].End() < end {
		last := 0
		for n := 0; n < len(ls); n += extentAhead(ls[n:]) {
			last = n
		}
		if last > 0 && sizeOf(ls[last:]) < aheadExtent {
			ls = ls[:last] // more of it comes with the next plan
		}
	}
	return ls, false, err
}

// segmentsAhead returns the segments behind a range in a segment whose tables are to be read, within as many bytes of the partition:
// their batches could otherwise be asked for only one segment after the other.
func (c *Cursor) segmentsAhead(s *state.State, t *state.Topic, ls []state.Location, bytes int64) (found []*state.Segment) {
	for len(ls) == 1 && ls[0].Segment != nil && len(found) < aheadTables && bytes > 0 {
		bytes -= int64(ls[0].Size)
		if ls = s.Locate(nil, t, c.partition, ls[0].End(), 1, 1); len(ls) > 0 && ls[0].Segment != nil && ls[0].Base >= c.tables {
			found, c.tables = append(found, ls[0].Segment), ls[0].End()
		}
	}
	return found
}

// readTables reads the tables of segments into the cache. If it can't, the plan that needs them does it again.
func (e *Engine) readTables(ctx context.Context, segments []*state.Segment, loads uint64) {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range segments {
		if a.closed {
			return
		}
		a.tasks.Go(func() {
			if _, err := e.table(ctx, n, loads); err != nil && ctx.Err() == nil {
				e.logger.Debug("could not read the table of a segment ahead", "object", n.Ref.Key(), "err", err)
			}
		})
	}
}

func sizeOf(ls []state.Location) (n int64) {
	for _, l := range ls {
		n += int64(l.Size)
	}
	return n
}

// extentAhead returns how many batches, from the first one on, one request reads: neighbours in one object, until they have
// aheadExtent bytes. It reads all of them if only a few bytes would be left.
func extentAhead(ls []state.Location) (n int) {
	end, least := ls[0].Pos, 0
	for ; n < len(ls) && ls[n].Object == ls[0].Object && ls[n].Pos == end && end-ls[0].Pos < aheadExtent*3/2; n++ {
		end += ls[n].Size
		if least == 0 && end-ls[0].Pos >= aheadExtent {
			least = n + 1
		}
	}
	if least > 0 && end-ls[0].Pos >= aheadExtent*3/2 {
		return least
	}
	return n
}

// note adds a piece that has these batches, and is counted with so many bytes. It returns false if the reader is forgotten.
func (e *Engine) note(r *aheadReader, ls []state.Location, bytes int64) bool {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.ctx.Err() != nil || a.closed {
		return false
	}
	r.next = ls[len(ls)-1].End()
	r.pieces = append(r.pieces, aheadPiece{r.next, bytes})
	r.bytes, a.bytes = r.bytes+bytes, a.bytes+bytes
	return true
}

// launch reads batches with one request, and returns for how many bytes it asks.
func (e *Engine) launch(r *aheadReader, ls []state.Location, others bool) (n int64) {
	a, object, off := &e.ahead, ls[0].Object, int64(ls[0].Pos)
	n = sizeOf(ls)
	a.mu.Lock()
	window := r.window
	a.mu.Unlock()
	whole := !object.Data && (object.Size <= aheadWhole || others && int64(object.Size) <= min(readWindowBytes, window))
	if whole {
		off, n = 0, int64(object.Size)
	}
	if !e.note(r, ls, n) {
		return n
	}
	loads := r.cursor.loads
	wait := e.cache.Begin(r.ctx, flightKeys(ls, whole), func(ctx context.Context) error {
		// Other flights may have landed since the plan looked into the cache.
		first := slices.IndexFunc(ls, func(l state.Location) bool { return !e.cache.Has(rangeOf(l)) })
		if first < 0 {
			return nil
		}
		ls, off, n := ls[first:], off, n
		if !whole {
			off, n = int64(ls[0].Pos), sizeOf(ls)
		}
		return e.readObject(ctx, object, off, n, loads, func(body []byte) error {
			// What the reader waits for comes last: once the reader has it, the reader may end, which ends this flight.
			if whole && others {
				if err := e.keepOthers(r.cursor.id, ls, body); err != nil {
					return err
				}
			}
			return e.keepAhead(ls, body, off)
		})
	})
	landed := func() {
		err := wait()
		a.mu.Lock()
		a.requests--
		if err == nil {
			e.planLocked(r)
		}
		a.mu.Unlock()
		if err != nil {
			e.aheadFailed(r, err)
		}
	}
	a.mu.Lock()
	a.requests++
	closed := a.closed
	if !closed {
		a.tasks.Go(landed)
	}
	a.mu.Unlock()
	if closed { // the engine has ended, so this does not wait for long
		landed()
	}
	return n
}

// keepAhead puts batches into the cache, but not their neighbours. body has the bytes of their object from off on.
func (e *Engine) keepAhead(ls []state.Location, body []byte, off int64) error {
	for _, l := range ls {
		raw := body[int64(l.Pos)-off:][:l.Size]
		if err := record.Verify(raw, l.CRC); err != nil {
			return err
		}
		e.cache.AddFetched(rangeOf(l), bytes.Clone(raw))
	}
	return nil
}

// keepOthers puts the other batches that a commit has of a topic into the cache: a reader of one partition mostly reads all. ls are
// batches of the commit.
func (e *Engine) keepOthers(topic format.TopicID, ls []state.Location, body []byte) error {
	c, err := format.DecodeCommit(body)
	if err != nil {
		return err
	}
	for _, entry := range c.Entries {
		b, ok := entry.(*format.Batch)
		if !ok || b.Topic != topic || b.Object > 0 || int64(c.PayloadStart)+int64(b.Pos)+int64(b.Size) > int64(len(body)) {
			continue
		}
		other := state.Location{Object: ls[0].Object, Pos: c.PayloadStart + b.Pos, Size: b.Size, CRC: b.CRC}
		if slices.ContainsFunc(ls, func(l state.Location) bool { return l.Pos == other.Pos }) {
			continue
		}
		if raw := body[other.Pos:][:other.Size]; record.Verify(raw, other.CRC) == nil {
			e.cache.AddFetched(rangeOf(other), bytes.Clone(raw))
		}
	}
	return nil
}
