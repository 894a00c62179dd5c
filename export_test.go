package seb

import (
	"context"
	"net"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// PushQueue returns q as a pusher knows it.
func PushQueue(q *Queue) push.Queue { return pushQueue{q, func() bool { return true }} }

// PushQueueThatChanged returns q as a pusher knows it whose target is no longer the queue's.
func PushQueueThatChanged(q *Queue) push.Queue { return pushQueue{q, func() bool { return false }} }

// PushPermits returns how many of a broker's permits to push are free, and how many it has.
func PushPermits(b *Broker) (free, all int) {
	return b.permits.Free()
}

// NotBefore returns for how long records of partition 0 that were put back have to wait
// from now on, by offset.
func NotBefore(q *Queue) map[int64]time.Duration {
	waits := map[int64]time.Duration{}
	q.b.engine.View(func(s *state.State) {
		s.Queue(s.Topic(q.topic).ID, q.name).EachAttempt(0, func(offset int64, a state.Attempt) {
			waits[offset] = time.UnixMicro(a.NotBefore).Sub(q.b.engine.StoreNow())
		})
	})
	return waits
}

// OwnersBehind returns how many times a commit that appends to so many partitions of a topic would
// look at the dispatch limits of its queues.
func OwnersBehind(b *Broker, topic string, partitions int) int {
	var id uint64
	b.engine.View(func(s *state.State) { id = s.Topic(topic).ID })
	var entries []format.Entry
	for i := range partitions {
		entries = append(entries, &format.Batch{Topic: id, Partition: uint32(i)})
	}
	return b.dispatchers.Behind(entries)
}

// DelaysAhead returns how many runs of delayed records the queue's owner has in mind that
// it did not look at.
func DelaysAhead(q *Queue) int {
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return -1
	}
	return d.DelaysAhead()
}

// DialTargets returns o with connections to targets made by dial.
func DialTargets(o PushOptions, dial func(ctx context.Context, network, address string) (net.Conn, error)) PushOptions {
	o.dial = dial
	return o
}

// WithLargeCheckpoints returns o with every checkpoint being a large one.
func WithLargeCheckpoints(o Options) Options {
	o.checkpointLarge = 1
	return o
}

// ReadAhead returns how many bytes of records b keeps that it has read for the workers of
// its queues, and as how many it counts them.
func ReadAhead(b *Broker) (kept, counted int64) {
	counted = b.dispatchers.Prefetched(func(rs dispatch.Records) {
		for _, r := range rs.(records) {
			kept += r.bytes()
		}
	})
	return kept, counted
}

// KnownRecords returns how many records of a queue its owner knows one by one.
func KnownRecords(q *Queue) int {
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return -1
	}
	return d.Known()
}

// HashOfKey is what the log keeps of an idempotency key.
func HashOfKey(scope int64, key string, caller uint64) [16]byte { return hashKey(scope, key, caller) }

// StateBytes is what the broker's state takes, by its own account.
func (b *Broker) StateBytes() (bytes int64) {
	b.engine.View(func(s *state.State) { bytes = s.Memory() })
	return bytes
}
