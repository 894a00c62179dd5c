package handover

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
)

// Answer is what a Receiver answers to a bundle. Every answer but Have is a "no", which decides nothing: the
// sender claims the bundle itself.
type Answer uint8

// The answers.
const (
	// Have: the bundle is in hand. Build returns it once this broker has applied the bundle's slot After.
	Have Answer = iota
	// OtherLog: in this broker's log, the slot After has another hash. The caller closes the connection, and
	// concludes nothing about its own log (rule No evidence).
	OtherLog
	// NotWinner: this broker does not commit for others now.
	NotWinner
	// TooOld: the receiver does not remember the marks of all slots above After.
	TooOld
	// Seen: the log has the bundle's mark in a slot above After. The sender finds it there.
	Seen
	// Overtaken: a later bundle of the same session is in hand, or in the log above After.
	Overtaken
	// NoPredecessor: the receiver does not know the bundle that must come before this one.
	NoPredecessor
	// NoRoom: the bundles in hand have reached a limit.
	NoRoom
)

var answerNames = [...]string{"have", "other log", "not winner", "too old", "seen", "overtaken", "no predecessor", "no room"}

func (a Answer) String() string { return answerNames[a] }

// Receiver takes the bundles of other brokers while its own broker is a winner.
type Receiver struct {
	limits Limits

	// slots are the slots above horizon, up to the applied one. The receiver knows all their marks. base is the
	// hash of the head in the slot horizon. The elements of slots and hand are never changed, so that clones can
	// share them.
	horizon format.Seq
	base    format.Hash
	slots   []slot
	marks   int // how many marks slots has

	hand []Frame // the bundles in hand, in the order in which they came

	winner bool // this broker wrote the applied slot, or that slot's writer has named it: see Named
	named  struct {
		by  Session
		seq format.Seq
	}
	writer Session // the writer of the applied slot
}

// slot is what a Receiver remembers of a slot.
type slot struct {
	hash  format.Hash
	marks []Mark
}

// NewReceiver returns the receiver of a broker that has applied all slots up to the given one, whose head has
// the hash tip. The receiver knows the marks of later slots only.
func NewReceiver(limits Limits, applied format.Seq, tip format.Hash) *Receiver {
	return &Receiver{limits: limits, horizon: applied, base: tip}
}

// Clone returns an independent copy.
func (r *Receiver) Clone() *Receiver {
	c := *r
	c.slots, c.hand = slices.Clip(r.slots), slices.Clip(r.hand)
	return &c
}

// Winner reports whether this broker takes bundles.
func (r *Receiver) Winner() bool { return r.winner }

// Position returns the applied slot.
func (r *Receiver) Position() format.Seq { return r.horizon + format.Seq(len(r.slots)) }

// Horizon returns the slot above which the receiver remembers all marks.
func (r *Receiver) Horizon() format.Seq { return r.horizon }

// Sessions returns the sessions whose bundles are in hand.
func (r *Receiver) Sessions() (all []Session) {
	for _, f := range r.hand {
		if !slices.Contains(all, f.Session) {
			all = append(all, f.Session)
		}
	}
	return all
}

// Ready reports whether the next commit that the broker builds has a bundle of another broker. If not although bundles are in
// hand, this broker has not applied the slots After of these bundles.
func (r *Receiver) Ready() bool { return len(r.Build(nil)) > 0 }

// Hand returns how many bundles are in hand.
func (r *Receiver) Hand() int { return len(r.hand) }

// Take decides about a bundle that a peer hands over. The caller has checked the bundle's bytes, has compared
// them with the seal, and knows that the peer has proven the session in the mark. A bundle that is in hand
// already is not taken a second time.
//
// A bundle in hand is in no slot up to the applied one, for these reasons: its sender has looked in vain up to After
// (rule Look); the receiver remembers the marks of all later slots (rule Horizon), and has compared them with
// the bundle's (rule Compare); and Applied does so with the slots that come after that (rule Strike).
func (r *Receiver) Take(f Frame) Answer {
	switch {
	case f.After >= r.horizon && f.After <= r.Position() && f.AfterHash != r.hash(f.After):
		return OtherLog
	case !r.winner:
		return NotWinner
	case in(r.hand, f.Mark):
		return Have
	case f.After < r.horizon:
		return TooOld
	case r.seen(f.After, f.is):
		return Seen
	case r.seen(f.After, f.isOvertakenBy), slices.ContainsFunc(r.hand, func(h Frame) bool { return f.isOvertakenBy(h.Mark) }):
		return Overtaken
	case !r.follows(f, r.hand):
		return NoPredecessor
	case !r.fits(f):
		return NoRoom
	}
	r.hand = append(r.hand, f)
	return Have
}

func (r *Receiver) hash(s format.Seq) format.Hash {
	if s == r.horizon {
		return r.base
	}
	return r.slots[s-r.horizon-1].hash
}

// seen reports whether a slot above the slot after has a mark for which is(mark) is true. after is at least r.horizon.
func (r *Receiver) seen(after format.Seq, is func(Mark) bool) bool {
	for i := len(r.slots); r.horizon+format.Seq(i) > after; i-- {
		if slices.ContainsFunc(r.slots[i-1].marks, is) {
			return true
		}
	}
	return false
}

// follows reports whether a bundle may come after the given ones: the bundle before it is one of them, or
// the log has it (rule Predecessor).
func (r *Receiver) follows(f Frame, frames []Frame) bool {
	return f.Before == Mark{} || in(frames, f.Before) || r.seen(r.horizon, f.Before.is)
}

func (r *Receiver) fits(f Frame) bool {
	count, bytes, all := 1, f.Size, f.Size
	for _, h := range r.hand {
		all += h.Size
		if h.Session == f.Session {
			count, bytes = count+1, bytes+h.Size
		}
	}
	return len(r.hand) < r.limits.Hand && count <= r.limits.HandOfSession &&
		all <= r.limits.Bytes && bytes <= r.limits.BytesOfSession
}

func in(frames []Frame, m Mark) bool {
	return slices.ContainsFunc(frames, func(f Frame) bool { return f.Mark == m })
}

// Build returns the bundles that the broker puts into its next commit, in order: its own undecided bundles, then
// those in hand. If there is no room for one of those in hand, the caller also leaves out all that follow it.
//
// If a copy of this broker has handed over a bundle that this broker has sealed, too, then the commit has it
// once (rule Once). A bundle waits in hand until this broker has applied the bundle's slot After: before that,
// either the next slot is decided already, or the peer has another log.
func (r *Receiver) Build(own []Bundle) []Bundle {
	frames := make([]Frame, 0, len(own)+len(r.hand))
	for _, b := range own {
		frames = append(frames, Frame{Bundle: b})
	}
	for _, f := range r.hand {
		if f.After <= r.Position() && !in(frames, f.Mark) && r.follows(f, frames) {
			frames = append(frames, f)
		}
	}
	bundles := make([]Bundle, len(frames))
	for i, f := range frames {
		bundles[i] = f.Bundle
	}
	return bundles
}

// Applied takes the commit of the next slot, which the broker has applied. It removes the bundles in hand whose marks
// are in the commit, whoever wrote it (rule Strike). It drops those that a bundle of the commit has overtaken (rule
// Order), those whose sender has another commit in this slot, those that have lost the bundle before them, and all if
// this broker has lost the slot and is not named to go on (rule Winner only). It returns the dropped ones: the caller
// tells their senders that it no longer has them, which decides nothing.
func (r *Receiver) Applied(c Commit) (dropped []Frame) {
	if c.Seq != r.Position()+1 {
		panic("handover: slots are applied in order")
	}
	r.slots = append(r.slots, slot{c.Hash, c.Marks})
	r.marks += len(c.Marks)
	for len(r.slots) > r.limits.Slots || r.marks > r.limits.Marks {
		r.horizon, r.base = r.horizon+1, r.slots[0].hash
		r.marks -= len(r.slots[0].marks)
		r.slots = r.slots[1:]
	}
	r.writer = c.Writer
	r.winner = c.Own || r.isNamed()
	struck := func(f Frame) bool { return slices.Contains(c.Marks, f.Mark) }
	otherLog := func(f Frame) bool { return f.After == c.Seq && f.AfterHash != c.Hash }
	dropped = r.drop(func(f Frame) bool {
		return struck(f) || !r.winner || otherLog(f) || slices.ContainsFunc(c.Marks, f.isOvertakenBy)
	})
	return slices.DeleteFunc(dropped, struck)
}

// Loaded notes that the broker has loaded the checkpoint of a slot, whose head has the hash tip. The receiver
// does not know the marks of the slots that it has not seen. So it drops the bundles that may be in one of
// these slots, and the bundles that must come after a dropped one. It returns them, and says nothing of their
// fate (rule Load).
func (r *Receiver) Loaded(seq format.Seq, tip format.Hash) (dropped []Frame) {
	if seq <= r.Position() {
		panic("handover: a checkpoint is loaded only above the applied slot")
	}
	r.horizon, r.base, r.slots, r.marks = seq, tip, nil, 0
	r.winner, r.writer = false, Session{}
	return r.drop(func(f Frame) bool { return f.After < seq || f.After == seq && f.AfterHash != tip })
}

// Drop drops the bundles of a session, since the draft of a commit has refused one of them, and returns what it
// has dropped.
func (r *Receiver) Drop(session Session) (dropped []Frame) {
	return r.drop(func(f Frame) bool { return f.Session == session })
}

// drop removes the bundles in hand for which gone is true, and then those that have lost the bundle before
// them. It returns what it has removed.
func (r *Receiver) drop(gone func(Frame) bool) (dropped []Frame) {
	var kept []Frame
	for _, f := range r.hand {
		if gone(f) || !r.follows(f, kept) {
			dropped = append(dropped, f)
		} else {
			kept = append(kept, f)
		}
	}
	r.hand = kept
	return dropped
}

// Named notes that a session has named this broker to commit for all after the slot seq (in RFC 0005: to go on). That
// counts only if the session wrote that slot, and only until a later slot is applied. The message may come before this
// broker has applied the slot. Of several messages, the last one counts.
func (r *Receiver) Named(by Session, seq format.Seq) {
	if seq < r.Position() {
		return
	}
	r.named.by, r.named.seq = by, seq
	r.winner = r.winner || r.isNamed()
}

func (r *Receiver) isNamed() bool {
	return r.named.seq == r.Position() && r.named.by == r.writer
}
