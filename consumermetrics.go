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

func (m consumerMetrics) shown() []consumerSums {
	m.b.mu.RLock()
	defer m.b.mu.RUnlock()
	cs := m.b.state.OldestConsumers(consumersShown)
	sums := make([]consumerSums, len(cs))
	for i, c := range cs {
		info := describeConsumer(m.b.state.TopicByID(c.Topic), c)
		sums[i] = consumerSums{topic: info.Topic, name: info.Name, moved: info.Moved}
		for _, p := range info.Positions {
			sums[i].lag += p.Lag()
			sums[i].missed += p.Missed()
		}
	}
	return sums
}
