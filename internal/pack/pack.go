// Package pack writes and reads the fields of messages that brokers send each other: integers, texts and lists, one after the
// other, without padding. Integers are little-endian. A list or a text follows its length, which is a uint32.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is the error of bytes that are not what the Reader was asked for.
var ErrMalformed = errors.New("the bytes of another broker are malformed")

// ErrUnknown is the error of bytes that a newer version of Seb has written.
var ErrUnknown = errors.New("the bytes of another broker are of a version that this broker does not know")

// Writer appends fields to B.
type Writer struct{ B []byte }

// U16 appends a uint16.
func (w *Writer) U16(n uint16) { w.B = binary.LittleEndian.AppendUint16(w.B, n) }

// U32 appends a uint32.
func (w *Writer) U32(n uint32) { w.B = binary.LittleEndian.AppendUint32(w.B, n) }

// U64 appends a uint64.
func (w *Writer) U64(n uint64) { w.B = binary.LittleEndian.AppendUint64(w.B, n) }

// I64 appends an int64.
func (w *Writer) I64(n int64) { w.U64(uint64(n)) }

// Count appends the length of a list.
func (w *Writer) Count(n int) { w.U32(uint32(n)) }

// Bool appends a uint32: 1 or 0.
func (w *Writer) Bool(is bool) {
	if is {
		w.U32(1)
	} else {
		w.U32(0)
	}
}

// Raw appends bytes whose number the reader knows.
func (w *Writer) Raw(b []byte) { w.B = append(w.B, b...) }

// Text appends a text.
func (w *Writer) Text(s string) {
	w.Count(len(s))
	w.B = append(w.B, s...)
}

// Time appends a time in microseconds since 1970; the zero time is 0.
func (w *Writer) Time(t time.Time) {
	if t.IsZero() {
		w.I64(0)
	} else {
		w.I64(t.UnixMicro())
	}
}

// Reader reads fields. After the first error it returns zeros: the caller looks at Err in the end.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b. What it returns shares memory with b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first error, which wraps [ErrMalformed] or [ErrUnknown], or nil.
func (r *Reader) Err() error { return r.err }

// Left returns how many bytes are not read yet.
func (r *Reader) Left() int { return len(r.b) }

// Fail makes the reader fail for a reason.
func (r *Reader) Fail(format string, args ...any) {
	r.FailWith(fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...)))
}

// FailWith makes the reader fail with an error.
func (r *Reader) FailWith(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// End makes the reader fail if bytes are left.
func (r *Reader) End() {
	if r.err == nil && len(r.b) > 0 {
		r.Fail("%d bytes follow the last field", len(r.b))
	}
}

var zeros [64]byte

// Raw reads n bytes. After an error it returns zeros, or nil if n is more than 64.
func (r *Reader) Raw(n int) []byte {
	if n < 0 || len(r.b) < n {
		r.Fail("a field is missing")
		if n < 0 || n > len(zeros) {
			return nil
		}
		return zeros[:n:n]
	}
	field := r.b[:n:n]
	r.b = r.b[n:]
	return field
}

// U16 reads a uint16.
func (r *Reader) U16() uint16 { return binary.LittleEndian.Uint16(r.Raw(2)) }

// U32 reads a uint32.
func (r *Reader) U32() uint32 { return binary.LittleEndian.Uint32(r.Raw(4)) }

// U64 reads a uint64.
func (r *Reader) U64() uint64 { return binary.LittleEndian.Uint64(r.Raw(8)) }

// I64 reads an int64.
func (r *Reader) I64() int64 { return int64(r.U64()) }

// Bool reads a truth value.
func (r *Reader) Bool() bool {
	n := r.U32()
	if n > 1 {
		r.Fail("%d is no truth value", n)
	}
	return n == 1
}

// Count reads the length of a list whose elements take at least size bytes each.
func (r *Reader) Count(size int) int {
	n := r.U32()
	if int64(n)*int64(size) > int64(len(r.b)) {
		r.Fail("a list of %d elements is too long", n)
		return 0
	}
	return int(n)
}

// Text reads a text.
func (r *Reader) Text() string { return string(r.Raw(r.Count(1))) }

// Time reads a time.
func (r *Reader) Time() time.Time {
	if n := r.I64(); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}
