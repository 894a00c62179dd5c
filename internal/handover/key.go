package handover

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// Names gives short names to bundles, for a test that explores all orders of events. In the world of such a
// test, a name stands for one bundle and its mark, and each slot has one hash. Slots are less than 256.
type Names struct {
	Name func(Mark) byte
	// Frame returns the frame that a sender of the named bundle sends after a slot.
	Frame func(name byte, after format.Seq) Frame
	Hash  func(format.Seq) format.Hash
}

func (n Names) bundle(name byte) Bundle { return n.Frame(name, 0).Bundle }

// AppendKey appends a form of the sender to b, without its session. Two senders with the same session and the
// same form make the same decisions.
func (s *Sender) AppendKey(b []byte, n Names) []byte {
	var flags byte
	if s.copied {
		flags |= 1
	}
	if s.claimed > s.looked {
		flags |= 2
	}
	if s.overdue {
		flags |= 4
	}
	b = append(b, byte(s.sealed), flags, byte(s.looked), byte(len(s.undecided)))
	for _, u := range s.undecided {
		b = append(b, n.Name(u.Mark))
	}
	return appendMarks(b, s.givenUp, n)
}

// SenderFromKey makes a sender from its session and its key. It returns the rest of the key.
func SenderFromKey(b []byte, session Session, n Names) (*Sender, []byte) {
	s := &Sender{session: session, sealed: uint64(b[0]), copied: b[1]&1 != 0, overdue: b[1]&4 != 0, looked: format.Seq(b[2])}
	if b[1]&2 != 0 {
		s.claimed = s.looked + 1
	}
	s.tip = n.Hash(s.looked)
	for _, name := range b[4:][:b[3]] {
		s.undecided = append(s.undecided, n.bundle(name))
	}
	s.givenUp, b = readMarks(b[4+int(b[3]):], n)
	return s, b
}

// AppendKey appends a form of the receiver to b. The form leaves out which session has named this broker to go
// on, and after which slot.
func (r *Receiver) AppendKey(b []byte, n Names) []byte {
	var winner byte
	if r.winner {
		winner = 1
	}
	b = append(b, winner, byte(r.horizon), byte(len(r.slots)))
	for _, s := range r.slots {
		b = appendMarks(b, s.marks, n)
	}
	b = append(b, byte(len(r.hand)))
	for _, f := range r.hand {
		b = append(b, n.Name(f.Mark), byte(f.After))
		if f.Before == (Mark{}) {
			b = append(b, 0)
		} else {
			b = append(b, 1+n.Name(f.Before))
		}
	}
	return b
}

// ReceiverFromKey makes a receiver from a key, and returns the rest of the key.
func ReceiverFromKey(b []byte, limits Limits, n Names) (*Receiver, []byte) {
	r := &Receiver{limits: limits, winner: b[0] == 1, horizon: format.Seq(b[1])}
	r.base = n.Hash(r.horizon)
	count := b[2]
	b = b[3:]
	for i := range count {
		s := slot{hash: n.Hash(r.horizon + 1 + format.Seq(i))}
		s.marks, b = readMarks(b, n)
		r.marks += len(s.marks)
		r.slots = append(r.slots, s)
	}
	count = b[0]
	b = b[1:]
	for range count {
		f := n.Frame(b[0], format.Seq(b[1]))
		f.Before = Mark{}
		if b[2] > 0 {
			f.Before = n.bundle(b[2] - 1).Mark
		}
		r.hand, b = append(r.hand, f), b[3:]
	}
	return r, b
}

func appendMarks(b []byte, marks []Mark, n Names) []byte {
	b = append(b, byte(len(marks)))
	for _, m := range marks {
		b = append(b, n.Name(m))
	}
	return b
}

func readMarks(b []byte, n Names) (marks []Mark, rest []byte) {
	for _, name := range b[1:][:b[0]] {
		marks = append(marks, n.bundle(name).Mark)
	}
	return slices.Clip(marks), b[1+int(b[0]):]
}
