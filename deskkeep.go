package seb

import (
	"slices"
	"sync"
	"unsafe"
)

const (
	// chunksShare is the part of the memory budget that the chunks of all desks may have
	// beside it: queues whose workers take one record now and then keep theirs for long.
	chunksShare = 16

	recordBytes = int64(unsafe.Sizeof(Record{}))
	headerBytes = int64(unsafe.Sizeof(Header{}))
)

// keptChunks are the chunks of all desks, the oldest first.
type keptChunks struct {
	max int64 // bytes, but for the last one

	mu    sync.Mutex
	list  []keptChunk
	bytes int64
}

type keptChunk struct {
	d *desk
	c *chunk
}

// add returns those that have to go for a chunk.
func (k *keptChunks) add(d *desk, c *chunk) (gone []keptChunk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, keptChunk{d, c})
	k.bytes += c.bytes
	n := 0
	for ; k.bytes > k.max && n < len(k.list)-1; n++ {
		k.bytes -= k.list[n].c.bytes
	}
	gone = slices.Clone(k.list[:n])
	k.list = slices.Delete(k.list, 0, n)
	return gone
}

func (k *keptChunks) remove(cs ...*chunk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(x keptChunk) bool {
		if !slices.Contains(cs, x.c) {
			return false
		}
		k.bytes -= x.c.bytes
		return true
	})
}

// keep keeps a chunk, and so drops others: the oldest of this desk, or of all.
func (d *desk) keep(c *chunk) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.chunks = append(d.chunks, c)
	if len(d.chunks) > chunksMax {
		d.dropLocked(d.chunks[0])
	}
	gone := d.b.desks.chunks.add(d, c)
	d.mu.Unlock()
	for _, x := range gone {
		x.d.drop(x.c)
	}
}

func (d *desk) drop(c *chunk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(c)
}

func (d *desk) dropLocked(c *chunk) {
	d.chunks.drop(c)
	d.b.desks.chunks.remove(c)
}

// own has the records of a chunk point to memory of their own, and counts it: they stand in
// what was read of an object, which may be much more.
func (c *chunk) own() {
	var n int64
	for i := range c.records {
		n += c.records[i].bytes()
		c.bytes += recordBytes + int64(len(c.records[i].Headers))*headerBytes
	}
	c.bytes += n
	buf := make([]byte, 0, n)
	own := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, b...)
		return buf[from:len(buf):len(buf)]
	}
	for i := range c.records {
		r := &c.records[i]
		r.Key, r.Value = own(r.Key), own(r.Value)
		for j := range r.Headers {
			r.Headers[j].Value = own(r.Headers[j].Value)
		}
	}
}
