package change

import "github.com/simple-event-broker/seb/internal/format"

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
