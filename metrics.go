package seb

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/lag"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// Metrics returns the broker's metrics as they are now. It always returns the same families, in
// the same order; a family may have no series. Package sebprom exports them to Prometheus.
func (b *Broker) Metrics() []metric.Family {
	return slices.Concat(
		b.engine.Metrics(), lag.Families(b.engine.State(), seriesMax), lag.OfQueues(oldestQueues(b)), b.pushMetrics.Families(),
	)
}

// seriesMax is the maximum number of consumers, and of queues, that have metrics. If there are more, only the
// oldest have metrics, so that a new consumer or queue never ends the metrics of an old one.
const seriesMax = 1000

// oldestQueues describes up to seriesMax of the queues that exist now: the oldest ones.
func oldestQueues(b *Broker) (infos []lag.Queue) {
	var oldest []format.QueueID
	b.engine.View(func(s *state.State) {
		for _, q := range s.OldestQueues(seriesMax) {
			oldest = append(oldest, q.ID)
		}
	})
	for _, id := range oldest {
		found := false
		var info QueueInfo
		var x lag.Queue
		b.engine.View(func(s *state.State) {
			if q := s.QueueByID(id); q != nil {
				info, found = describeQueue(s, s.TopicByID(q.Topic), q, b.engine.NowIn(s)), true
				x.Pushed, x.Stopped = q.Push != nil, q.Push != nil && q.Push.Stopped != ""
			}
		})
		if found {
			own := addOwnersView(b.dispatchers.Of(id), &info)
			x.Topic, x.Name, x.Oldest, x.Exact = info.Topic, info.Name, info.Oldest, info.Exact
			x.Left, x.Delayed, x.Dead = info.Ready+info.Leased+info.Held+info.Delayed, info.Delayed, info.Dead
			x.Leased, x.Held, x.Received, x.Acknowledged, x.DeadLetters = info.Leased, info.Held, own.Received, own.Acknowledged, own.DeadLetters
			infos = append(infos, x)
		}
	}
	return infos
}
