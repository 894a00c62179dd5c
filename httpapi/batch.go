package httpapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/simple-event-broker/seb"
)

// The compact form of records, application/vnd.seb.batch, little-endian:
//
//	offset       size       meaning
//	0            4          count of records, uint32
//	4            4 × count  size of each value in bytes, uint32
//	4 + 4×count  the sum    the values, back to back
//
// Nothing follows the last value.
const batchCountBytes, batchSizeBytes = 4, 4

// batchOf returns a record for each value in a body of the type application/vnd.seb.batch. The records' values
// are slices of body.
func (h *Handler) batchOf(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	count, err := checkBatch(body)
	if err != nil {
		return nil, err
	}
	l, err := h.newRecordList(ctx, count)
	if err != nil {
		return nil, err
	}
	sizes, values := body[batchCountBytes:], body[batchCountBytes+batchSizeBytes*count:]
	for range count {
		size := binary.LittleEndian.Uint32(sizes)
		l.list = append(l.list, spec.record(values[:size:size]))
		sizes, values = sizes[batchSizeBytes:], values[size:]
	}
	return l, nil
}

// checkBatch returns how many records body has. It returns an error unless the sizes
// add up to the length of body.
func checkBatch(body []byte) (count int, err error) {
	if len(body) < batchCountBytes {
		return 0, invalid("", "the batch has %d bytes; it must start with the number of records, which takes %d bytes", len(body), batchCountBytes)
	}
	n := int64(binary.LittleEndian.Uint32(body))
	values := int64(len(body)) - batchCountBytes - batchSizeBytes*n
	if values < 0 {
		return 0, invalid("", "the batch has %d bytes, too few for the count and the sizes of %d records", len(body), n)
	}
	left := values
	for i := range n {
		at := batchCountBytes + batchSizeBytes*i
		left -= int64(binary.LittleEndian.Uint32(body[at:]))
		if left < 0 {
			return 0, invalid("", "record %d of the batch would end %d bytes after the end of the body: its size, the 4 bytes at byte %d of the body, is too large", i, -left, at)
		}
	}
	if left > 0 {
		return 0, invalid("the count is the first 4 bytes, then come 4 bytes of size for each record, all little-endian, then the values: correct the count or the sizes, or remove the bytes after the last value", "%d bytes follow the last value of the batch, from byte %d on", left, int64(len(body))-left)
	}
	return int(n), nil
}

var errBatchTooLarge = errors.New("a value takes more bytes than the compact form allows")

// writeBatch writes the values of records as application/vnd.seb.batch.
func writeBatch(out *chunks, records []seb.Record) error {
	out.uint32(uint32(len(records)))
	for _, r := range records {
		if uint64(len(r.Value)) > math.MaxUint32 {
			return fmt.Errorf("record %d: %w", r.Offset, errBatchTooLarge)
		}
		out.uint32(uint32(len(r.Value)))
	}
	for _, r := range records {
		out.bytes(r.Value)
	}
	return out.flush()
}

// batchBytes returns how many bytes writeBatch writes.
func batchBytes(records []seb.Record) int64 {
	n := int64(batchCountBytes + batchSizeBytes*len(records))
	for _, r := range records {
		n += int64(len(r.Value))
	}
	return n
}
