package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/simple-event-broker/seb"
)

const (
	// scrapesMax is how many answers with metrics there may be at a time. They are not reserved from the
	// memory budget: a broker that has none left must still tell. Each takes some megabytes at most, since
	// collectors show 1,000 consumers, queues and targets.
	scrapesMax = 2
	// scrapeWaitMax is how long a caller waits for its turn.
	scrapeWaitMax = 5 * time.Second
)

// scrapes are the turns of callers that want metrics.
type scrapes chan struct{}

func (s scrapes) begin(ctx context.Context) (end func(), err error) {
	timer := time.NewTimer(scrapeWaitMax)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, &seb.Error{
			Code: seb.CodeOverMemoryBudget, RetryAfter: scrapeWaitMax, Limit: scrapesMax,
			Detail: "others are being told the metrics, and read them slowly", Hint: "try again later, and ask less often",
		}
	}
}

// gathered serves what g has in the Prometheus text format, as far as the caller may see it.
func (h *Handler) gathered(g prometheus.Gatherer) action {
	return func(w *response, r *http.Request) error {
		if err := refuseHeaders(r.Header); err != nil {
			return err
		}
		if _, err := parseValues(r, "name[]"); err != nil { // which of them, any number
			return err
		}
		end, err := h.scrapes.begin(r.Context())
		if err != nil {
			return err
		}
		defer end()
		seen := seenMetrics{g, w.access}
		promhttp.HandlerFor(seen, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
		return nil
	}
}

// seenMetrics are what a caller may see: series with the name of a topic are for keys with the scope
// metrics, and for those of the topic.
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

// topicOf returns the topic that a series is of; all that name a queue or a consumer name its topic.
func topicOf(m *dto.Metric) (topic string, is bool) {
	for _, l := range m.Label {
		if l.GetName() == "topic" {
			return l.GetValue(), true
		}
	}
	return "", false
}
