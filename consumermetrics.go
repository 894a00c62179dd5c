package seb

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// consumersShown bounds the series that consumers make. Past it the oldest are
// shown, so that a series doesn't come and go with the others.
const consumersShown = 1000

var (
	consumerLag = prometheus.NewDesc("seb_consumer_lag_records",
		"Records that are there and that the consumer has not committed.", []string{"topic", "consumer"}, nil)
	consumerMissed = prometheus.NewDesc("seb_consumer_missed_records",
		"Records that were deleted before the consumer committed them.", []string{"topic", "consumer"}, nil)
	consumerMoved = prometheus.NewDesc("seb_consumer_moved_timestamp_seconds",
		"When the consumer was last committed or reset, in seconds since 1970.", []string{"topic", "consumer"}, nil)
)

// consumerMetrics tells where the consumers are, from the state as it is when it is
// asked: one that is gone leaves nothing behind.
type consumerMetrics struct{ b *Broker }

// Describe implements [prometheus.Collector].
func (consumerMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- consumerLag
	out <- consumerMissed
	out <- consumerMoved
}

// Collect implements [prometheus.Collector].
func (m consumerMetrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.shown() {
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.topic, c.name)
		}
		gauge(consumerLag, float64(c.lag))
		gauge(consumerMissed, float64(c.missed))
		gauge(consumerMoved, float64(c.moved.UnixMicro())/1e6)
	}
}

type consumerSums struct {
	topic, name string
	lag, missed int64
	moved       time.Time
}

// shown sums up the oldest consumers. It looks at each by itself: with many of them, and many
// partitions, commits would wait for all.
func (m consumerMetrics) shown() (sums []consumerSums) {
	for _, id := range m.oldest() {
		if s, ok := m.sum(id); ok {
			sums = append(sums, s)
		}
	}
	return sums
}

func (m consumerMetrics) oldest() (ids []uint64) {
	m.b.mu.RLock()
	defer m.b.mu.RUnlock()
	for _, c := range m.b.state.OldestConsumers(consumersShown) {
		ids = append(ids, c.ID)
	}
	return ids
}

func (m consumerMetrics) sum(id uint64) (s consumerSums, ok bool) {
	m.b.mu.RLock()
	defer m.b.mu.RUnlock()
	c := m.b.state.ConsumerByID(id)
	if c == nil {
		return s, false
	}
	t := m.b.state.TopicByID(c.Topic)
	s = consumerSums{topic: t.Name, name: c.Name, moved: time.UnixMicro(c.Moved)}
	for i := range t.Partitions {
		p := positionOf(t, c, i)
		s.lag += p.Lag()
		s.missed += p.Missed()
	}
	return s, true
}
