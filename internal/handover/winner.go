package handover

import (
	"slices"
	"time"
)

const (
	// A sender waits for a word of the winner for silenceMin, or for silenceCommits times the p99 of
	// recent commits if that is longer.
	silenceMin     = 300 * time.Millisecond
	silenceCommits = 4
	// unlinkedMax is how long the writer of a commit counts as the winner if there is no connection to it.
	unlinkedMax = 5 * time.Second
	// atWinnerMax is how many of a sender's bundles are with a winner at the same time.
	atWinnerMax = 2
)

// Do is what a broker with requests does.
type Do uint8

// The steps of a broker with requests.
const (
	// Claim: it claims the next slot itself.
	Claim Do = iota
	// Offer: it offers its requests to a winner, or goes on waiting for that winner.
	Offer
	// Wait: it does neither yet.
	Wait
)

// Turn is what a broker with requests does now.
type Turn struct {
	Do Do
	// To is the winner; zero unless Do is Offer.
	To Session
	// Until is when the caller calls Turn again, if nothing happens before; zero if Do is Claim.
	Until time.Duration
}

// Winner knows to which broker this one offers its requests, and when this one stops waiting for that broker.
// Its zero value knows no winner. All times are local times since the start of the broker.
type Winner struct {
	session Session       // zero if no winner is known, or if this broker is the winner
	since   time.Duration // when the session was last shown to be the winner

	waiting bool          // this broker has requests for the winner
	heard   time.Duration // when the winner last sent something, or when the wait began

	left    bool          // this broker has stopped waiting for the winner
	claimAt time.Duration // when it claims the next slot; only if left

	held []Mark // bundles of which the winner has said that it has them
}

// Session returns the winner; zero if none is known, or if this broker is the winner.
func (w *Winner) Session() Session { return w.session }

// Applied takes a commit that the broker has applied at the time now. The commit's writer is the winner.
func (w *Winner) Applied(c Commit, now time.Duration) {
	switch {
	case c.Own:
		w.become(Session{}, now)
	case c.Writer != w.session:
		w.become(c.Writer, now)
	default:
		w.since, w.heard, w.left = now, now, false
		w.held = slices.DeleteFunc(w.held, func(m Mark) bool { return slices.Contains(c.Marks, m) })
	}
}

// Named notes that a session has named the session that goes on. That counts if the first one is the winner.
// If it names this broker, next is zero.
func (w *Winner) Named(by, next Session, now time.Duration) {
	if by == w.session && next != by {
		w.become(next, now)
	}
}

func (w *Winner) become(session Session, now time.Duration) {
	*w = Winner{session: session, since: now, heard: now, waiting: w.waiting}
}

// Heard notes that a session has sent something: a call for bundles, or a sign of life while it waits for the store.
func (w *Winner) Heard(from Session, now time.Duration) {
	if from == w.session {
		w.heard = now
	}
}

// Leave makes the broker stop waiting for a session, if that is the winner: the session has answered "no" to a
// bundle, the connection to it broke, or it can't reach the store although this broker can. The broker claims
// the next slot after the pause, a random part of the store's usual answer time, so that the senders of a
// lost winner don't all claim at once.
func (w *Winner) Leave(from Session, now, pause time.Duration) {
	if from == w.session && !w.left {
		w.left, w.claimAt, w.held = true, now+pause, nil
	}
}

// Turn returns what the broker does now if it has requests or undecided bundles. linked says whether there is a
// live connection to the winner. p99 is the time of all but the slowest hundredth of recent commits. The pause
// is like that of Leave, in case the winner has been silent for too long.
func (w *Winner) Turn(now time.Duration, linked bool, p99, pause time.Duration) Turn {
	if w.session == (Session{}) {
		return Turn{Do: Claim}
	}
	if !w.waiting {
		w.waiting, w.heard = true, max(w.heard, now)
	}
	until := w.heard + max(silenceMin, silenceCommits*p99)
	if now >= until {
		w.Leave(w.session, now, pause)
	}
	switch {
	case w.left && now < w.claimAt:
		return Turn{Do: Wait, Until: w.claimAt}
	case w.left || !linked && now >= w.since+unlinkedMax:
		return Turn{Do: Claim}
	case !linked:
		until = min(until, w.since+unlinkedMax)
	}
	return Turn{Do: Offer, To: w.session, Until: until}
}

// Rest notes that the broker has neither requests nor undecided bundles. So the winner's silence says nothing.
func (w *Winner) Rest() { w.waiting = false }

// Have notes that a session has said that it has a bundle in hand.
func (w *Winner) Have(from Session, m Mark) {
	if from == w.session && !w.left && !slices.Contains(w.held, m) && len(w.held) < atWinnerMax {
		w.held = append(w.held, m)
	}
}

// Send returns what the broker sends to a session that calls for its bundles, in order: of the first two
// frames, those that the session does not have yet. It returns nothing if the session is not the winner, or if
// this broker has stopped waiting for it.
func (w *Winner) Send(to Session, frames []Frame) (send []Frame) {
	if to != w.session || w.left {
		return nil
	}
	for _, f := range frames[:min(len(frames), atWinnerMax)] {
		if !slices.Contains(w.held, f.Mark) {
			send = append(send, f)
		}
	}
	return send
}
