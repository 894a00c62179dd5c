package engine

import (
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
)

// handing is what the engine knows of the requests that brokers hand over to each other: see package handover. The commit
// loop owns it, except for mailbox, pulse and memory.
type handing struct {
	began    time.Time
	sender   *handover.Sender
	receiver *handover.Receiver
	winner   handover.Winner

	sending
	taking

	mailbox mailbox
	pulse   pulse
}

// begin prepares handing over, after the recovery.
func (h *handing) begin(session format.SessionID, memory *budget.Budget, limit int64, applied format.Seq, tip format.Hash) {
	h.memory.budget, h.memory.taken = memory, map[handover.Mark]int64{}
	h.began = time.Now()
	h.sender = handover.NewSender(handover.Session(session), applied, tip)
	h.receiver = handover.NewReceiver(handover.DefaultLimits(limit), applied, tip)
	h.banned, h.needs = map[format.SessionID]time.Time{}, map[format.SessionID]time.Duration{}
	h.unused = map[format.SessionID]unusedTurns{}
	h.riders = map[format.SessionID]bool{}
	h.offers, h.missed, h.gave = map[format.SessionID]time.Time{}, map[format.SessionID]bool{}, map[format.SessionID]time.Time{}
	h.mailbox.wake, h.mailbox.called = make(chan struct{}, 1), map[format.SessionID]uint64{}
}

// now returns the time since the start of the broker. Unlike the time since boot, it does not depend on a second clock of the
// machine. After a pause of the machine, the other brokers have gone on anyway.
func (h *handing) now() time.Duration { return time.Since(h.began) }

// plan is what the commit loop does next about requests.
type plan struct {
	commit bool          // make a commit now
	sync   bool          // read the log to its end first
	wait   time.Duration // else ask again after that time, unless ok is false
	ok     bool
}

// planCommit decides whether this broker commits now. wait and ok are what the batcher says of the requests of this broker.
func (e *Engine) planCommit(now time.Time, wait time.Duration, ok bool) plan {
	h := &e.hand
	undecided := len(h.sender.Undecided()) > 0
	if wait := e.mesh.Joining(); wait > 0 {
		return plan{wait: wait, ok: ok}
	}
	winner := format.SessionID(h.winner.Session())
	linked := e.mesh.Takes(winner)
	if !linked && (undecided || h.offered == winner) {
		e.leave(h.winner.Session(), leftBroken)
	}
	if (linked || h.offered == winner || undecided) && winner != (format.SessionID{}) && (ok || undecided) {
		if p, decided := e.planAsSender(winner, wait, ok, undecided); decided {
			return p
		}
	}
	if !ok && !undecided {
		h.winner.Rest()
		h.offered, h.asked = format.SessionID{}, format.SessionID{}
		if linked {
			e.offerRides(winner)
		}
	}
	if undecided {
		return plan{commit: true}
	}
	if h.receiver.Winner() {
		if p, decided := e.planAsWinner(now); decided {
			return p
		}
		for _, due := range h.offers {
			if d := max(0, due.Sub(now)); !ok || d < wait {
				wait, ok = d, true
			}
		}
		if h.receiver.Hand() > 0 {
			switch {
			case h.receiver.Ready():
				h.unready = false
				wait, ok = 0, true
			case !h.unready:
				h.unready = true
				return plan{sync: true}
			default: // their After is not in the log
				e.dropHand(handover.OtherLog)
				h.unready = false
			}
		}
	}
	return plan{commit: ok && wait == 0, wait: wait, ok: ok}
}

// commitTime returns about how long all but few commits take. It is bounded, so that a broker that waits in vain for another
// one still has most of the time of its requests.
func (e *Engine) commitTime() time.Duration {
	return min(4*e.log.AnswerTime(), e.opts.AppendTimeout/32)
}

// answerPause returns a random part of the store's usual answer time, which may have been measured long ago. Like commitTime, it is
// bounded.
func (e *Engine) answerPause() time.Duration {
	return mathrand.N(max(min(e.log.AnswerTime(), e.opts.AppendTimeout/8), time.Millisecond))
}

// appliedCommit tells handover of a commit that was applied, and decides the bundles of this broker that the commit has.
func (e *Engine) appliedCommit(c *format.Commit, own bool) {
	h := &e.hand
	hc := handover.Commit{Seq: c.Seq, Hash: c.Hash, Own: own, Writer: handover.Session(e.writer)}
	for _, entry := range c.Entries {
		if m, ok := entry.(*format.BundleMark); ok {
			hc.Marks = append(hc.Marks, handover.Mark{Session: handover.Session(m.Session), Number: m.Number, Draw: m.Draw, Seal: m.Seal})
		}
	}
	decided, copied := h.sender.Applied(hc)
	if copied {
		e.logger.Error("another process seals bundles under the session of this broker, for example because a virtual machine was restored; this broker hands over nothing more",
			"slot", uint64(c.Seq), "session", e.opts.Session)
	}
	dropped := h.receiver.Applied(hc)
	h.quiet = time.Time{}
	was := format.SessionID(h.winner.Session())
	h.winner.Applied(hc, h.now())
	e.tellDropped(dropped, handover.NotWinner)
	if !h.receiver.Winner() {
		clear(h.offers)
		clear(h.riders)
		clear(h.gave)
		clear(h.needs)
		clear(h.unused)
		h.turns, h.free, h.settle = nil, time.Time{}, false
	}
	h.offered, h.asked, h.sentTo = format.SessionID{}, format.SessionID{}, format.SessionID{} // messages may be lost, so they are sent again
	h.rideTo = format.SessionID{}
	h.left, h.winnerFails = "", false
	if now := format.SessionID(h.winner.Session()); now != was {
		h.unwanted, h.passed = format.SessionID{}, 0
	}
	for _, m := range hc.Marks {
		inHand := h.memory.give(m)
		switch {
		case own && m.Session != handover.Session(e.opts.Session):
			e.metrics.bundles.add("for others")
		case inHand && !own:
			e.metrics.bundles.add("struck")
		}
	}
	for _, b := range decided {
		if own {
			e.metrics.bundles.add("alone")
		} else {
			e.metrics.bundles.add("committed")
		}
		e.decide(b.Payload.(*bundle), c)
	}
	if h.passed++; len(h.sender.Undecided()) == 0 {
		h.passed = 0
	} else if h.passed > heldMax { // the winner no longer has the bundle
		h.passed = 0
		e.leave(h.winner.Session(), leftRefused)
	}
	e.setPulse()
}

// nameSuccessor names the broker that commits for all once this one has ended: the one that handed over requests last. If this
// broker does not commit for all, it names itself, which says only that it ends: else the one that does would leave slots to it,
// since it can't be reached.
func (e *Engine) nameSuccessor() {
	h := &e.hand
	if !h.receiver.Winner() {
		e.mesh.HandAll(mesh.Successor{Ended: e.opts.Session, Session: e.opts.Session})
		return
	}
	var next format.SessionID
	for session, at := range h.gave {
		if e.mesh.Takes(session) && at.After(h.gave[next]) {
			next = session
		}
	}
	if next == (format.SessionID{}) {
		return // no other broker has requests
	}
	applied, _ := e.log.Position()
	e.mesh.HandAll(mesh.Successor{Ended: e.opts.Session, Session: next, After: applied})
}

// succeed notes that the broker that has committed for all ends, and that another one goes on, perhaps this one.
func (e *Engine) succeed(m mesh.Successor) {
	h := &e.hand
	delete(h.gave, m.Ended)
	e.log.Ended(m.Ended)
	ended, next, was := handover.Session(m.Ended), handover.Session(m.Session), h.winner.Session()
	if m.Session == e.opts.Session {
		h.receiver.Named(ended, m.After)
		next = handover.Session{}
	}
	if h.winner.Named(ended, next, h.now()); h.winner.Session() == was {
		return
	}
	h.newWinner()
	if next != (handover.Session{}) {
		e.mesh.Hand(m.Session, m) // else an offer of this broker may come there first, and be refused
	}
}

// newWinner forgets what this broker has sent to the winner before, and what it knew of it.
func (h *handing) newWinner() {
	h.offered, h.asked, h.sentTo, h.rideTo = format.SessionID{}, format.SessionID{}, format.SessionID{}, format.SessionID{}
	h.left, h.winnerFails = "", false
	h.unwanted, h.passed = format.SessionID{}, 0
}

// loadedCheckpoint tells handover of a checkpoint that was loaded.
func (e *Engine) loadedCheckpoint(seq format.Seq, tip format.Hash) {
	h := &e.hand
	for _, b := range h.sender.Loaded(seq, tip) {
		e.finish(b.Payload.(*bundle).sets, func(*Request) error {
			return &UnknownError{storeError(fmt.Sprintf("the broker has loaded the checkpoint of slot %d, and does not know whether an earlier commit has the request", seq), nil)}
		})
		e.batcher.idle()
	}
	e.tellDropped(h.receiver.Loaded(seq, tip), handover.TooOld)
	h.winner = handover.Winner{}
	clear(h.offers)
	clear(h.riders)
	h.turns, h.granted = nil, 0
	h.offered, h.asked, h.sentTo, h.rideTo = format.SessionID{}, format.SessionID{}, format.SessionID{}, format.SessionID{}
}

// giveUpBundles ends the requests of the bundles that the log has not decided when the engine ends.
func (e *Engine) giveUpBundles(err error) {
	for _, b := range e.hand.sender.Undecided() {
		e.finish(b.Payload.(*bundle).sets, func(*Request) error { return &UnknownError{err} })
	}
}
