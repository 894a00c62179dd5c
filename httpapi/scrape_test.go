package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// Whoever reads metrics slowly keeps others waiting, and no more memory than two answers take.
func TestMetricsAreToldToFewAtATime(t *testing.T) {
	registry := prometheus.NewRegistry()
	opts := seb.Options{Metrics: registry}
	bubbleOn(t, objstore.NewMemory(), opts, Options{Registerer: registry, Gatherer: registry}, 0, func(t *testing.T, s *server) {
		for i := range 200 { // an answer is more than what buffers of connections hold
			s.do("PUT", fmt.Sprintf("/v1/topics/orders%d", i), nil).want(t, http.StatusCreated)
			s.do("PUT", fmt.Sprintf("/v1/topics/orders%d/consumers/billing", i), nil).want(t, http.StatusCreated)
		}
		var slow []io.Closer
		for range scrapesMax {
			slow = append(slow, s.dial("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		}
		synctest.Wait()
		began := time.Now()
		p := s.get("/metrics").wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
		if waited := time.Since(began); waited != scrapeWaitMax {
			t.Errorf("refused after %v: %+v", waited, p)
		}
		got := make(chan answer)
		go func() { got <- s.get("/metrics") }()
		synctest.Wait()
		for _, conn := range slow {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		a := <-got
		a.want(t, http.StatusOK)
		if n := len(regexp.MustCompile(`(?m)^seb_consumer_lag_records\{`).FindAllString(a.body, -1)); n != 200 {
			t.Errorf("%d consumers are told", n)
		}
	})
}
