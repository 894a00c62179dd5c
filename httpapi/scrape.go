package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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

// gathered serves what g has in the Prometheus text format.
func (h *Handler) gathered(g prometheus.Gatherer) action {
	metrics := promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
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
		metrics.ServeHTTP(w, r)
		return nil
	}
}
