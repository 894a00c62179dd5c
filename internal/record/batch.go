package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

var (
	// ErrCorrupt says that bytes are not a valid batch, or not the expected one.
	ErrCorrupt = errors.New("corrupt record batch")

	// ErrMagic says that a batch has a format version other than magic 2.
	ErrMagic = errors.New("unsupported record batch version")

	// ErrControl says that a batch is a control batch, which a Kafka broker writes at the end of a
	// transaction.
	ErrControl = errors.New("the batch is a control batch: it ends a transaction of Kafka, and has no records of users")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is the header of a batch.
type Batch struct {
	Base        int64 // base offset in the header; not valid for a batch in the store, see Stamp
	Size        int   // size of the whole batch in bytes, including the header
	LeaderEpoch int32 // leader epoch in the header; not valid for a batch in the store, see Stamp
	CRC         uint32
	Attributes  int16
	Codec       Codec // from Attributes
	Count       int   // number of records, at least 1
	// Span is the number of offsets from the base offset to the last offset of the batch, at least Count.
	Span int64

	BaseTimestamp int64 // ms since the Unix epoch
	MaxTimestamp  int64 // ms since the Unix epoch

	ProducerID    int64 // -1 = none
	ProducerEpoch int16
	BaseSequence  int32
}

// SpanMax is the largest Span of a batch: the last offset delta is an int32.
const SpanMax = math.MaxInt32 + 1

// Dense reports whether the batch has no gaps: its records have the offsets from the base offset on, one after the other.
func (x Batch) Dense() bool { return x.Span == int64(x.Count) }

// LogAppendTime reports whether all records have the timestamp MaxTimestamp.
func (x Batch) LogAppendTime() bool { return x.Attributes&logAppendTimeBit != 0 }

// Transactional reports whether the batch is part of a Kafka transaction.
func (x Batch) Transactional() bool { return x.Attributes&transactionalBit != 0 }

// Control reports whether the batch is a control batch, which holds no records of users.
func (x Batch) Control() bool { return x.Attributes&controlBit != 0 }

// Parse reads the header of the batch at the start of b. If more bytes follow, the next batch begins
// at position Size of b. Parse checks that the header is plausible and that b has the whole
// batch. It checks neither the CRC nor the records. Errors wrap [ErrCorrupt] or [ErrMagic].
func Parse(b []byte) (Batch, error) {
	if len(b) < HeaderSize {
		return Batch{}, fmt.Errorf("%w: it has %d bytes, fewer than the %d of a header", ErrCorrupt, len(b), HeaderSize)
	}
	if b[magicAt] != magic2 {
		return Batch{}, fmt.Errorf("%w: magic is %d, not %d", ErrMagic, int8(b[magicAt]), magic2)
	}
	x := Batch{
		Base:          int64(binary.BigEndian.Uint64(b)),
		LeaderEpoch:   int32(binary.BigEndian.Uint32(b[epochAt:])),
		CRC:           CRC(b),
		Attributes:    int16(binary.BigEndian.Uint16(b[attributesAt:])),
		BaseTimestamp: int64(binary.BigEndian.Uint64(b[baseTimestampAt:])),
		MaxTimestamp:  int64(binary.BigEndian.Uint64(b[maxTimestampAt:])),
		ProducerID:    int64(binary.BigEndian.Uint64(b[producerIDAt:])),
		ProducerEpoch: int16(binary.BigEndian.Uint16(b[producerEpochAt:])),
		BaseSequence:  int32(binary.BigEndian.Uint32(b[baseSequenceAt:])),
	}
	x.Codec = Codec(x.Attributes & codecBits)
	length := int64(int32(binary.BigEndian.Uint32(b[lengthAt:])))
	count := int32(binary.BigEndian.Uint32(b[countAt:]))
	lastDelta := int32(binary.BigEndian.Uint32(b[lastDeltaAt:]))
	switch {
	case length+lengthEnd < HeaderSize || length+lengthEnd > int64(len(b)):
		return Batch{}, fmt.Errorf("%w: its length field says %d bytes, and %d bytes follow that field", ErrCorrupt, length, len(b)-lengthEnd)
	case count < 1 || lastDelta < count-1:
		return Batch{}, fmt.Errorf("%w: its header says %d records, but a last offset delta of %d", ErrCorrupt, count, lastDelta)
	case x.Codec > Zstd:
		return Batch{}, fmt.Errorf("%w: unknown codec %d", ErrCorrupt, x.Codec)
	case x.Codec == None && int64(count)*recordSizeMin > length+lengthEnd-HeaderSize:
		return Batch{}, fmt.Errorf("%w: %d records can't fit into %d bytes", ErrCorrupt, count, length+lengthEnd-HeaderSize)
	}
	x.Size, x.Count, x.Span = int(length+lengthEnd), int(count), int64(lastDelta)+1
	return x, nil
}

// CRC returns the CRC-32C in the header of the batch b. b must have at least [HeaderSize] bytes.
func CRC(b []byte) uint32 { return binary.BigEndian.Uint32(b[crcAt:]) }

// Verify checks that b is exactly one undamaged batch whose CRC-32C is crc. It compares crc with the
// CRC in the header and with the computed CRC, and checks the length field and the magic. The CRC
// does not cover the base offset and the leader epoch. Errors wrap [ErrCorrupt] or [ErrMagic].
func Verify(b []byte, crc uint32) error {
	switch {
	case len(b) < HeaderSize || len(b) > math.MaxInt32:
		return fmt.Errorf("%w: it has %d bytes; from %d to %d are possible", ErrCorrupt, len(b), HeaderSize, math.MaxInt32)
	case b[magicAt] != magic2:
		return fmt.Errorf("%w: magic is %d, not %d", ErrMagic, int8(b[magicAt]), magic2)
	case binary.BigEndian.Uint32(b[lengthAt:]) != uint32(len(b)-lengthEnd):
		return fmt.Errorf("%w: its length field says %d bytes, and %d bytes follow that field", ErrCorrupt,
			int32(binary.BigEndian.Uint32(b[lengthAt:])), len(b)-lengthEnd)
	case CRC(b) != crc:
		return fmt.Errorf("%w: its header has the CRC %08x instead of %08x", ErrCorrupt, CRC(b), crc)
	}
	if sum := crc32.Checksum(b[attributesAt:], castagnoli); sum != crc {
		return fmt.Errorf("%w: the CRC of its bytes is %08x instead of %08x", ErrCorrupt, sum, crc)
	}
	return nil
}

// Stamp writes the base offset and the leader epoch into the header of the batch b. The CRC does not
// cover these 12 bytes. b must have at least [HeaderSize] bytes, and no other goroutine may use b during
// the call.
func Stamp(b []byte, base int64, leaderEpoch int32) {
	_ = b[HeaderSize-1]
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[epochAt:], uint32(leaderEpoch))
}
