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
		b.engine.Metrics(), lag.Families(b.engine.State(), seriesMax), queueMetrics(oldestQueues(b)), b.pushMetrics.Families(),
	)
}

// seriesMax is the maximum number of consumers, and of queues, that have metrics. If there are more, only the
// oldest have metrics, so that a new consumer or queue never ends the metrics of an old one.
const seriesMax = 1000

func queueMetrics(queues []QueueInfo) []metric.Family {
	family := func(kind metric.Kind, name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: kind, Labels: []string{"topic", "queue"}}
	}
	left := family(metric.Gauge, "seb_queue_left_records", "Records that are neither done nor dead letters, including those that are leased, held or delayed.")
	delayed := family(metric.Gauge, "seb_queue_delayed_records", "Records that may not be handed out yet.")
	dead := family(metric.Gauge, "seb_queue_dead_records", "Records that are dead letters.")
	oldest := family(metric.Gauge, "seb_queue_oldest_timestamp_seconds", "About when the oldest record that is neither done nor a dead letter was written, in seconds since 1970. Absent if there is no such record.")
	stopped := family(metric.Gauge, "seb_queue_push_stopped", "1 if the queue is no longer pushed because the receiver answered 410 (Gone), 0 if it is pushed. Absent if the queue has no push URL.")
	leased := family(metric.Gauge, "seb_queue_leased_records", "Records that are with workers, of queues that this broker owns.")
	held := family(metric.Gauge, "seb_queue_held_records", "Records that wait until a lease has passed, because a lost owner may have handed them out; of queues that this broker owns.")
	received := family(metric.Counter, "seb_queue_received_records_total", "Records that this broker has handed out since it last took the queue over.")
	acknowledged := family(metric.Counter, "seb_queue_acknowledged_records_total", "Records that were acknowledged through any broker since this broker last took the queue over.")
	died := family(metric.Counter, "seb_queue_dead_letters_total", "Records that became dead letters since this broker last took the queue over.")
	for _, q := range queues {
		of := []string{q.Topic, q.Name}
		left.Add(float64(q.Ready+q.Leased+q.Held+q.Delayed), of...)
		delayed.Add(float64(q.Delayed), of...)
		dead.Add(float64(q.Dead), of...)
		if !q.Oldest.IsZero() {
			oldest.Add(float64(q.Oldest.UnixMicro())/1e6, of...)
		}
		if q.push != nil {
			stopped.Add(float64(min(len(q.push.Stopped), 1)), of...)
		}
		if q.Exact {
			leased.Add(float64(q.Leased), of...)
			held.Add(float64(q.Held), of...)
			received.Add(float64(q.received), of...)
			acknowledged.Add(float64(q.acknowledged), of...)
			died.Add(float64(q.deadLetters), of...)
		}
	}
	return []metric.Family{left, delayed, dead, oldest, stopped, leased, held, received, acknowledged, died}
}

// oldestQueues describes up to seriesMax of the queues that exist now: the oldest ones.
func oldestQueues(b *Broker) (infos []QueueInfo) {
	var oldest []format.QueueID
	b.engine.View(func(s *state.State) {
		for _, q := range s.OldestQueues(seriesMax) {
			oldest = append(oldest, q.ID)
		}
	})
	for _, id := range oldest {
		found := false
		var info QueueInfo
		b.engine.View(func(s *state.State) {
			if q := s.QueueByID(id); q != nil {
				info, found = describeQueue(s, s.TopicByID(q.Topic), q, b.engine.NowIn(s)), true
				info.push = q.Push
			}
		})
		if found {
			addOwnersView(b.dispatchers.Of(id), &info)
			infos = append(infos, info)
		}
	}
	return infos
}
