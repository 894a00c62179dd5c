package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Every object begins with the same 32 bytes, little-endian:
//
//	offset size meaning
//	     0    4 magic "seb!"
//	     4    2 version (int16): 2
//	     6    8 writer's wall clock, microseconds since 1970 (int64); for information only
//	    14    4 count (uint32): entries of a commit, batches of a data object or segment, pages of a checkpoint
//	    18    1 kind: 1 commit, 2 data, 3 checkpoint, 4 segment, 5 introduction
//	    19    1 flags: 0; readers refuse any other value
//	    20    4 length of the head that follows (uint32)
//	    24    4 CRC-32C of the head
//	    28    4 CRC-32C of bytes 0 to 27
//
// Version 1 is the single-topic batch file of the original Seb. In it, count is followed by 14
// reserved bytes, which end the header. This package never writes version 1.
const (
	PrologueSize = 32

	magic   = "seb!"
	Version = 2
)

// Kind says what an object is.
type Kind uint8

// The kinds of objects.
const (
	KindCommit     Kind = 1
	KindData       Kind = 2
	KindCheckpoint Kind = 3
	// KindSegment is an object under the key of a data object, whose batches are sorted.
	KindSegment Kind = 4
	// KindIntroduction is an object under the key of a data object that names the session of a broker.
	KindIntroduction Kind = 5
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindCommit:
		return "commit"
	case KindData:
		return "data"
	case KindCheckpoint:
		return "checkpoint"
	case KindSegment:
		return "segment"
	case KindIntroduction:
		return "introduction"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// ErrCorrupt is wrapped by every error about bytes that no version of Seb writes: a wrong
// checksum, an impossible length, an invalid structure.
var ErrCorrupt = errors.New("object is damaged")

// ErrVersion is wrapped by every error about bytes that a newer Seb may have
// written: an unknown version, flag or critical entry.
var ErrVersion = errors.New("object needs another version of seb")

// ErrForeign is wrapped by every error about an object of another cluster, or an object under
// the wrong key.
var ErrForeign = errors.New("object does not belong here")

// Corrupt returns an error that wraps [ErrCorrupt].
func Corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// Prologue is the first 32 bytes of an object.
type Prologue struct {
	Kind    Kind
	Version int16
	// Created is the writer's wall clock in microseconds since 1970.
	Created int64
	Count   uint32
	// HeadSize is the length of the head that follows, in bytes.
	HeadSize uint32
	HeadCRC  uint32
}

// End returns the position in the object where the head ends and the payload begins.
func (p Prologue) End() int64 { return PrologueSize + int64(p.HeadSize) }

// putPrologue writes the prologue to the first PrologueSize bytes of b. The caller has already written the
// head to the rest of b.
func putPrologue(b []byte, kind Kind, created int64, count uint32) {
	head := b[PrologueSize:]
	copy(b, magic)
	le.PutUint16(b[4:], Version)
	le.PutUint64(b[6:], uint64(created))
	le.PutUint32(b[14:], count)
	b[18], b[19] = byte(kind), 0
	le.PutUint32(b[20:], uint32(len(head)))
	le.PutUint32(b[24:], crc32.Checksum(head, castagnoli))
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
}

// IsObject tells whether b begins like an object of Seb other than seb.json.
func IsObject(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }

// DecodePrologue reads the first 32 bytes of an object. If their version is not 2, it returns an error that
// wraps ErrVersion.
func DecodePrologue(b []byte) (Prologue, error) {
	if len(b) < PrologueSize {
		return Prologue{}, Corrupt("it has %d bytes, too few for a prologue", len(b))
	}
	if string(b[:4]) != magic {
		return Prologue{}, Corrupt("it begins with %q, not %q", b[:4], magic)
	}
	if v := int16(le.Uint16(b[4:])); v != Version {
		return Prologue{}, fmt.Errorf("%w: its format version is %d, this seb reads only %d", ErrVersion, v, Version)
	}
	if crc := crc32.Checksum(b[:28], castagnoli); crc != le.Uint32(b[28:]) {
		return Prologue{}, Corrupt("the prologue has the checksum %08x, but its bytes give %08x", le.Uint32(b[28:]), crc)
	}
	if b[19] != 0 {
		return Prologue{}, fmt.Errorf("%w: unknown flags %#x", ErrVersion, b[19])
	}
	return Prologue{
		Kind:     Kind(b[18]),
		Version:  Version,
		Created:  int64(le.Uint64(b[6:])),
		Count:    le.Uint32(b[14:]),
		HeadSize: le.Uint32(b[20:]),
		HeadCRC:  le.Uint32(b[24:]),
	}, nil
}

// decodeHead returns the prologue and the head of an object, after it has checked the head's checksum and
// that the object is of the kind want. b begins with the prologue and the head, and may have more bytes.
func decodeHead(b []byte, want Kind) (Prologue, []byte, error) {
	p, err := DecodePrologue(b)
	if err != nil {
		return p, nil, err
	}
	if p.Kind != want {
		return p, nil, wrongKind(p.Kind, want)
	}
	if int64(len(b)) < p.End() {
		return p, nil, Corrupt("the head should end at byte %d, but the object ends at byte %d", p.End(), len(b))
	}
	head := b[PrologueSize:p.End()]
	if crc := crc32.Checksum(head, castagnoli); crc != p.HeadCRC {
		return p, nil, Corrupt("the head's checksum should be %08x, but its bytes give %08x", p.HeadCRC, crc)
	}
	return p, head, nil
}

func wrongKind(is, want Kind) error {
	return fmt.Errorf("%w: it is a %v, not a %v", ErrForeign, is, want)
}

// headHash returns the hash of a commit's prologue and head. The head of the next commit has this hash as
// prev.
func headHash(prologueAndHead []byte) Hash { return sha256.Sum256(prologueAndHead) }
