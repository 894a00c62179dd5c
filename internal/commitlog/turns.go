package commitlog

import (
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

const (
	turnPatience   = 6 // answer times to wait for a writer; halved for each turn in a row that it missed
	passPatience   = 3 // further answer times for each missed turn since the last slot was applied
	passesMax      = 3 // after so many turns without a commit, it waits for nobody
	turnsPassedMax = 4 // a writer that has let so many turns in a row go by has no further ones
	writersMax     = 256
	roundsMax      = 8 // rounds of turns after which a broker that has won none of their slots assumes that it has no turns

	// After gapSlots slots in a row that went to brokers with turns, the next slot is left free for gapAnswers answer
	// times: there may be a broker that has never won a slot.
	gapSlots, gapAnswers = 512, 5
	// A broker that has never won a slot can ask for such a gap. The gap is long enough for a broker on a busy machine,
	// and rare enough that strangers can't slow the log down.
	askedGapMin, askedGapsEvery = 100 * time.Millisecond, 5 * time.Second
)

// turns decides when this broker may claim a slot although other brokers want slots too. Of the brokers that want a
// slot now, the one whose last win is the oldest has the next slot. The marks in commits tell all brokers who won which
// slot, and when the winner will want another one, so all agree on the order. Without it, the winner of a slot would
// also win the next ones: it knows first that the slot is decided. And each broker that loses a race pays for a Create
// in vain.
//
// A broker that rarely commits has no turns, since nobody can foresee when it wants a slot, and neither has a broker of
// an older version, which writes no marks. They claim at once, and the others leave gaps for them.
//
// The order saves requests and time, and nothing else depends on it. A broker waits for others only as long as they
// use their turns, and the store decides who wins a slot, as ever.
type turns struct {
	won     format.Seq    // the last slot that this broker won; 0 if none
	writers []writer      // the other brokers with turns, by the slot that each won last
	since   time.Duration // time at which the last slot was applied
	passes  int           // how many writers have let their turns go by since then
	answer  time.Duration // about how long the store takes for a Get or a Create

	inRow     int           // slots in a row that went to brokers with turns, this broker included
	asked     bool          // the next slot is for a new broker, which has asked for it
	askedAt   time.Duration // time of the last such gap; 0 = never
	outsideAt time.Duration // time of the last commit of a broker without turns; 0 = never
}

// writer is another broker that has turns.
type writer struct {
	session format.SessionID
	won     format.Seq    // the last slot that it won, or the last one applied when it missed a turn
	due     time.Duration // time from which on it probably wants a slot
	passed  int           // how many turns in a row it let go by
}

// measured adds a measurement of the store's answer time.
func (t *turns) measured(took time.Duration) {
	if t.answer == 0 {
		t.answer = took
	}
	if took < t.answer { // requests that took very long say little about the next ones
		t.answer -= (t.answer - took) / 4
	} else {
		t.answer += (min(took, 4*t.answer) - t.answer) / 8
	}
}

// applied notes the commit of slot s, which this broker (own) or another one has written. Who hands its requests over needs
// no turns, and has none.
func (t *turns) applied(s format.Seq, c *format.Commit, own, handsOver bool, now time.Duration) {
	if now-t.since > 4*t.answer {
		t.inRow = 0 // the slot was free for long enough
	}
	t.since, t.passes = now, 0
	t.inRow++
	m := c.Mark()
	if own {
		t.won = s
		return
	}
	if m != nil {
		t.end(m.Session)
	}
	if handsOver {
		return
	}
	if m == nil || m.Pause == format.PauseUnknown {
		t.inRow, t.outsideAt = 0, now
		return
	}
	if len(t.writers) == writersMax {
		t.writers = slices.Delete(t.writers, 0, 1)
	}
	t.writers = append(t.writers, writer{session: m.Session, won: s, due: now + time.Duration(m.Pause)*time.Millisecond})
}

// end ends the turns of a broker.
func (t *turns) end(session format.SessionID) {
	t.writers = slices.DeleteFunc(t.writers, func(w writer) bool { return w.session == session })
}

// next returns the index of the writer that has the next slot; -1 if this broker has it.
func (t *turns) next(now time.Duration) int {
	for i, w := range t.writers {
		if w.won >= t.won {
			break
		}
		if w.due <= now {
			return i
		}
	}
	return -1
}

// outside reports whether this broker probably has no turns at the others: it has won none of the last slots. s is the last
// applied slot.
func (t *turns) outside(s format.Seq) bool {
	return t.won == 0 || s-t.won > roundsMax*format.Seq(len(t.writers)+1)
}

// pass ends the turn of writer i, which has the next slot, if it has lasted too long. s is the last applied slot.
func (t *turns) pass(i int, s format.Seq, now time.Duration) {
	w := t.writers[i]
	patience := turnPatience*t.answer>>w.passed + time.Duration(t.passes)*passPatience*t.answer
	if now-max(t.since, w.due) < patience && t.passes < passesMax {
		return
	}
	t.passes++
	t.writers = slices.Delete(t.writers, i, i+1)
	if w.passed++; w.passed < turnsPassedMax {
		w.won = s
		t.writers = append(t.writers, w)
	}
}

// expect gives the next turn to a broker that wants a slot now, unless it has turns.
func (t *turns) expect(session format.SessionID, now time.Duration) {
	if len(t.writers) < writersMax && !slices.ContainsFunc(t.writers, func(w writer) bool { return w.session == session }) {
		t.writers = slices.Insert(t.writers, 0, writer{session: session, due: now})
	}
}

// leaveGap leaves the next slot free for a broker that has never won one, unless this broker has done so a moment ago.
func (t *turns) leaveGap(now time.Duration) {
	if t.askedAt == 0 || now-t.askedAt >= askedGapsEvery {
		t.asked, t.askedAt = true, now
	}
}

// gap returns how long the next slot has to stay free for brokers without turns. They must Get the last commit before
// they can claim the slot, so without a gap they would hardly ever win. chance is a random number from 0 to 1.
func (t *turns) gap(now time.Duration, chance float64) time.Duration {
	pause := gapAnswers * t.answer
	switch {
	case t.asked:
		t.asked, pause = false, max(pause, askedGapMin)
	case t.outsideAt != 0 && now-t.outsideAt < contendedFor && t.inRow > 0:
		pause = time.Duration(2 * chance * float64(t.answer))
	case t.inRow < gapSlots:
		return 0
	}
	t.inRow = 0
	return pause - (now - t.since)
}
