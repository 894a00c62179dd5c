package push

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// targetsShown bounds the series that targets make. Past it those that began first are
// shown, so that a series doesn't come and go with the others.
const targetsShown = 1000

// Metrics is a [prometheus.Collector] of the pushers that run. One that has ended
// leaves nothing behind.
type Metrics struct {
	inFlight, slowed *prometheus.Desc
	deliveries       *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	untold           *prometheus.CounterVec

	mu      sync.Mutex
	running map[names]*Pusher
}

type names struct{ topic, queue string }

// series are those of one pusher; nil are none.
type series struct {
	deliveries map[Outcome]prometheus.Counter
	seconds    prometheus.Observer
	untold     prometheus.Counter
}

// NewMetrics returns metrics to be registered, and given to pushers.
func NewMetrics() *Metrics {
	labels := []string{"topic", "queue"}
	return &Metrics{
		running: map[names]*Pusher{},
		inFlight: prometheus.NewDesc("seb_push_in_flight",
			"Requests to the target that are under way.", labels, nil),
		slowed: prometheus.NewDesc("seb_push_slowed_until_timestamp_seconds",
			"When the target is asked again, in seconds since 1970; 0 if it is not left alone now.", labels, nil),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_push_deliveries_total", Help: "Requests to the target, by what came of them."}, append(labels, "outcome")),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seb_push_duration_seconds", Help: "Duration of requests to the target.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, labels),
		untold: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_push_unsettled_total", Help: "Messages whose outcome the queue didn't take, and which it hands out again."}, labels),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.inFlight
	out <- m.slowed
	m.deliveries.Describe(out)
	m.seconds.Describe(out)
	m.untold.Describe(out)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, p := range m.running {
		s, until := p.Status(), 0.0
		if !s.SlowedUntil.IsZero() {
			until = float64(s.SlowedUntil.UnixMilli()) / 1e3
		}
		out <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(s.InFlight), n.topic, n.queue)
		out <- prometheus.MustNewConstMetric(m.slowed, prometheus.GaugeValue, until, n.topic, n.queue)
	}
	m.deliveries.Collect(out)
	m.seconds.Collect(out)
	m.untold.Collect(out)
}

// begin makes p's series. The nil Metrics has none.
func (m *Metrics) begin(p *Pusher) *series {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := names{p.opts.Topic, p.opts.Queue}
	if m.running[n] == nil && len(m.running) >= targetsShown {
		return nil
	}
	m.running[n] = p // also in place of one that is about to end
	s := &series{
		deliveries: map[Outcome]prometheus.Counter{},
		seconds:    m.seconds.WithLabelValues(n.topic, n.queue),
		untold:     m.untold.WithLabelValues(n.topic, n.queue),
	}
	for _, o := range outcomes { // so that an alert sees the first
		s.deliveries[o] = m.deliveries.WithLabelValues(n.topic, n.queue, string(o))
	}
	return s
}

func (m *Metrics) end(p *Pusher) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := names{p.opts.Topic, p.opts.Queue}
	if m.running[n] != p {
		return
	}
	delete(m.running, n)
	of := prometheus.Labels{"topic": n.topic, "queue": n.queue}
	m.deliveries.DeletePartialMatch(of)
	m.seconds.DeletePartialMatch(of)
	m.untold.DeletePartialMatch(of)
}

func (s *series) observe(o Outcome, took time.Duration) {
	if s != nil {
		s.deliveries[o].Inc()
		s.seconds.Observe(took.Seconds())
	}
}

func (s *series) unsettled() {
	if s != nil {
		s.untold.Inc()
	}
}
