package seb

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// Metrics returns the broker's metrics as they are now: always the same families, in the same
// order; a family may have no series. Package sebprom exports them to Prometheus.
func (b *Broker) Metrics() []metric.Family {
	return slices.Concat(b.engine.Metrics(), b.stateMetrics(), b.consumerMetrics(), b.queueMetrics(), b.pushMetrics.Families())
}

// stateMetrics tell how large the state is.
func (b *Broker) stateMetrics() (families []metric.Family) {
	gauge := func(name, help string, value int64) {
		families = append(families, metric.One(metric.Gauge, name, help, float64(value)))
	}
	b.engine.View(func(s *state.State) {
		gauge("seb_state_bytes", "Memory taken by what the broker knows about the log.", s.Memory())
		gauge("seb_state_limit_bytes", "Memory that the state may take (--state-memory); appends are refused a sixteenth before that.", b.opts.StateMemory)
		gauge("seb_topics", "Topics.", int64(s.TopicCount()))
		gauge("seb_consumers", "Consumers of all topics.", int64(s.ConsumerCount()))
		gauge("seb_queues", "Queues of all topics.", int64(s.QueueCount()))
		gauge("seb_delayed_appends", "Appends with a delay whose time has not come.", int64(s.DelayedCount(b.engine.NowIn(s))))
		gauge("seb_batches", "Batches that the state knows.", int64(s.Batches()))
	})
	return families
}
