package record

import (
	"fmt"
	"math"
)

const (
	// RecordHeadersDefault is the bound where [Limits.RecordHeaders] is 0.
	RecordHeadersDefault = 1 << 16
	// DecompressedBytesDefault is the bound where [Limits.DecompressedBytes] is 0.
	DecompressedBytesDefault = 64 << 20
)

// Limits bound what a batch may hold.
type Limits struct {
	// RecordBytes bounds key, value and headers of one record; 0 means that
	// only the batch itself does.
	RecordBytes int
	// RecordHeaders bounds the headers of one record, each of which takes far
	// more memory decoded than encoded. 0 means [RecordHeadersDefault].
	RecordHeaders int
	// DecompressedBytes bounds the records of a compressed batch after
	// decompression, framing included, so that a small batch can't claim
	// memory without end. 0 means [DecompressedBytesDefault].
	DecompressedBytes int
}

func (l Limits) decompressedBytes() int {
	if l.DecompressedBytes > 0 {
		return min(l.DecompressedBytes, math.MaxInt32)
	}
	return DecompressedBytesDefault
}

func (l Limits) recordHeaders() int {
	if l.RecordHeaders > 0 {
		return l.RecordHeaders
	}
	return RecordHeadersDefault
}

// LimitError says that a batch holds more than [Limits] allow.
type LimitError struct {
	What  string // what there is too much of, such as "bytes in a record"
	Limit int
	// Index is that of the record, or -1 where it is about the whole batch.
	Index int
}

// Error names the limit, and the record that passed it.
func (e *LimitError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("record batch has more than %d %s", e.Limit, e.What)
	}
	return fmt.Sprintf("record %d of the batch has more than %d %s", e.Index, e.Limit, e.What)
}

func bytesLimit(limit int) error {
	return &LimitError{What: "bytes once decompressed", Limit: limit, Index: -1}
}

// Check decides whether b may enter: it is exactly one batch, intact by its
// CRC, whose records decompress and decode, are as many as the header says,
// have dense offset deltas from 0, and keep within lim. Errors wrap
// [ErrCorrupt], [ErrMagic] or [ErrControl], or are a [*LimitError].
//
// MaxTimestamp of the result is that of the records themselves, since some
// clients leave a wrong one in the header. Transactional batches pass; whether
// they are welcome is the caller's decision.
func Check(b []byte, lim Limits) (Batch, error) {
	x, err := Parse(b)
	if err != nil {
		return Batch{}, err
	}
	if err := Verify(b, x.CRC); err != nil {
		return Batch{}, err
	}
	if x.Control() {
		return Batch{}, ErrControl
	}
	latest := int64(math.MinInt64)
	for r, err := range x.Records(b, 0, lim) {
		if err != nil {
			return Batch{}, err
		}
		latest = max(latest, r.Timestamp)
		if lim.RecordBytes > 0 && r.size() > lim.RecordBytes {
			return Batch{}, &LimitError{"bytes in a record", lim.RecordBytes, int(r.Offset)}
		}
	}
	x.MaxTimestamp = latest
	return x, nil
}
