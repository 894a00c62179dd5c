package seb

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb/internal/dispatch"
)

// queuesShown bounds the series that queues make, as consumersShown does.
const queuesShown = 1000

var (
	queueLeft = prometheus.NewDesc("seb_queue_left_records",
		"Records that are neither done nor parked, those that are leased, held or delayed included.", []string{"topic", "queue"}, nil)
	queueDelayed = prometheus.NewDesc("seb_queue_delayed_records",
		"Records that are not to be handed out yet.", []string{"topic", "queue"}, nil)
	queueDead = prometheus.NewDesc("seb_queue_dead_records",
		"Records that are parked.", []string{"topic", "queue"}, nil)
	queueOldest = prometheus.NewDesc("seb_queue_oldest_timestamp_seconds",
		"About when the oldest record was written that is not done, in seconds since 1970. None if there is none.", []string{"topic", "queue"}, nil)
	queueLeased = prometheus.NewDesc("seb_queue_leased_records",
		"Records that are with workers, of queues that this broker hands out.", []string{"topic", "queue"}, nil)
	queueHeld = prometheus.NewDesc("seb_queue_held_records",
		"Records that wait for one lease since an owner that was lost may have handed them out, of queues that this broker hands out.", []string{"topic", "queue"}, nil)
	queueReceived = prometheus.NewDesc("seb_queue_received_records_total",
		"Records that this broker has handed out since it last took the queue over.", []string{"topic", "queue"}, nil)
	queueAcknowledged = prometheus.NewDesc("seb_queue_acknowledged_records_total",
		"Records that were acknowledged through any broker since this one last took the queue over.", []string{"topic", "queue"}, nil)
)

// queueMetrics tells how the queues are, from the state as it is when it is asked: one
// that is gone leaves nothing behind.
type queueMetrics struct{ b *Broker }

// Describe implements [prometheus.Collector].
func (queueMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queueLeft, queueDelayed, queueDead, queueOldest, queueLeased, queueHeld, queueReceived, queueAcknowledged} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m queueMetrics) Collect(out chan<- prometheus.Metric) {
	for _, q := range m.shown() {
		tell := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, kind, v, q.Topic, q.Name)
		}
		tell(queueLeft, prometheus.GaugeValue, float64(q.Ready+q.Leased+q.Held+q.Delayed))
		tell(queueDelayed, prometheus.GaugeValue, float64(q.Delayed))
		tell(queueDead, prometheus.GaugeValue, float64(q.Dead))
		if !q.Oldest.IsZero() {
			tell(queueOldest, prometheus.GaugeValue, float64(q.Oldest.UnixMicro())/1e6)
		}
		if q.Exact {
			tell(queueLeased, prometheus.GaugeValue, float64(q.Leased))
			tell(queueHeld, prometheus.GaugeValue, float64(q.Held))
			tell(queueReceived, prometheus.CounterValue, float64(q.received))
			tell(queueAcknowledged, prometheus.CounterValue, float64(q.acknowledged))
		}
	}
}

// shown describes the oldest queues. It looks at each by itself: with many queues, and many
// delayed records, commits would wait for all of them.
func (m queueMetrics) shown() (infos []QueueInfo) {
	for _, id := range m.oldest() {
		if info, d, ok := m.b.describeByID(id); ok {
			tell(d, &info)
			infos = append(infos, info)
		}
	}
	return infos
}

func (m queueMetrics) oldest() (ids []uint64) {
	m.b.mu.RLock()
	defer m.b.mu.RUnlock()
	for _, q := range m.b.state.OldestQueues(queuesShown) {
		ids = append(ids, q.ID)
	}
	return ids
}

func (b *Broker) describeByID(id uint64) (info QueueInfo, d *dispatch.Dispatcher, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	q := b.state.QueueByID(id)
	if q == nil {
		return QueueInfo{}, nil, false
	}
	return b.describeQueue(b.state.TopicByID(q.Topic), q), b.dispatchers.Of(id), true
}
