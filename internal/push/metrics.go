package push

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// seriesMax bounds the series of one name. Of targets that would make more of them, those
// that began first are shown, so that a series doesn't come and go with the others; what
// the others do is counted together, under no topic and no queue.
const seriesMax = 1000

// durations are the buckets of how long requests take.
var durations = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// How many targets have series of their own, which leaves room for those of the others.
var (
	targetsShown   = seriesMax - 1                    // one series each
	targetsCounted = seriesMax/len(outcomes) - 1      // one for each outcome
	targetsTimed   = seriesMax/(len(durations)+1) - 1 // one for each bucket, and that of all
)

// Metrics is a [prometheus.Collector] of the pushers that run. One that has ended
// leaves nothing behind.
type Metrics struct {
	inFlight, slowed *prometheus.Desc
	deliveries       *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	untold           *prometheus.CounterVec

	mu             sync.Mutex
	running        map[names]*Pusher // those shown
	counted, timed map[names]bool    // those of them that have these series of their own
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
		running: map[names]*Pusher{}, counted: map[names]bool{}, timed: map[names]bool{},
		inFlight: prometheus.NewDesc("seb_push_in_flight",
			"Requests to the target that are under way.", labels, nil),
		slowed: prometheus.NewDesc("seb_push_slowed_until_timestamp_seconds",
			"When the target is asked again, in seconds since 1970; 0 if the target is not being slowed down.", labels, nil),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_push_deliveries_total", Help: "Requests to the target, by what came of them."}, append(labels, "outcome")),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seb_push_duration_seconds", Help: "Duration of requests to the target.",
			Buckets: durations}, labels),
		untold: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_push_unsettled_total", Help: "Messages whose outcome could not be committed; they are delivered again."}, labels),
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

// begin makes p's series, or returns those of all that have none of their own. The nil
// Metrics has none.
func (m *Metrics) begin(p *Pusher) *series {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := names{p.opts.Topic, p.opts.Queue}
	if m.running[n] == nil && len(m.running) >= targetsShown {
		return m.series(names{}, names{}, names{})
	}
	m.running[n] = p // also in place of one that is about to end
	return m.series(n, roomFor(n, m.counted, targetsCounted), roomFor(n, m.timed, targetsTimed))
}

// roomFor returns n, and has it in shown, if there is room for it; else what stands for all
// that have none.
func roomFor(n names, shown map[names]bool, most int) names {
	if !shown[n] && len(shown) >= most {
		return names{}
	}
	shown[n] = true
	return n
}

func (m *Metrics) series(untold, counted, timed names) *series {
	s := &series{
		deliveries: map[Outcome]prometheus.Counter{},
		seconds:    m.seconds.WithLabelValues(timed.topic, timed.queue),
		untold:     m.untold.WithLabelValues(untold.topic, untold.queue),
	}
	for _, o := range outcomes { // so that an alert sees the first
		s.deliveries[o] = m.deliveries.WithLabelValues(counted.topic, counted.queue, string(o))
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
	delete(m.counted, n)
	delete(m.timed, n)
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
