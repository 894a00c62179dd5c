package record

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
)

// Records iterates over the records of the batch b, whose header is x, in order. It is [Batch.Decode] of what
// [Batch.Unpack] returns; an error of Unpack ends the iteration too.
func (x Batch) Records(b []byte, base int64, lim Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		records, err := x.Unpack(b, lim)
		if err != nil {
			yield(Record{}, err)
			return
		}
		x.Decode(records, base, lim)(yield)
	}
}

// Decode iterates over records that [Batch.Unpack] has returned, in order. The
// offset of a record is base plus the record's offset delta. Keys and values are slices of records. The caller must not
// change them, and must not use them after records has changed.
//
// An error ends the iteration and comes without a record. It wraps [ErrCorrupt], or is a
// [*LimitError] if a record exceeds lim.RecordHeaders. Decode does not verify the CRC.
func (x Batch) Decode(records []byte, base int64, lim Limits) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		w := walker{rest: records, count: x.Count, span: x.Span, baseTimestamp: x.BaseTimestamp, headersMax: lim.recordHeaders()}
		for range x.Count {
			r, err := w.next()
			if err != nil {
				yield(Record{}, err)
				return
			}
			if x.LogAppendTime() {
				r.Timestamp = x.MaxTimestamp
			}
			r.Offset += base
			if !yield(r, nil) {
				return
			}
		}
		if len(w.rest) > 0 {
			yield(Record{}, fmt.Errorf("%w: %d bytes follow after its last record", ErrCorrupt, len(w.rest)))
		}
	}
}

// Unpack returns the encoded records of the batch b, whose header is x: a slice of b, or new memory if b is compressed.
// Its error wraps [ErrCorrupt], or is a [*LimitError]. Unpack does not verify the CRC.
func (x Batch) Unpack(b []byte, lim Limits) ([]byte, error) {
	if x.Size < HeaderSize || x.Size > len(b) {
		return nil, fmt.Errorf("%w: it should have %d bytes, but has %d", ErrCorrupt, x.Size, len(b))
	}
	rest := b[HeaderSize:x.Size]
	if x.Codec == None {
		return rest, nil
	}
	return decompress(rest, x.Codec, lim.decompressedBytes())
}

// walker decodes one record after the other.
type walker struct {
	rest          []byte // records not decoded yet
	index         int    // index of the next record
	count         int
	span          int64 // offset deltas are below span
	free          int64 // the lowest offset delta that the next record may have
	baseTimestamp int64
	headersMax    int

	headers []Header          // allocated memory for the headers of later records
	names   map[string]string // header names of earlier records, so that each name is allocated once
}

const (
	headersRoom = 64 // headers allocated at once
	namesMax    = 64 // header names remembered
)

// next decodes the next record, and sets its Offset to the record's offset delta.
func (w *walker) next() (Record, error) {
	f := fields{rest: w.rest}
	body := f.take(f.varint32())
	if f.bad {
		return Record{}, w.corrupt("its length is damaged")
	}
	w.rest = f.rest
	f.rest = body

	f.take(1) // attributes: unused
	var r Record
	r.Timestamp = w.baseTimestamp + f.varint64()
	r.Offset = int64(f.varint32())
	r.Key = f.nullable()
	r.Value = f.nullable()
	count := f.varint32()
	switch {
	case f.bad:
		return Record{}, w.corrupt("a field is damaged")
	case r.Offset < w.free || r.Offset >= w.span:
		return Record{}, w.corrupt(fmt.Sprintf("its offset delta is %d; from %d to %d are possible", r.Offset, w.free, w.span-1))
	case count < 0 || int(count) > len(f.rest)/2:
		return Record{}, w.corrupt(fmt.Sprintf("%d headers can't fit into %d bytes", count, len(f.rest)))
	case int(count) > w.headersMax:
		return Record{}, &LimitError{"headers", w.headersMax, w.index}
	case count > 0:
		r.Headers = w.decodeHeaders(&f, int(count))
	}
	if f.bad || len(f.rest) > 0 {
		return Record{}, w.corrupt("its headers are damaged")
	}
	w.index, w.free = w.index+1, r.Offset+1
	return r, nil
}

// decodeHeaders decodes count headers. It allocates memory for the headers of several records at once.
func (w *walker) decodeHeaders(f *fields, count int) []Header {
	if len(w.headers) < count {
		w.headers = make([]Header, max(count, headersRoom))
	}
	hs := w.headers[:count:count]
	w.headers = w.headers[count:]
	for i := range hs {
		hs[i].Key = w.name(f.take(f.varint32()))
		hs[i].Value = f.nullable()
		if f.bad {
			return nil
		}
	}
	return hs
}

func (w *walker) name(b []byte) string {
	if s, ok := w.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if w.names == nil {
		w.names = make(map[string]string)
	}
	if len(w.names) < namesMax {
		w.names[s] = s
	}
	return s
}

func (w *walker) corrupt(what string) error {
	return fmt.Errorf("%w: the record at index %d, of %d records: %s", ErrCorrupt, w.index, w.count, what)
}

// fields reads one field after the other. After a damaged field, bad is true, and all further reads return
// zero values.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) varint64() int64 {
	v, n := binary.Varint(f.rest)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) varint32() int32 {
	v := f.varint64()
	if v < math.MinInt32 || v > math.MaxInt32 {
		f.fail()
		return 0
	}
	return int32(v)
}

// take returns the next n bytes. It returns nil only if there are fewer bytes, or n is negative.
func (f *fields) take(n int32) []byte {
	if n < 0 || int(n) > len(f.rest) {
		f.fail()
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

// nullable reads a length and returns that many bytes, or nil if the length is -1.
func (f *fields) nullable() []byte {
	n := f.varint32()
	if n == -1 {
		return nil
	}
	return f.take(n)
}

func (f *fields) fail() { f.rest, f.bad = nil, true }
