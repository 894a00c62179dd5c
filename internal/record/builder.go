package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// SizeMax is the size in bytes of the largest batch that the format allows.
const SizeMax = math.MaxInt32

const (
	// recordOverheadMax bounds the bytes of a record without key, value and headers: its length,
	// attributes, timestamp delta, offset delta, key length, value length and header count.
	recordOverheadMax = 5 + 1 + 10 + 5 + 5 + 5 + 5
	// headerOverheadMax bounds the bytes of a record's header without name and value: two
	// lengths.
	headerOverheadMax = 5 + 5
)

// SizeOf returns an upper bound of how many bytes r adds to a batch.
func SizeOf(r *Record) int {
	return recordOverheadMax + headerOverheadMax*len(r.Headers) + r.size()
}

// Builder encodes records into a batch. The zero Builder is empty and ready for use. A Builder is
// not safe for concurrent use. Append copies a record once, into the memory that becomes the
// batch. Append does not allocate if [Builder.Grow] has made enough room.
type Builder struct {
	buf           []byte // space for the header, then the records
	count         int
	span          int64 // offsets of the batch so far, including those that Skip left out
	baseTimestamp int64
	maxTimestamp  int64
}

// Span is a range of record indexes: From to To-1.
type Span struct{ From, To int }

// Count returns the number of records appended so far.
func (b *Builder) Count() int { return b.count }

// Size returns the size in bytes of the uncompressed batch with the records so far.
func (b *Builder) Size() int { return max(len(b.buf), HeaderSize) }

// Grow makes room for more records, which take n bytes according to [SizeOf].
func (b *Builder) Grow(n int) {
	if len(b.buf) == 0 {
		n += HeaderSize
	}
	b.buf = slices.Grow(b.buf, n)
}

// Span returns the number of offsets that the batch would have now: its records, and the gaps that Skip made.
func (b *Builder) Span() int64 { return b.span }

// Skip makes a gap of n offsets behind the records so far. It panics if the batch could exceed [SpanMax].
func (b *Builder) Skip(n int64) {
	if n < 0 || b.span+n > SpanMax {
		panic(fmt.Sprintf("record: a gap of %d offsets in a batch of %d", n, b.span))
	}
	b.span += n
}

// Append adds a copy of r to the batch, with the next offset. It panics if the batch could exceed [SizeMax] or
// [SpanMax]; callers keep their batches far smaller.
func (b *Builder) Append(r *Record) {
	if bound := b.Size() + SizeOf(r); bound > SizeMax || b.span >= SpanMax {
		panic(fmt.Sprintf("record: a batch of %d bytes and %d offsets", bound, b.span))
	}
	if b.count == 0 {
		var header [HeaderSize]byte // filled in by seal
		b.buf = append(b.buf[:0], header[:]...)
		b.baseTimestamp, b.maxTimestamp = r.Timestamp, r.Timestamp
	}
	b.maxTimestamp = max(b.maxTimestamp, r.Timestamp)

	// The difference of two extreme timestamps may overflow. This does no harm: a reader adds the
	// difference to the base timestamp, and the sum overflows back to the right value.
	timeDelta, offsetDelta := r.Timestamp-b.baseTimestamp, b.span
	size := 1 + varintSize(timeDelta) + varintSize(offsetDelta) +
		bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		size += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}

	p := binary.AppendVarint(b.buf, int64(size))
	p = append(p, 0)
	p = binary.AppendVarint(p, timeDelta)
	p = binary.AppendVarint(p, offsetDelta)
	p = appendBytes(p, r.Key)
	p = appendBytes(p, r.Value)
	p = binary.AppendVarint(p, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		p = binary.AppendVarint(p, int64(len(h.Key)))
		p = append(p, h.Key...)
		p = appendBytes(p, h.Value)
	}
	b.buf = p
	b.count++
	b.span++
}

// Finish returns the uncompressed batch, with base offset 0 and leader epoch 0. It returns nil if there
// are no records. The caller may change the batch. After the call, the builder is empty.
func (b *Builder) Finish() []byte {
	p := b.buf
	if b.count == 0 {
		p = nil
	} else {
		b.seal(p, None)
	}
	*b = Builder{}
	return p
}

// FinishWith does what Finish does, and compresses the records with c. It returns an error, and
// leaves the builder unchanged, if the package does not have the codec c.
func (b *Builder) FinishWith(c Codec) ([]byte, error) {
	if c == None || b.count == 0 {
		return b.Finish(), nil
	}
	p, err := compress(make([]byte, HeaderSize, HeaderSize+len(b.buf)/2), b.buf[HeaderSize:], c)
	if err != nil {
		return nil, err
	}
	b.seal(p, c)
	*b = Builder{}
	return p, nil
}

// FinishSmaller does what FinishWith does, but leaves the records uncompressed if c does not make the batch smaller. If it does, the
// builder keeps its memory for the next batch.
func (b *Builder) FinishSmaller(c Codec) ([]byte, error) {
	plain := *b
	p, err := b.FinishWith(c)
	switch {
	case err != nil:
		return nil, err
	case len(p) < plain.Size():
		*b = Builder{buf: plain.buf[:0]}
		return p, nil
	}
	*b = Builder{}
	return plain.Finish(), nil
}

// Compress returns a batch with its records compressed by c. The batch has uncompressed records; Compress does not change it. It
// returns the batch itself if c does not make it smaller.
func Compress(raw []byte, c Codec) ([]byte, error) {
	if c == None {
		return raw, nil
	}
	p, err := compress(append(make([]byte, 0, HeaderSize+len(raw)/2), raw[:HeaderSize]...), raw[HeaderSize:], c)
	if err != nil || len(p) >= len(raw) {
		return raw, err
	}
	attributes := binary.BigEndian.Uint16(p[attributesAt:])
	binary.BigEndian.PutUint16(p[attributesAt:], attributes&^codecBits|uint16(c))
	binary.BigEndian.PutUint32(p[lengthAt:], uint32(len(p)-lengthEnd))
	binary.BigEndian.PutUint32(p[crcAt:], crc32.Checksum(p[attributesAt:], castagnoli))
	return p, nil
}

// seal fills in the header of the batch p, which already has its records.
func (b *Builder) seal(p []byte, c Codec) {
	binary.BigEndian.PutUint64(p, 0)
	binary.BigEndian.PutUint32(p[lengthAt:], uint32(len(p)-lengthEnd))
	binary.BigEndian.PutUint32(p[epochAt:], 0)
	p[magicAt] = magic2
	binary.BigEndian.PutUint16(p[attributesAt:], uint16(c))
	binary.BigEndian.PutUint32(p[lastDeltaAt:], uint32(b.span-1))
	binary.BigEndian.PutUint64(p[baseTimestampAt:], uint64(b.baseTimestamp))
	binary.BigEndian.PutUint64(p[maxTimestampAt:], uint64(b.maxTimestamp))
	// The batch has no producer: id, epoch and sequence are -1.
	for i := producerIDAt; i < countAt; i++ {
		p[i] = 0xff
	}
	binary.BigEndian.PutUint32(p[countAt:], uint32(b.count))
	binary.BigEndian.PutUint32(p[crcAt:], crc32.Checksum(p[attributesAt:], castagnoli))
}

// Without returns a new builder with the records of b, except those whose index is in a span of
// skip. The result has no gaps. Without does not change b. If records of several requests share a batch, and one request is
// withdrawn, the caller uses Without to remove the records of that request.
func (b *Builder) Without(skip []Span) *Builder {
	out := new(Builder)
	if b.count == 0 {
		return out
	}
	out.Grow(len(b.buf))
	w := walker{rest: b.buf[HeaderSize:], count: b.count, span: b.span, baseTimestamp: b.baseTimestamp, headersMax: math.MaxInt}
	for i := range b.count {
		r, err := w.next()
		if err != nil {
			panic(fmt.Sprintf("record: a builder's own bytes: %v", err))
		}
		if !slices.ContainsFunc(skip, func(s Span) bool { return s.From <= i && i < s.To }) {
			out.Append(&r)
		}
	}
	return out
}

func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1 // the length -1, which takes one byte
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(p, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(p, -1)
	}
	return append(binary.AppendVarint(p, int64(len(b))), b...)
}
