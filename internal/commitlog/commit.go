package commitlog

import "fmt"

// The head of a commit, after the prologue, little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq (uint64)
//	    24   16 nonce
//	    40   32 prev: hash of the head of commit seq-1; zero in slot 1
//	    72    8 time of the fold, microseconds since 1970 (int64)
//	    80    4 size of the inline payload that follows the head (uint32)
//	    84    4 data objects that this commit is the first to refer to (uint32)
//	    88   24 each: seq (uint64), id (uint64), size (uint32), 0 (uint32)
//	     …    … items, as many as the prologue counts
//
// An item, in the order in which the fold takes it:
//
//	0    2 kind (uint16)
//	2    2 flags (uint16): bit 0 = critical: refuse the commit if the kind is unknown
//	4    4 size of what follows (uint32)
//
// and then, by kind:
//
//	1 batch: topic (uint64), partition (uint32), object (uint32: 0 = inline, k = k-th data object),
//	         base offset (int64), largest timestamp in ms (int64), records (uint32),
//	         position from the start of the object's payload (uint32), size (uint32), CRC-32C as in the batch (uint32)
//	2 topic created: id (uint64), partitions (uint32), name
//	3 topic deleted: id (uint64)
//	4 partitions added: topic (uint64), partitions from now on (uint32)
//	5 data floor: seq (uint64): no later commit first refers to a data key below it
//
// After the head comes the inline payload: batches, back to back.
const (
	commitFixedSize = 88
	dataRefSize     = 24
	itemHeaderSize  = 8
	batchItemSize   = 48

	itemBatch           = 1
	itemTopicCreated    = 2
	itemTopicDeleted    = 3
	itemPartitionsAdded = 4
	itemDataFloor       = 5

	itemCritical = 1

	batchSizeMin = 61 // a RecordBatch v2 without a record
)

// Commit is the head of a commit.
type Commit struct {
	// Created is the writer's wall clock in microseconds; informative.
	Created int64
	Cluster ClusterID
	Seq     Seq
	Nonce   Nonce
	Prev    Hash
	// Time is the fold's time in microseconds since 1970, never less than the
	// commit's before.
	Time int64
	// PayloadSize is the number of bytes that follow the head.
	PayloadSize uint32
	// PayloadStart is where they begin in the object. Set by decoding and by
	// encoding.
	PayloadStart uint32
	Data         []DataRef
	Items        []Item
	// Hash is the hash of the encoded head. Set by decoding and by encoding.
	Hash Hash
}

// Size returns the size of the whole object in bytes.
func (c *Commit) Size() int64 { return int64(c.PayloadStart) + int64(c.PayloadSize) }

// Item is one step of the fold: *Batch, *TopicCreated, *TopicDeleted,
// *PartitionsAdded, *DataFloor, or *UnknownItem.
type Item interface {
	size() int
	append(b []byte) []byte
	kind() uint16
}

// Batch says where a batch stands and which records it holds.
type Batch struct {
	Topic     uint64
	Partition uint32
	// Object is 0 for the commit's own payload, else 1 + an index into Data.
	Object uint32
	// Base is the offset of the first record.
	Base int64
	// MaxTime is the largest timestamp in it, in ms since 1970.
	MaxTime int64
	// Count is the number of records, at least 1.
	Count uint32
	// Pos is the position in the payload of its object.
	Pos uint32
	// Size is the number of bytes, at least a batch header's.
	Size uint32
	// CRC is the batch's own CRC-32C.
	CRC uint32
}

// TopicCreated adds a topic with partitions 0 to Partitions-1.
type TopicCreated struct {
	ID         uint64
	Partitions uint32
	Name       string
}

// TopicDeleted removes a topic with all its records.
type TopicDeleted struct{ ID uint64 }

// PartitionsAdded gives a topic more partitions.
type PartitionsAdded struct {
	Topic      uint64
	Partitions uint32 // from now on, all of them
}

// DataFloor promises that no later commit is the first to refer to a data
// object whose key's seq is below Seq.
type DataFloor struct{ Seq Seq }

// UnknownItem is a non-critical item of a newer version.
type UnknownItem struct {
	Kind uint16
	Body []byte
}

func (*Batch) kind() uint16           { return itemBatch }
func (*TopicCreated) kind() uint16    { return itemTopicCreated }
func (*TopicDeleted) kind() uint16    { return itemTopicDeleted }
func (*PartitionsAdded) kind() uint16 { return itemPartitionsAdded }
func (*DataFloor) kind() uint16       { return itemDataFloor }
func (u *UnknownItem) kind() uint16   { return u.Kind }

func (*Batch) size() int           { return batchItemSize }
func (t *TopicCreated) size() int  { return 12 + len(t.Name) }
func (*TopicDeleted) size() int    { return 8 }
func (*PartitionsAdded) size() int { return 12 }
func (*DataFloor) size() int       { return 8 }
func (u *UnknownItem) size() int   { return len(u.Body) }

func (x *Batch) append(b []byte) []byte {
	b = le.AppendUint64(b, x.Topic)
	b = le.AppendUint32(b, x.Partition)
	b = le.AppendUint32(b, x.Object)
	b = le.AppendUint64(b, uint64(x.Base))
	b = le.AppendUint64(b, uint64(x.MaxTime))
	b = le.AppendUint32(b, x.Count)
	b = le.AppendUint32(b, x.Pos)
	b = le.AppendUint32(b, x.Size)
	return le.AppendUint32(b, x.CRC)
}

func (t *TopicCreated) append(b []byte) []byte {
	b = le.AppendUint64(b, t.ID)
	b = le.AppendUint32(b, t.Partitions)
	return append(b, t.Name...)
}

func (t *TopicDeleted) append(b []byte) []byte { return le.AppendUint64(b, t.ID) }

func (p *PartitionsAdded) append(b []byte) []byte {
	return le.AppendUint32(le.AppendUint64(b, p.Topic), p.Partitions)
}

func (d *DataFloor) append(b []byte) []byte   { return le.AppendUint64(b, uint64(d.Seq)) }
func (u *UnknownItem) append(b []byte) []byte { return append(b, u.Body...) }

// EncodeCommit returns prologue and head, and sets c's PayloadStart and Hash.
// The payload follows the returned bytes in the object.
func EncodeCommit(c *Commit) []byte {
	size := PrologueSize + commitFixedSize + dataRefSize*len(c.Data)
	for _, it := range c.Items {
		size += itemHeaderSize + it.size()
	}
	b := make([]byte, PrologueSize, size)
	b = append(b, c.Cluster[:]...)
	b = le.AppendUint64(b, uint64(c.Seq))
	b = append(b, c.Nonce[:]...)
	b = append(b, c.Prev[:]...)
	b = le.AppendUint64(b, uint64(c.Time))
	b = le.AppendUint32(b, c.PayloadSize)
	b = le.AppendUint32(b, uint32(len(c.Data)))
	for _, d := range c.Data {
		b = le.AppendUint64(b, uint64(d.Seq))
		b = le.AppendUint64(b, d.ID)
		b = le.AppendUint32(b, d.Size)
		b = le.AppendUint32(b, 0)
	}
	for _, it := range c.Items {
		flags := uint16(itemCritical)
		if _, ok := it.(*UnknownItem); ok {
			flags = 0
		}
		b = le.AppendUint16(b, it.kind())
		b = le.AppendUint16(b, flags)
		b = le.AppendUint32(b, uint32(it.size()))
		b = it.append(b)
	}
	putPrologue(b, KindCommit, c.Created, uint32(len(c.Items)))
	c.PayloadStart = uint32(len(b))
	c.Hash = headHash(b)
	return b
}

// DecodeCommit reads a commit from the start of its object; b must hold the
// whole head and may hold more. Strings are copied out of b. The caller compares
// cluster and seq with what it asked for, and the payload's size with the
// object's.
func DecodeCommit(b []byte) (*Commit, error) {
	p, head, err := decodeHead(b, KindCommit)
	if err != nil {
		return nil, err
	}
	if len(head) < commitFixedSize {
		return nil, corrupt("a head of %d bytes is too short for a commit", len(head))
	}
	c := &Commit{
		Created:      p.Created,
		Cluster:      ClusterID(head[0:16]),
		Seq:          Seq(le.Uint64(head[16:])),
		Nonce:        Nonce(head[24:40]),
		Prev:         Hash(head[40:72]),
		Time:         int64(le.Uint64(head[72:])),
		PayloadSize:  le.Uint32(head[80:]),
		PayloadStart: uint32(p.End()),
		Hash:         headHash(b[:p.End()]),
	}
	if p.End()+int64(c.PayloadSize) > 1<<32-1 {
		return nil, corrupt("an object of %d bytes", p.End()+int64(c.PayloadSize))
	}
	data := int64(le.Uint32(head[84:]))
	rest := head[commitFixedSize:]
	if data*dataRefSize > int64(len(rest)) {
		return nil, corrupt("%d data objects don't fit the head", data)
	}
	for range data {
		if le.Uint32(rest[20:]) != 0 {
			return nil, corrupt("reserved bytes of a data object are set")
		}
		c.Data = append(c.Data, DataRef{
			Seq:  Seq(le.Uint64(rest)),
			ID:   le.Uint64(rest[8:]),
			Size: le.Uint32(rest[16:]),
		})
		rest = rest[dataRefSize:]
	}
	if int64(p.Count)*itemHeaderSize > int64(len(rest)) {
		return nil, corrupt("%d items don't fit the head", p.Count)
	}
	c.Items = make([]Item, 0, p.Count)
	for i := range p.Count {
		var it Item
		if it, rest, err = decodeItem(rest, c); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		c.Items = append(c.Items, it)
	}
	if len(rest) != 0 {
		return nil, corrupt("%d bytes follow the last item", len(rest))
	}
	return c, nil
}

func decodeItem(b []byte, c *Commit) (Item, []byte, error) {
	if len(b) < itemHeaderSize {
		return nil, nil, corrupt("the head ends inside an item")
	}
	kind, flags, size := le.Uint16(b), le.Uint16(b[2:]), int64(le.Uint32(b[4:]))
	b = b[itemHeaderSize:]
	if size > int64(len(b)) {
		return nil, nil, corrupt("the head ends inside an item")
	}
	body, rest := b[:size], b[size:]
	if flags&^itemCritical != 0 {
		return nil, nil, fmt.Errorf("%w: unknown item flags %#x", ErrVersion, flags)
	}
	if want := fixedItemSize(kind); want >= 0 && size != want {
		return nil, nil, corrupt("an item of kind %d has %d bytes instead of %d", kind, size, want)
	}
	switch kind {
	case itemBatch:
		it, err := decodeBatch(body, c)
		return it, rest, err
	case itemTopicCreated:
		if size < 12 {
			return nil, nil, corrupt("an item of kind %d has %d bytes", kind, size)
		}
		return &TopicCreated{ID: le.Uint64(body), Partitions: le.Uint32(body[8:]), Name: string(body[12:])}, rest, nil
	case itemTopicDeleted:
		return &TopicDeleted{ID: le.Uint64(body)}, rest, nil
	case itemPartitionsAdded:
		return &PartitionsAdded{Topic: le.Uint64(body), Partitions: le.Uint32(body[8:])}, rest, nil
	case itemDataFloor:
		return &DataFloor{Seq: Seq(le.Uint64(body))}, rest, nil
	}
	if flags&itemCritical != 0 {
		return nil, nil, fmt.Errorf("%w: unknown critical item of kind %d", ErrVersion, kind)
	}
	return &UnknownItem{Kind: kind, Body: append([]byte(nil), body...)}, rest, nil
}

// fixedItemSize returns the size that every item of the kind has, -1 if it varies.
func fixedItemSize(kind uint16) int64 {
	switch kind {
	case itemBatch:
		return batchItemSize
	case itemPartitionsAdded:
		return 12
	case itemTopicDeleted, itemDataFloor:
		return 8
	default:
		return -1
	}
}

// decodeBatch also checks that the bytes it points at lie inside their object,
// so that nobody behind it has to.
func decodeBatch(b []byte, c *Commit) (*Batch, error) {
	x := &Batch{
		Topic:     le.Uint64(b),
		Partition: le.Uint32(b[8:]),
		Object:    le.Uint32(b[12:]),
		Base:      int64(le.Uint64(b[16:])),
		MaxTime:   int64(le.Uint64(b[24:])),
		Count:     le.Uint32(b[32:]),
		Pos:       le.Uint32(b[36:]),
		Size:      le.Uint32(b[40:]),
		CRC:       le.Uint32(b[44:]),
	}
	if x.Count == 0 || x.Base < 0 || x.Base+int64(x.Count) < 0 {
		return nil, corrupt("a batch of %d records at offset %d", x.Count, x.Base)
	}
	if int64(x.Object) > int64(len(c.Data)) {
		return nil, corrupt("a batch in data object %d of %d", x.Object, len(c.Data))
	}
	if x.Size < batchSizeMin {
		return nil, corrupt("a batch of %d bytes", x.Size)
	}
	payload := int64(c.PayloadSize)
	if x.Object > 0 {
		payload = int64(c.Data[x.Object-1].Size) - DataPayloadStart
	}
	if int64(x.Pos)+int64(x.Size) > payload {
		return nil, corrupt("a batch at %d of %d bytes in a payload of %d", x.Pos, x.Size, payload)
	}
	return x, nil
}
