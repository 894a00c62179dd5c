package segment

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// Sum is a sum of hashes of 128 bits, modulo 2^128. It does not depend on the order in which records are added, nor on the
// batches that hold them. So it stays the same wherever records move. It differs from process to process: it is compared, and stored
// nowhere.
type Sum struct{ hi, lo uint64 }

// Add adds another sum.
func (s *Sum) Add(x Sum) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, x.lo, 0)
	s.hi, _ = bits.Add64(s.hi, x.hi, carry)
}

// add adds the hash of a record: of its offset, timestamp, key, value and headers. scratch is memory that add may use; add
// returns it for the next call.
func (s *Sum) add(r *record.Record, scratch []byte) []byte {
	b := binary.LittleEndian.AppendUint64(scratch[:0], uint64(r.Offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Timestamp))
	b = appendField(appendField(b, r.Key), r.Value)
	for _, header := range r.Headers {
		b = appendField(appendField(b, []byte(header.Key)), header.Value)
	}
	s.Add(hash(b))
	return b
}

// appendField appends the size of a field, and the field, so that different fields give different bytes.
func appendField(b, field []byte) []byte {
	n := uint64(len(field)) + 1
	if field == nil {
		n = 0 // null differs from empty
	}
	return append(binary.LittleEndian.AppendUint64(b, n), field...)
}

// addBatch adds the hash of a batch that is not decoded: it never changes, but for the bytes that [record.Stamp] writes.
func (s *Sum) addBatch(base format.Offset, raw []byte) {
	const crcAt = 17 // the bytes before are the length, and what Stamp writes
	x := hash(raw[crcAt:])
	b := binary.LittleEndian.AppendUint64(nil, uint64(base))
	b = binary.LittleEndian.AppendUint64(b, x.hi)
	s.Add(hash(binary.LittleEndian.AppendUint64(b, x.lo)))
}

// The hashes guard against mistakes and damage, and the seeds are secret: so two fast hashes of 64 bits do, in place of one that costs
// a third of compaction's time.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hash(b []byte) Sum { return Sum{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)} }
