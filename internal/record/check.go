package record

import (
	"fmt"
	"math"
)

const (
	// RecordHeadersDefault is the bound if [Limits.RecordHeaders] is 0.
	RecordHeadersDefault = 1 << 16
	// DecompressedBytesDefault is the bound if [Limits.DecompressedBytes] is 0.
	DecompressedBytesDefault = 64 << 20
)

// Limits bound the content of a batch.
type Limits struct {
	// RecordBytes bounds the total size in bytes of key, value and headers of one record; 0
	// means no bound.
	RecordBytes int
	// RecordHeaders bounds the number of headers of one record. This bounds memory: a decoded header
	// takes far more memory than an encoded one. 0 means [RecordHeadersDefault].
	RecordHeaders int
	// DecompressedBytes bounds the size in bytes that the records of a compressed batch have
	// after decompression, so that a small batch can't take all memory. 0 means
	// [DecompressedBytesDefault].
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

// LimitError says that a batch exceeds one of the [Limits].
type LimitError struct {
	What  string // what exceeds the limit, such as "bytes in key, value and headers"
	Limit int
	// Index is the index of the record in the batch, or -1 if the limit is for the whole batch.
	Index int
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("the record batch has more than %d %s", e.Limit, e.What)
	}
	return fmt.Sprintf("the record at index %d of the batch has more than %d %s", e.Index, e.Limit, e.What)
}

func bytesLimit(limit int) error {
	return &LimitError{What: "bytes once decompressed", Limit: limit, Index: -1}
}

// Check checks a batch: b must be exactly one batch with a right CRC. Check decodes all records. Their number
// must be the one in the header, their offset deltas must ascend and not exceed the last one in the header, and the
// batch must not exceed lim. Errors wrap [ErrCorrupt], [ErrMagic] or [ErrControl], or are
// a [*LimitError].
//
// Some clients write a wrong MaxTimestamp into the header. So in the result, MaxTimestamp is the
// largest timestamp of the records. Check accepts transactional batches and batches with gaps; the caller may
// refuse them.
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
	index := 0
	for r, err := range x.Records(b, 0, lim) {
		if err != nil {
			return Batch{}, err
		}
		latest = max(latest, r.Timestamp)
		if lim.RecordBytes > 0 && r.size() > lim.RecordBytes {
			return Batch{}, &LimitError{"bytes in key, value and headers", lim.RecordBytes, index}
		}
		index++
	}
	x.MaxTimestamp = latest
	return x, nil
}
