package engine

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/simple-event-broker/seb/internal/cache"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/state"
)

// A reader of segments spends most of its time on decompressing batches. So if the engine reads ahead for a reader, the batches
// behind the one that the reader is at are decompressed by other goroutines meanwhile. Those that a read does not need, and the
// one that it has read in part, are kept for the next read.

const (
	// unpackMax is how many bytes a batch may have, decompressed, if not its reader decompresses it. Batches that are merged have
	// 256 KiB; those of large appends stay as they are, and often have 1 MiB.
	unpackMax = 2 << 20
	// All that is decompressed, and not read yet, takes at most 1/unpackShare of the memory budget.
	unpackShare = 32
	// unpackPlaces is how many goroutines decompress at once, on as many cores: more than zstdpool keeps decoders would have to
	// make new ones.
	unpackPlaces = 4
)

// unpacking is what an engine decompresses before readers are there.
type unpacking struct {
	places chan struct{} // holds a value for each goroutine that decompresses
	bytes  atomic.Int64  // of what is decompressed, and what may become of batches that are being decompressed
	most   int64         // for bytes
}

// newUnpacking lets a goroutine for each core decompress. With one core, readers do all of it.
func newUnpacking(memory int64) *unpacking {
	places := min(runtime.GOMAXPROCS(0), unpackPlaces)
	if places == 1 {
		places = 0
	}
	return &unpacking{places: make(chan struct{}, places), most: memory / unpackShare}
}

// take counts n bytes if there is room for them.
func (u *unpacking) take(n int64) bool {
	if u.bytes.Add(n) > u.most {
		u.bytes.Add(-n)
		return false
	}
	return true
}

// unpacked is a batch that is decompressed, or will be once done is closed.
type unpacked struct {
	of      cache.Range
	base    format.Offset
	done    chan struct{}
	records []byte // nil if the reader must decompress the batch
	held    int64  // bytes that count in unpacking
}

// unpacker decompresses batches for one read. A nil unpacker leaves that to the read.
type unpacker struct {
	*unpacking
	next []*unpacked   // batches that the read has not come to, in order
	last *unpacked     // the batch that the read is at
	end  format.Offset // of last
}

// unpackerFor returns an unpacker for a read of r, with what the last read of r has left; nil if r is nil.
func (e *Engine) unpackerFor(r *aheadReader) *unpacker {
	if r == nil {
		return nil
	}
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	u := &unpacker{unpacking: e.ahead.unpacking, next: r.unpacked}
	r.unpacked = nil
	return u
}

// at returns the records of the first batch of ls, decompressed; nil if they are not compressed, or the batch is damaged.
// Meanwhile others decompress the batches that follow. raws are the bytes of ls.
func (u *unpacker) at(ls []state.Location, raws [][]byte) []byte {
	if u == nil {
		return nil
	}
	of := rangeOf(ls[0])
	for len(u.next) > 0 && u.next[0].base <= ls[0].Base && u.next[0].of != of { // it has moved
		u.drop(u.next[:1])
		u.next = u.next[1:]
	}
	u.last, u.end = &unpacked{of: of, base: ls[0].Base}, ls[0].End()
	if len(u.next) > 0 && u.next[0].of == of {
		u.last, u.next = u.next[0], u.next[1:]
	}
	u.begin(ls[1:], raws[1:])
	if u.last.done != nil {
		u.drop([]*unpacked{u.last}) // from now on, it is the reader's
	}
	if u.last.records == nil {
		u.last.records = unpack(raws[0], record.Limits{})
	}
	return u.last.records
}

// begin lets others decompress the first batches of ls, as far as there are cores and memory.
func (u *unpacker) begin(ls []state.Location, raws [][]byte) {
	for i := 0; i < len(ls) && len(u.next) < cap(u.places); i++ {
		if len(u.next) > 0 && ls[i].Base <= u.next[len(u.next)-1].base {
			continue
		}
		if head, err := record.Parse(raws[i]); err != nil || head.Codec == record.None {
			return
		}
		select {
		case u.places <- struct{}{}:
		default:
			return
		}
		if !u.take(unpackMax) {
			<-u.places
			return
		}
		x := &unpacked{of: rangeOf(ls[i]), base: ls[i].Base, done: make(chan struct{}), held: unpackMax}
		u.next = append(u.next, x)
		go func() {
			defer close(x.done)
			x.records = unpack(raws[i], record.Limits{DecompressedBytes: unpackMax})
			x.hold(u.unpacking)
			<-u.places
		}()
	}
}

// hold counts what the batch takes.
func (x *unpacked) hold(u *unpacking) {
	n := int64(cap(x.records))
	u.bytes.Add(n - x.held)
	x.held = n
}

// drop waits for batches, and no longer counts them.
func (u *unpacking) drop(xs []*unpacked) {
	for _, x := range xs {
		<-x.done
		u.bytes.Add(-x.held)
		x.held = 0
	}
}

// close ends a read that goes on at an offset, and keeps for the next read of r what is decompressed.
func (u *unpacker) close(a *ahead, r *aheadReader, offset format.Offset) {
	if u == nil {
		return
	}
	if x := u.last; x != nil && u.end > offset && x.records != nil && cap(x.records) <= unpackMax && u.take(int64(cap(x.records))) {
		x.done, x.held = make(chan struct{}), int64(cap(x.records))
		close(x.done)
		u.next = slices.Insert(u.next, 0, x)
	}
	for _, x := range u.next {
		<-x.done
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readers[r.place] == r && len(r.unpacked) == 0 { // else a later read of r has left something, while this one waited
		r.unpacked = u.next
	} else {
		u.drop(u.next)
	}
}

// unpack returns the records of a batch, decompressed; nil if they are not compressed, or the batch is damaged, or too large.
func unpack(raw []byte, limits record.Limits) []byte {
	head, err := record.Parse(raw)
	if err != nil || head.Codec == record.None {
		return nil
	}
	records, err := head.Unpack(raw, limits)
	if err != nil {
		return nil
	}
	return records
}
