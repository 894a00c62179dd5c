package change

import (
	"cmp"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// Position is where a consumer or a queue begins in each partition of its topic. The zero Position is
// the start of the partition.
type Position struct {
	Offset  format.Offset
	FromEnd bool // Offset is relative to the end of the partition, so it is 0 or negative
	Exact   bool // Offset must be in the partition; without Exact, an offset before the start means the start
}

// In returns the offset of the position in a partition that goes from start to end. The offset may be
// outside of the partition.
func (p Position) In(start, end format.Offset) format.Offset {
	at := p.Offset
	if p.FromEnd {
		at += end
	}
	if p.Exact {
		return at
	}
	return max(start, at)
}

// Positions returns offsets by partition in the form of a log entry, sorted by partition. It refuses an empty map.
func Positions(offsets map[int32]format.Offset) ([]format.Position, error) {
	if len(offsets) == 0 {
		return nil, refused(CodeInvalidRequest, "name the next offset to read of at least one partition", "no offsets are given")
	}
	ps := make([]format.Position, 0, len(offsets))
	for p, offset := range offsets {
		if p < 0 || offset < 0 {
			return nil, refused(CodeInvalidRequest, "", "partition %d, offset %d: neither can be negative", p, offset)
		}
		ps = append(ps, format.Position{Partition: format.Partition(p), Offset: offset})
	}
	slices.SortFunc(ps, func(a, b format.Position) int { return cmp.Compare(a.Partition, b.Partition) })
	return ps, nil
}
