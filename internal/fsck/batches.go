package fsck

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// row says what a commit's entry, or a state, knows about a batch.
type row struct {
	topic     format.TopicID
	partition int
	base      format.Offset
	span      int64 // number of offsets
	records   int64
	maxTime   int64 // in ms
	timed     bool  // maxTime is known
	pos, size uint32
	crc       uint32
	segment   bool // all batches of these offsets, in a segment; only topic, partition, base and span are known
}

// checkBatches verifies the batches of a payload against their rows. A batch has no row if its
// topic was deleted before the commit; checkBatches verifies such a batch by the CRC in its
// header. It returns the number of batches. If batches are damaged, the error says how many.
func checkBatches(payload []byte, rows []row) (batches int, err error) {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.pos, b.pos) })
	var errs []error
	bad := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	end := 0
	for _, r := range rows {
		from, to := int(r.pos), int(r.pos)+int(r.size)
		what := fmt.Sprintf("topic %d partition %d offsets %d to %d", r.topic, r.partition, r.base, r.base+format.Offset(r.span)-1)
		if from < end || to > len(payload) {
			bad(fmt.Errorf("%s: %w: its entry in the log names the bytes %d to %d of the payload, which belong to another batch or do not exist", what, record.ErrCorrupt, from, to))
			continue
		}
		n, err := unknownBatches(payload[end:from])
		bad(err)
		if err := r.check(payload[from:to]); err != nil {
			bad(fmt.Errorf("%s: %w", what, err))
		}
		batches += n + 1
		end = to
	}
	n, err := unknownBatches(payload[end:])
	bad(err)
	batches += n
	switch len(errs) {
	case 0:
		return batches, nil
	case 1:
		return batches, errs[0]
	}
	return batches, fmt.Errorf("%d of %d batches are damaged; the first: %w", len(errs), batches, errs[0])
}

// unknownBatches verifies batches without a row, and returns how many there are.
func unknownBatches(b []byte) (n int, err error) {
	for ; len(b) > 0; n++ {
		x, err := record.Parse(b)
		if err == nil {
			err = record.Verify(b[:x.Size], x.CRC)
		}
		if err != nil {
			return n, fmt.Errorf("a batch that no entry refers to: %w", err)
		}
		b = b[x.Size:]
	}
	return n, nil
}

// check verifies that b is the batch of the row, including its records.
func (r row) check(b []byte) error {
	if err := record.Verify(b, r.crc); err != nil {
		return err
	}
	x, err := record.Parse(b)
	if err != nil {
		return err
	}
	if int64(x.Count) != r.records || x.Span != r.span {
		return fmt.Errorf("%w: it has %d records in %d offsets, but its entry in the log says %d in %d", record.ErrCorrupt, x.Count, x.Span, r.records, r.span)
	}
	latest := int64(math.MinInt64)
	for rec, err := range x.Records(b, int64(r.base), record.Limits{}) {
		if errors.As(err, new(*record.LimitError)) {
			return nil // the CRC is right; the records of a batch that exceeds the default limits are not checked
		}
		if err != nil {
			return err
		}
		latest = max(latest, rec.Timestamp)
	}
	if r.timed && latest != r.maxTime {
		return fmt.Errorf("%w: its largest timestamp is %d ms since 1970, but its entry in the log says %d", record.ErrCorrupt, latest, r.maxTime)
	}
	return nil
}
