package httpapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/simple-event-broker/seb"
)

const (
	// scrapesMax is how many answers with metrics there may be at a time, for each kind of callers: see scrapes. Their
	// memory is not reserved from the broker's budget: a broker without free memory must still show metrics. Each
	// answer takes some megabytes at most, since it shows up to 1,000 topics, consumers, queues and push targets.
	scrapesMax = 2
	// scrapeWaitMax is how long a caller waits for its turn.
	scrapeWaitMax = 5 * time.Second
)

// scrapes limits how many callers get metrics at a time: each such caller has a turn. An API key, or an address
// of callers without a key, has one turn at most. So one caller who reads slowly does not block the others. Callers
// without the scope metrics have turns of their own.
type scrapes struct {
	mu   sync.Mutex
	held map[seb.Holder]struct{}
	free chan struct{} // closed, and replaced by a new channel, when a turn ends
}

func newScrapes() *scrapes {
	return &scrapes{held: map[seb.Holder]struct{}{}, free: make(chan struct{})}
}

// begin waits for a turn. The caller ends the turn by calling end.
func (s *scrapes) begin(ctx context.Context, of seb.Holder) (end func(), err error) {
	timer := time.NewTimer(scrapeWaitMax)
	defer timer.Stop()
	for {
		free, ok := s.take(of)
		if ok {
			return func() { s.give(of) }, nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, &seb.Error{
				Code: seb.CodeOverMemoryBudget, RetryAfter: scrapeWaitMax, Limit: scrapesMax,
				Detail: "two other callers, or a caller with the same API key or address, are reading the metrics now", Hint: "try again later, and ask less often",
			}
		}
	}
}

// take takes a turn if the holder may have a turn now. Otherwise it returns a channel that is closed when
// another turn ends.
func (s *scrapes) take(of seb.Holder) (free <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.held[of]; has || len(s.held) == scrapesMax {
		return s.free, false
	}
	s.held[of] = struct{}{}
	return nil, true
}

func (s *scrapes) give(of seb.Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, of)
	close(s.free)
	s.free = make(chan struct{})
}

// gathered serves the metrics of g that the caller may see, in the Prometheus text format.
func (h *Handler) gathered(g prometheus.Gatherer) action {
	return func(w *response, r *http.Request) error {
		if err := refuseHeaders(r.Header); err != nil {
			return err
		}
		if _, err := parseValues(r, "name[]"); err != nil { // names of metrics to return, any number of them
			return err
		}
		turns := h.plain
		if w.access.CheckScope(seb.ScopeMetrics) == nil {
			turns = h.scrapes
		}
		end, err := turns.begin(r.Context(), w.holder())
		if err != nil {
			return err
		}
		defer end()
		seen := seenMetrics{g, w.access}
		promhttp.HandlerFor(seen, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
		return nil
	}
}

// seenMetrics gathers the metrics that a caller may see. For a series with the name of a topic, the caller
// needs the scope metrics and a key that may see the topic.
type seenMetrics struct {
	all    prometheus.Gatherer
	access seb.Access
}

// Gather implements [prometheus.Gatherer].
func (s seenMetrics) Gather() ([]*dto.MetricFamily, error) {
	families, err := s.all.Gather()
	named := s.access.CheckScope(seb.ScopeMetrics) == nil
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			topic, is := topicOf(m)
			return is && (!named || !s.access.MaySee(topic))
		})
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), err
}

// topicOf returns the topic in the labels of a series, or false if the labels name no topic. A series with the
// name of a queue or a consumer also has the name of its topic.
func topicOf(m *dto.Metric) (topic string, is bool) {
	for _, l := range m.Label {
		if l.GetName() == "topic" {
			return l.GetValue(), true
		}
	}
	return "", false
}
