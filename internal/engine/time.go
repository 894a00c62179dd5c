package engine

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// storeTimeError is how far two brokers may disagree about the store's time although the store's clock is
// right: dates in HTTP have whole seconds.
const storeTimeError = time.Second

// Now returns the time that a commit would get if it were built now, in microseconds since 1970.
func (e *Engine) Now() (now int64) {
	e.View(func(s *state.State) { now = e.NowIn(s) })
	return now
}

// NowIn is like Now. It is for functions that [Engine.View] calls, and takes the state of that call.
func (e *Engine) NowIn(s *state.State) int64 { return max(s.Time(), e.StoreNow().UnixMicro()) }

// Time returns the time of the log's last commit, in microseconds since 1970. The log forgets
// idempotency keys by this time.
func (e *Engine) Time() (last int64) {
	e.View(func(s *state.State) { last = s.Time() })
	return last
}

// StoreNow returns the store's time, which decides when API keys expire and when records are due.
func (e *Engine) StoreNow() time.Time { return e.log.StoreNow() }

// StoreTime returns the store's time, and how old the store's last answer is on which it is based.
func (e *Engine) StoreTime() (now time.Time, age time.Duration) { return e.log.StoreTime() }

// timeOf returns the log's time at the moment when a commit is applied. For a commit of this broker,
// that is the commit's time. A commit of another broker may have been made a while ago, so timeOf adds the
// time that has passed since the commit, by the store's clock. But it adds at most the time since the
// last sync or own commit, because at that moment the log did not have the new commit yet. The same is true of the time since
// this broker has sealed a bundle that the commit has.
func (e *fold) timeOf(c *format.Commit, own bool) state.Moment {
	l := state.Moment{At: time.Now(), US: c.Time}
	if !own {
		ago := (*Engine)(e).StoreNow().Add(-storeTimeError).Sub(time.UnixMicro(c.Time))
		age := e.tail.age()
		if sealed := e.hand.sealed(c); !sealed.IsZero() {
			age = min(age, time.Since(sealed))
		}
		l.US += max(0, min(ago, age)).Microseconds()
	}
	return l
}
