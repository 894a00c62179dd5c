package seb

import "github.com/prometheus/client_golang/prometheus"

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
		var lag, missed int64
		for _, p := range c.Positions {
			lag += p.Lag()
			missed += p.Missed()
		}
		gauge := func(d *prometheus.Desc, v float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, c.Topic, c.Name)
		}
		gauge(consumerLag, float64(lag))
		gauge(consumerMissed, float64(missed))
		gauge(consumerMoved, float64(c.Moved.UnixMicro())/1e6)
	}
}

func (m consumerMetrics) shown() []ConsumerInfo {
	m.b.mu.RLock()
	defer m.b.mu.RUnlock()
	cs := m.b.state.OldestConsumers(consumersShown)
	infos := make([]ConsumerInfo, len(cs))
	for i, c := range cs {
		infos[i] = describeConsumer(m.b.state.TopicByID(c.Topic), c)
	}
	return infos
}
