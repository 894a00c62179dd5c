package format

import (
	"fmt"
	"hash/crc32"
)

// The head of a checkpoint, after the prologue, little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq: the last slot applied (uint64)
//	    24   32 hash of that slot's head
//	    56    8 size of the body that follows (uint64)
//	    64    4 CRC-32C of the body
//	    68    4 encoding of the body (uint32): 0 = plain
//
// The prologue's count is always 0. Later versions may use it as the number of index pages; this
// version refuses any other count. The body is a snapshot of the state: see internal/state.
const checkpointHeadSize = 72

// Checkpoint is a snapshot of the state after a slot.
type Checkpoint struct {
	Cluster ClusterID
	Seq     Seq
	Hash    Hash  // hash of the head of commit Seq
	Created int64 // writer's wall clock in microseconds since 1970
	Body    []byte
}

// EncodeCheckpoint returns the prologue and the head of a checkpoint object. In the object, c.Body follows.
func EncodeCheckpoint(c *Checkpoint) []byte {
	b := make([]byte, PrologueSize, PrologueSize+checkpointHeadSize)
	b = append(b, c.Cluster[:]...)
	b = le.AppendUint64(b, uint64(c.Seq))
	b = append(b, c.Hash[:]...)
	b = le.AppendUint64(b, uint64(len(c.Body)))
	b = le.AppendUint32(b, crc32.Checksum(c.Body, castagnoli))
	b = le.AppendUint32(b, 0)
	putPrologue(b, KindCheckpoint, c.Created, 0)
	return b
}

// CheckpointBodyStart is where the body of a checkpoint object begins.
const CheckpointBodyStart = PrologueSize + checkpointHeadSize

// CheckCheckpointStart checks the first bytes of an object that should be a checkpoint. If they are
// wrong, the caller need not read the rest. b has at least the first [CheckpointBodyStart] bytes;
// size is the size of the object in bytes.
func CheckCheckpointStart(b []byte, size int64) error {
	_, _, err := decodeCheckpointStart(b, size)
	return err
}

// DecodeCheckpoint reads a whole checkpoint object. The Body of the result shares memory with b.
func DecodeCheckpoint(b []byte) (*Checkpoint, error) {
	c, want, err := decodeCheckpointStart(b, int64(len(b)))
	if err != nil {
		return nil, err
	}
	c.Body = b[CheckpointBodyStart:]
	if crc := crc32.Checksum(c.Body, castagnoli); crc != want {
		return nil, Corrupt("the body's checksum should be %08x, but its bytes give %08x", want, crc)
	}
	return c, nil
}

// decodeCheckpointStart returns a checkpoint without its body, and the body's checksum. b is the
// object, or its beginning; size is the size of the object in bytes.
func decodeCheckpointStart(b []byte, size int64) (c *Checkpoint, bodyCRC uint32, err error) {
	p, head, err := decodeHead(b, KindCheckpoint)
	if err != nil {
		return nil, 0, err
	}
	if len(head) != checkpointHeadSize {
		return nil, 0, Corrupt("a checkpoint's head has %d bytes instead of %d", len(head), checkpointHeadSize)
	}
	if enc := le.Uint32(head[68:]); enc != 0 || p.Count != 0 {
		return nil, 0, fmt.Errorf("%w: the checkpoint has the encoding %d and %d index pages; this seb reads only encoding 0 without index pages", ErrVersion, enc, p.Count)
	}
	if has, want := uint64(size-CheckpointBodyStart), le.Uint64(head[56:]); has != want {
		return nil, 0, Corrupt("the checkpoint's body has %d bytes instead of %d", has, want)
	}
	return &Checkpoint{
		Cluster: ClusterID(head[:16]),
		Seq:     Seq(le.Uint64(head[16:])),
		Hash:    Hash(head[24:56]),
		Created: p.Created,
	}, le.Uint32(head[64:]), nil
}
