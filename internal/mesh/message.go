package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// Layout is the version of the messages that this package sends. There is only one so far. A broker that knows a later
// version must use this one with each broker whose hello names this one.
const Layout = 1

// MessageBytesMax bounds a message. A commit that needs more is not sent.
const MessageBytesMax = 16 << 20

// The kinds of messages: the first byte of each.
const (
	kindHello byte = iota + 1
	kindCommit
	kindAsk
	kindProof
)

// hello is the first message of both sides. It tells whether the two have the same log.
type hello struct {
	layout  uint16
	applied format.Seq  // the last slot that the sender has applied
	hash    format.Hash // the hash of the head in that slot
	version string      // of Seb, for people
	zone    string
}

const textBytesMax = 255 // of a version or a zone

func (m hello) encode() []byte {
	b := []byte{kindHello}
	b = binary.LittleEndian.AppendUint16(b, m.layout)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.applied))
	b = append(b, m.hash[:]...)
	for _, text := range []string{m.version, m.zone} {
		text = text[:min(len(text), textBytesMax)]
		b = append(append(b, byte(len(text))), text...)
	}
	return b
}

// Commit is a commit that its writer sends: the bytes of its object from the start on, at least those of the head.
type Commit struct {
	Body []byte
	Size int64     // of the whole object
	Date time.Time // the store's date in the answer that decided the slot
}

const commitHeadSize = 1 + 8 + 8

func (m Commit) encode() []byte {
	b := make([]byte, 0, commitHeadSize+len(m.Body))
	b = append(b, kindCommit)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Size))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Date.UnixMicro()))
	return append(b, m.Body...)
}

// ask asks where the log ends.
type ask struct{ number uint64 }

func (m ask) encode() []byte { return binary.LittleEndian.AppendUint64([]byte{kindAsk}, m.number) }

// proof answers the ask with that number: a request to the store, which began after the ask had arrived, has shown that
// the log ended at slot end, or later.
type proof struct {
	number uint64
	end    format.Seq
}

func (m proof) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kindProof}, m.number)
	return binary.LittleEndian.AppendUint64(b, uint64(m.end))
}

var errMessage = errors.New("the message of another broker is malformed")

// decode returns the message in b: a hello, a Commit, which shares memory with b, an ask or a proof; nil for a kind of
// message that a newer version sends.
func decode(b []byte) (any, error) {
	r := reader{b: b}
	switch kind := r.bytes(1); {
	case kind == nil:
		return nil, fmt.Errorf("%w: it is empty", errMessage)
	case kind[0] == kindHello:
		m := hello{layout: uint16(r.number(2)), applied: format.Seq(r.number(8))}
		copy(m.hash[:], r.bytes(len(m.hash)))
		m.version, m.zone = r.text(), r.text()
		if r.short {
			return nil, fmt.Errorf("%w: a hello of %d bytes is too short", errMessage, len(b))
		}
		return m, nil
	case kind[0] == kindCommit:
		m := Commit{Size: int64(r.number(8)), Date: time.UnixMicro(int64(r.number(8)))}
		if r.short || m.Size < int64(len(r.b)) {
			return nil, fmt.Errorf("%w: a commit of %d bytes, in a message of %d", errMessage, m.Size, len(b))
		}
		m.Body = r.b
		return m, nil
	case kind[0] == kindAsk:
		m := ask{r.number(8)}
		return m, r.complete()
	case kind[0] == kindProof:
		m := proof{r.number(8), format.Seq(r.number(8))}
		return m, r.complete()
	}
	return nil, nil
}

// reader reads the fields of a message. short is set if a field lies beyond the end.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) bytes(n int) []byte {
	if len(r.b) < n {
		r.short = true
		return nil
	}
	field := r.b[:n:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) number(size int) uint64 {
	var padded [8]byte
	copy(padded[:], r.bytes(size))
	return binary.LittleEndian.Uint64(padded[:])
}

func (r *reader) complete() error {
	if r.short {
		return fmt.Errorf("%w: it is too short", errMessage)
	}
	return nil
}

func (r *reader) text() string {
	return string(r.bytes(int(r.number(1))))
}
