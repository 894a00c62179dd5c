package commitlog

import (
	"errors"
	"fmt"
	"github.com/simple-event-broker/seb/internal/format"
	"slices"
	"time"
)

var (
	// ErrLoss says that a slot that brokers still need is gone. A broker never skips a slot.
	ErrLoss = errors.New("the log has lost a commit")
	// ErrFork says that a commit does not follow the commit before it: a store without conditional
	// writes, or a restored copy, broke the order of the log.
	ErrFork = errors.New("the log has forked")
	// ErrRolledBack says that the bucket lacks commits that this broker has seen.
	ErrRolledBack = errors.New("the bucket was rolled back")
	// ErrClock says that the store's time fell by more than the margin.
	ErrClock = errors.New("the store's clock stepped back")
)

// Stamp tells when the store executed a request.
type Stamp struct {
	// Store is the store's time; zero if the answer had no date.
	Store time.Time
	// Boot is the local time since boot, including time in which the machine was suspended: for a
	// List, when it was sent; for other requests, when the answer arrived. This choice can only
	// make a lease shorter.
	Boot time.Duration
}

// Answer is what the store said about one slot.
type Answer struct {
	Seq   format.Seq
	Found bool
	// Hash and Prev are of the commit that was found.
	Hash, Prev format.Hash
	At         Stamp
	// Known is what [Protocol.Known] returned when the request was sent. A 404 is a loss only if
	// the slot was known to exist by then.
	Known format.Seq

	// listed is true if a List that was sent after the answer arrived showed no checkpoint above
	// the applied slot. Then the answer was valid when the store gave it.
	listed bool
}

// Listing is the answer to a List of checkpoint/ and then of log/.
type Listing struct {
	// At is the stamp of the List of checkpoint/.
	At Stamp
	// Checkpoint is the newest checkpoint at or above the applied slot, or 0.
	Checkpoint format.Seq
	// From is the slot from which log/ was listed: the larger of the applied
	// slot and Checkpoint.
	From format.Seq
	// First and Last are the first and the last slot, from From on, that the List of log/
	// showed, or 0.
	First, Last format.Seq
	// More is true if log/ has more keys after Last.
	More bool
	// LogAt is the stamp of the List of log/, with the local time when the answer arrived.
	LogAt Stamp
}

// Do is a kind of step that a Protocol asks for.
type Do uint8

// The steps that a Protocol can ask for, and the method by which the caller answers each.
const (
	// Idle: there is nothing to do.
	Idle Do = iota
	// DoList: List checkpoint/ and then log/; answer with Listed.
	DoList
	// DoLoad: Get checkpoint Seq and replace the state by it; answer with Loaded,
	// or LoadMissing if it is gone.
	DoLoad
	// DoGet: Get the heads of slots Seq to To; answer each with Answered.
	DoGet
	// DoCreate: Create slot Seq with the commit of the claim; answer with Created or Exists, or not
	// at all if the outcome is unknown. Once Next has returned DoCreate, the claim counts as sent.
	DoCreate
	// DoApply: apply the commit of slot Seq, which was read before; answer with Applied.
	DoApply
	// Tail: the log ended at Seq when the store answered the last Get. Next returns Tail once.
	Tail
	// Halt: the log is damaged; see Err. After that, Next returns only Halt.
	Halt
)

// Action is one step that a Protocol asks for.
type Action struct {
	Do      Do
	Seq, To format.Seq
}

// Claim is the attempt to write a commit to the next slot.
type Claim struct {
	Seq  format.Seq
	Hash format.Hash
	Sent bool // a Create may have been sent, and may still reach the store
}

// Window is the largest number of slots that are read ahead.
const Window = 64

// streakMax is the largest value of Protocol.streak. With it, the protocol reads a whole Window
// ahead.
const streakMax = 8

// Protocol makes all decisions about the log. The caller performs the steps that Next returns,
// and passes every answer of the store to the Protocol. It is not safe for concurrent use.
type Protocol struct {
	deleteDelay, margin time.Duration

	applied format.Seq
	tip     format.Hash

	// lease is the beginning of the log lease: the stamp of the last List that showed no
	// checkpoint above the applied slot. Zero before the first such List.
	lease Stamp
	// expired is true if a List must renew the lease, mostly because the protocol or a reader
	// has an answer that the lease does not cover.
	expired bool
	// newer is the newest checkpoint above the applied slot that a List showed after the List with
	// which the lease began; newer.seq is 0 if there is none. The lease does not end with such a
	// List: the commits up to the checkpoint may still be read under it.
	newer struct {
		seq   format.Seq
		at    Stamp
		end   format.Seq // the last slot that log/ had at that List
		ended bool       // end is known
	}
	// known is the highest slot that an answer showed to exist.
	known format.Seq
	// gone is the newest checkpoint that a List showed and a Get did not find. The slots that it
	// covers were written, so a later checkpoint must exist.
	gone format.Seq
	// end is the last slot that a List showed in log/; ended is true if that List showed that no
	// slot follows.
	ended bool
	end   format.Seq
	// more is true if the last List showed slots up to known, and said that more follow. Until a
	// read finds no further slot, reading on is cheaper than listing every page.
	more bool
	// settled is true once recovery is complete: all slots up to an end that a List showed are
	// applied. So no slot at the end of the log can have been deleted unnoticed.
	settled bool

	claim   Claim
	sync    bool       // the log is to be read to its end
	streak  uint       // number of reads in a row that did not find the end of the log
	upTo    format.Seq // the last slot that the last read asked for
	answers []Answer   // the answers about slots after p.applied; always fewer than Window

	peak time.Time // largest store time ever seen
	mark time.Time // largest store time seen since the last List
	halt error
}

// NewProtocol returns the protocol of a broker that has read nothing yet.
func NewProtocol(deleteDelay, margin time.Duration) Protocol {
	return Protocol{deleteDelay: deleteDelay, margin: margin}
}

// Position returns the applied slot and the hash of its head.
func (p *Protocol) Position() (format.Seq, format.Hash) { return p.applied, p.tip }

// Known returns the highest slot that is known to exist, or to have existed.
func (p *Protocol) Known() format.Seq { return max(p.known, p.applied, p.covered()) }

// covered returns the slot of the newest checkpoint that a List showed but that was not loaded,
// or 0. All slots up to it were written once.
func (p *Protocol) covered() format.Seq { return max(p.newer.seq, p.gone) }

// Settled reports whether recovery has reached the end of the log.
func (p *Protocol) Settled() bool { return p.settled }

// Err returns why the protocol halted, or nil.
func (p *Protocol) Err() error { return p.halt }

// Claim returns the open claim; its Seq is 0 if there is none.
func (p *Protocol) Claim() Claim { return p.claim }

// Sync makes Next ask for reads until they reach the end of the log, which Next reports as Tail.
func (p *Protocol) Sync() {
	p.sync = true
	// An end that was seen before the sync does not count.
	p.answers = slices.DeleteFunc(p.answers, func(a Answer) bool { return !a.Found })
}

// Relist makes Next ask for a List first. The caller calls it when a reader has an answer that
// the lease does not cover.
func (p *Protocol) Relist() { p.expired = true }

// Propose claims the slot after the applied one. There must be no other claim.
func (p *Protocol) Propose(h format.Hash) {
	if p.claim.Seq != 0 {
		panic("commitlog: a claim is open")
	}
	p.claim = Claim{Seq: p.applied + 1, Hash: h}
}

// Abandon ends the open claim, if there is one, and returns it. If the claim was sent, its
// outcome is unknown: the caller must never send the claim again, and must treat a commit in the
// claim's slot as that of another broker.
func (p *Protocol) Abandon() Claim {
	c := p.claim
	p.claim = Claim{}
	return c
}

// Covers reports whether the log lease covers an answer with the given stamp. If so, nothing
// that the applied state still needs had been deleted when the store gave the answer. The lease
// does not cover an answer whose date is older than the newest one by more than a quarter of the
// margin.
func (p *Protocol) Covers(at Stamp) bool {
	return !at.Store.Before(p.mark.Add(-p.margin/4)) && p.reaches(p.lease, at)
}

// reaches reports whether a lease that began with a List at c covers at: whether at is less than
// deleteDelay - margin later than c, by the store's clock and by the local one.
func (p *Protocol) reaches(c, at Stamp) bool {
	span := p.deleteDelay - p.margin
	return !c.Store.IsZero() && !at.Store.IsZero() &&
		at.Store.Before(c.Store.Add(span)) && at.Boot-c.Boot < span
}

// answer returns the answer about a slot that the protocol holds, or an Answer whose Seq is 0.
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

// Next returns the next step; boot is the local time since boot.
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
			return p.stop(fmt.Errorf("%w: the commit in log slot %d gives %v as the hash of the previous commit, but the commit in log slot %d has the hash %v", ErrFork, n, a.Prev, p.applied, p.tip))
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

// read asks for the next slots, at least all that are known to exist. After each read that did
// not find the end it asks for more slots at once, so that a broker that has fallen behind
// catches up. A recovery whose last List had more than one page reads a whole Window.
func (p *Protocol) read(n format.Seq) Action {
	to := max(p.Known(), n)
	if p.settled {
		if p.claim.Seq == n { // lost a race: more slots may be taken by now
			to = max(to, n+1)
		}
		to = max(to, n+format.Seq(1)<<p.streak/4)
	} else if p.more {
		to = n + Window
	}
	p.upTo = min(to, p.applied+Window-1)
	return Action{Do: DoGet, Seq: n, To: p.upTo}
}

// missing decides what a 404 for the next slot means. The lease covers the answer.
func (p *Protocol) missing(a Answer) Action {
	p.forget(a.Seq)
	switch {
	case a.Known > a.Seq || a.Known == a.Seq && p.covered() >= a.Seq:
		return p.stop(fmt.Errorf("%w: log slot %d is missing, although all slots up to slot %d were written",
			ErrLoss, a.Seq, max(a.Known, p.covered())))
	case p.known > a.Seq || p.covered() >= a.Seq:
		// The slot became known only after the request was sent, so the 404 proves nothing: ask
		// again.
		return p.read(a.Seq)
	case !p.settled && p.more && p.known <= p.applied:
		// The recovery read beyond the last List's page and found no more. Another List shows
		// whether this is the end of the log, or a hole before other commits.
		p.more = false
		p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return !b.Found })
		return Action{Do: DoList, Seq: p.applied}
	}
	p.more = false
	// The log ends here even if a Create of the slot was answered "exists": then the two answers
	// contradict each other, so neither decides the slot, and the claim stays open.
	p.known = p.applied
	p.sync = false
	p.streak = 0
	return Action{Do: Tail, Seq: p.applied}
}

func (p *Protocol) stop(err error) Action {
	p.halt = err
	return Action{Do: Halt}
}

// observe records the store's time, and halts the protocol if that time fell by more than the
// margin.
func (p *Protocol) observe(t time.Time) {
	if t.IsZero() || p.halt != nil {
		return
	}
	if t.Before(p.peak.Add(-p.margin)) {
		p.stop(fmt.Errorf("%w: a response has the date %s, after one with the date %s", ErrClock, t.Format(time.RFC3339), p.peak.Format(time.RFC3339)))
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
		return // this 404 could mean a loss: the slot is read again once it is the next one
	}
	p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return b.Seq == a.Seq })
	p.answers = append(p.answers, a)
}

// Created takes the answer that a Create of slot s with the commit h succeeded. If the claim has
// ended since, only the time of the answer counts.
func (p *Protocol) Created(s format.Seq, h format.Hash, at Stamp) {
	if p.claim.Seq != s || p.claim.Hash != h {
		p.observe(at.Store)
		return
	}
	p.Answered(Answer{Seq: s, Found: true, Hash: h, Prev: p.tip, At: at})
}

// Exists takes the answer to a Create that the slot is already taken, by this broker or another.
func (p *Protocol) Exists(s format.Seq, at Stamp) {
	p.observe(at.Store)
	p.known = max(p.known, s)
}

// Listed takes the answer to a List. It ignores an answer without a date.
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
		p.expired = true // the time between the two Lists is too long to combine their answers
		return
	}
	if p.applied > 0 && l.Checkpoint < p.applied && l.From == p.applied && l.First != p.applied {
		p.stop(fmt.Errorf("%w: this broker applied log slot %d, which is gone now, and no checkpoint covers it", ErrRolledBack, p.applied))
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

// settle ends the recovery once the end that a List showed is applied. If the recovery also waited
// for later commits, it would never end on a busy log.
func (p *Protocol) settle() { p.settled = p.settled || p.ended && p.applied >= p.end }

func (p *Protocol) renew(at Stamp) {
	p.lease = at
	p.mark = at.Store
	p.expired = false
	p.newer.seq = 0
}

// Loaded notes that the caller has replaced the state by the checkpoint that Next named; h is
// the hash in the checkpoint. If this ends a claim that was sent, Loaded returns that claim: the
// claim's outcome stays unknown for ever. A claim that was never sent just ends.
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

// LoadMissing notes that the checkpoint that Next named is gone. A newer checkpoint must have
// replaced it, so the protocol lists again. If there is no newer checkpoint, the missing one and
// the slots that it covers are lost; then the protocol must not believe that the log ends below
// these slots.
func (p *Protocol) LoadMissing() {
	p.gone = max(p.gone, p.newer.seq)
	p.newer.seq = 0
	p.expired = true
}

// Applied notes that the caller has applied the commit of the next slot. It reports whether this
// broker's claim wrote that commit. A claim of that slot ends either way.
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
