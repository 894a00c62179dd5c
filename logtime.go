package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
)

// storeTimeError is by how much two brokers may differ about the store's time although its clock
// is right: dates in HTTP tell whole seconds.
const storeTimeError = time.Second

// logTime is what the log's time was at a moment of this machine's monotonic clock.
type logTime = dispatch.Time

// logNow returns the log's time as it would be for a commit that is built now. The caller holds the state's lock.
func (b *Broker) logNow() int64 { return max(b.live.State.Time(), b.storeNow().UnixMicro()) }

// logTimeNow is [Broker.logNow] for callers that don't hold the state's lock.
func (b *Broker) logTimeNow() int64 {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.logNow()
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
