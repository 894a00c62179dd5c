package seb

import (
	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// queuesShown bounds the number of series, as consumersShown does.
const queuesShown = 1000

// queueMetrics returns the metrics of queues from the current state: a deleted queue has no
// series.
func (b *Broker) queueMetrics() []metric.Family {
	family := func(kind metric.Kind, name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: kind, Labels: []string{"topic", "queue"}}
	}
	left := family(metric.Gauge, "seb_queue_left_records", "Records that are neither done nor dead letters, including those that are leased, held or delayed.")
	delayed := family(metric.Gauge, "seb_queue_delayed_records", "Records that may not be handed out yet.")
	dead := family(metric.Gauge, "seb_queue_dead_records", "Records that are dead letters.")
	oldest := family(metric.Gauge, "seb_queue_oldest_timestamp_seconds", "About when the oldest record that is not done was written, in seconds since 1970. Absent if all are done.")
	leased := family(metric.Gauge, "seb_queue_leased_records", "Records that are with workers, of queues that this broker hands out.")
	held := family(metric.Gauge, "seb_queue_held_records", "Records that wait for one lease because an owner that was lost may have handed them out, of queues that this broker hands out.")
	received := family(metric.Counter, "seb_queue_received_records_total", "Records that this broker has handed out since it last took the queue over.")
	acknowledged := family(metric.Counter, "seb_queue_acknowledged_records_total", "Records that were acknowledged through any broker since this one last took the queue over.")
	for _, q := range b.shownQueues() {
		of := []string{q.Topic, q.Name}
		left.Add(float64(q.Ready+q.Leased+q.Held+q.Delayed), of...)
		delayed.Add(float64(q.Delayed), of...)
		dead.Add(float64(q.Dead), of...)
		if !q.Oldest.IsZero() {
			oldest.Add(float64(q.Oldest.UnixMicro())/1e6, of...)
		}
		if q.Exact {
			leased.Add(float64(q.Leased), of...)
			held.Add(float64(q.Held), of...)
			received.Add(float64(q.received), of...)
			acknowledged.Add(float64(q.acknowledged), of...)
		}
	}
	return []metric.Family{left, delayed, dead, oldest, leased, held, received, acknowledged}
}

// shownQueues describes the oldest queues. It locks the state for each alone, so that commits
// don't wait for all of them.
func (b *Broker) shownQueues() (infos []QueueInfo) {
	for _, id := range b.oldestQueues() {
		if info, d, ok := b.describeByID(id); ok {
			addOwnersView(d, &info)
			infos = append(infos, info)
		}
	}
	return infos
}

func (b *Broker) oldestQueues() (ids []uint64) {
	b.engine.View(func(s *state.State) {
		for _, q := range s.OldestQueues(queuesShown) {
			ids = append(ids, q.ID)
		}
	})
	return ids
}

func (b *Broker) describeByID(id uint64) (info QueueInfo, d *dispatch.Dispatcher, ok bool) {
	b.engine.View(func(s *state.State) {
		if q := s.QueueByID(id); q != nil {
			info, d, ok = b.describeQueue(s, s.TopicByID(q.Topic), q), b.dispatchers.Of(id), true
		}
	})
	return info, d, ok
}
