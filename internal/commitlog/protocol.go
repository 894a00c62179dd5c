package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

var (
	// ErrLoss says that a slot that brokers still need is gone. The broker halts, since it never skips a slot.
	ErrLoss = errors.New("the log has lost a commit")
	// ErrPageLost says that a page which the newest checkpoint needs is gone.
	ErrPageLost = errors.New("the log has lost a page of its state")
	// ErrFork says that a commit or a checkpoint contradicts the commits that this broker has applied. The store may
	// ignore the conditions of writes, or the bucket may have been restored from a copy.
	ErrFork = errors.New("the log has forked")
	// ErrRolledBack says that the bucket lacks commits that this broker has seen.
	ErrRolledBack = errors.New("the bucket was rolled back")
	// ErrClock says that the store's time fell by more than the margin in seb.json.
	ErrClock = errors.New("the store's clock stepped back")
)

// Stamp tells when the store executed a request.
type Stamp struct {
	// Store is the store's time; zero if the answer had no date.
	Store time.Time
	// Boot is a local time since boot, including time in which the machine was suspended. For a List of
	// checkpoint/, which begins a lease, Boot is when the List was sent. For other requests, it is when
	// the answer arrived. So by this clock a lease may only end too early, never too late.
	Boot time.Duration
}

// Answer is what the store said about one slot.
type Answer struct {
	Seq   format.Seq
	Found bool
	// Hash and Prev are the hashes of the found commit and of the commit before it.
	Hash, Prev format.Hash
	At         Stamp
	// Known is what [Protocol.Known] returned when the request was sent. A 404 means a loss only if the
	// broker knew at that time that the slot existed.
	Known format.Seq

	// listed is true if the protocol, after it got the answer, sent a List that showed no checkpoint
	// above the applied slot. That proves that the slots after the applied one had not been deleted
	// when the store gave the answer.
	listed bool
	// told is true if the answer comes from another broker, and not from the store: see [Protocol.Told].
	told bool
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
	// First and Last are the first and the last slot that the List of log/ showed, or 0. The List
	// began at From.
	First, Last format.Seq
	// More is true if log/ has more keys after Last.
	More bool
	// LogAt is the stamp of the List of log/. Unlike in At, Boot is when the answer arrived.
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
	// LoadMissing if the checkpoint is gone, or PageMissing if a page of it is.
	DoLoad
	// DoGet: Get the heads of slots Seq to To; answer each with Answered.
	DoGet
	// DoCreate: Create slot Seq with the commit of the claim; answer with Created or Exists, or not
	// at all if the outcome is unknown. When Next returns DoCreate, it marks the claim as sent.
	DoCreate
	// DoApply: apply the commit of slot Seq, which the caller has already; answer with Applied.
	DoApply
	// Tail: the log ended at Seq when the store answered the last Get. Next returns Tail once for
	// each such answer.
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
	Sent bool // a Create may have been sent, and may reach the store at any time
}

// Window is the largest number of slots that a broker reads ahead of the applied slot.
const Window = 64

// streakMax is the largest value of Protocol.streak. At this value, each read asks for a whole Window of
// slots.
const streakMax = 8

// Protocol makes all decisions about the log. The caller performs the steps that Next returns,
// and passes every answer of the store to the Protocol. A Protocol is not safe for concurrent use.
type Protocol struct {
	deleteDelay, margin time.Duration

	applied format.Seq  // the last slot whose commit is applied: the applied slot
	tip     format.Hash // the hash of the head in the applied slot

	// lease is the beginning of the log lease: the stamp of the last List that showed no
	// checkpoint above the applied slot. Zero before the first such List.
	lease Stamp
	// expired is true if a List must renew the lease. The usual reason is that the protocol, or the
	// caller of Relist, got an answer from the store that the lease does not cover.
	expired bool
	// newer is the newest checkpoint above the applied slot that Lists have shown since the lease
	// began; newer.seq is 0 if there is none. Such a List does not end the lease: until the lease
	// ends by itself, the broker may still read the commits up to the checkpoint.
	newer struct {
		seq   format.Seq
		at    Stamp
		end   format.Seq // the last slot that the same List showed in log/, or seq if that is larger
		ended bool       // the List showed that no slot follows end
	}
	// known is the highest slot that the store's answers have shown to exist.
	known format.Seq
	// gone is the newest checkpoint that a List showed but a Get did not find. Brokers delete a
	// checkpoint only when a newer one exists.
	gone format.Seq
	// incomplete is the newest checkpoint of which a page was gone, and page is the key of that page.
	incomplete struct {
		seq  format.Seq
		page string
	}
	// end is the last slot of the log, according to the latest List that reached the end of log/. ended
	// is true if there was such a List.
	ended bool
	end   format.Seq
	// more is true if the last List showed only its first page of slots, and said that more follow.
	// Then the protocol reads slots until a read finds none, since that is cheaper than to list
	// every page.
	more bool
	// settled is true once recovery is complete: a List has shown the end of the log, and all slots
	// up to that end are applied.
	settled bool

	claim   Claim
	sync    bool       // the caller wants the log to be read to its end
	streak  uint       // number of reads in a row that did not find the end of the log
	upTo    format.Seq // the highest slot that the last read asked for
	answers []Answer   // the answers about slots after p.applied; always fewer than Window

	peak time.Time // largest store time ever seen
	mark time.Time // largest store time seen since the last List
	halt error
}

// NewProtocol returns the protocol of a broker that has read nothing yet.
func NewProtocol(deleteDelay, margin time.Duration) Protocol {
	return Protocol{deleteDelay: deleteDelay, margin: margin}
}

// Position returns the last applied slot and the hash of its head.
func (p *Protocol) Position() (format.Seq, format.Hash) { return p.applied, p.tip }

// Known returns the highest slot that is known to exist, or to have existed.
func (p *Protocol) Known() format.Seq { return max(p.known, p.applied, p.covered()) }

// covered returns the slot of the newest checkpoint that is known from a List but was not loaded: p.newer,
// which is above the applied slot, or p.gone. It returns 0 if there is no such checkpoint. All slots
// up to the returned one have existed.
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
	// Forget a 404 from before the sync: it does not prove that the log ends there now.
	p.answers = slices.DeleteFunc(p.answers, func(a Answer) bool { return !a.Found })
}

// Unsync ends what Sync began: the caller no longer needs to know where the log ends.
func (p *Protocol) Unsync() { p.sync = false }

// Relist makes Next ask for a List before other steps. The caller calls Relist when it has got an answer
// (such as a batch) that the lease does not cover.
func (p *Protocol) Relist() { p.expired = true }

// Propose claims the slot after the applied one, for the commit with the hash h. There must be no open
// claim.
func (p *Protocol) Propose(h format.Hash) {
	if p.claim.Seq != 0 {
		panic("commitlog: a claim is open")
	}
	p.claim = Claim{Seq: p.applied + 1, Hash: h}
}

// Abandon ends the open claim, if there is one, and returns it. If the claim was sent, its
// outcome is unknown. Then the caller must never send that commit again. If the commit turns up in
// the log, the caller must treat it as another broker's commit.
func (p *Protocol) Abandon() Claim {
	c := p.claim
	p.claim = Claim{}
	return c
}

// Unsent notes that the Create which Next has asked for did nothing and never will, and neither did any
// other Create of the open claim. So the claim counts as not sent.
func (p *Protocol) Unsent() { p.claim.Sent = false }

// Covers reports whether the log lease covers an answer with the given stamp. If so, no object
// that the applied state still needs had been deleted when the store gave the answer. The lease
// does not cover an answer whose date is earlier than the latest date since the last List by more
// than a quarter of the margin.
func (p *Protocol) Covers(at Stamp) bool {
	return !at.Store.Before(p.mark.Add(-p.margin/4)) && p.reaches(p.lease, at)
}

// reaches reports whether a lease that began with a List at c has not ended at the time at. A lease
// lasts for deleteDelay - margin, by the store's clock and by the local clock.
func (p *Protocol) reaches(c, at Stamp) bool {
	span := p.deleteDelay - p.margin
	return !c.Store.IsZero() && !at.Store.IsZero() &&
		at.Store.Before(c.Store.Add(span)) && at.Boot-c.Boot < span
}

// answer returns the stored answer about slot s, or an Answer whose Seq is 0.
func (p *Protocol) answer(s format.Seq) Answer {
	for _, a := range p.answers {
		if a.Seq == s {
			return a
		}
	}
	return Answer{}
}

// Held reports whether the protocol has stored an answer about slot s. If so, the caller need not
// read the slot again.
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

// fits reports whether a commit that another broker has sent may be applied now.
func (p *Protocol) fits(a Answer) bool { return a.Prev == p.tip && !p.expired && p.Covers(a.At) }

// CanApply reports whether Next would ask for the next commit to be applied. Unlike Next, it changes nothing. An open
// claim is for the slot of that commit: if CanApply is true, it is known who has won the slot.
func (p *Protocol) CanApply() bool {
	a := p.answer(p.applied + 1)
	return p.halt == nil && a.Found && !p.expired && a.Prev == p.tip && (a.listed || p.Covers(a.At))
}

// Gap reports whether commits that other brokers have sent wait for one that has not come.
func (p *Protocol) Gap() bool {
	return !p.CanApply() && slices.ContainsFunc(p.answers, func(a Answer) bool { return a.told && a.Seq > p.applied })
}

// Young reports whether the log lease is so young that no List is due to renew it.
func (p *Protocol) Young(boot time.Duration) bool {
	return !p.expired && !p.lease.Store.IsZero() && boot-p.lease.Boot < p.deleteDelay/2
}

// Next returns the next step; boot is the local time since boot.
func (p *Protocol) Next(boot time.Duration) Action {
	if p.halt != nil {
		return Action{Do: Halt}
	}
	n := p.applied + 1
	if a := p.answer(n); a.told && !p.fits(a) {
		p.forget(n) // read the slot from the store
	}
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
	case (p.sync || p.claim.Seq != 0) && !p.Young(boot):
		return Action{Do: DoList, Seq: p.applied}
	case p.claim.Seq != 0:
		p.claim.Sent = true
		return Action{Do: DoCreate, Seq: n}
	case p.sync:
		return p.read(n)
	}
	return Action{}
}

// read asks for slot n and the slots after it, at least for all that are known to exist, but not beyond
// the Window. After each read that did not find the end of the log, it asks for more slots at a time, so
// that a broker that has fallen behind catches up. During a recovery, if the last List had more than
// one page, it asks for a whole Window.
func (p *Protocol) read(n format.Seq) Action {
	to := max(p.Known(), n)
	if p.settled {
		if p.claim.Seq == n { // the claim may have lost the slot: other brokers may have written more slots
			to = max(to, n+1)
		}
		to = max(to, n+format.Seq(1)<<p.streak/4)
	} else if p.more {
		to = n + Window
	}
	p.upTo = min(to, p.applied+Window-1)
	return Action{Do: DoGet, Seq: n, To: p.upTo}
}

// missing decides what a 404 for the next slot means. The caller has checked that the lease covers the 404.
func (p *Protocol) missing(a Answer) Action {
	p.forget(a.Seq)
	switch {
	case a.Known > a.Seq || a.Known == a.Seq && p.covered() >= a.Seq:
		return p.stop(fmt.Errorf("%w: log slot %d is missing, although all slots up to slot %d were written",
			ErrLoss, a.Seq, max(a.Known, p.covered())))
	case p.known > a.Seq || p.covered() >= a.Seq:
		// The broker learned that the slot exists after it had sent the Get. The slot may have been
		// written after the 404, so ask again.
		return p.read(a.Seq)
	case !p.settled && p.more && p.known <= p.applied:
		// The recovery read beyond the last List's page until it found no further slot. Another List
		// shows whether the log ends here, or whether a commit is missing before other commits.
		p.more = false
		p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return !b.Found })
		return Action{Do: DoList, Seq: p.applied}
	}
	p.more = false
	// Report the end of the log even if the store has answered a Create of this slot with "exists". The
	// two answers contradict each other, so the broker relies on neither, and the claim stays open.
	p.known = p.applied
	p.sync = false
	p.streak = 0
	return Action{Do: Tail, Seq: p.applied}
}

func (p *Protocol) stop(err error) Action {
	p.halt = err
	return Action{Do: Halt}
}

// observe records the store's time t. It halts the protocol if t is earlier than the latest recorded time by
// more than the margin.
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
		return // this 404 could mean a loss: once the slot is the next one to apply, it is read again
	}
	p.answers = slices.DeleteFunc(p.answers, func(b Answer) bool { return b.Seq == a.Seq })
	p.answers = append(p.answers, a)
}

// Told takes another broker's news that it has written the commit with the hash h to slot s. The stamp at has the store's
// date in the answer that decided the slot, as the other broker states it, and the local time since boot when the news
// arrived. Told reports whether Next may ask for that commit to be applied, without a Get of the slot.
//
// Only the store is evidence. So Told records no date, and does not raise Known. If the commit does not fit when its turn
// comes, Next forgets it instead of halting, and reads the slot. An answer of the store outranks what another broker
// says, except for a 404 of a slot that nobody was known to have written: it may have been written since then.
//
// Told does not take the commit of this broker's own claim. But if the commit of the slot after the claim has the claim's
// hash as its Prev, the claim has won: its hash is unknown to others until they have read it from the store. So a broker
// that has lost the answer to its Create, and can no longer reach the store, can go on.
func (p *Protocol) Told(s format.Seq, h, prev format.Hash, at Stamp) bool {
	if p.halt != nil || !p.settled || s <= p.applied || s >= p.applied+Window || h == p.claim.Hash && s == p.claim.Seq {
		return false
	}
	if a := p.answer(s); a.Seq == s && (a.Found || a.Known >= s) {
		return false
	}
	p.answers = slices.DeleteFunc(p.answers, func(a Answer) bool { return a.Seq == s })
	p.answers = append(p.answers, Answer{Seq: s, Found: true, Hash: h, Prev: prev, At: at, told: true})
	if c := p.claim; c.Sent && s == c.Seq+1 && prev == c.Hash && !p.Held(c.Seq) {
		p.answers = append(p.answers, Answer{Seq: c.Seq, Found: true, Hash: c.Hash, Prev: p.tip, At: at, told: true})
	}
	return true
}

// Confirmed reports whether the open claim has won, according to the commit of the next slot, which another broker has sent.
func (p *Protocol) Confirmed() bool {
	a := p.answer(p.claim.Seq)
	return a.told && a.Hash == p.claim.Hash
}

// Created takes the answer that a Create of slot s succeeded. h is the hash of the created commit. If
// the claim has ended meanwhile, Created records only the time of the answer.
func (p *Protocol) Created(s format.Seq, h format.Hash, at Stamp) {
	if p.claim.Seq != s || p.claim.Hash != h {
		p.observe(at.Store)
		return
	}
	p.Answered(Answer{Seq: s, Found: true, Hash: h, Prev: p.tip, At: at})
}

// Exists takes the answer to a Create that slot s already exists. This broker or another may have
// written it.
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
	if l.Checkpoint > p.applied && l.Checkpoint == p.incomplete.seq {
		p.stop(fmt.Errorf("%w: %s is missing, and the newest checkpoint, that of slot %d, needs it", ErrPageLost, p.incomplete.page, l.Checkpoint))
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
		p.expired = true // the two Lists are too far apart in time to combine their answers
		return
	}
	if p.applied > 0 && l.Checkpoint < p.applied && l.From == p.applied && l.First != p.applied {
		p.stop(fmt.Errorf("%w: this broker applied log slot %d, which is gone now, and no checkpoint covers it", ErrRolledBack, p.applied))
		return
	}
	p.renew(l.At)
	for i := range p.answers {
		if p.answers[i].Seq > p.applied && !p.answers[i].told {
			p.answers[i].listed = true
		}
	}
	if l.From == p.applied && !l.More {
		p.ended, p.end = true, max(l.Last, p.applied)
		p.settle()
	}
}

// settle ends the recovery if all slots up to p.end, the end that a List showed, are applied. If the
// recovery also waited for later commits, it would never end on a busy log.
func (p *Protocol) settle() { p.settled = p.settled || p.ended && p.applied >= p.end }

func (p *Protocol) renew(at Stamp) {
	p.lease = at
	p.mark = at.Store
	p.expired = false
	p.newer.seq = 0
}

// Loaded notes that the caller has replaced the state by the checkpoint of slot s, which Next asked for.
// h is the hash in the checkpoint. If the checkpoint covers the claim's slot, the claim ends. If that claim
// was sent, Loaded returns it, and its outcome stays unknown for ever.
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

// LoadMissing notes that the checkpoint that Next asked for is gone. Normally a newer checkpoint has
// replaced it, so the protocol lists again. If there is no newer checkpoint, the gone one and the
// slots that it covers are lost. The protocol remembers the gone checkpoint, so that it does not
// conclude that the log ends before these slots.
func (p *Protocol) LoadMissing() {
	p.gone = max(p.gone, p.newer.seq)
	p.newer.seq = 0
	p.expired = true
}

// PageMissing notes that a page of the checkpoint that Next asked for is gone. Brokers delete a page only when a newer checkpoint has
// been in the store for long. So the protocol lists again, and if that List, which is sent after the page was gone, still shows this
// checkpoint as the newest one, the page is lost.
func (p *Protocol) PageMissing(key string) {
	p.incomplete.seq, p.incomplete.page = p.newer.seq, key
	p.LoadMissing()
}

// Applied notes that the caller has applied the commit of the next slot. It reports whether the open
// claim wrote that commit. A claim of that slot ends, whether it won or lost.
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
		// After a lost slot, read to the end of the log before the next claim: that is cheaper than to send the
		// payload to one slot after the other, which may all be taken. If the winner itself sent its commit (told),
		// this is not needed, since it sends the commits of later slots, too.
		p.sync = p.sync || !own && !a.told
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
