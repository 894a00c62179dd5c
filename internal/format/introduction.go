package format

// An introduction is an object under the key of a data object, by which a broker shows another one that it can write to the
// bucket. No commit refers to it. Its head follows the prologue, and nothing follows the head; integers are little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq in the object's key (uint64)
//	    24    8 id in the object's key (uint64)
//	    32   32 public key of the broker's session (Ed25519)
const (
	introductionHeadSize = 64

	// IntroductionBytes is the size of an introduction.
	IntroductionBytes = PrologueSize + introductionHeadSize
)

// Introduction names the session of a broker that can write to the bucket.
type Introduction struct {
	Cluster ClusterID
	Ref     DataRef // the object's key and size
	Created int64   // writer's wall clock in microseconds since 1970
	Session SessionKey
}

// EncodeIntroduction returns the object. It ignores x.Ref.Size.
func EncodeIntroduction(x *Introduction) []byte {
	b := make([]byte, PrologueSize, IntroductionBytes)
	b = append(b, x.Cluster[:]...)
	b = le.AppendUint64(le.AppendUint64(b, uint64(x.Ref.Seq)), x.Ref.ID)
	b = append(b, x.Session[:]...)
	putPrologue(b, KindIntroduction, x.Created, 0)
	return b
}

// DecodeIntroduction reads an introduction from the bytes of its object.
func DecodeIntroduction(b []byte) (*Introduction, error) {
	p, head, err := decodeHead(b, KindIntroduction)
	if err != nil {
		return nil, err
	}
	if len(head) != introductionHeadSize || len(b) != IntroductionBytes {
		return nil, Corrupt("an introduction has %d bytes, and a head of %d, instead of %d and %d", len(b), len(head), IntroductionBytes, introductionHeadSize)
	}
	x := &Introduction{
		Cluster: ClusterID(head), Ref: DataRef{Seq: Seq(le.Uint64(head[16:])), ID: le.Uint64(head[24:]), Size: IntroductionBytes},
		Created: p.Created, Session: SessionKey(head[32:]),
	}
	if x.Session == (SessionKey{}) || p.Count != 0 {
		return nil, Corrupt("an introduction has the count %d, and names session %x", p.Count, x.Session)
	}
	return x, nil
}
