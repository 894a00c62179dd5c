package commitlog

import (
	"encoding/binary"
	"github.com/simple-event-broker/seb/internal/format"
	"slices"
	"time"
)

// AppendKey appends the canonical form of the protocol to b. Two protocols with the same form will
// make the same decisions, so a test that explores all interleavings needs to follow only one of
// the two. The protocol must not have halted.
//
// The caller guarantees that no later answer has a store time before now. So all times that make
// no difference to such answers have the same form: for example, the beginnings of all leases that
// have ended by now. The caller also guarantees that no slot above end will ever be written. So
// what the protocol asks to read above end does not change the form. The form leaves out the largest
// store time ever seen, which matters only if the store's time falls by more than the margin.
func (p *Protocol) AppendKey(b []byte, now time.Time, end format.Seq) []byte {
	if p.halt != nil {
		panic("commitlog: a halted protocol decides nothing")
	}
	var flags byte
	newerEnded := p.newer.ended && p.newer.seq != 0
	ended := p.ended && !p.settled // once settled, the protocol does not use p.end
	for i, set := range []bool{p.expired, newerEnded, p.settled, p.claim.Sent, p.sync, ended, p.more && !p.settled} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(p.applied))
	b = appendKeyHash(b, p.tip)
	lease, newer, mark := p.lease, p.newer.at, p.mark
	if !slices.ContainsFunc(p.answers, func(a Answer) bool { return !a.listed }) {
		lease.Store, newer.Store = p.keyLease(lease.Store, now), p.keyLease(newer.Store, now)
		if !mark.Add(-p.margin / 4).After(now) {
			mark = time.Time{}
		}
	}
	b = appendKeyStamp(b, lease)
	b = binary.AppendUvarint(b, uint64(p.newer.seq))
	if p.newer.seq != 0 {
		b = appendKeyStamp(b, newer)
		if newerEnded {
			b = binary.AppendUvarint(b, uint64(p.newer.end))
		}
	}
	if ended {
		b = binary.AppendUvarint(b, uint64(p.end))
	}
	streak, upTo := p.streak, p.upTo
	if p.applied >= end {
		streak = 0 // reads find nothing above end, so streak decides nothing
	}
	if upTo <= p.applied || upTo > end {
		upTo = 0
	}
	b = append(b, byte(streak))
	b = binary.AppendUvarint(b, uint64(upTo))
	for _, s := range []format.Seq{p.known, p.gone, p.incomplete.seq} {
		if s <= p.applied {
			s = 0
		}
		b = binary.AppendUvarint(b, uint64(s))
	}
	b = binary.AppendUvarint(b, uint64(p.claim.Seq))
	if p.claim.Seq != 0 {
		b = appendKeyHash(b, p.claim.Hash)
	}
	b = appendKeyTime(b, mark)
	answers := p.answers
	if len(answers) > 1 {
		answers = slices.Clone(answers)
		slices.SortFunc(answers, func(x, y Answer) int { return int(x.Seq) - int(y.Seq) })
	}
	b = binary.AppendUvarint(b, uint64(len(answers)))
	for _, a := range answers {
		b = appendKeyAnswer(b, a)
	}
	return b
}

// keyLease returns begin, the beginning of a lease, unless the lease has ended by now. For all leases that
// have ended, it returns the start of 1970.
func (p *Protocol) keyLease(begin, now time.Time) time.Time {
	if begin.IsZero() || begin.Add(p.deleteDelay-p.margin).After(now) {
		return begin
	}
	return time.Unix(0, 0)
}

func appendKeyAnswer(b []byte, a Answer) []byte {
	var flags byte
	if a.Found {
		flags |= 1
	}
	if a.listed {
		flags |= 2
	}
	if a.told {
		flags |= 4
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(a.Seq))
	if a.Found {
		a.Known = 0 // the protocol uses Known only for a 404
	}
	if a.listed {
		a.At = Stamp{} // the protocol no longer checks whether the lease covers this answer
	}
	b = appendKeyHash(b, a.Hash)
	b = appendKeyHash(b, a.Prev)
	b = appendKeyStamp(b, a.At)
	return binary.AppendUvarint(b, uint64(a.Known))
}

func appendKeyStamp(b []byte, at Stamp) []byte {
	return binary.AppendUvarint(appendKeyTime(b, at.Store), uint64(at.Boot))
}

// appendKeyTime appends a time: the zero time, or a time after 1970 began.
func appendKeyTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(t.UnixNano())+1)
}

// appendKeyHash appends a hash without the zeros at its end.
func appendKeyHash(b []byte, h format.Hash) []byte {
	n := len(h)
	for n > 0 && h[n-1] == 0 {
		n--
	}
	return append(append(b, byte(n)), h[:n]...)
}

// ProtocolFromKey makes a protocol from the canonical form at the start of b. It returns the protocol and
// the rest of b. The form must come from AppendKey in this process: other bytes may cause a panic.
func ProtocolFromKey(b []byte, deleteDelay, margin time.Duration) (Protocol, []byte) {
	p := NewProtocol(deleteDelay, margin)
	r := keyReader{b: b}
	flags := r.byte()
	for i, set := range []*bool{&p.expired, &p.newer.ended, &p.settled, &p.claim.Sent, &p.sync, &p.ended, &p.more} {
		*set = flags&(1<<i) != 0
	}
	p.applied, p.tip = r.seq(), r.hash()
	p.lease = r.stamp()
	if p.newer.seq = r.seq(); p.newer.seq != 0 {
		p.newer.at = r.stamp()
		if p.newer.ended {
			p.newer.end = r.seq()
		}
	}
	if p.ended {
		p.end = r.seq()
	}
	p.streak, p.upTo = uint(r.byte()), r.seq()
	p.known, p.gone, p.incomplete.seq = r.seq(), r.seq(), r.seq()
	if p.claim.Seq = r.seq(); p.claim.Seq != 0 {
		p.claim.Hash = r.hash()
	}
	p.mark = r.time()
	p.peak = p.mark
	for range r.uvarint() {
		p.answers = append(p.answers, r.answer())
	}
	return p, r.b
}

// keyReader reads what the append functions above wrote.
type keyReader struct{ b []byte }

func (r *keyReader) byte() byte {
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *keyReader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return x
}

func (r *keyReader) seq() format.Seq { return format.Seq(r.uvarint()) }

func (r *keyReader) hash() (h format.Hash) {
	n := int(r.byte())
	copy(h[:], r.b[:n])
	r.b = r.b[n:]
	return h
}

func (r *keyReader) time() time.Time {
	x := r.uvarint()
	if x == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(x-1))
}

func (r *keyReader) stamp() Stamp {
	return Stamp{Store: r.time(), Boot: time.Duration(r.uvarint())}
}

func (r *keyReader) answer() Answer {
	flags := r.byte()
	return Answer{
		Found: flags&1 != 0, listed: flags&2 != 0, told: flags&4 != 0,
		Seq: r.seq(), Hash: r.hash(), Prev: r.hash(), At: r.stamp(), Known: r.seq(),
	}
}
