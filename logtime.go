package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// storeTimeError is by how much two brokers may differ about the store's time although its clock
// is right: dates in HTTP tell whole seconds.
const storeTimeError = time.Second

// logTime is what the log's time was at a moment of this machine's monotonic clock.
type logTime = dispatch.Time

// logNowIn returns the log's time as it would be for a commit that is built on the state now.
func (b *Broker) logNowIn(s *state.State) int64 { return max(s.Time(), b.storeNow().UnixMicro()) }

// logTimeNow is [Broker.logNowIn] for callers that have no view of the state.
func (b *Broker) logTimeNow() (us int64) {
	b.view(func(s *state.State) { us = b.logNowIn(s) })
	return us
}

// storeNow returns the store's time, which decides when API keys expire and what DeliverAt means.
func (b *Broker) storeNow() time.Time { return b.log.StoreNow() }

// timeOf returns the log's time as a commit is applied. That is the commit's time, unless it was
// made a while ago by another broker: then the store's time tells how long ago, as far as it can
// be, since the commit was not there when the log's end was proven last.
func (f *fold) timeOf(c *format.Commit, own bool) logTime {
	l := logTime{At: time.Now(), US: c.Time}
	if !own {
		b := (*Broker)(f)
		ago := b.storeNow().Add(-storeTimeError).Sub(time.UnixMicro(c.Time))
		l.US += max(0, min(ago, b.tail.age())).Microseconds()
	}
	return l
}
