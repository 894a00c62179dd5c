package engine

import (
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// storeTimeError is by how much two brokers may differ about the store's time although its clock
// is right: dates in HTTP tell whole seconds.
const storeTimeError = time.Second

// Now returns the log's time as it would be for a commit that is built now, in microseconds since 1970.
func (e *Engine) Now() (now int64) {
	e.View(func(s *state.State) { now = e.NowIn(s) })
	return now
}

// NowIn is Now in a view of the state.
func (e *Engine) NowIn(s *state.State) int64 { return max(s.Time(), e.StoreNow().UnixMicro()) }

// Time returns the time of the log's last commit, by which the log forgets idempotency keys.
func (e *Engine) Time() (last int64) {
	e.View(func(s *state.State) { last = s.Time() })
	return last
}

// StoreNow returns the store's time, which decides when API keys expire and what a due time means.
func (e *Engine) StoreNow() time.Time { return e.log.StoreNow() }

// timeOf returns the log's time as a commit is applied. That is the commit's time, unless it was
// made a while ago by another broker: then the store's time tells how long ago, as far as it can
// be, since the commit was not there when the log's end was proven last.
func (e *fold) timeOf(c *format.Commit, own bool) state.Moment {
	l := state.Moment{At: time.Now(), US: c.Time}
	if !own {
		ago := (*Engine)(e).StoreNow().Add(-storeTimeError).Sub(time.UnixMicro(c.Time))
		l.US += max(0, min(ago, e.tail.age())).Microseconds()
	}
	return l
}
