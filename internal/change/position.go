package change

// Position is where a consumer or a queue begins in each partition of its topic. The zero Position is
// the start.
type Position struct {
	Offset  int64
	FromEnd bool // Offset counts from the end of the partition, and is not positive
	Exact   bool // Offset must be in the partition; else the start stands for what is before it
}

// In returns the offset of the position in a partition.
func (p Position) In(start, end int64) int64 {
	at := p.Offset
	if p.FromEnd {
		at += end
	}
	if p.Exact {
		return at
	}
	return max(start, at)
}
