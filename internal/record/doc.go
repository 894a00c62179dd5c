// Package record reads and writes Kafka record batches of magic 2, the unit in
// which Seb stores, checksums, compresses and serves records.
//
// A batch is a byte slice. [Builder] makes a batch, [Check] checks a whole batch for seb dump,
// [Batch.Records] iterates over the records of a batch, and [Stamp] writes the two fields that
// depend on where the batch is in a partition. Every decoder returns an error for bytes that it
// can't decode, and none panics.
//
// A batch may have gaps: offsets between its base and its last offset that no record has. Batches of producers are
// dense, which means without gaps. A batch that was made of several others has their gaps.
//
// The layout is that of "Record Batch" in Kafka's documentation
// (https://kafka.apache.org/documentation/#recordbatch). All integers of the
// header are big-endian:
//
//	offset  size  field
//	     0     8  base offset             not covered by the CRC; see Stamp
//	     8     4  batch length            bytes that follow this field: size - 12
//	    12     4  partition leader epoch  not covered by the CRC; see Stamp
//	    16     1  magic                   2
//	    17     4  CRC-32C                 of everything from offset 21 on
//	    21     2  attributes              bits 0-2 codec (0 none, 1 gzip, 2 snappy,
//	                                      3 lz4, 4 zstd), 3 log append time,
//	                                      4 transactional, 5 control,
//	                                      6 delete horizon (set by brokers only)
//	    23     4  last offset delta       at least count - 1; more if offsets are missing
//	    27     8  base timestamp          ms since the Unix epoch, of the first record
//	    35     8  max timestamp           ms since the Unix epoch
//	    43     8  producer id             -1 = none
//	    51     2  producer epoch          -1 = none
//	    53     4  base sequence           -1 = none
//	    57     4  record count
//	    61     .  records                 compressed as a whole if the codec says so
//
// The layout of a record follows; varint is zigzag LEB128 of 32 bits, varlong of 64:
//
//	varint   length of what follows
//	int8     attributes, unused
//	varlong  timestamp delta to the base timestamp
//	varint   offset delta to the base offset, above that of the record before
//	varint   key length, -1 for null; then the key
//	varint   value length, -1 for null; then the value
//	varint   header count, then for each:
//	  varint  name length, then the name
//	  varint  value length, -1 for null; then the value
package record

// Positions in the batch header.
const (
	lengthAt        = 8
	epochAt         = 12
	magicAt         = 16
	crcAt           = 17
	attributesAt    = 21
	lastDeltaAt     = 23
	baseTimestampAt = 27
	maxTimestampAt  = 35
	producerIDAt    = 43
	producerEpochAt = 51
	baseSequenceAt  = 53
	countAt         = 57

	// HeaderSize is the size of a batch without its records, in bytes.
	HeaderSize = 61

	// lengthEnd is the position of the first byte that the length field counts.
	lengthEnd = lengthAt + 4
	// recordSizeMin is the size of the smallest encoded record: seven fields of one byte.
	recordSizeMin = 7

	magic2 = 2
)

// Bits of the attributes.
const (
	codecBits        = 0x07
	logAppendTimeBit = 1 << 3
	transactionalBit = 1 << 4
	controlBit       = 1 << 5
)

// Header is a name and a value that belong to a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte // nil means null
}

// Record is one record of a batch.
type Record struct {
	Key, Value []byte // nil means null, which differs from empty
	Headers    []Header
	Timestamp  int64 // ms since the Unix epoch
	// Offset is the offset in the partition. Readers of batches set it; Builder ignores it (see [Builder.Skip]).
	Offset int64
}

// size returns the number of bytes in key, value and headers.
func (r *Record) size() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}
