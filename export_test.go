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

// PushQueue returns q in the form that a pusher uses.
func PushQueue(q *Queue) push.Queue { return pushQueue{q, func() bool { return true }} }

// PushQueueThatChanged is PushQueue for a pusher whose target is no longer the target of q.
func PushQueueThatChanged(q *Queue) push.Queue { return pushQueue{q, func() bool { return false }} }

// PushPermits returns how many of a broker's permits to push are free, and how many it has.
func PushPermits(b *Broker) (free, all int) {
	return b.permits.Free()
}

// NotBefore returns for how long the records of partition 0 that were put back still have to
// wait, by offset.
func NotBefore(q *Queue) map[Offset]time.Duration {
	waits := map[Offset]time.Duration{}
	q.b.engine.View(func(s *state.State) {
		s.Queue(s.Topic(q.topic).ID, q.name).EachAttempt(0, func(offset Offset, a state.Attempt) {
			waits[offset] = time.UnixMicro(a.NotBefore).Sub(q.b.engine.StoreNow())
		})
	})
	return waits
}

// OwnersBehind returns how many times a commit that appends to that many partitions of a topic would
// check the dispatch limits of the topic's queues.
func OwnersBehind(b *Broker, topic string, partitions int) int {
	var id TopicID
	b.engine.View(func(s *state.State) { id = s.Topic(topic).ID })
	var entries []format.Entry
	for i := range partitions {
		entries = append(entries, &format.Batch{Topic: id, Partition: format.Partition(i)})
	}
	return b.dispatchers.Behind(entries)
}

// DelaysAhead returns how many runs of delayed records the queue's owner remembers and has not
// entered into its table yet.
func DelaysAhead(q *Queue) int {
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return -1
	}
	return d.DelaysAhead()
}

// DialTargets returns o with dial as the function that connects to targets.
func DialTargets(o PushOptions, dial func(ctx context.Context, network, address string) (net.Conn, error)) PushOptions {
	o.dial = dial
	return o
}

// WithLargeCheckpoints returns o changed so that every checkpoint counts as large.
func WithLargeCheckpoints(o Options) Options {
	o.checkpointLarge = 1
	return o
}

// ReadAhead returns how many bytes of prefetched records b keeps for its queues, and how many
// bytes its accounting has for them.
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

// StateBytes returns the memory that the broker's state takes, by the state's own accounting.
func (b *Broker) StateBytes() (bytes int64) {
	b.engine.View(func(s *state.State) { bytes = s.Memory() })
	return bytes
}

// Tail returns how many batches of partition 0 of a topic are in no segment.
func Tail(b *Broker, topic string) (batches int) {
	b.engine.View(func(s *state.State) {
		t := s.Topic(topic)
		for at := t.Partitions[0].Start; at < t.Partitions[0].End; {
			l := s.Locate(nil, t, 0, at, 1, 1)[0]
			if at = l.End(); l.Segment == nil {
				batches++
			}
		}
	})
	return batches
}
