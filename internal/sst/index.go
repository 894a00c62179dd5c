package sst

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sort"
)

// Footer is the end of a table. It says where the index is.
type Footer struct {
	Rows      uint64
	Blocks    uint32
	IndexSize uint32 // in bytes; the index ends where the footer begins
	IndexCRC  uint32
}

// DecodeFooter reads a footer. b is exactly the last [FooterSize] bytes of a table.
func DecodeFooter(b []byte) (Footer, error) {
	if len(b) != FooterSize {
		return Footer{}, corrupt("a footer of %d bytes", len(b))
	}
	if string(b[28:]) != magic {
		return Footer{}, corrupt("the footer ends with %q, not %q", b[28:], magic)
	}
	if sum := crc32.Checksum(b[:24], castagnoli); sum != le.Uint32(b[24:]) {
		return Footer{}, corrupt("the footer has the checksum %08x, but its bytes give %08x", le.Uint32(b[24:]), sum)
	}
	if v := le.Uint32(b[20:]); v != version {
		return Footer{}, wrongVersion(v)
	}
	return Footer{Rows: le.Uint64(b), Blocks: le.Uint32(b[8:]), IndexSize: le.Uint32(b[12:]), IndexCRC: le.Uint32(b[16:])}, nil
}

// Block says where a block is in its table.
type Block struct {
	Pos  int64 // in bytes from the table's first byte
	Size int64 // as stored
	CRC  uint32
}

// Index finds the block of a key.
type Index struct {
	rows  uint64
	first [][]byte // first key of each block
	block []Block
}

// DecodeIndex reads the index that a footer tells of. b is exactly the index, and the index keeps slices of
// it. size is the size of the whole table in bytes.
func DecodeIndex(b []byte, f Footer, size int64) (*Index, error) {
	if int64(len(b)) != int64(f.IndexSize) {
		return nil, corrupt("the index has %d bytes instead of %d", len(b), f.IndexSize)
	}
	if sum := crc32.Checksum(b, castagnoli); sum != f.IndexCRC {
		return nil, corrupt("the index should have the checksum %08x, but its bytes give %08x", f.IndexCRC, sum)
	}
	const rowMin = 1 + 1 + 1 + 4
	if int64(f.Blocks)*rowMin > int64(len(b)) || f.Rows < uint64(f.Blocks) || (f.Blocks == 0) != (f.Rows == 0) {
		return nil, corrupt("%d rows in %d blocks don't fit to an index of %d bytes", f.Rows, f.Blocks, len(b))
	}
	x := &Index{rows: f.Rows, first: make([][]byte, 0, f.Blocks), block: make([]Block, 0, f.Blocks)}
	end := size - FooterSize - int64(len(b)) // of the blocks
	var pos int64
	for range f.Blocks {
		key, rest, ok := cut(b, KeyMax)
		n, used := binary.Uvarint(rest)
		if !ok || used <= 0 || len(rest) < used+4 || len(key) == 0 {
			return nil, corrupt("a row of the index is damaged")
		}
		blk := Block{Pos: pos, Size: int64(n), CRC: le.Uint32(rest[used:])}
		b = rest[used+4:]
		if k := len(x.first); k > 0 && bytes.Compare(key, x.first[k-1]) <= 0 {
			return nil, corrupt("the keys of the index don't ascend")
		}
		if n == 0 || int64(n) > rowsMax+blockOverhead || blk.Size > end-pos {
			return nil, corrupt("a block of %d bytes at byte %d does not fit before byte %d", n, pos, end)
		}
		pos += blk.Size
		x.first, x.block = append(x.first, key), append(x.block, blk)
	}
	if len(b) > 0 || pos != end {
		return nil, corrupt("the blocks end at byte %d instead of %d, and %d bytes follow the index", pos, end, len(b))
	}
	return x, nil
}

// Rows returns the number of rows that the table has according to its footer.
func (x *Index) Rows() uint64 { return x.rows }

// Blocks returns the blocks of the table, in the order of their keys. The caller must not change them.
func (x *Index) Blocks() []Block { return x.block }

// Find returns the number of the only block that can have the greatest key that is not above key. ok is false
// if all keys of the table are above key.
func (x *Index) Find(key []byte) (i int, ok bool) {
	i = sort.Search(len(x.first), func(i int) bool { return bytes.Compare(x.first[i], key) > 0 })
	return i - 1, i > 0
}

// cut reads a size and that many bytes, at most most.
func cut(b []byte, most int) (field, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(most) || n > uint64(len(b)-used) {
		return nil, nil, false
	}
	end := used + int(n)
	return b[used:end:end], b[end:], true
}
