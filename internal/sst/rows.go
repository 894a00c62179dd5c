package sst

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"sort"
)

func wrongVersion(v uint32) error {
	return fmt.Errorf("%w: its version is %d, this seb reads only %d", ErrVersion, v, version)
}

// Rows are the rows of a block.
type Rows struct {
	rows     []byte
	restarts []byte // of four bytes each
}

// Row is a key and its value. The caller must not change them.
type Row struct{ Key, Value []byte }

// DecodeBlock returns the rows of a block, after it has checked the checksum. b is exactly the block, as
// stored; the result may have slices of it.
func DecodeBlock(b []byte, blk Block) (*Rows, error) {
	if int64(len(b)) != blk.Size {
		return nil, corrupt("a block has %d bytes instead of %d", len(b), blk.Size)
	}
	if sum := crc32.Checksum(b, castagnoli); sum != blk.CRC {
		return nil, corrupt("the block at byte %d should have the checksum %08x, but its bytes give %08x", blk.Pos, blk.CRC, sum)
	}
	if len(b) == 0 {
		return nil, corrupt("a block is empty")
	}
	size, used := binary.Uvarint(b[1:])
	if used <= 0 || size > rowsMax {
		return nil, corrupt("the block at byte %d says %d as its size when it is decompressed", blk.Pos, size)
	}
	body := b[1+used:]
	switch b[0] {
	case plain:
		if uint64(len(body)) != size {
			return nil, corrupt("the block at byte %d has rows of %d bytes instead of %d", blk.Pos, len(body), size)
		}
	case zstd1:
		var err error
		if body, err = decompress(body, int(size)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%w: a block has the encoding %d", ErrVersion, b[0])
	}
	return decodeRows(body)
}

// decodeRows checks the rows of a block, all of them.
func decodeRows(b []byte) (*Rows, error) {
	if len(b) < 8 {
		return nil, corrupt("the rows of a block have only %d bytes", len(b))
	}
	n := int64(le.Uint32(b[len(b)-4:]))
	if n == 0 || 4*n > int64(len(b)-4) {
		return nil, corrupt("%d restarts don't fit into %d bytes", n, len(b))
	}
	split := len(b) - 4 - 4*int(n)
	r := &Rows{rows: b[:split], restarts: b[split : len(b)-4]}
	var (
		at       int
		key, old []byte
		restarts int
	)
	for at < len(r.rows) {
		old = append(old[:0], key...)
		next, row, shared, ok := r.row(at, key)
		if !ok {
			return nil, corrupt("the row at byte %d of a block is damaged", at)
		}
		if len(row.Key) == 0 || bytes.Compare(row.Key, old) <= 0 {
			return nil, corrupt("the keys of a block don't ascend")
		}
		if restarts < int(n) && r.restart(restarts) == at {
			if shared != 0 {
				return nil, corrupt("the row at a restart has a shared prefix")
			}
			restarts++
		}
		key, at = row.Key, next
	}
	if restarts != int(n) || r.restart(0) != 0 {
		return nil, corrupt("a restart is not at the beginning of a row")
	}
	return r, nil
}

func (r *Rows) restart(i int) int { return int(le.Uint32(r.restarts[4*i:])) }

// row decodes the row at a position. key is the key of the previous row; row writes the key of this row over it.
func (r *Rows) row(at int, key []byte) (next int, row Row, shared int, ok bool) {
	b := r.rows[at:]
	common, x := binary.Uvarint(b)
	if x <= 0 || common > uint64(len(key)) {
		return 0, Row{}, 0, false
	}
	rest, y := binary.Uvarint(b[x:])
	if y <= 0 || rest > KeyMax || common+rest > KeyMax {
		return 0, Row{}, 0, false
	}
	value, z := binary.Uvarint(b[x+y:])
	head := x + y + z
	if z <= 0 || value > ValueMax || rest+value > uint64(len(b)-head) {
		return 0, Row{}, 0, false
	}
	keyEnd, end := head+int(rest), head+int(rest+value)
	row = Row{Key: append(key[:common], b[head:keyEnd]...), Value: b[keyEnd:end:end]}
	return at + end, row, int(common), true
}

// All iterates over the rows in the order of their keys. The key of a row is valid until the next row.
func (r *Rows) All() iter.Seq[Row] { return r.from(0) }

// Floor returns the row with the greatest key that is not above key. ok is false if all keys are above.
func (r *Rows) Floor(key []byte) (row Row, ok bool) {
	var buf []byte
	i := sort.Search(len(r.restarts)/4, func(i int) bool {
		_, row, _, ok := r.row(r.restart(i), buf[:0])
		buf = row.Key
		return ok && bytes.Compare(row.Key, key) > 0
	})
	if i == 0 {
		return Row{}, false
	}
	for next := range r.from(r.restart(i - 1)) {
		if bytes.Compare(next.Key, key) > 0 {
			break
		}
		row = Row{Key: append(row.Key[:0], next.Key...), Value: next.Value}
	}
	return row, true
}

// from iterates over the rows from a restart on. decodeRows has checked them all.
func (r *Rows) from(at int) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		var key []byte
		for at := at; at < len(r.rows); {
			next, row, _, ok := r.row(at, key)
			if !ok || !yield(row) {
				return
			}
			key, at = row.Key, next
		}
	}
}
