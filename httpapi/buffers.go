package httpapi

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb"
)

// Pooled buffers have size classes, four per doubling, so that at most a fifth of a buffer of more than
// classBytesMin is unused. Buffers larger than the largest class are not pooled, and have no class.
const (
	classBytesMin = 4 << 10
	classCount    = 4*14 + 1 // buffers of the largest class have 64 MiB
)

var bufferPools [classCount]sync.Pool

// classOf returns the smallest class whose buffers hold size bytes. If the buffers of no class are large
// enough, it returns classCount or more.
func classOf(size int) int {
	if size <= classBytesMin {
		return 0
	}
	shift := bits.Len(uint(size-1)) - 3 // size-1 shifted by this has three bits: it is a number from 4 to 7
	quarter := (size - 1) >> shift      // the buffers of the class have (quarter+1) << shift bytes
	return 4*(shift-10) + quarter - 3
}

// classBytes is the size of the buffers of a class.
func classBytes(class int) int {
	return (4 + class%4) << (10 + class/4)
}

// buffer is pooled memory. Its bytes are reserved from the broker's memory budget until the user of the
// buffer calls free, which the user must call exactly once.
type buffer struct {
	bytes   []byte // len is the class's size, or, without a class, the size that was asked for
	class   int    // at least classCount if the buffer has no class
	release func()
}

// reserve takes n bytes from the broker's memory budget until release is called. Memory for what a client
// sends or reads comes from a [seb.Share]; for everything else reserve is [seb.Broker.ReserveMore].
type reserve func(ctx context.Context, n int64) (release func(), err error)

// newBuffer reserves memory, and returns a buffer of at least size bytes with arbitrary contents. It may wait
// for the memory.
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

// grown returns a buffer of at least size bytes that begins with a copy of b.bytes[:used]. It
// frees b, even if it returns an error.
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
	pooledRecordsMax    = 16 << 10 // longer lists are not pooled
	reservedRecordBytes = 64 << 10 // how much a growing list reserves at a time, at least
	smallListBytes      = 64 << 10 // a larger list grows only while no other large list grows: see recordList.takeTurn
	listTurnMax         = 5 * time.Second
)

// Pools of *recordList. Small lists have a pool of their own, since a list takes the memory of its whole capacity,
// and a small request must not need much.
var smallLists, largeLists sync.Pool

func recordPool(count int) *sync.Pool {
	if count*recordStructBytes <= smallListBytes {
		return &smallLists
	}
	return &largeLists
}

// recordList is a pooled list of records, to which a parser adds. Its memory is reserved from the broker's
// memory budget until free is called.
type recordList struct {
	list     []seb.Record
	releases []func()
	bytes    int           // reserved
	turn     chan struct{} // holds this list's token while it is the list's turn to grow; else nil
}

// recordsMax is how many records one request may carry: the records' structs may
// take half as many bytes as the largest request.
func (h *Handler) recordsMax() int { return h.limits.RequestBytes / 2 / recordStructBytes }

// newRecordList returns an empty list with room for count records, or an error if count is
// more than a request may carry.
func (h *Handler) newRecordList(ctx context.Context, count int) (*recordList, error) {
	if err := h.checkRecordCount(count); err != nil {
		return nil, err
	}
	l, _ := recordPool(count).Get().(*recordList)
	if l == nil {
		l = &recordList{}
	}
	room := max(count, cap(l.list), pooledRecordsMin)
	if err := l.reserve(ctx, h, room*recordStructBytes); err != nil {
		l.free()
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

// reserve reserves n more bytes of the broker's memory budget until the list is freed.
func (l *recordList) reserve(ctx context.Context, h *Handler, n int) error {
	l.bytes += n
	if most := 2 * h.limits.RequestBytes; l.bytes > most {
		return &seb.Error{
			Code: seb.CodeRequestTooLarge, Outcome: seb.NotCommitted, Limit: int64(most),
			Detail: fmt.Sprintf("the request's records, headers, offsets and tokens take more than %d bytes of the broker's memory, in addition to the body", most),
			Hint:   "send several requests",
		}
	}
	release, err := h.broker.ReserveMore(ctx, int64(n))
	if err != nil {
		return err
	}
	l.releases = append(l.releases, release)
	return nil
}

// grow is reserve for a parser that reserves memory again and again.
func (l *recordList) grow(ctx context.Context, h *Handler, n int) error {
	if l.bytes+n > smallListBytes {
		if err := l.takeTurn(ctx, h); err != nil {
			return err
		}
	}
	return l.reserve(ctx, h, n)
}

// takeTurn waits until no other large list grows. If several large lists grew at a time, each could hold memory
// that the others wait for. A complete list holds its memory only until the broker has copied its records.
func (l *recordList) takeTurn(ctx context.Context, h *Handler) error {
	if l.turn != nil {
		return nil
	}
	select {
	case h.listTurn <- struct{}{}:
		l.turn = h.listTurn
		return nil
	default:
	}
	timeout := time.NewTimer(listTurnMax)
	defer timeout.Stop()
	select {
	case h.listTurn <- struct{}{}:
		l.turn = h.listTurn
		return nil
	case <-timeout.C:
		return &seb.Error{
			Code: seb.CodeOverMemoryBudget, Outcome: seb.NotCommitted, RetryAfter: time.Second,
			Detail: fmt.Sprintf("the request waited %v for other requests with long lists of records or positions", listTurnMax),
		}
	case <-ctx.Done():
		return &seb.Error{Code: seb.CodeCanceled, Outcome: seb.NotCommitted, Detail: "the request was canceled while it waited for memory", Err: context.Cause(ctx)}
	}
}

// parsed notes that the list is complete.
func (l *recordList) parsed() {
	if l.turn != nil {
		<-l.turn
		l.turn = nil
	}
}

func (l *recordList) free() {
	l.parsed()
	l.bytes = 0
	clear(l.list) // a pooled list must not keep keys, headers and bodies alive
	for _, release := range l.releases {
		release()
	}
	clear(l.releases)
	l.list, l.releases = l.list[:0], l.releases[:0]
	if cap(l.list) <= pooledRecordsMax {
		recordPool(cap(l.list)).Put(l)
	}
}
