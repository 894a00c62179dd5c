package format

import "fmt"

// The layout of an entry. The fold applies the entries of a commit in order.
//
//	0    2 kind (uint16)
//	2    2 flags (uint16): bit 0 = critical: a broker that does not know the kind refuses the commit
//	4    4 size of what follows (uint32)
//
// and then, by kind:
//
//	1 batch: topic (uint64), partition (uint32), object (uint32: 0 = inline, k = k-th data object),
//	         base offset (int64), largest timestamp in ms (int64), records (uint32),
//	         position from the start of the object's payload (uint32), size (uint32), CRC-32C as in the batch (uint32)
//	2 topic created: id (uint64), partitions (uint32), name
//	3 topic deleted: id (uint64)
//	4 partitions added: topic (uint64), new number of partitions (uint32)
//	5 data floor: seq (uint64): no later commit lists in its head a data object with a seq below this seq
//	6 start moved: topic (uint64), partition (uint32), 0 (uint32), new first offset (int64)
//	7 topic configured: topic (uint64), retention in ms (int64), retention in bytes (int64); 0 = no limit
//	8 append keyed: topic (uint64; 0 if no records were appended), 16 bytes of the key's hash, 16 of the
//	  request's hash, then for each range of the append's records: partition (uint32), records (uint32), base offset (int64)
//	9, 10 API keys: see keys.go
//	11 to 13 consumers: see consumers.go
//	14 to 24 queues: see queues.go
//	25 push targets of queues: see queuepush.go
//	26 sessions: see sessions.go
//	27, 36, 37 segments, and the level of the log: see segmententries.go
//	30 requests to the store: see spent.go
//	31 pages: see page.go
//	34 marks: see marks.go
//	38 queues passed: topic (uint64), flags (uint32): bit 0 = the topic's retention deletes records although a queue
//	   has not done them, 0 (uint32)
const (
	entryHeaderSize = 8
	batchEntrySize  = 48
	keyedFixedSize  = 40
	keyedRangeSize  = 16

	entryBatch           = 1
	entryTopicCreated    = 2
	entryTopicDeleted    = 3
	entryPartitionsAdded = 4
	entryDataFloor       = 5
	entryStartMoved      = 6
	entryTopicConfigured = 7
	entryAppendKeyed     = 8
	entryQueuesPassed    = 38

	entryCritical = 1

	batchSizeMin = 61 // the header of a RecordBatch v2
)

// Entry is one step of the fold: *Batch, *TopicCreated, *TopicDeleted, *PartitionsAdded,
// *DataFloor, *StartMoved, *TopicConfigured, *AppendKeyed, *KeyCreated, *KeyRevoked,
// *ConsumerCreated, *PositionsMoved, *ConsumerDeleted, one of the entries in queues.go and
// queuepush.go, *SessionNamed, *SegmentAdded, *LevelRaised, *LevelKnown, *CheckpointSeen, *Collected, *DelaySet, *Held, *Spent, *PageStored, *QueuesPassed, *WriterMark, *BundleMark, or *UnknownEntry.
type Entry interface {
	size() int
	append(b []byte) []byte
	kind() uint16
}

// Batch says where a batch is stored and which offsets its records have.
type Batch struct {
	Topic     TopicID
	Partition Partition
	// Object is 0 for the commit's inline payload, else 1 + an index into [Commit.Data].
	Object uint32
	// Base is the offset of the first record.
	Base Offset
	// MaxTime is the largest timestamp of the batch's records, in ms since 1970.
	MaxTime int64
	// Count is the number of records, at least 1.
	Count uint32
	// Pos is the position of the batch in the payload of its object.
	Pos uint32
	// Size is the size of the batch in bytes, at least that of a batch header.
	Size uint32
	// CRC is the CRC-32C in the batch's header.
	CRC uint32
}

// TopicCreated adds a topic with partitions 0 to Partitions-1.
type TopicCreated struct {
	ID         TopicID
	Partitions uint32
	Name       string
}

// TopicDeleted removes a topic with all its records.
type TopicDeleted struct{ ID TopicID }

// PartitionsAdded gives a topic more partitions.
type PartitionsAdded struct {
	Topic      TopicID
	Partitions uint32 // the topic's new number of partitions, old ones included
}

// DataFloor promises that no later commit has a [DataRef] with a Seq below the Seq in the DataFloor.
type DataFloor struct{ Seq Seq }

// StartMoved removes the records of a partition before the offset Start.
type StartMoved struct {
	Topic     TopicID
	Partition Partition
	Start     Offset
}

// TopicConfigured replaces a topic's config, except PastQueues.
type TopicConfigured struct {
	Topic  TopicID
	Config TopicConfig
}

// QueuesPassed sets PastQueues in a topic's config.
type QueuesPassed struct {
	Topic      TopicID
	PastQueues bool
}

// TopicConfig says how long a topic's records are kept, and how many bytes of them; 0 means no
// limit.
type TopicConfig struct {
	RetentionMS    int64
	RetentionBytes int64 // per partition
	// PastQueues says that records are deleted although a queue has not done them.
	PastQueues bool
}

// AppendKeyed has the answer to an append with an idempotency key, so that brokers can repeat the
// answer. A request with several appends has one such entry for each append; a request without
// appends has one entry, with Topic 0 and no Ranges. In the commit, the entry comes after the batches
// of the append's records.
type AppendKeyed struct {
	Topic TopicID
	// Key is a hash of the idempotency key, its scope (such as a topic) and the caller. Print is a
	// hash of the request.
	Key, Print Digest
	// Ranges ascend by partition, then by base.
	Ranges []KeyedRange
}

// KeyedRange is Count records from Base on.
type KeyedRange struct {
	Partition Partition
	Count     uint32
	Base      Offset
}

// Digest is the first 128 bits of a SHA-256.
type Digest [16]byte

// UnknownEntry is an entry of a kind that this version of Seb does not know. A newer version wrote it, and did
// not mark it as critical.
type UnknownEntry struct {
	Kind uint16
	Body []byte
}

func (*Batch) kind() uint16           { return entryBatch }
func (*TopicCreated) kind() uint16    { return entryTopicCreated }
func (*TopicDeleted) kind() uint16    { return entryTopicDeleted }
func (*PartitionsAdded) kind() uint16 { return entryPartitionsAdded }
func (*DataFloor) kind() uint16       { return entryDataFloor }
func (*StartMoved) kind() uint16      { return entryStartMoved }
func (*TopicConfigured) kind() uint16 { return entryTopicConfigured }
func (*QueuesPassed) kind() uint16    { return entryQueuesPassed }
func (*AppendKeyed) kind() uint16     { return entryAppendKeyed }
func (u *UnknownEntry) kind() uint16  { return u.Kind }

func (*Batch) size() int           { return batchEntrySize }
func (t *TopicCreated) size() int  { return 12 + len(t.Name) }
func (*TopicDeleted) size() int    { return 8 }
func (*PartitionsAdded) size() int { return 12 }
func (*DataFloor) size() int       { return 8 }
func (*StartMoved) size() int      { return 24 }
func (*TopicConfigured) size() int { return 24 }
func (*QueuesPassed) size() int    { return 16 }
func (a *AppendKeyed) size() int   { return keyedFixedSize + keyedRangeSize*len(a.Ranges) }
func (u *UnknownEntry) size() int  { return len(u.Body) }

func (x *Batch) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(x.Topic))
	b = le.AppendUint32(b, uint32(x.Partition))
	b = le.AppendUint32(b, x.Object)
	b = le.AppendUint64(b, uint64(x.Base))
	b = le.AppendUint64(b, uint64(x.MaxTime))
	b = le.AppendUint32(b, x.Count)
	b = le.AppendUint32(b, x.Pos)
	b = le.AppendUint32(b, x.Size)
	return le.AppendUint32(b, x.CRC)
}

func (t *TopicCreated) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(t.ID))
	b = le.AppendUint32(b, t.Partitions)
	return append(b, t.Name...)
}

func (t *TopicDeleted) append(b []byte) []byte { return le.AppendUint64(b, uint64(t.ID)) }

func (p *PartitionsAdded) append(b []byte) []byte {
	return le.AppendUint32(le.AppendUint64(b, uint64(p.Topic)), p.Partitions)
}

func (d *DataFloor) append(b []byte) []byte { return le.AppendUint64(b, uint64(d.Seq)) }

func (x *StartMoved) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(x.Topic))
	b = le.AppendUint64(b, uint64(x.Partition))
	return le.AppendUint64(b, uint64(x.Start))
}

func (x *TopicConfigured) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(x.Topic))
	b = le.AppendUint64(b, uint64(x.Config.RetentionMS))
	return le.AppendUint64(b, uint64(x.Config.RetentionBytes))
}

func (x *QueuesPassed) append(b []byte) []byte {
	flags := uint64(0)
	if x.PastQueues {
		flags = 1
	}
	return le.AppendUint64(le.AppendUint64(b, uint64(x.Topic)), flags)
}

func (a *AppendKeyed) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(a.Topic))
	b = append(b, a.Key[:]...)
	b = append(b, a.Print[:]...)
	for _, r := range a.Ranges {
		b = le.AppendUint32(b, uint32(r.Partition))
		b = le.AppendUint32(b, r.Count)
		b = le.AppendUint64(b, uint64(r.Base))
	}
	return b
}

func (u *UnknownEntry) append(b []byte) []byte { return append(b, u.Body...) }

func decodeEntry(b []byte, c *Commit) (Entry, []byte, error) {
	if len(b) < entryHeaderSize {
		return nil, nil, Corrupt("the head ends inside an entry")
	}
	kind, flags, size := le.Uint16(b), le.Uint16(b[2:]), int64(le.Uint32(b[4:]))
	b = b[entryHeaderSize:]
	if size > int64(len(b)) {
		return nil, nil, Corrupt("the head ends inside an entry")
	}
	body, rest := b[:size], b[size:]
	if flags&^entryCritical != 0 {
		return nil, nil, fmt.Errorf("%w: unknown entry flags %#x", ErrVersion, flags)
	}
	if want := fixedEntrySize(kind); want >= 0 && size != want {
		return nil, nil, Corrupt("an entry of kind %d has %d bytes instead of %d", kind, size, want)
	}
	switch kind {
	case entryBatch:
		it, err := decodeBatch(body, c)
		return it, rest, err
	case entryTopicCreated:
		if size < 12 {
			return nil, nil, Corrupt("an entry of kind %d has the invalid size of %d bytes", kind, size)
		}
		return &TopicCreated{ID: TopicID(le.Uint64(body)), Partitions: le.Uint32(body[8:]), Name: string(body[12:])}, rest, nil
	case entryTopicDeleted:
		return &TopicDeleted{ID: TopicID(le.Uint64(body))}, rest, nil
	case entryPartitionsAdded:
		return &PartitionsAdded{Topic: TopicID(le.Uint64(body)), Partitions: le.Uint32(body[8:])}, rest, nil
	case entryDataFloor:
		return &DataFloor{Seq: Seq(le.Uint64(body))}, rest, nil
	case entryStartMoved:
		if le.Uint32(body[12:]) != 0 {
			return nil, nil, Corrupt("reserved bytes of an entry of kind %d are set", kind)
		}
		return &StartMoved{Topic: TopicID(le.Uint64(body)), Partition: Partition(le.Uint32(body[8:])), Start: Offset(le.Uint64(body[16:]))}, rest, nil
	case entryTopicConfigured:
		c := TopicConfig{RetentionMS: int64(le.Uint64(body[8:])), RetentionBytes: int64(le.Uint64(body[16:]))}
		return &TopicConfigured{Topic: TopicID(le.Uint64(body)), Config: c}, rest, nil
	case entryQueuesPassed:
		flags := le.Uint64(body[8:])
		if flags > 1 {
			return nil, nil, Corrupt("reserved bytes of an entry of kind %d are set", kind)
		}
		return &QueuesPassed{Topic: TopicID(le.Uint64(body)), PastQueues: flags == 1}, rest, nil
	case entryAppendKeyed:
		it, err := decodeAppendKeyed(body)
		return it, rest, err
	case entryKeyCreated:
		it, err := decodeKeyCreated(body)
		return it, rest, err
	case entryKeyRevoked:
		return &KeyRevoked{ID: KeyID(le.Uint64(body))}, rest, nil
	case entryConsumerCreated:
		it, err := decodeConsumerCreated(body)
		return it, rest, err
	case entryPositionsMoved:
		it, err := decodePositionsMoved(body)
		return it, rest, err
	case entryConsumerDeleted:
		return &ConsumerDeleted{ID: ConsumerID(le.Uint64(body))}, rest, nil
	case entrySessionNamed:
		it, err := decodeSessionNamed(body)
		return it, rest, err
	case entrySegmentAdded:
		it, err := decodeSegmentAdded(body)
		return it, rest, err
	case entryLevelRaised:
		it, err := decodeLevelRaised(body)
		return it, rest, err
	case entryLevelKnown:
		level, flags, err := decodeLevel(body)
		return &LevelKnown{Level: level, Hold: flags&levelHold != 0}, rest, err
	case entryCheckpointSeen:
		it, err := decodeCheckpointSeen(body)
		return it, rest, err
	case entryCollected:
		it, err := decodeCollected(body)
		return it, rest, err
	case entryDelaySet:
		it, err := decodeDelaySet(body)
		return it, rest, err
	case entryHeld:
		it, err := decodeHeld(body)
		return it, rest, err
	case entrySpent:
		it, err := DecodeSpent(body)
		return it, rest, err
	case entryPageStored:
		it, err := decodePageStored(body)
		return it, rest, err
	case entryMark:
		if it, ok, err := decodeMark(body); ok || err != nil {
			return it, rest, err
		}
	}
	if it, ok, err := decodeQueueEntry(kind, body); ok {
		return it, rest, err
	}
	if flags&entryCritical != 0 {
		return nil, nil, fmt.Errorf("%w: unknown critical entry of kind %d", ErrVersion, kind)
	}
	return &UnknownEntry{Kind: kind, Body: append([]byte(nil), body...)}, rest, nil
}

// fixedEntrySize returns the size in bytes that every entry of the kind has, or -1 if the size
// varies.
func fixedEntrySize(kind uint16) int64 {
	switch kind {
	case entryBatch:
		return batchEntrySize
	case entryPartitionsAdded:
		return 12
	case entryTopicDeleted, entryDataFloor, entryKeyRevoked, entryConsumerDeleted, entryLevelKnown, entryDelaySet:
		return 8
	case entryHeld:
		return heldSize
	case entryPageStored:
		return pageStoredSize
	case entryLevelRaised:
		return levelRaisedSize
	case entryCollected:
		return collectedSize
	case entryQueuesPassed:
		return 16
	case entryCheckpointSeen:
		return checkpointSeenSize
	case entryStartMoved, entryTopicConfigured:
		return 24
	case entrySessionNamed:
		return sessionNamedSize
	default:
		return queueEntrySize(kind)
	}
}

// decodeBatch decodes a batch entry, and checks that the batch is inside the payload of its
// object.
func decodeBatch(b []byte, c *Commit) (*Batch, error) {
	x := &Batch{
		Topic:     TopicID(le.Uint64(b)),
		Partition: Partition(le.Uint32(b[8:])),
		Object:    le.Uint32(b[12:]),
		Base:      Offset(le.Uint64(b[16:])),
		MaxTime:   int64(le.Uint64(b[24:])),
		Count:     le.Uint32(b[32:]),
		Pos:       le.Uint32(b[36:]),
		Size:      le.Uint32(b[40:]),
		CRC:       le.Uint32(b[44:]),
	}
	if x.Count == 0 || x.Base < 0 || x.Base+Offset(x.Count) < 0 {
		return nil, Corrupt("a batch has the invalid count %d or the invalid offset %d", x.Count, x.Base)
	}
	if int64(x.Object) > int64(len(c.Data)) {
		return nil, Corrupt("a batch refers to data object %d, but the commit has %d", x.Object, len(c.Data))
	}
	if x.Size < batchSizeMin {
		return nil, Corrupt("a batch has the invalid size of %d bytes", x.Size)
	}
	payload := int64(c.PayloadSize)
	if x.Object > 0 {
		payload = int64(c.Data[x.Object-1].Size) - DataPayloadStart
	}
	if int64(x.Pos)+int64(x.Size) > payload {
		return nil, Corrupt("a batch at position %d with %d bytes does not fit into a payload of %d bytes", x.Pos, x.Size, payload)
	}
	return x, nil
}

func decodeAppendKeyed(b []byte) (*AppendKeyed, error) {
	if len(b) < keyedFixedSize || (len(b)-keyedFixedSize)%keyedRangeSize != 0 {
		return nil, Corrupt("an entry of kind %d has the invalid size of %d bytes", entryAppendKeyed, len(b))
	}
	a := &AppendKeyed{Topic: TopicID(le.Uint64(b)), Key: Digest(b[8:24]), Print: Digest(b[24:40])}
	for b = b[keyedFixedSize:]; len(b) > 0; b = b[keyedRangeSize:] {
		r := KeyedRange{Partition: Partition(le.Uint32(b)), Count: le.Uint32(b[4:]), Base: Offset(le.Uint64(b[8:]))}
		if r.Count == 0 || r.Base < 0 || r.Base+Offset(r.Count) < 0 {
			return nil, Corrupt("a range of an append with an idempotency key has the invalid count %d or the invalid offset %d", r.Count, r.Base)
		}
		a.Ranges = append(a.Ranges, r)
	}
	return a, nil
}
