package format

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
)

// The entry that says which session wrote a commit:
//
//	34 mark: session id (16 bytes), form (uint16), pause in ms (uint16), size of the address (uint32), address
//
// The form is 1; the form 2 is the mark of a bundle, see bundlemark.go. A mark with another form comes from a newer
// version of Seb: it is decoded as an [UnknownEntry]. The entry is not critical: older versions of Seb ignore it, and apply the other entries of the commit.
const (
	entryMark = 34

	markFixedSize = 24
	markWriter    = 1 // the form

	// PauseUnknown is the Pause of a [WriterMark] whose writer does not expect to write another commit soon.
	PauseUnknown = math.MaxUint16

	// WriterAddressMax is the largest size of the address in a [WriterMark], in bytes.
	WriterAddressMax = 1024
)

// SessionID names a session in marks: it is the first 16 bytes of the SHA-256 of the session's public key. So a broker
// that proves that it has the private key also proves its id.
type SessionID [16]byte

// String returns the id in hex.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// ID returns the session's id.
func (k SessionKey) ID() SessionID {
	sum := sha256.Sum256(k[:])
	return SessionID(sum[:])
}

// WriterMark says which session wrote the commit. It is the commit's first entry.
type WriterMark struct {
	Session SessionID
	// Pause is how long after this commit, in ms, the writer will probably want to write its next commit.
	Pause uint16
	// Address is where other brokers reach the writer; it may be empty.
	Address string
}

// Mark returns the mark of a commit's writer; nil if an older version of Seb wrote the commit.
func (c *Commit) Mark() *WriterMark {
	if len(c.Entries) == 0 {
		return nil
	}
	m, _ := c.Entries[0].(*WriterMark)
	return m
}

func (*WriterMark) kind() uint16 { return entryMark }
func (m *WriterMark) size() int  { return markFixedSize + len(m.Address) }

func (m *WriterMark) append(b []byte) []byte {
	b = append(b, m.Session[:]...)
	b = le.AppendUint16(le.AppendUint16(b, markWriter), m.Pause)
	b = le.AppendUint32(b, uint32(len(m.Address)))
	return append(b, m.Address...)
}

// Sound reports whether the fields are valid: Session is not zero, and Address is not too long.
func (m *WriterMark) Sound() bool {
	return m.Session != SessionID{} && len(m.Address) <= WriterAddressMax
}

// decodeMark decodes a mark. ok is false if this version of Seb does not know the mark's form.
func decodeMark(b []byte) (_ Entry, ok bool, err error) {
	if len(b) < markFixedSize {
		return nil, false, Corrupt("an entry of kind %d has the invalid size of %d bytes", entryMark, len(b))
	}
	switch le.Uint16(b[16:]) {
	case markWriter:
	case markBundle:
		m, err := decodeBundleMark(b)
		return m, err == nil, err
	default:
		return nil, false, nil
	}
	m, size := &WriterMark{Session: SessionID(b[:16]), Pause: le.Uint16(b[18:]), Address: string(b[markFixedSize:])}, le.Uint32(b[20:])
	if int64(size) != int64(len(m.Address)) || !m.Sound() {
		return nil, false, Corrupt("the mark of session %x gives %d bytes as the size of its address, which has %d, or is invalid", m.Session, size, len(m.Address))
	}
	return m, true, nil
}
