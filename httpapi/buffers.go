package httpapi

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/simple-event-broker/seb"
)

// Buffers come in size classes, four per doubling, so that at most a fifth of a
// buffer is unused. Beyond the largest class they are left to the collector.
const (
	classBytesMin = 4 << 10
	classCount    = 4*14 + 1 // the last is 64 MiB
)

var bufferPools [classCount]sync.Pool

// classOf returns the smallest class that holds size bytes; classCount or more
// means that no class does.
func classOf(size int) int {
	if size <= classBytesMin {
		return 0
	}
	shift := bits.Len(uint(size-1)) - 3 // leaves the top three bits: 4 to 7
	quarter := (size - 1) >> shift      // class bytes are (quarter+1) << shift
	return 4*(shift-10) + quarter - 3
}

// classBytes is the size of the buffers of a class.
func classBytes(class int) int {
	return (4 + class%4) << (10 + class/4)
}

// buffer is pooled memory that is reserved from the broker's budget while it is
// used. Its holder frees it, once.
type buffer struct {
	bytes   []byte // len is the class's size
	class   int
	release func()
}

// reserve is how memory is taken from the budget: from a share for what a client
// sends or reads, ReserveMore for all that a request needs in addition.
type reserve func(ctx context.Context, n int64) (release func(), err error)

// newBuffer waits for budget and returns a buffer of at least size bytes, with
// arbitrary contents.
func newBuffer(ctx context.Context, reserve reserve, size int) (*buffer, error) {
	class := classOf(size)
	if class < classCount {
		size = classBytes(class)
	}
	release, err := reserve(ctx, int64(size))
	if err != nil {
		return nil, err
	}
	var b *buffer
	if class < classCount {
		b, _ = bufferPools[class].Get().(*buffer)
	}
	if b == nil {
		b = &buffer{bytes: make([]byte, size), class: class}
	}
	b.release = release
	return b, nil
}

func (b *buffer) free() {
	release := b.release
	b.release = nil
	if b.class < classCount {
		bufferPools[b.class].Put(b)
	}
	release()
}

// grown returns a buffer of at least size bytes that begins with the first used
// bytes of b, and frees b, also when it returns an error.
func grown(ctx context.Context, reserve reserve, b *buffer, used, size int) (*buffer, error) {
	defer b.free()
	larger, err := newBuffer(ctx, reserve, size)
	if err != nil {
		return nil, err
	}
	copy(larger.bytes, b.bytes[:used])
	return larger, nil
}

const (
	recordStructBytes   = int(unsafe.Sizeof(seb.Record{}))
	headerStructBytes   = int(unsafe.Sizeof(seb.Header{}))
	pooledRecordsMin    = 64
	pooledRecordsMax    = 16 << 10 // longer lists are left to the collector
	reservedRecordBytes = 64 << 10 // the least that a growing list reserves at a time
)

var recordPool sync.Pool // of *recordList

// recordList is a pooled list of records under construction, reserved like a buffer.
type recordList struct {
	list     []seb.Record
	releases []func()
}

// recordsMax is how many records one request may carry, so that their structs
// take no more than half the memory that its bytes may.
func (h *Handler) recordsMax() int { return h.limits.RequestBytes / 2 / recordStructBytes }

// newRecordList returns an empty list with room for count records; count may be
// past what a request may carry, which is an error.
func (h *Handler) newRecordList(ctx context.Context, count int) (*recordList, error) {
	if err := h.checkRecordCount(count); err != nil {
		return nil, err
	}
	l, _ := recordPool.Get().(*recordList)
	if l == nil {
		l = &recordList{}
	}
	room := max(count, cap(l.list), pooledRecordsMin)
	if err := l.reserve(ctx, h.broker, room*recordStructBytes); err != nil {
		return nil, err
	}
	if cap(l.list) < room {
		l.list = make([]seb.Record, 0, room)
	}
	return l, nil
}

func (h *Handler) checkRecordCount(count int) error {
	if limit := h.recordsMax(); count > limit {
		return &seb.Error{
			Code: seb.CodeRequestTooLarge, Outcome: seb.NotCommitted, Limit: int64(limit),
			Detail: fmt.Sprintf("the request has more than %d records", limit),
			Hint:   "send the records in several requests",
		}
	}
	return nil
}

// reserve takes n more bytes of b's budget for what the list refers to.
func (l *recordList) reserve(ctx context.Context, b *seb.Broker, n int) error {
	release, err := b.ReserveMore(ctx, int64(n))
	if err != nil {
		return err
	}
	l.releases = append(l.releases, release)
	return nil
}

func (l *recordList) free() {
	clear(l.list) // lets go of keys, headers and bodies
	for _, release := range l.releases {
		release()
	}
	clear(l.releases)
	l.list, l.releases = l.list[:0], l.releases[:0]
	if cap(l.list) <= pooledRecordsMax {
		recordPool.Put(l)
	}
}
