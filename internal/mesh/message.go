package mesh

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
)

// Layout is the version of the messages that this package sends. Version 1 has hellos,
// commits, asks and proofs. Brokers of version 1 ignore other messages, and do not send them. Version 3 adds the message about
// further brokers.
const Layout = 3

// layoutHands is the first layout whose brokers hand over bundles.
const layoutHands = 2

// layoutMeets is the first layout whose brokers tell each other of further brokers.
const layoutMeets = 3

// MessageBytesMax bounds a message. A commit that needs more is not sent.
const MessageBytesMax = 16 << 20

// The kinds of messages: the first byte of each.
const (
	kindHello byte = iota + 1
	kindCommit
	kindAsk
	kindProof
	kindOffer
	kindTurn
	kindYield
	kindCall
	kindBundle
	kindAnswer
	kindAlive
	kindPing
	kindPong
	kindSuccessor
	kindRide
	kindMeet
)

// hello is the first message of both sides. It tells whether the two have the same log.
type hello struct {
	layout  uint16
	applied format.Seq  // the last slot that the sender has applied
	hash    format.Hash // the hash of the head in that slot
	version string      // of Seb, for people
	zone    string
	level   uint32 // the highest level of the log's format that the sender agrees to; 0 from a broker that says nothing of levels
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
	return binary.LittleEndian.AppendUint32(b, m.level)
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

// ping asks for a pong with the same number, to measure how long a message takes to the other side and back.
type ping struct{ number uint64 }

func (m ping) encode() []byte { return binary.LittleEndian.AppendUint64([]byte{kindPing}, m.number) }

type pong struct{ number uint64 }

func (m pong) encode() []byte { return binary.LittleEndian.AppendUint64([]byte{kindPong}, m.number) }

// meet tells where others reach the sender, and of brokers that the sender is connected to. What it says is a hint: a session has
// to prove itself before another broker uses a connection to it.
type meet struct {
	address string // of the sender; "" if others can't reach it
	others  []contact
}

// contact is where a broker is.
type contact struct {
	session format.SessionID
	address string
}

func (m meet) encode() []byte {
	b := appendAddress([]byte{kindMeet}, m.address)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.others)))
	for _, c := range m.others {
		b = appendAddress(append(b, c.session[:]...), c.address)
	}
	return b
}

func appendAddress(b []byte, address string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(address))), address...)
}

func decodeMeet(r *pack.Reader) meet {
	m := meet{address: longText(r)}
	n := int(r.U16())
	if n > PeersMax {
		r.Fail("a message tells of %d brokers; at most %d are allowed", n, PeersMax)
	}
	for range min(n, PeersMax) {
		var c contact
		copy(c.session[:], r.Raw(len(c.session)))
		c.address = longText(r)
		m.others = append(m.others, c)
	}
	return m
}

// longText reads an address after its length, which has two bytes.
func longText(r *pack.Reader) string {
	n := int(r.U16())
	if n > format.WriterAddressMax {
		r.Fail("an address has %d bytes; at most %d are allowed", n, format.WriterAddressMax)
		return ""
	}
	return string(r.Raw(n))
}

// decode returns the message in b: a hello, a Commit, which shares memory with b, an ask, a proof, a ping, a pong, a meet or a
// Handed; nil for a kind of message that a newer version sends.
func decode(b []byte) (any, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: a message is empty", pack.ErrMalformed)
	}
	r := pack.NewReader(b[1:])
	switch b[0] {
	case kindHello:
		m := hello{layout: r.U16(), applied: format.Seq(r.U64())}
		copy(m.hash[:], r.Raw(len(m.hash)))
		m.version, m.zone = shortText(r), shortText(r)
		if r.Left() > 0 { // earlier versions send no level
			m.level = r.U32()
		}
		return m, r.Err()
	case kindCommit:
		m := Commit{Size: r.I64(), Date: time.UnixMicro(r.I64())}
		if m.Body = r.Raw(r.Left()); m.Size < int64(len(m.Body)) {
			r.Fail("a commit of %d bytes, in a message of %d", m.Size, len(b))
		}
		return m, r.Err()
	case kindAsk:
		m := ask{r.U64()}
		return m, r.Err()
	case kindProof:
		m := proof{r.U64(), format.Seq(r.U64())}
		return m, r.Err()
	case kindPing:
		m := ping{r.U64()}
		return m, r.Err()
	case kindPong:
		m := pong{r.U64()}
		return m, r.Err()
	case kindMeet:
		m := decodeMeet(r)
		return m, r.Err()
	}
	return decodeHanded(b[0], r), r.Err()
}

// shortText reads a text after its length, which is a byte.
func shortText(r *pack.Reader) string { return string(r.Raw(int(r.Raw(1)[0]))) }
