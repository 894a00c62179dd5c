package format

// The head of a data object, after the prologue, little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq in the object's key (uint64)
//	    24    8 id in the object's key (uint64)
//	    32    4 size of the payload that follows (uint32)
//	    36   12 zero
//
// After the head comes the payload: batches, back to back. The commit that refers to the object says
// to which partition each batch belongs.
const (
	dataHeadSize = 48

	// DataPayloadStart is where the payload of a data object begins.
	DataPayloadStart = PrologueSize + dataHeadSize
)

// DataHead is the head of a data object.
type DataHead struct {
	Cluster     ClusterID
	Ref         DataRef // the object's key and size
	Created     int64   // writer's wall clock in microseconds since 1970
	Batches     uint32
	PayloadSize uint32
}

// EncodeDataHead returns the prologue and the head of a data object. In the object, the payload follows.
// EncodeDataHead ignores h.Ref.Size.
func EncodeDataHead(h *DataHead) []byte {
	b := make([]byte, PrologueSize, DataPayloadStart)
	b = append(b, h.Cluster[:]...)
	b = le.AppendUint64(b, uint64(h.Ref.Seq))
	b = le.AppendUint64(b, h.Ref.ID)
	b = le.AppendUint32(b, h.PayloadSize)
	b = append(b, make([]byte, 12)...)
	putPrologue(b, KindData, h.Created, h.Batches)
	return b
}

// DecodeDataHead reads the prologue and the head of a data object. b has at least these first bytes of
// the object.
func DecodeDataHead(b []byte) (*DataHead, error) {
	p, head, err := decodeHead(b, KindData)
	if err != nil {
		return nil, err
	}
	if len(head) != dataHeadSize {
		return nil, Corrupt("a data object's head has %d bytes instead of %d", len(head), dataHeadSize)
	}
	if [12]byte(head[36:]) != [12]byte{} {
		return nil, Corrupt("reserved bytes of a data object's head are set")
	}
	h := &DataHead{
		Cluster:     ClusterID(head[:16]),
		Ref:         DataRef{Seq: Seq(le.Uint64(head[16:])), ID: le.Uint64(head[24:])},
		Created:     p.Created,
		Batches:     p.Count,
		PayloadSize: le.Uint32(head[32:]),
	}
	if int64(h.PayloadSize)+DataPayloadStart > 1<<32-1 {
		return nil, Corrupt("a payload has the invalid size of %d bytes", h.PayloadSize)
	}
	h.Ref.Size = h.PayloadSize + DataPayloadStart
	return h, nil
}
