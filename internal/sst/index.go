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
	first [][]byte // first key of each block
	block []Block
}

// DecodeIndex reads an index. b is exactly the index, and the index keeps slices of it. crc is its CRC-32C, and end is where
// the blocks end and the index begins, in bytes from the table's first byte.
func DecodeIndex(b []byte, crc uint32, end int64) (*Index, error) {
	if sum := crc32.Checksum(b, castagnoli); sum != crc {
		return nil, corrupt("the index should have the checksum %08x, but its bytes give %08x", crc, sum)
	}
	x := &Index{}
	var pos int64
	for len(b) > 0 {
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
	if pos != end {
		return nil, corrupt("the blocks end at byte %d instead of %d", pos, end)
	}
	return x, nil
}

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
