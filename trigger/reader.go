package trigger

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/simple-event-broker/seb"
)

// errState says that stored state of triggers can't be read.
var errState = errors.New("the stored state of triggers is damaged")

// reader reads fields. After an error, it reads zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errState
	}
	r.rest = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes reads a length, and so many bytes.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) position() position {
	p := position{time: r.varint(), topic: seb.TopicID(r.uvarint() - 1)}
	if p.topic == deadlineTopic {
		return p
	}
	partition, offset := r.uvarint(), r.uvarint()
	if partition > math.MaxInt32 || offset > math.MaxInt64 {
		r.fail()
	}
	p.partition, p.offset = int32(partition), seb.Offset(offset)
	return p
}

// count reads how many fields follow, each of which has at least one byte.
func (r *reader) count() uint64 {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return 0
	}
	return n
}

// text reads a length, and so many bytes.
func (r *reader) text() string { return string(r.bytes()) }
