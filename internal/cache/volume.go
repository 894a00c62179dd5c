package cache

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/simple-event-broker/seb/internal/record"
)

// A volume is a file of entries back to back, in the order they were added. An
// entry is a header and a batch; integers are little-endian:
//
//	offset  size  field
//	     0     4  magic "sebc"
//	     4     2  version, 2
//	     6     1  object kind
//	     7     1  0 batch, 1 part of a table: what is said of batches holds for it too, but
//	              its CRC covers all its bytes
//	     8    16  cluster id
//	    24     8  object seq
//	    32     8  object tag
//	    40     4  position of the batch in the object
//	    44     4  size of the batch
//	    48     4  CRC-32C in the batch's header
//	    52     4  CRC-32C of the bytes 0 to 51 and of the batch's first 21 bytes,
//	              which the CRC at 48 does not cover
//	    56    12  nonce, random
//	    68    16  MAC of the bytes 0 to 55 and of the batch, see [key.mac]
//	    84     .  the batch
//
// The checksum at 52 shows whether an entry begins at a position, and whether its header is damaged. It
// does not prove that this cache wrote the entry. For that, the cache checks the MAC before it uses a batch.
const (
	entryMagic      = "sebc"
	entryVersion    = 2
	entryCRCAt      = 52
	entryNonceAt    = entryCRCAt + 4
	entryMACAt      = entryNonceAt + nonceSize
	entryHeaderSize = entryMACAt + macSize

	// uncovered is how many bytes at the start of a batch the batch's own CRC does not cover.
	uncovered = 21
	// entryHeadSize is how many bytes at the start of an entry are needed to verify the CRC at
	// entryCRCAt.
	entryHeadSize = entryHeaderSize + uncovered

	// scanWindow is how many bytes scanVolume reads at once. One read has the headers of many small
	// entries. Most bytes of a large entry are never read.
	scanWindow = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNotOurs says that another version of Seb wrote the entry, or that the entry is of another
// cluster.
var errNotOurs = errors.New("the entry is of another cluster, or has another version")

// errForged says that an entry has a wrong MAC: it was damaged, or written without this directory's key.
var errForged = errors.New("the entry's MAC is wrong")

func entrySize(r Range) int64 { return entryHeaderSize + int64(r.Size) }

// entryHeader returns the header of an entry with the batch b.
func entryHeader(k *key, cluster [16]byte, r Range, b []byte) []byte {
	h := make([]byte, entryHeaderSize)
	copy(h, entryMagic)
	binary.LittleEndian.PutUint16(h[4:], entryVersion)
	h[6] = r.Object.Kind
	if r.Table {
		h[7] = 1
	}
	copy(h[8:], cluster[:])
	binary.LittleEndian.PutUint64(h[24:], r.Object.Seq)
	binary.LittleEndian.PutUint64(h[32:], r.Object.Tag)
	binary.LittleEndian.PutUint32(h[40:], r.Pos)
	binary.LittleEndian.PutUint32(h[44:], r.Size)
	binary.LittleEndian.PutUint32(h[48:], r.CRC)
	binary.LittleEndian.PutUint32(h[entryCRCAt:], entryCRC(h, b))
	rand.Read(h[entryNonceAt:entryMACAt])
	copy(h[entryMACAt:], k.mac(h[entryNonceAt:entryMACAt], h[:entryNonceAt], b))
	return h
}

func entryCRC(header, batch []byte) uint32 {
	sum := crc32.Update(0, castagnoli, header[:entryCRCAt])
	return crc32.Update(sum, castagnoli, batch[:uncovered])
}

// parseEntry decodes the header of an entry; head is the first entryHeadSize bytes of the entry.
func parseEntry(cluster [16]byte, head []byte) (Range, error) {
	switch {
	case string(head[:4]) != entryMagic:
		return Range{}, errors.New("the file has no entry where one should begin")
	case binary.LittleEndian.Uint32(head[entryCRCAt:]) != entryCRC(head, head[entryHeaderSize:]):
		return Range{}, errors.New("the entry's header is damaged")
	case binary.LittleEndian.Uint16(head[4:]) != entryVersion, [16]byte(head[8:24]) != cluster:
		return Range{}, errNotOurs
	}
	r := Range{
		Object: Object{
			Kind: head[6],
			Seq:  binary.LittleEndian.Uint64(head[24:]),
			Tag:  binary.LittleEndian.Uint64(head[32:]),
		},
		Pos:   binary.LittleEndian.Uint32(head[40:]),
		Size:  binary.LittleEndian.Uint32(head[44:]),
		CRC:   binary.LittleEndian.Uint32(head[48:]),
		Table: head[7] == 1,
	}
	least := uint32(record.HeaderSize)
	if r.Table {
		least = uncovered
	}
	if r.Size < least || head[7] > 1 {
		return Range{}, fmt.Errorf("the entry's batch has %d bytes, fewer than %d, or an unknown kind %d", r.Size, least, head[7])
	}
	return r, nil
}

// verifyEntry returns the batch of the entry e, which was read from disk. It returns an error if e is the
// entry of another Range than r, is damaged, or was not written with the key k.
func verifyEntry(k *key, cluster [16]byte, r Range, e []byte) ([]byte, error) {
	got, err := parseEntry(cluster, e[:entryHeadSize])
	if err != nil {
		return nil, err
	}
	if got != r {
		return nil, fmt.Errorf("the entry is of %+v instead of %+v", got, r)
	}
	batch := e[entryHeaderSize:]
	if subtle.ConstantTimeCompare(k.mac(e[entryNonceAt:entryMACAt], e[:entryNonceAt], batch), e[entryMACAt:entryHeaderSize]) != 1 {
		return nil, errForged
	}
	return batch, r.verify(batch)
}

// verify returns an error unless b has the CRC of r.
func (r Range) verify(b []byte) error {
	if !r.Table {
		return record.Verify(b, r.CRC)
	}
	if sum := crc32.Checksum(b, castagnoli); sum != r.CRC {
		return fmt.Errorf("the part of a table has the checksum %08x instead of %08x", sum, r.CRC)
	}
	return nil
}

// scanVolume reads the headers in a volume of size bytes. It calls found for each entry, until
// found returns false or the rest of the file is no valid entry. It returns the position at which
// the last found entry ends. An error says why the rest can't be used: for example, a process ended
// while it wrote to the volume. [disk.get] verifies each batch later.
func scanVolume(f io.ReaderAt, size int64, cluster [16]byte, found func(r Range, at int64) bool) (end int64, err error) {
	window := make([]byte, 0, scanWindow)
	windowAt := int64(0)
	for size-end >= entryHeadSize {
		if end+entryHeadSize > windowAt+int64(len(window)) {
			windowAt = end
			window = window[:min(scanWindow, size-end)]
			if _, err := f.ReadAt(window, windowAt); err != nil {
				return end, fmt.Errorf("read from position %d on: %w", windowAt, err)
			}
		}
		r, err := parseEntry(cluster, window[end-windowAt:][:entryHeadSize])
		if err != nil {
			return end, fmt.Errorf("entry at position %d: %w", end, err)
		}
		if entrySize(r) > size-end {
			return end, fmt.Errorf("entry at position %d: it ends after the end of the file", end)
		}
		if !found(r, end) {
			return end, nil
		}
		end += entrySize(r)
	}
	if end < size {
		return end, fmt.Errorf("the last %d bytes, from position %d on, are too few for an entry", size-end, end)
	}
	return end, nil
}
