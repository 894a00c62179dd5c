package format

import "fmt"

// The head of a commit, after the prologue, little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq (uint64)
//	    24   16 nonce
//	    40   32 prev: hash of the head of commit seq-1; zero in slot 1
//	    72    8 the log's time, microseconds since 1970 (int64)
//	    80    4 size of the inline payload that follows the head (uint32)
//	    84    4 number of data objects in this head (uint32): those that hold the commit's batches
//	    88   24 for each: seq (uint64), id (uint64), size (uint32), 0 (uint32)
//	     …    … entries; the prologue's count is their number
//
// After the head comes the inline payload: batches, back to back.
const (
	commitFixedSize = 88
	dataRefSize     = 24
)

// Commit is the head of a commit.
type Commit struct {
	// Created is the writer's wall clock in microseconds since 1970, for information only.
	Created int64
	Cluster ClusterID
	Seq     Seq
	Nonce   Nonce
	Prev    Hash
	// Time is the log's time in microseconds since 1970, never less than the Time of the previous
	// commit.
	Time int64
	// PayloadSize is the number of bytes that follow the head.
	PayloadSize uint32
	// PayloadStart is the position of the payload in the object, in bytes. Encoding and decoding
	// set it.
	PayloadStart uint32
	Data         []DataRef
	Entries      []Entry
	// Hash is the hash of the encoded head. Encoding and decoding set it.
	Hash Hash
}

// Size returns the size of the whole object in bytes.
func (c *Commit) Size() int64 { return int64(c.PayloadStart) + int64(c.PayloadSize) }

// EncodeCommit returns the prologue and the head of a commit, and sets c's PayloadStart and Hash.
// In the object, the payload follows the returned bytes.
func EncodeCommit(c *Commit) []byte {
	size := PrologueSize + commitFixedSize + dataRefSize*len(c.Data)
	for _, it := range c.Entries {
		size += entryHeaderSize + it.size()
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
	for _, it := range c.Entries {
		flags := uint16(entryCritical)
		switch it.(type) {
		case *UnknownEntry, *SessionNamed, *WriterMark, *BundleMark, *LevelKnown:
			flags = 0
		}
		b = le.AppendUint16(b, it.kind())
		b = le.AppendUint16(b, flags)
		b = le.AppendUint32(b, uint32(it.size()))
		b = it.append(b)
	}
	putPrologue(b, KindCommit, c.Created, uint32(len(c.Entries)))
	c.PayloadStart = uint32(len(b))
	c.Hash = headHash(b)
	return b
}

// CheckCommitStart checks the first bytes of an object that should be a commit. If they are wrong, the caller
// need not read the rest of the head. b has at least the prologue; size is the size of the object in bytes.
func CheckCommitStart(b []byte, size int64) error {
	p, err := DecodePrologue(b)
	switch {
	case err != nil:
		return err
	case p.Kind != KindCommit:
		return wrongKind(p.Kind, KindCommit)
	case p.End() > HeadBytesMax:
		return Corrupt("the head has %d bytes, at most %d are allowed", p.End(), HeadBytesMax)
	case p.End() > size:
		return Corrupt("the head should end at byte %d, but the object ends at byte %d", p.End(), size)
	case len(b) < PrologueSize+commitFixedSize:
		return Corrupt("the first %d bytes are too few for a commit", len(b))
	}
	fixed := b[PrologueSize:]
	if should := p.End() + int64(le.Uint32(fixed[80:])); should != size {
		return Corrupt("the object has %d bytes instead of %d", size, should)
	}
	if least := commitFixedSize + dataRefSize*int64(le.Uint32(fixed[84:])) + entryHeaderSize*int64(p.Count); least > int64(p.HeadSize) {
		return Corrupt("the data objects and entries need %d bytes, but the head has %d", least, p.HeadSize)
	}
	return nil
}

// CommitMemory returns about how many bytes of memory it takes to read and decode the head of a commit with
// the prologue p. An empty entry of 8 bytes takes 56 bytes when it is decoded.
func CommitMemory(p Prologue) int64 { return 2*p.End() + 48*int64(p.Count) }

// DecodeCommit reads the head of a commit. b has the first bytes of the commit's object, at least the
// whole head. The result shares no memory with b. The caller must check that the object belongs to the
// right cluster and slot, and that [Commit.Size] is the size of the object.
func DecodeCommit(b []byte) (*Commit, error) {
	p, head, err := decodeHead(b, KindCommit)
	if err != nil {
		return nil, err
	}
	if len(head) < commitFixedSize {
		return nil, Corrupt("a head of %d bytes is too short for a commit", len(head))
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
		return nil, Corrupt("a commit of %d bytes is too large", p.End()+int64(c.PayloadSize))
	}
	data := int64(le.Uint32(head[84:]))
	rest := head[commitFixedSize:]
	if data*dataRefSize > int64(len(rest)) {
		return nil, Corrupt("%d data objects don't fit into the head", data)
	}
	for range data {
		if le.Uint32(rest[20:]) != 0 {
			return nil, Corrupt("reserved bytes of a data object are set")
		}
		c.Data = append(c.Data, DataRef{
			Seq:  Seq(le.Uint64(rest)),
			ID:   le.Uint64(rest[8:]),
			Size: le.Uint32(rest[16:]),
		})
		rest = rest[dataRefSize:]
	}
	if int64(p.Count)*entryHeaderSize > int64(len(rest)) {
		return nil, Corrupt("%d entries don't fit into the head", p.Count)
	}
	c.Entries = make([]Entry, 0, p.Count)
	for i := range p.Count {
		var it Entry
		if it, rest, err = decodeEntry(rest, c); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		c.Entries = append(c.Entries, it)
	}
	if len(rest) != 0 {
		return nil, Corrupt("%d bytes follow the last entry", len(rest))
	}
	return c, nil
}
