package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
)

const (
	// peerInlineMax is the largest payload that a broker hands over; a larger one goes into data objects first.
	peerInlineMax = 256 << 10
	// lostInlineMax replaces peerInlineMax in a broker that can't store data objects.
	lostInlineMax = 1 << 20
	// quietFor is how long a broker offers nothing after a call for which it had nothing.
	quietFor = 10 * time.Millisecond
	// vainMax is how many turns in a row a broker uses in vain, before it reads the store to find out whether it answers.
	vainMax = 3
	// lostAfter is how long the store does not answer until a broker counts it as lost.
	lostAfter = 3 * time.Second
	// heldMax is how many commits a broker writes at most while it has a bundle of this broker in hand.
	heldMax = 2
)

// sending is what this broker knows as one that hands its requests over to the winner: the broker that commits for all.
type sending struct {
	offered format.SessionID // to whom this broker has offered its requests since the last commit; zero if to nobody
	sentTo  format.SessionID // who has got the undecided bundle since the last commit
	rideTo  format.SessionID // who knows since the last commit of requests of this broker that ride
	asked   format.SessionID // whom it has asked for the next slot since the last commit
	granted format.Seq       // a slot after which this broker may claim one
	vain    int              // how many turns in a row it has not won the slot that was left to it

	unwanted format.SessionID // the winner, if it has refused a bundle although it goes on: then this broker asks for a slot
	passed   int              // commits of the winner since the bundle was in its hand
	behind   format.Seq       // a slot that the winner has applied; this broker may have missed it
	quiet    time.Time        // until then, this broker offers nothing

	winnerFails bool // the store fails the winner: requests that have not left this broker can still be withdrawn

	left     string // why this broker has stopped waiting for the winner
	fallback string // why this broker writes its next commit although another one commits for all, or ""
}

// The reasons to stop waiting for the broker that commits for all.
const (
	leftSilence   = "silence"
	leftRefused   = "refused"
	leftBroken    = "connection"
	leftStoreSlow = "store"
)

// leave stops waiting for a session, if that is the broker that commits for all.
func (e *Engine) leave(session handover.Session, reason string) {
	if session == e.hand.winner.Session() && e.hand.left == "" {
		e.hand.left = reason
	}
	e.hand.winner.Leave(session, e.hand.now(), e.answerPause())
}

// planAsSender offers the requests to the broker that commits for all, or asks it for the next slot. decided is false if this
// broker claims a slot itself.
func (e *Engine) planAsSender(winner format.SessionID, wait time.Duration, ok, undecided bool) (_ plan, decided bool) {
	h := &e.hand
	applied, _ := e.log.Position()
	if h.granted != 0 && h.granted == applied {
		return plan{}, false
	}
	turn := h.winner.Turn(h.now(), true, e.commitTime(), e.answerPause())
	if turn.Do != handover.Offer && h.left == "" {
		h.left = leftSilence
		e.mesh.Silent(winner)
	}
	if turn.Do == handover.Claim {
		h.fallback = h.left
		return plan{}, false
	}
	until := plan{wait: max(0, turn.Until-h.now()), ok: true}
	if turn.Do == handover.Wait {
		return until, true
	}
	_, mayOffer := h.sender.Next()
	switch {
	case !undecided && e.storeIsLost():
		e.refuseUnfit()
	case h.vain >= vainMax:
		h.vain = 0
		return plan{sync: true}, true // find out whether the store answers this broker
	}
	fits := e.batcher.fits()
	needsTurn := h.unwanted == winner && !e.storeIsLost() || !undecided && !fits
	switch {
	case h.behind > applied: // a commit was not sent: the store has it
		return plan{sync: true}, true
	case !undecided && !mayOffer: // another process seals bundles under this session
		return plan{}, false
	case !undecided && !e.log.Young() && !e.storeFails(): // else a checkpoint may be loaded while the bundle is on its way
		return plan{sync: true}, true
	case time.Now().Before(h.quiet):
		return plan{wait: time.Until(h.quiet), ok: true}, true
	case needsTurn && !undecided && e.storeFails(): // a claim would get stuck, and hold up what can be handed over
		h.winner.Rest()
		return plan{wait: alivePause, ok: true}, true
	case needsTurn && !undecided && wait > 0:
		return plan{wait: wait, ok: true}, true
	case needsTurn:
		need := (yieldAnswers*e.log.AnswerTime() + e.mesh.RoundTrip(winner)) << h.vain
		if h.asked != winner && e.mesh.Hand(winner, mesh.Turn{For: need}) {
			h.asked = winner
		}
	case undecided && h.sentTo != winner:
		e.offer(winner, 0)
	case ok && fits:
		if wait > 0 || !e.batcher.upload(e.handInlineMax()) { // the bundle will refer to the data objects, so they come first
			e.offer(winner, wait)
		}
	}
	return until, true
}

// handInlineMax returns the largest payload that this broker hands over. Without its store, it can store no data objects.
func (e *Engine) handInlineMax() int64 {
	if e.storeIsLost() {
		return lostInlineMax
	}
	return peerInlineMax
}

// refuseUnfit refuses the requests that can't be handed over. This broker can't commit them either, so they would hold up all
// others.
func (e *Engine) refuseUnfit() {
	err := storeError("this broker can't reach the store, and another broker can't do this request for it", e.StoreErr())
	e.finish(e.batcher.takeUnfit(), func(*Request) error { return err })
}

// offer offers the requests of this broker to the one that commits for all, unless it has done so.
func (e *Engine) offer(winner format.SessionID, due time.Duration) {
	if e.hand.offered != winner && e.mesh.Hand(winner, mesh.Offer{Due: due}) {
		e.hand.offered = winner
	}
}

// answerCall hands over the requests of this broker, as far as possible.
func (e *Engine) answerCall(to format.SessionID, call mesh.Call) {
	h := &e.hand
	if to == format.SessionID(h.winner.Session()) {
		h.behind = call.After
	}
	answer := mesh.Bundle{Call: call.Number}
	h.offered, h.rideTo = format.SessionID{}, format.SessionID{} // what is left is offered again
	if len(h.sender.Undecided()) == 0 && to == format.SessionID(h.winner.Session()) && !h.winnerFails {
		if sets := e.takeToHandOver(true); len(sets) > 0 {
			e.seal(sets)
		}
	}
	if frames := h.winner.Send(handover.Session(to), h.sender.Frames()); len(frames) > 0 {
		f := frames[0]
		answer.Sealed, answer.After, answer.AfterHash = f.Payload.(*bundle).bytes, f.After, f.AfterHash
	}
	sent := e.mesh.Hand(to, answer)
	if sent && len(answer.Sealed) > 0 {
		h.sentTo = to
		e.metrics.bundles.add("sent")
	} else {
		h.quiet = time.Now().Add(quietFor)
	}
}

// takeToHandOver seals and returns the batch sets that can be handed over now, and those of requests that ride if rides is true.
func (e *Engine) takeToHandOver(rides bool) []*batchSet {
	if _, ok := e.hand.sender.Next(); !ok || !e.batcher.fits() {
		return nil
	}
	sets := e.batcher.takeSets(e.handInlineMax())
	for _, set := range sets {
		set.finish()
	}
	if !fits(sets) || slices.ContainsFunc(sets, e.useless) {
		e.batcher.putBack(sets, e.useless)
		e.batcher.idle()
		return nil
	}
	if rides {
		for _, set := range e.batcher.takeRides(true) {
			set.finish()
			sets = append(sets, set)
		}
	}
	return sets
}

// seal makes a bundle of batch sets. From now on, the log decides about their requests.
func (e *Engine) seal(sets []*batchSet) {
	next, ok := e.hand.sender.Next()
	if !ok {
		panic("engine: sealed a bundle that the sender must not have")
	}
	x := &bundle{Mark: next.Mark, before: next.Before, sets: sets, sealedAt: time.Now()}
	x.limits = bundleLimits{StateMemory: e.opts.StateMemory, IdempotencyKeys: e.opts.IdempotencyKeys}
	if x.list(); len(x.requests) == 0 {
		e.finish(sets, func(*Request) error { return nil }) // all were withdrawn
		e.batcher.idle()
		return
	}
	e.tellInBundle(x)
	rand.Read(x.Draw[:])
	x.seal(e.batcher.callers)
	x.Seal = sha256.Sum256(x.bytes)
	next.Mark, next.Size, next.Payload = x.Mark, int64(len(x.bytes)), x
	e.hand.sender.Sealed(next)
}

func (e *Engine) readAnswer(from handover.Session, m mesh.Answer) {
	h := &e.hand
	for _, b := range h.sender.Undecided() {
		if b.Number == m.Number && b.Draw == m.Draw && m.Code == byte(handover.Have) {
			h.winner.Have(from, b.Mark)
		}
	}
	switch handover.Answer(m.Code) {
	case handover.Have:
		h.passed = 0
	case handover.Seen:
		h.behind = h.sender.Looked() + 1 // the log has it
	case handover.NoRoom, handover.TooOld, handover.Overtaken, handover.NoPredecessor:
		h.unwanted = h.winnerIf(from)
	case handover.NotWinner, handover.OtherLog:
		e.leave(from, leftRefused)
	default:
		e.leave(from, leftRefused)
	}
}

// winnerIf returns a session if it is the winner; else the session that was unwanted before.
func (h *handing) winnerIf(session handover.Session) format.SessionID {
	if session == h.winner.Session() {
		return format.SessionID(session)
	}
	return h.unwanted
}

// usedTurn ends the turn of this broker, after it has used it or not.
func (h *handing) usedTurn(e *Engine) {
	if h.granted == 0 {
		return
	}
	if applied, _ := e.log.Position(); h.granted == applied { // it has written nothing
		e.mesh.Hand(format.SessionID(h.winner.Session()), mesh.Yield{})
	}
	if h.granted, h.vain = 0, h.vain+1; h.receiver.Winner() {
		h.vain = 0
	}
}
