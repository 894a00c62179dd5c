// Package sst builds and reads sorted tables: rows of a key and a value, sorted by key, in which a
// reader finds a row with one read of the index and one of a block.
//
// A table consists of blocks, back to back, then the index, then the footer. Integers of fixed
// size are little-endian; uvarint is unsigned LEB128.
//
// A block, as stored:
//
//	1 byte    encoding: 0 plain, 1 zstd
//	uvarint   size of the rows in bytes, decompressed
//	…         the rows, as they are or compressed
//
// The rows of a block:
//
//	for each row
//	  uvarint   shared: how many bytes of the previous row's key this key begins with
//	  uvarint   size of the rest of the key
//	  uvarint   size of the value
//	  …         rest of the key, value
//	for each restart, a row whose shared is 0
//	  4 bytes   position of the row in the rows (uint32)
//	4 bytes     number of restarts (uint32); the first row of a block is a restart
//
// The index, for each block:
//
//	uvarint   size of the block's first key; then that key
//	uvarint   size of the block, as stored
//	4 bytes   CRC-32C of the block, as stored (uint32)
//
// The footer:
//
//	offset size meaning
//	     0    8 number of rows (uint64)
//	     8    4 number of blocks (uint32)
//	    12    4 size of the index (uint32)
//	    16    4 CRC-32C of the index (uint32)
//	    20    4 version (uint32): 1
//	    24    4 CRC-32C of bytes 0 to 23 (uint32)
//	    28    4 magic "sst\n"
//
// Keys are not empty, and ascend from row to row. No key has more than [KeyMax] bytes and no value more
// than [ValueMax]. Every decoder returns an error that wraps [ErrCorrupt] or [ErrVersion] for bytes that it
// can't decode, and none panics.
package sst

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// FooterSize is the size of the footer in bytes.
	FooterSize = 32
	// KeyMax is the size in bytes of the longest key.
	KeyMax = 4 << 10
	// ValueMax is the size in bytes of the longest value.
	ValueMax = 8 << 20

	version = 1
	magic   = "sst\n"

	plain = 0
	zstd1 = 1

	restartEvery = 16 // rows
	// rowsMax bounds the rows of a block, decompressed: those of a block that is nearly full, one
	// more row, and the restarts.
	rowsMax = BlockBytesMax + KeyMax + ValueMax + 64
	// BlockBytesMax is the largest size that [Options.BlockBytes] may have.
	BlockBytesMax = 1 << 20
)

var (
	// ErrCorrupt is wrapped by every error about bytes that no version of this package writes.
	ErrCorrupt = errors.New("table is damaged")
	// ErrVersion is wrapped by every error about bytes that a newer version may have written.
	ErrVersion = errors.New("table needs another version of seb")
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}
