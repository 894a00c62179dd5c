package sst

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/simple-event-broker/seb/internal/zstdpool"
)

// Options say how a table is built. The zero value is valid.
type Options struct {
	// BlockBytes is the size in bytes of the rows after which a block ends; 0 means 64 KiB. The
	// largest is BlockBytesMax.
	BlockBytes int
	// Plain leaves blocks uncompressed.
	Plain bool
}

// Builder makes a table in memory. Use [NewBuilder]. A Builder is not safe for concurrent use.
type Builder struct {
	o        Options
	table    []byte // whole blocks
	index    []byte
	blocks   uint32
	rows     uint64
	block    []byte // rows of the block that is not full yet
	restarts []uint32
	since    int    // rows since the last restart
	first    []byte // first key of the block
	last     []byte // last key of the table
}

// NewBuilder returns a builder of an empty table.
func NewBuilder(o Options) *Builder {
	if o.BlockBytes == 0 {
		o.BlockBytes = 64 << 10
	}
	if o.BlockBytes < 0 || o.BlockBytes > BlockBytesMax {
		panic(fmt.Sprintf("sst: blocks of %d bytes", o.BlockBytes))
	}
	return &Builder{o: o}
}

// Add adds a row, and copies key and value. It panics if the key is not greater than the one before, or
// if a size is out of bounds: the caller has made the key itself.
func (b *Builder) Add(key, value []byte) {
	if len(key) == 0 || len(key) > KeyMax || len(value) > ValueMax || bytes.Compare(key, b.last) <= 0 {
		panic(fmt.Sprintf("sst: the key %x (%d bytes, value of %d) after %x", key, len(key), len(value), b.last))
	}
	shared := 0
	if len(b.block) > 0 && b.since < restartEvery {
		shared = sharedPrefix(b.last, key)
	} else {
		b.restarts = append(b.restarts, uint32(len(b.block)))
		b.since = 0
	}
	if len(b.block) == 0 {
		b.first = append(b.first[:0], key...)
	}
	b.block = binary.AppendUvarint(b.block, uint64(shared))
	b.block = binary.AppendUvarint(b.block, uint64(len(key)-shared))
	b.block = binary.AppendUvarint(b.block, uint64(len(value)))
	b.block = append(append(b.block, key[shared:]...), value...)
	b.last = append(b.last[:0], key...)
	b.since++
	b.rows++
	if len(b.block)+4*len(b.restarts) >= b.o.BlockBytes {
		b.endBlock()
	}
}

// Rows returns the number of rows so far.
func (b *Builder) Rows() uint64 { return b.rows }

// Size returns an upper bound of the size in bytes that the table would have now.
func (b *Builder) Size() int {
	n := len(b.table) + len(b.index) + FooterSize
	if len(b.block) > 0 {
		n += blockOverhead + len(b.block) + 4*len(b.restarts) + indexRowMax(len(b.first))
	}
	return n
}

const blockOverhead = 1 + binary.MaxVarintLen32 + 4

func indexRowMax(key int) int { return 2*binary.MaxVarintLen32 + key + 4 }

// Finish returns the table. The builder must not be used after that.
func (b *Builder) Finish() []byte {
	if len(b.block) > 0 {
		b.endBlock()
	}
	var footer [FooterSize]byte
	le.PutUint64(footer[0:], b.rows)
	le.PutUint32(footer[8:], b.blocks)
	le.PutUint32(footer[12:], uint32(len(b.index)))
	le.PutUint32(footer[16:], crc32.Checksum(b.index, castagnoli))
	le.PutUint32(footer[20:], version)
	le.PutUint32(footer[24:], crc32.Checksum(footer[:24], castagnoli))
	copy(footer[28:], magic)
	return slices.Concat(b.table, b.index, footer[:])
}

func (b *Builder) endBlock() {
	for _, at := range b.restarts {
		b.block = le.AppendUint32(b.block, at)
	}
	b.block = le.AppendUint32(b.block, uint32(len(b.restarts)))

	began := len(b.table)
	if packed, ok := b.compressed(); ok {
		b.table = append(b.table, zstd1)
		b.table = binary.AppendUvarint(b.table, uint64(len(b.block)))
		b.table = append(b.table, packed...)
	} else {
		b.table = append(b.table, plain)
		b.table = binary.AppendUvarint(b.table, uint64(len(b.block)))
		b.table = append(b.table, b.block...)
	}
	stored := b.table[began:]
	b.index = binary.AppendUvarint(b.index, uint64(len(b.first)))
	b.index = append(b.index, b.first...)
	b.index = binary.AppendUvarint(b.index, uint64(len(stored)))
	b.index = le.AppendUint32(b.index, crc32.Checksum(stored, castagnoli))
	b.blocks++
	b.block, b.restarts, b.since = b.block[:0], b.restarts[:0], 0
}

// compressed returns the rows of the block, compressed; ok is false if that is not smaller.
func (b *Builder) compressed() (packed []byte, ok bool) {
	if b.o.Plain {
		return nil, false
	}
	packed = zstdpool.Compress(nil, b.block)
	return packed, len(packed) < len(b.block)
}

// sharedPrefix returns how many bytes a and b have in common at their beginning.
func sharedPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
