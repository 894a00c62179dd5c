package push

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/histogram"
	"github.com/simple-event-broker/seb/metric"
)

// seriesMax bounds the series of one metric. If there are too many targets, only the targets whose pushers
// started first have their own series. All other targets share series with empty topic and queue labels.
const seriesMax = 1000

// durations are the histogram's buckets for how long requests take, in seconds.
var durations = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// How many targets have their own series in each metric. The rest of seriesMax is for the series that all
// other targets share.
var (
	targetsShown   = seriesMax - 1                    // the metrics with one series for each target
	targetsCounted = seriesMax/len(outcomes) - 1      // deliveries: one series for each outcome
	targetsTimed   = seriesMax/(len(durations)+1) - 1 // seconds: one series for each bucket, and one for the total
)

// Metrics are the figures of the running pushers. When a pusher ends, Metrics removes the series that only
// this pusher used.
type Metrics struct {
	mu             sync.Mutex
	running        map[names]*Pusher // pushers whose series are shown
	counted, timed map[names]bool    // the running pushers that have their own series: counted in deliveries, timed in seconds

	deliveries map[names]map[Outcome]*atomic.Int64
	seconds    map[names]*histogram.Histogram
	untold     map[names]*atomic.Int64
}

type names struct{ topic, queue string }

// series are the figures of one pusher. A nil *series counts nothing.
type series struct {
	deliveries map[Outcome]*atomic.Int64
	seconds    *histogram.Histogram
	untold     *atomic.Int64
}

// NewMetrics returns empty Metrics for the Options of pushers.
func NewMetrics() *Metrics {
	return &Metrics{
		running: map[names]*Pusher{}, counted: map[names]bool{}, timed: map[names]bool{},
		deliveries: map[names]map[Outcome]*atomic.Int64{}, seconds: map[names]*histogram.Histogram{}, untold: map[names]*atomic.Int64{},
	}
}

// Families returns the current figures.
func (m *Metrics) Families() []metric.Family {
	family := func(kind metric.Kind, name, help string, more ...string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: kind, Labels: append([]string{"topic", "queue"}, more...)}
	}
	inFlight := family(metric.Gauge, "seb_push_in_flight", "Requests to the target that are under way.")
	slowed := family(metric.Gauge, "seb_push_slowed_until_timestamp_seconds",
		"When requests to the target begin again, in seconds since 1970; 0 if they are not paused.")
	failing := family(metric.Gauge, "seb_push_failing_since_timestamp_seconds",
		"When the first request to the target after the latest success failed, in seconds since 1970. Absent if the latest request succeeded.")
	deliveries := family(metric.Counter, "seb_push_deliveries_total", "Requests to the target, by outcome.", "outcome")
	seconds := family(metric.Histogram, "seb_push_duration_seconds", "Duration of requests to the target.")
	untold := family(metric.Counter, "seb_push_unsettled_total", "Messages whose outcome could not be committed; they are delivered again.")
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, p := range m.running {
		s, until := p.Status(), 0.0
		if !s.SlowedUntil.IsZero() {
			until = float64(s.SlowedUntil.UnixMilli()) / 1e3
		}
		inFlight.Add(float64(s.InFlight), n.topic, n.queue)
		slowed.Add(until, n.topic, n.queue)
		if !s.FailingSince.IsZero() {
			failing.Add(float64(s.FailingSince.UnixMilli())/1e3, n.topic, n.queue)
		}
	}
	for n, outcomes := range m.deliveries {
		for o, count := range outcomes {
			deliveries.Add(float64(count.Load()), n.topic, n.queue, string(o))
		}
	}
	for n, h := range m.seconds {
		seconds.Series = append(seconds.Series, metric.Series{Labels: []string{n.topic, n.queue}, Distribution: h.Read()})
	}
	for n, count := range m.untold {
		untold.Add(float64(count.Load()), n.topic, n.queue)
	}
	return []metric.Family{inFlight, slowed, failing, deliveries, seconds, untold}
}

// begin returns the series in which the pusher p counts. They are p's own series or, if there is no room for
// them, the series with empty labels, which several pushers share. begin returns nil if m is nil.
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
	m.running[n] = p // replaces a pusher of the same queue that is about to end
	return m.series(n, roomFor(n, m.counted, targetsCounted), roomFor(n, m.timed, targetsTimed))
}

// roomFor adds n to shown and returns n. If shown already has most other names, roomFor instead returns empty
// names: the labels of the series that all other pushers share.
func roomFor(n names, shown map[names]bool, most int) names {
	if !shown[n] && len(shown) >= most {
		return names{}
	}
	shown[n] = true
	return n
}

// series returns the figures of a pusher, and makes those that don't exist yet. The parameters are the
// labels of the pusher in three metrics: unsettled messages, deliveries, and seconds.
func (m *Metrics) series(untold, counted, timed names) *series {
	if m.deliveries[counted] == nil {
		m.deliveries[counted] = map[Outcome]*atomic.Int64{}
		for _, o := range outcomes { // each series begins at 0, so that an alert notices the first delivery with that outcome
			m.deliveries[counted][o] = new(atomic.Int64)
		}
	}
	if m.seconds[timed] == nil {
		m.seconds[timed] = histogram.New(durations)
	}
	if m.untold[untold] == nil {
		m.untold[untold] = new(atomic.Int64)
	}
	return &series{m.deliveries[counted], m.seconds[timed], m.untold[untold]}
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
	delete(m.deliveries, n)
	delete(m.seconds, n)
	delete(m.untold, n)
}

func (s *series) observe(o Outcome, took time.Duration) {
	if s != nil {
		s.deliveries[o].Add(1)
		s.seconds.Observe(took.Seconds())
	}
}

func (s *series) unsettled() {
	if s != nil {
		s.untold.Add(1)
	}
}
