package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// Sum is a sum of hashes of 128 bits, modulo 2^128. It does not depend on the order in which records are added, nor on the
// batches that hold them. So it stays the same wherever records move.
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
	s.addHash(sha256.Sum256(b))
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
	h := sha256.New()
	var fixed [8]byte
	binary.LittleEndian.PutUint64(fixed[:], uint64(base))
	h.Write(fixed[:])
	h.Write(raw[crcAt:])
	s.addHash([sha256.Size]byte(h.Sum(nil)))
}

func (s *Sum) addHash(h [sha256.Size]byte) {
	s.Add(Sum{binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])})
}
