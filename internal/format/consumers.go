package format

// The entries about consumers: named reading positions.
//
//	11 consumer created: id (uint64), topic (uint64), name; its positions are 0
//	12 positions moved: consumer (uint64), then for each: partition (uint32), 0 (uint32), next offset to read (int64)
//	13 consumer deleted: id (uint64)
const (
	entryConsumerCreated = 11
	entryPositionsMoved  = 12
	entryConsumerDeleted = 13

	positionSize = 16
)

// ConsumerCreated adds a consumer, whose position is 0 in every partition.
type ConsumerCreated struct {
	ID    ConsumerID
	Topic TopicID
	Name  string // unique among the topic's consumers
}

// PositionsMoved sets positions of a consumer. The consumer's other positions stay as they are.
type PositionsMoved struct {
	Consumer ConsumerID
	// Positions ascend by partition.
	Positions []Position
}

// Position is the next offset to read in a partition.
type Position struct {
	Partition Partition
	Offset    Offset
}

// ConsumerDeleted deletes a consumer.
type ConsumerDeleted struct{ ID ConsumerID }

func (*ConsumerCreated) kind() uint16 { return entryConsumerCreated }
func (*PositionsMoved) kind() uint16  { return entryPositionsMoved }
func (*ConsumerDeleted) kind() uint16 { return entryConsumerDeleted }

func (c *ConsumerCreated) size() int { return 16 + len(c.Name) }
func (p *PositionsMoved) size() int  { return 8 + positionSize*len(p.Positions) }
func (*ConsumerDeleted) size() int   { return 8 }

func (c *ConsumerCreated) append(b []byte) []byte {
	return append(le.AppendUint64(le.AppendUint64(b, uint64(c.ID)), uint64(c.Topic)), c.Name...)
}

func (p *PositionsMoved) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(p.Consumer))
	for _, x := range p.Positions {
		b = le.AppendUint64(b, uint64(x.Partition))
		b = le.AppendUint64(b, uint64(x.Offset))
	}
	return b
}

func (c *ConsumerDeleted) append(b []byte) []byte { return le.AppendUint64(b, uint64(c.ID)) }

func decodeConsumerCreated(b []byte) (*ConsumerCreated, error) {
	if len(b) < 16 {
		return nil, Corrupt("an entry for a consumer has the invalid size of %d bytes", len(b))
	}
	return &ConsumerCreated{ID: ConsumerID(le.Uint64(b)), Topic: TopicID(le.Uint64(b[8:])), Name: string(b[16:])}, nil
}

func decodePositionsMoved(b []byte) (*PositionsMoved, error) {
	if len(b) < 8+positionSize || (len(b)-8)%positionSize != 0 {
		return nil, Corrupt("an entry for positions has the invalid size of %d bytes", len(b))
	}
	p := &PositionsMoved{Consumer: ConsumerID(le.Uint64(b))}
	for b = b[8:]; len(b) > 0; b = b[positionSize:] {
		x := Position{Partition: Partition(le.Uint32(b)), Offset: Offset(le.Uint64(b[8:]))}
		if le.Uint32(b[4:]) != 0 || x.Offset < 0 {
			return nil, Corrupt("a position has the invalid offset %d, or its reserved bytes are set", x.Offset)
		}
		if n := len(p.Positions); n > 0 && p.Positions[n-1].Partition >= x.Partition {
			return nil, Corrupt("positions are not in the order of their partitions")
		}
		p.Positions = append(p.Positions, x)
	}
	return p, nil
}
