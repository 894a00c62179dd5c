package engine

import (
	"context"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
)

const (
	// callMax is how long a broker that is about to commit waits for the bundles of others.
	callMax = 20 * time.Millisecond
	// A broker keeps a slot free for another one for yieldAnswers times the store's usual answer time, but at least for yieldMin.
	yieldAnswers = 3
	// A broker that asks for the slot may need longer, up to yieldMax.
	yieldMin = 20 * time.Millisecond
	yieldMax = 2 * time.Second
	// A broker that has not used its last unusedTurnsMax turns gets none for unusedFor: it claims slots without. Each unused
	// turn costs a commit.
	unusedTurnsMax = 3
	unusedFor      = time.Minute
	// expectFor is how long ago a broker may have handed over its last bundle, so that it probably wants a slot.
	expectFor = 3 * time.Second
	// banFor is how long a broker takes no bundles of another one that has sent it a bad bundle.
	banFor = time.Minute
)

// taking is what this broker knows as the winner: the broker that commits for all.
type taking struct {
	offers map[format.SessionID]time.Time // when the requests are due that others have offered
	riders map[format.SessionID]bool      // who has requests that ride
	calls  uint64                         // number of the last call
	missed map[format.SessionID]bool      // who did not answer the last call in time
	gave   map[format.SessionID]time.Time // who has handed over a bundle, and when the last one

	unused map[format.SessionID]unusedTurns   // who did not use their last turns
	turns  []format.SessionID                 // who has asked for a slot
	needs  map[format.SessionID]time.Duration // how long they need for it
	turnOf format.SessionID                   // who has the next slot for itself
	free   time.Time                          // until then, the next slot stays free for turnOf
	turnAt format.Seq                         // the slot before that one
	settle bool                               // the next commit is to be made also if it is empty: turnOf has perhaps sent a claim that fails, and goes on only when the slot is decided

	unready bool                           // the log was read to its end, and bundles in hand may still be ahead of it
	banned  map[format.SessionID]time.Time // who has sent a bad bundle, and until when this broker takes none of it
	memory  bundleMemory
}

// unusedTurns are turns in a row that a broker has not used.
type unusedTurns struct {
	count int
	last  time.Time // when the last one ended
}

// mayHaveTurn tells whether a broker that asks for the next slot gets it.
func (t *taking) mayHaveTurn(session format.SessionID) bool {
	x, ok := t.unused[session]
	if ok && time.Since(x.last) > unusedFor {
		delete(t.unused, session)
		return true
	}
	return x.count < unusedTurnsMax
}

// endTurn ends a turn after its time has passed. used tells whether there has been a commit meanwhile.
func (t *taking) endTurn(used bool) {
	t.free, t.settle = time.Time{}, !used
	if !used {
		t.unused[t.turnOf] = unusedTurns{t.unused[t.turnOf].count + 1, time.Now()}
	}
}

// bundleMemory is what the bundles of other brokers take from the budget, until a commit has them, or this broker drops them.
type bundleMemory struct {
	budget *budget.Budget
	mu     sync.Mutex
	taken  map[handover.Mark]int64
}

// bundleMemoryFactor is about how much memory a decoded bundle takes for each of its bytes.
const bundleMemoryFactor = 3

// take takes the memory of a bundle, and waits for it no longer than a call does. ok is false if there is no room. again says
// that the bundle has its memory already, since it came before.
func (m *bundleMemory) take(life context.Context, mark handover.Mark, size int) (again, ok bool) {
	m.mu.Lock()
	_, again = m.taken[mark]
	m.mu.Unlock()
	if again {
		return true, true
	}
	ctx, cancel := context.WithTimeout(life, callMax)
	defer cancel()
	n := int64(size) * bundleMemoryFactor
	if m.budget.Take(ctx, budget.Batches, n) != nil {
		return false, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, again = m.taken[mark]; again { // it came over another connection at the same time
		m.budget.Give(budget.Batches, n)
	} else {
		m.taken[mark] = n
	}
	return again, true
}

// give gives the memory of a bundle back. It returns false if the bundle had none.
func (m *bundleMemory) give(mark handover.Mark) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.taken[mark]
	if ok {
		m.budget.Give(budget.Batches, n)
		delete(m.taken, mark)
	}
	return ok
}

// giveAll gives the memory of all bundles back.
func (m *bundleMemory) giveAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for mark, n := range m.taken {
		m.budget.Give(budget.Batches, n)
		delete(m.taken, mark)
	}
}

// planAsWinner leaves the next slot to a broker that has asked for it.
func (e *Engine) planAsWinner(now time.Time) (_ plan, decided bool) {
	h := &e.hand
	applied, _ := e.log.Position()
	if !h.free.IsZero() && !now.Before(h.free) {
		h.endTurn(h.turnAt != applied)
	}
	if h.settle {
		return plan{commit: true}, true
	}
	for len(h.turns) > 0 && !now.Before(h.free) {
		next := h.turns[0]
		h.turns = h.turns[1:]
		if e.mesh.Hand(next, mesh.Yield{After: applied}) {
			h.turnOf, h.turnAt = next, applied
			// If the other broker is cut off meanwhile, the requests of this one still have most of their time.
			h.free = now.Add(min(max(yieldMin, yieldAnswers*e.log.AnswerTime(), h.needs[next]), e.opts.AppendTimeout/4))
		}
		delete(h.needs, next)
	}
	if now.Before(h.free) {
		return plan{wait: h.free.Sub(now), ok: true}, true
	}
	return plan{}, false
}

// expectLost gives turns to the brokers that have handed over requests until a moment ago, and can't be reached: they claim
// slots now, and would lose each race to this broker.
func (e *Engine) expectLost() {
	for session, at := range e.hand.gave {
		if e.mesh.Takes(session) {
			continue
		}
		if delete(e.hand.gave, session); time.Since(at) < expectFor {
			e.log.Expect(session)
		}
	}
}

// callForBundles asks for the bundles of the brokers that have offered their requests, and waits for them for a short time. It
// returns false if another broker has written a commit meanwhile, so that this one no longer commits for the others.
func (e *Engine) callForBundles() bool {
	h := &e.hand
	if !h.receiver.Winner() || len(h.offers)+len(h.riders) == 0 {
		return true
	}
	for session := range h.offers {
		h.riders[session] = true // from here on, those who offer and those who ride are the same
	}
	h.calls++
	applied, _ := e.log.Position()
	var awaited []format.SessionID
	for session := range h.riders {
		h.mailbox.call(session, h.calls)
		switch {
		case !e.mesh.Hand(session, mesh.Call{Number: h.calls, After: applied}):
			h.mailbox.forget(session)
		case !h.missed[session]:
			awaited = append(awaited, session)
		}
	}
	clear(h.offers) // a broker that gets no call offers again after the commit
	clear(h.riders)
	timer := time.NewTimer(callMax)
	defer timer.Stop()
	for late := false; !late && h.mailbox.open(awaited) > 0 && h.receiver.Winner(); {
		select {
		case <-h.mailbox.wake:
			e.readMail()
		case <-timer.C:
			late = true
		case <-e.life.Done():
			late = true
		}
	}
	e.readMail()
	for _, session := range awaited {
		h.missed[session] = h.mailbox.open([]format.SessionID{session}) > 0
	}
	return h.receiver.Winner()
}

// takeBundle takes a bundle of another broker into the hand, or refuses it.
func (e *Engine) takeBundle(from format.SessionID, m mesh.Bundle, b *bundle) {
	if b == nil {
		return
	}
	code := handover.NoRoom
	if time.Now().After(e.hand.banned[from]) && b.inlineBytes() <= inlineBytesMax {
		code = e.hand.receiver.Take(handover.Frame{
			Bundle: handover.Bundle{Mark: b.Mark, Before: b.before, Size: int64(len(b.bytes)) * bundleMemoryFactor, Payload: b},
			After:  m.After, AfterHash: m.AfterHash,
		})
	}
	if code == handover.Have {
		e.hand.gave[from] = time.Now()
		e.metrics.bundles.add("taken")
	} else {
		e.metrics.bundleRefusals.add(code.String())
		e.hand.memory.give(b.Mark)
	}
	e.mesh.Hand(from, mesh.Answer{Number: b.Number, Draw: b.Draw, Code: byte(code)})
	if code == handover.OtherLog {
		e.mesh.Drop(from)
	}
}

// dropHand gives back the bundles of other brokers, which decides nothing.
func (e *Engine) dropHand(why handover.Answer) {
	for _, session := range e.hand.receiver.Sessions() {
		e.tellDropped(e.hand.receiver.Drop(session), why)
	}
	e.setPulse()
}

// ban drops all bundles of a broker that sent one whose entries the state refuses, and takes none of it for a while.
func (e *Engine) ban(session handover.Session, err error) {
	e.logger.Error("another broker has handed over requests that can't be committed; this broker takes none of it for a while",
		"session", format.SessionID(session), "for", banFor.String(), "err", err)
	e.hand.banned[format.SessionID(session)] = time.Now().Add(banFor)
	e.tellDropped(e.hand.receiver.Drop(session), handover.NoRoom)
}

func (e *Engine) tellDropped(frames []handover.Frame, why handover.Answer) {
	for _, f := range frames {
		e.hand.memory.give(f.Mark)
		e.metrics.bundleRefusals.add(why.String())
		e.mesh.Hand(format.SessionID(f.Session), mesh.Answer{Number: f.Number, Draw: f.Draw, Code: byte(why)})
	}
}
