package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
)

const (
	chunkRecords = scanRecords
	chunkBytes   = 256 << 10
	chunksMax    = 4
)

// chunk has the records of a range of offsets of one partition.
type chunk struct {
	partition format.Partition
	from, to  format.Offset // the range: from inclusive, to exclusive
	records   Records
	bytes     int64
}

// key returns the key of the record at an offset; nil if it has none, or if there is no record at that offset.
func (c *chunk) key(offset format.Offset) []byte {
	if i, ok := c.records.Find(offset); ok {
		return c.records.Key(i)
	}
	return nil
}

// chunks has the chunks of one dispatcher, the newest last.
type chunks []*chunk

// at returns the chunk whose range has an offset; nil if no chunk has it.
func (cs chunks) at(partition format.Partition, offset format.Offset) *chunk {
	for _, c := range cs {
		if c.partition == partition && c.from <= offset && offset < c.to {
			return c
		}
	}
	return nil
}

func (cs *chunks) drop(c *chunk) {
	*cs = slices.DeleteFunc(*cs, func(x *chunk) bool { return x == c })
}

// Load reads consecutive records, beginning at a place, and keeps them in memory. One caller at a time
// reads for all callers, since most of them want the same records.
func (d *Dispatcher) Load(ctx context.Context, at leases.Place) error {
	_, err := d.load(ctx, at)
	return err
}

func (d *Dispatcher) load(ctx context.Context, at leases.Place) (*chunk, error) {
	select {
	case d.loading <- struct{}{}:
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := d.loaded(at); c != nil {
		return c, nil
	}
	records, n, err := d.all.b.Read(ctx, d, at, chunkRecords, chunkBytes)
	if err != nil {
		return nil, err
	}
	c := &chunk{partition: at.Partition, from: at.Offset, to: at.Offset + format.Offset(n), records: records, bytes: records.Own()}
	d.keep(c)
	return c, nil
}

func (d *Dispatcher) loaded(at leases.Place) *chunk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.chunks.at(at.Partition, at.Offset)
}

// record returns the record of a delivery: the record with index i in r.
func (d *Dispatcher) record(ctx context.Context, x leases.Delivery) (r Records, i int, err error) {
	c := d.loaded(x.Place)
	if c == nil && x.Attempt == 1 {
		if c, err = d.load(ctx, x.Place); err != nil {
			return nil, 0, err
		}
	}
	if c != nil {
		r = c.records
	} else if r, _, err = d.all.b.Read(ctx, d, x.Place, 1, 1); err != nil {
		return nil, 0, err
	}
	i, ok := r.Find(x.Offset)
	if !ok {
		return nil, 0, &ReadError{Err: errGap, Deleted: true}
	}
	return r, i, nil
}

// errGap says that the partition has records before and after an offset, but none at it.
var errGap = errors.New("the partition has no record at the offset")

// prefetched holds the chunks of all dispatchers, the oldest first.
type prefetched struct {
	max int64 // limit on bytes; a single chunk may exceed it

	mu    sync.Mutex
	list  []prefetchedChunk
	bytes int64
}

type prefetchedChunk struct {
	d *Dispatcher
	c *chunk
}

// add adds a chunk, and returns the chunks that the caller must drop to make room for it.
func (k *prefetched) add(d *Dispatcher, c *chunk) (gone []prefetchedChunk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, prefetchedChunk{d, c})
	k.bytes += c.bytes
	n := 0
	for ; k.bytes > k.max && n < len(k.list)-1; n++ {
		k.bytes -= k.list[n].c.bytes
	}
	gone = slices.Clone(k.list[:n])
	k.list = slices.Delete(k.list, 0, n)
	return gone
}

func (k *prefetched) remove(cs ...*chunk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(x prefetchedChunk) bool {
		if !slices.Contains(cs, x.c) {
			return false
		}
		k.bytes -= x.c.bytes
		return true
	})
}

// keep keeps a chunk in memory. To make room, it may drop the oldest chunks of this dispatcher, or of
// any dispatcher.
func (d *Dispatcher) keep(c *chunk) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.chunks = append(d.chunks, c)
	if len(d.chunks) > chunksMax {
		d.dropLocked(d.chunks[0])
	}
	gone := d.all.chunks.add(d, c)
	d.mu.Unlock()
	for _, x := range gone {
		x.d.drop(x.c)
	}
}

func (d *Dispatcher) drop(c *chunk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(c)
}

func (d *Dispatcher) dropLocked(c *chunk) {
	d.chunks.drop(c)
	d.all.chunks.remove(c)
}
