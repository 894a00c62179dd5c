package handover

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

const (
	// undecidedMax is how many bundles of a sender may be undecided.
	undecidedMax = 4
	// givenUpMax is how many marks of bundles that it has given up a sender remembers. If it forgets one,
	// and the log gets that mark later, then the sender takes a new session without need.
	givenUpMax = 64
)

// Sender knows the bundles that this broker has sealed and the log has not decided.
type Sender struct {
	session Session
	sealed  uint64 // number of the last bundle that was sealed under the session
	copied  bool   // another process seals bundles under the session
	// claimed is a slot that this broker has claimed for requests that are in no bundle yet.
	claimed format.Seq
	// overdue says that the sender has given up bundles, and that the log has no later bundle of it yet.
	overdue bool

	// looked is the last slot in which the sender has looked for its marks, and tip is the hash of that
	// slot's head. It is the field After of all undecided bundles: a bundle is not in a slot that was
	// applied before its sealing, and the sender looks for all of them in every later slot (rule Look).
	looked format.Seq
	tip    format.Hash

	// The elements of these slices are never changed, so that clones can share them.
	undecided []Bundle // in the order of their sealing
	givenUp   []Mark   // bundles whose outcome is unknown for ever; the latest ones
}

// NewSender returns the sender of a broker that has sealed nothing under the session yet. The broker has
// applied all slots up to the given one, whose head has the hash tip.
func NewSender(session Session, applied format.Seq, tip format.Hash) *Sender {
	return &Sender{session: session, looked: applied, tip: tip}
}

// Clone returns an independent copy.
func (s *Sender) Clone() *Sender {
	c := *s
	c.undecided, c.givenUp = slices.Clip(s.undecided), slices.Clip(s.givenUp)
	return &c
}

// Looked returns the last slot in which the sender has looked for its marks.
func (s *Sender) Looked() format.Seq { return s.looked }

// Next returns the next bundle to seal, with its session, its number and the field Before. The caller sets the
// other fields and calls Sealed. Next returns false if the sender must not seal a bundle now: too many are
// undecided, another process seals bundles under the same session, or a slot is not decided that this broker
// has claimed for requests that are in no bundle yet (rule Claimed).
func (s *Sender) Next() (Bundle, bool) {
	if s.copied || len(s.undecided) == undecidedMax || s.claimed > s.looked {
		return Bundle{}, false
	}
	b := Bundle{Mark: Mark{Session: s.session, Number: s.sealed + 1}}
	if n := len(s.undecided); n > 0 {
		b.Before = s.undecided[n-1].Mark
	}
	return b, true
}

// Sealed notes that the caller has sealed the bundle that Next returned. Now the bundle is undecided, and only
// the log decides it.
func (s *Sender) Sealed(b Bundle) {
	if next, ok := s.Next(); !ok || b.Session != next.Session || b.Number != next.Number || b.Before != next.Before {
		panic("handover: sealed another bundle than the next one")
	}
	s.sealed++
	s.undecided = append(s.undecided, b)
}

// MayClaim reports whether the broker may claim the next slot for requests that are in no bundle yet. It must
// not do so while bundles are undecided, since the requests would overtake them. After the broker has given up
// bundles, it must not do so until the log has a later bundle: a winner that still has an earlier one in hand
// then drops that one (rule Order). It may always claim for requests that are never in bundles, such as new topics.
func (s *Sender) MayClaim() bool { return len(s.undecided) == 0 && !s.overdue }

// Claimed notes that the broker claims the next slot for requests that are in no bundle yet; MayClaim must be
// true. Until that slot is decided, Next returns false: if the broker sealed these requests now, they could be
// committed twice, and if it sealed later ones, they could overtake these (rule Claimed).
func (s *Sender) Claimed() {
	if !s.MayClaim() {
		panic("handover: requests overtake bundles")
	}
	s.claimed = s.looked + 1
}

// Unclaimed notes that the broker has given up such a claim. The requests of a claim that was sent are never
// claimed or sealed again: their outcome is unknown for ever.
func (s *Sender) Unclaimed() { s.claimed = 0 }

// Undecided returns the undecided bundles, in the order of their sealing. If the broker claims a slot, its
// commit has all of them, in this order, before the bundles of other brokers (rule Predecessor). No answer of a
// peer, and no lack of an answer, takes a bundle off this list (rule Silence). The broker sends and claims a
// bundle with the same bytes each time (rule Same).
func (s *Sender) Undecided() []Bundle { return slices.Clone(s.undecided) }

// Frames returns the undecided bundles as they are sent to a winner now.
func (s *Sender) Frames() []Frame {
	frames := make([]Frame, len(s.undecided))
	for i, b := range s.undecided {
		frames[i] = Frame{Bundle: b, After: s.looked, AfterHash: s.tip}
	}
	return frames
}

// Applied takes the commit of the next slot, which the broker has applied. It returns the bundles that the
// commit decides, in the order of the log. The commit says what happened to each of their requests.
//
// Applied also reports whether another process has a copy of this broker's memory, for example because a
// virtual machine was restored: the commit has a bundle that was sealed under this broker's session, but not
// by this broker. Then Next returns false until the caller calls Renew.
func (s *Sender) Applied(c Commit) (decided []Bundle, copied bool) {
	if c.Seq != s.looked+1 {
		panic("handover: slots are applied in order")
	}
	s.looked, s.tip = c.Seq, c.Hash
	for _, m := range c.Marks {
		i := slices.IndexFunc(s.undecided, func(b Bundle) bool { return b.Mark == m })
		switch {
		case i >= 0:
			decided = append(decided, s.undecided[i])
			s.undecided = slices.Concat(s.undecided[:i], s.undecided[i+1:])
		case m.Session == s.session && !slices.Contains(s.givenUp, m):
			copied = true
		}
	}
	s.copied = s.copied || copied
	s.overdue = s.overdue && len(decided) == 0
	return decided, copied
}

// Loaded notes that the broker has loaded the checkpoint of a slot, whose head has the hash tip. The sender
// can't look for its marks in the slots that it has not seen. So it returns the bundles whose outcome is
// unknown for ever: the caller must never send or claim them again (rule Load).
func (s *Sender) Loaded(seq format.Seq, tip format.Hash) (unknown []Bundle) {
	if seq <= s.looked {
		panic("handover: a checkpoint is loaded only above the applied slot")
	}
	s.looked, s.tip = seq, tip
	unknown, s.undecided = s.undecided, nil
	s.overdue = s.overdue || len(unknown) > 0
	for _, b := range unknown {
		s.givenUp = append(s.givenUp, b.Mark)
	}
	s.givenUp = s.givenUp[max(0, len(s.givenUp)-givenUpMax):]
	return unknown
}

// Renew gives the sender a new session. The numbers begin at 1 again. Undecided bundles keep their marks, and
// stay undecided until the log decides them.
func (s *Sender) Renew(session Session) { s.session, s.sealed, s.copied = session, 0, false }
