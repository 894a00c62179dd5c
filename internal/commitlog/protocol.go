package commitlog

import (
	"errors"
	"fmt"
	"github.com/simple-event-broker/seb/internal/format"
	"slices"
	"time"
)

var (
	// ErrLoss is wrapped when a slot that the log needs is gone. Nothing is ever skipped.
	ErrLoss = errors.New("the log has lost a commit")
	// ErrFork is wrapped when two commits don't fit together: the order of the
	// log was broken by a store without conditional writes, or by a restored
	// copy.
	ErrFork = errors.New("the log has forked")
	// ErrRolledBack is wrapped when the bucket holds less than this broker has seen.
	ErrRolledBack = errors.New("the bucket was rolled back")
	// ErrClock is wrapped when the store's time fell by more than the margin.
	ErrClock = errors.New("the store's clock stepped back")
)

// Stamp tells when the store executed a request.
type Stamp struct {
	// Store is the store's own time; zero if the answer carried none.
	Store time.Time
	// Boot is the local clock since boot, suspended time included: for a List
	// when it was sent, for all others when the answer had arrived. It can
	// only shorten a lease.
	Boot time.Duration
}

// Answer is what the store said about one slot.
type Answer struct {
	Seq   format.Seq
	Found bool
	// Hash and Prev are of the commit that was found.
	Hash, Prev format.Hash
	At         Stamp
	// Known is what [Protocol.Known] returned when the request was sent:
	// only evidence from before a 404 makes it a loss.
	Known format.Seq

	// listed: a List sent after the answer arrived showed no checkpoint newer
	// than what is applied, so the answer was good when it was given.
	listed bool
}

// Listing is the answer to a List of checkpoint/ and then of log/.
type Listing struct {
	// At is the store's time of the List of checkpoint/, and the local clock
	// when it was sent.
	At Stamp
	// Checkpoint is the newest checkpoint at or above the applied slot, or 0.
	Checkpoint format.Seq
	// From is the slot from which log/ was listed: the larger of the applied
	// slot and Checkpoint.
	From format.Seq
	// First and Last are the first and the last slot seen in log/ from From on, or 0.
	First, Last format.Seq
	// More: log/ has more keys after Last.
	More bool
	// LogAt is the stamp of that List of log/.
	LogAt Stamp
}

// Do is a kind of step that a Protocol asks for.
type Do uint8

// The steps that a Protocol can ask for.
const (
	// Idle: nothing to do.
	Idle Do = iota
	// DoList: List checkpoint/ and then log/; answer with Listed.
	DoList
	// DoLoad: Get checkpoint Seq and replace the state by it; answer with Loaded,
	// or LoadMissing if it is gone.
	DoLoad
	// DoGet: Get the heads of slots Seq to To; answer each with Answered.
	DoGet
	// DoCreate: Create slot Seq from the claim; answer with Created, Exists or
	// nothing. The claim counts as sent from now on.
	DoCreate
	// DoApply: apply the commit of slot Seq that was answered; then Applied.
	DoApply
	// Tail: the log ended at Seq when the answer to the last Get was given.
	// Next returns it once.
	Tail
	// Halt: the log is damaged; see Err. Next returns nothing else after that.
	Halt
)

// Action is one step that a Protocol asks for.
type Action struct {
	Do      Do
	Seq, To format.Seq
}

// Claim is a commit that wants the next slot.
type Claim struct {
	Seq  format.Seq
	Hash format.Hash
	Sent bool // a Create of it may be under way, now or later
}

// Window is how many slots are read ahead at most.
const Window = 64

// streakMax is the streak from which on the whole window is read ahead.
const streakMax = 8

// Protocol decides. The caller gives it every answer of the store and performs the
// steps that Next returns. It is not safe for concurrent use.
type Protocol struct {
	deleteDelay, margin time.Duration

	applied format.Seq
	tip     format.Hash

	// lease is the stamp of the last List that showed no checkpoint newer than
	// what was applied: c. Zero before the first.
	lease Stamp
	// expired: an answer is in hand that the lease does not cover.
	expired bool
	// newer is the newest checkpoint of a later List, above what is applied;
	// Seq 0 if there is none. The old lease may still cover the way there.
	newer struct {
		seq   format.Seq
		at    Stamp
		end   format.Seq // the last slot that log/ held then
		ended bool       // end is known
	}
	// known is the highest slot seen to exist.
	known format.Seq
	// gone is the newest checkpoint that was listed and could not be loaded.
	// The slots that it covers were written, so a later one must exist.
	gone format.Seq
	// ended: a List showed nothing in log/ above end.
	ended bool
	end   format.Seq
	// more: the last List showed slots up to known and told that others follow.
	// Until a read finds none, reading on is cheaper than a List of each page.
	more bool
	// settled: everything up to such an end was applied since the start, so
	// no slot at the end of the log can have been deleted unseen.
	settled bool

	claim   Claim
	sync    bool       // the caller waits for the end of the log
	streak  uint       // reads in a row that did not find the end of the log
	upTo    format.Seq // of the last read
	answers []Answer   // of slots above applied, fewer than Window

	peak time.Time // largest store time ever seen
	mark time.Time // the same since the last List
	halt error
}

// NewProtocol returns the protocol of a broker that has read nothing yet.
func NewProtocol(deleteDelay, margin time.Duration) Protocol {
	return Protocol{deleteDelay: deleteDelay, margin: margin}
}

// Position returns the applied slot and the hash of its head.
func (p *Protocol) Position() (format.Seq, format.Hash) { return p.applied, p.tip }

// Known returns the highest slot that is known to exist or to have existed.
func (p *Protocol) Known() format.Seq { return max(p.known, p.applied, p.covered()) }

// covered returns the highest slot that a checkpoint covers of those that were
// listed as newer.
func (p *Protocol) covered() format.Seq { return max(p.newer.seq, p.gone) }

// Settled reports whether recovery has reached the end of the log.
func (p *Protocol) Settled() bool { return p.settled }

// Err returns why the protocol halted, or nil.
func (p *Protocol) Err() error { return p.halt }

// Claim returns the open claim; its Seq is 0 without one.
func (p *Protocol) Claim() Claim { return p.claim }

// Sync asks for the end of the log to be read, until Next answers Tail.
func (p *Protocol) Sync() {
	p.sync = true
	// An end that was seen before the sync does not count.
	p.answers = slices.DeleteFunc(p.answers, func(a Answer) bool { return !a.Found })
}

// Relist asks for a List before anything else, since a reader holds an answer
// that the lease does not cover.
func (p *Protocol) Relist() { p.expired = true }

// Propose claims the slot after the applied one. There must be no other claim.
func (p *Protocol) Propose(h format.Hash) {
	if p.claim.Seq != 0 {
		panic("commitlog: a claim is open")
	}
	p.claim = Claim{Seq: p.applied + 1, Hash: h}
}

// Abandon ends the claim, if there is one, because its caller no longer waits, and
// returns it. If it was sent, its outcome is unknown: it must never be sent
// again, and a commit in its slot counts as that of another broker.
func (p *Protocol) Abandon() Claim {
	c := p.claim
	p.claim = Claim{}
	return c
}

// Covers reports whether the lease on the past covers an answer given at that
// time: then nothing that the state needs can have been deleted before it.
func (p *Protocol) Covers(at Stamp) bool {
	return !at.Store.Before(p.mark.Add(-p.margin/4)) && p.reaches(p.lease, at)
}

// reaches reports whether a lease that began with a List at c covers at: strictly
// less than D - margin later, by the store's clock and by the local one.
func (p *Protocol) reaches(c, at Stamp) bool {
	span := p.deleteDelay - p.margin
	return !c.Store.IsZero() && !at.Store.IsZero() &&
		at.Store.Before(c.Store.Add(span)) && at.Boot-c.Boot < span
}

// answer returns the held answer about a slot; its Seq is 0 without one.
func (p *Protocol) answer(s format.Seq) Answer {
	for _, a := range p.answers {
		if a.Seq == s {
			return a
		}
	}
	return Answer{}
}

// Held reports whether the protocol holds an answer about a slot, so that the caller
// need not ask again.
func (p *Protocol) Held(s format.Seq) bool { return p.answer(s).Seq == s }

// forget drops the answers about slots up to s.
func (p *Protocol) forget(s format.Seq) {
	p.answers = slices.DeleteFunc(p.answers, func(a Answer) bool { return a.Seq <= s })
}

// Clone returns an independent copy.
func (p *Protocol) Clone() Protocol {
	c := *p
	c.answers = slices.Clone(p.answers)
	return c
}

// Next returns what to do now; boot is the local clock since boot.
func (p *Protocol) Next(boot time.Duration) Action {
	if p.halt != nil {
		return Action{Do: Halt}
	}
	n := p.applied + 1
	if a := p.answer(n); a.Seq == n && !p.expired && !p.lease.Store.IsZero() {
		switch {
		case !a.listed && !p.Covers(a.At):
			p.expired = true
		case a.Found && a.Prev != p.tip:
			return p.stop(fmt.Errorf("%w: log slot %d follows %v, but slot %d is %v", ErrFork, n, a.Prev, p.applied, p.tip))
		case a.Found:
			return Action{Do: DoApply, Seq: n}
		default:
			return p.missing(a)
		}
	}
	switch {
	case p.newer.seq != 0 && (p.expired || p.lease.Store.IsZero()):
		return Action{Do: DoLoad, Seq: p.newer.seq}
	case p.expired || p.lease.Store.IsZero():
		return Action{Do: DoList, Seq: p.applied}
	case p.Known() >= n:
		return p.read(n)
	case !p.settled && p.more:
		return p.read(n)
	case !p.settled:
		return Action{Do: DoList, Seq: p.applied}
	case (p.sync || p.claim.Seq != 0) && boot-p.lease.Boot >= p.deleteDelay/2:
		return Action{Do: DoList, Seq: p.applied}
	case p.claim.Seq != 0:
		p.claim.Sent = true
		return Action{Do: DoCreate, Seq: n}
	case p.sync:
		return p.read(n)
	}
	return Action{}
}

// read asks for the next slots: those that are known to exist, and more with
// every read that did not find the end, so that a broker that is slower than
// the writers catches up. While the last List was cut off after a page, a
// recovery reads on beyond that page.
func (p *Protocol) read(n format.Seq) Action {
	to := max(p.Known(), n)
	if p.settled {
		if p.claim.Seq == n { // a lost race: more slots may be taken by now
			to = max(to, n+1)
		}
		to = max(to, n+format.Seq(1)<<p.streak/4)
	} else if p.more {
		to = n + Window
	}
	p.upTo = min(to, p.applied+Window-1)
	return Action{Do: DoGet, Seq: n, To: p.upTo}
}

// missing decides what a 404 at the next slot means. The lease covers it.
func (p *Protocol) missing(a Answer) Action {
	p.forget(a.Seq)
	switch {
	case a.Known > a.Seq || a.Known == a.Seq && p.covered() >= a.Seq:
		return p.stop(fmt.Errorf("%w: log slot %d is missing, although slot %d exists or a checkpoint covers it",
			ErrLoss, a.Seq, max(a.Known, p.covered())))
	case p.known > a.Seq || p.covered() >= a.Seq:
		// The slot was seen after the request was sent: this proves nothing, ask again.
		return p.read(a.Seq)
	case !p.settled && p.more && p.known <= p.applied:
		// The recovery read beyond a List that was cut off, and found no more. Another
		// List reports whether this is the end or a hole, behind which commits exist.
		p.more = false
		p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return !b.Found })
		return Action{Do: DoList, Seq: p.applied}
	}
	p.more = false
	// This also covers a slot that an answer to a Create said to exist: the 404
	// decides nothing then, and a claim for it goes on.
	p.known = p.applied
	p.sync = false
	p.streak = 0
	return Action{Do: Tail, Seq: p.applied}
}

func (p *Protocol) stop(err error) Action {
	p.halt = err
	return Action{Do: Halt}
}

// observe takes note of the store's time; it halts when that fell too far.
func (p *Protocol) observe(t time.Time) {
	if t.IsZero() || p.halt != nil {
		return
	}
	if t.Before(p.peak.Add(-p.margin)) {
		p.stop(fmt.Errorf("%w: it says %s after %s", ErrClock, t.Format(time.RFC3339), p.peak.Format(time.RFC3339)))
		return
	}
	if t.After(p.peak) {
		p.peak = t
	}
	if t.After(p.mark) {
		p.mark = t
	}
}

// Answered takes the answer to a Get of a slot.
func (p *Protocol) Answered(a Answer) {
	p.observe(a.At.Store)
	if a.Found {
		p.known = max(p.known, a.Seq)
		if a.Seq == p.upTo {
			p.streak = min(p.streak+1, streakMax)
		}
	}
	if a.Seq <= p.applied || a.Seq >= p.applied+Window {
		return
	}
	if !a.Found && a.Seq != p.applied+1 && a.Known >= a.Seq {
		return // a 404 that could mean a loss is asked for again when it is the next slot
	}
	p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return b.Seq == a.Seq })
	p.answers = append(p.answers, a)
}

// Created takes the success of a Create of a claim. If the claim ended while the reply
// was on its way, the reply means nothing.
func (p *Protocol) Created(s format.Seq, h format.Hash, at Stamp) {
	if p.claim.Seq != s || p.claim.Hash != h {
		p.observe(at.Store)
		return
	}
	p.Answered(Answer{Seq: s, Found: true, Hash: h, Prev: p.tip, At: at})
}

// Exists takes the answer that a slot is taken, by this broker or another.
func (p *Protocol) Exists(s format.Seq, at Stamp) {
	p.observe(at.Store)
	p.known = max(p.known, s)
}

// Listed takes the answer to a List. One without a date changes nothing.
func (p *Protocol) Listed(l Listing) {
	if l.At.Store.IsZero() {
		return
	}
	p.observe(l.At.Store)
	p.observe(l.LogAt.Store)
	if p.halt != nil {
		return
	}
	p.known = max(p.known, l.Last)
	p.more = l.More
	if l.Checkpoint > p.applied {
		if !p.Covers(l.At) {
			p.expired = true
		}
		p.newer.seq, p.newer.at = l.Checkpoint, l.At
		p.newer.end = max(l.Last, l.Checkpoint)
		p.newer.ended = l.From == l.Checkpoint && !l.More && p.reaches(l.At, l.LogAt)
		return
	}
	if !p.reaches(l.At, l.LogAt) {
		p.expired = true // the two Lists are too far apart to be held together
		return
	}
	if p.applied > 0 && l.Checkpoint < p.applied && l.From == p.applied && l.First != p.applied {
		p.stop(fmt.Errorf("%w: log slot %d was applied and is gone, and no checkpoint covers it", ErrRolledBack, p.applied))
		return
	}
	p.renew(l.At)
	for i := range p.answers {
		if p.answers[i].Seq > p.applied {
			p.answers[i].listed = true
		}
	}
	if l.From == p.applied && !l.More {
		p.ended, p.end = true, max(l.Last, p.applied)
		p.settle()
	}
}

// settle ends the recovery once the end that a List showed is applied. It does not wait for
// later commits: the end of a busy log never stands still.
func (p *Protocol) settle() { p.settled = p.settled || p.ended && p.applied >= p.end }

func (p *Protocol) renew(at Stamp) {
	p.lease = at
	p.mark = at.Store
	p.expired = false
	p.newer.seq = 0
}

// Loaded tells that the checkpoint that Next named has replaced the state; h is the
// hash in it. It returns the claim that this ended, if it was sent: its outcome is
// unknown for ever. A claim that was never sent just ends.
func (p *Protocol) Loaded(s format.Seq, h format.Hash) (ended Claim) {
	if s != p.newer.seq || s <= p.applied {
		panic("commitlog: load of a checkpoint that was not asked for")
	}
	if p.claim.Seq <= s {
		if p.claim.Sent {
			ended = p.claim
		}
		p.claim = Claim{}
	}
	p.applied, p.tip = s, h
	p.forget(s)
	if p.newer.ended {
		p.ended, p.end = true, p.newer.end
	}
	p.settle()
	p.renew(p.newer.at)
	return ended
}

// LoadMissing tells that the checkpoint that Next named is gone. A newer one
// must have replaced it, so the protocol lists again. Without a newer one the checkpoint
// is lost with what it covers, and the log must not count as one that ends below it.
func (p *Protocol) LoadMissing() {
	p.gone = max(p.gone, p.newer.seq)
	p.newer.seq = 0
	p.expired = true
}

// Applied tells that the commit of the next slot was applied. It returns
// whether that was the claim's commit. The claim ends either way.
func (p *Protocol) Applied() (own bool) {
	n := p.applied + 1
	a := p.answer(n)
	if a.Seq != n || !a.Found {
		panic("commitlog: applied without an answer")
	}
	own = p.claim.Seq == n && p.claim.Hash == a.Hash
	if own {
		p.streak = 0
	}
	if p.claim.Seq == n {
		// A lost race may be the first of many: reading to the end is cheaper than
		// sending the payload to one slot after the other.
		p.sync = p.sync || !own
		p.claim = Claim{}
	}
	p.applied, p.tip = n, a.Hash
	p.forget(n)
	p.settle()
	if p.newer.seq != 0 && n >= p.newer.seq {
		p.renew(p.newer.at)
	}
	return own
}
