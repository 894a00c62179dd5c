package mesh

import (
	"encoding/binary"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
)

// Handed is a message by which brokers hand over requests: an Offer, Turn, Yield, Call, Bundle, Answer, Alive or Successor.
type Handed interface{ encode() []byte }

// Offer says that the sender has requests for a bundle.
type Offer struct {
	Due time.Duration // how long the first of them may still wait for others
}

// Ride says that the sender has requests for a bundle that wait for a commit which the receiver makes anyway.
type Ride struct{}

// Turn asks for the next slot: the sender has requests that can't be handed over.
type Turn struct {
	For time.Duration // how long it probably needs for that
}

// Yield says that the sender leaves the slot after After to the receiver, for some answer times of the store.
type Yield struct{ After format.Seq }

// Call asks for the bundle of a broker that has sent an offer. The sender is about to write a commit.
type Call struct {
	Number uint64
	After  format.Seq // the last slot that the sender has applied
}

// Bundle answers a Call.
type Bundle struct {
	Call      uint64
	Sealed    []byte // empty if there is nothing to hand over now
	After     format.Seq
	AfterHash format.Hash
}

// Answer says what became of a bundle.
type Answer struct {
	Number uint64   // of the bundle in the session; 0 if there was none, and the sender only says that it takes none
	Draw   [16]byte // of the bundle
	Code   byte     // a handover.Answer
}

// Alive says that the sender has not forgotten the requests that the receiver has offered or handed over.
type Alive struct {
	Since time.Duration // how long the sender has been writing its commit to the store; 0 if it is not writing one
	Fails bool          // the store did not answer the sender's last request
}

// Successor says that the broker that has committed for all so far ends, and which one commits for all from now on. Who hears of it
// passes it on to that one, before it sends anything else to it.
type Successor struct {
	Ended, Session format.SessionID
	After          format.Seq // the last slot that the broker that ends has applied
}

func millis(d time.Duration) uint32 {
	return uint32(min(max(d, 0), time.Hour).Milliseconds())
}

func (m Offer) encode() []byte {
	return binary.LittleEndian.AppendUint32([]byte{kindOffer}, millis(m.Due))
}

func (m Ride) encode() []byte { return []byte{kindRide} }

func (m Turn) encode() []byte {
	return binary.LittleEndian.AppendUint32([]byte{kindTurn}, millis(m.For))
}

func (m Yield) encode() []byte {
	return binary.LittleEndian.AppendUint64([]byte{kindYield}, uint64(m.After))
}

func (m Call) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kindCall}, m.Number)
	return binary.LittleEndian.AppendUint64(b, uint64(m.After))
}

func (m Bundle) encode() []byte {
	b := make([]byte, 0, 1+8+8+len(m.AfterHash)+len(m.Sealed))
	b = binary.LittleEndian.AppendUint64(append(b, kindBundle), m.Call)
	b = append(binary.LittleEndian.AppendUint64(b, uint64(m.After)), m.AfterHash[:]...)
	return append(b, m.Sealed...)
}

func (m Answer) encode() []byte {
	b := binary.LittleEndian.AppendUint64([]byte{kindAnswer}, m.Number)
	return append(append(b, m.Draw[:]...), m.Code)
}

func (m Alive) encode() []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kindAlive}, millis(m.Since))
	if m.Fails {
		return append(b, 1)
	}
	return append(b, 0)
}

func (m Successor) encode() []byte {
	b := append([]byte{kindSuccessor}, m.Ended[:]...)
	b = append(b, m.Session[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(m.After))
}

// decodeHanded returns the message of a kind, without its first byte; nil for a kind that a newer version sends.
func decodeHanded(kind byte, r *pack.Reader) any {
	switch kind {
	case kindOffer:
		return Offer{Due: time.Duration(r.U32()) * time.Millisecond}
	case kindRide:
		return Ride{}
	case kindTurn:
		return Turn{For: time.Duration(r.U32()) * time.Millisecond}
	case kindYield:
		return Yield{format.Seq(r.U64())}
	case kindCall:
		return Call{r.U64(), format.Seq(r.U64())}
	case kindBundle:
		m := Bundle{Call: r.U64(), After: format.Seq(r.U64())}
		copy(m.AfterHash[:], r.Raw(len(m.AfterHash)))
		m.Sealed = r.Raw(r.Left())
		return m
	case kindAnswer:
		m := Answer{Number: r.U64()}
		copy(m.Draw[:], r.Raw(len(m.Draw)))
		m.Code = r.Raw(1)[0]
		return m
	case kindAlive:
		return Alive{Since: time.Duration(r.U32()) * time.Millisecond, Fails: r.Raw(1)[0] == 1}
	case kindSuccessor:
		m := Successor{}
		copy(m.Ended[:], r.Raw(len(m.Ended)))
		copy(m.Session[:], r.Raw(len(m.Session)))
		m.After = format.Seq(r.U64())
		return m
	}
	return nil
}
