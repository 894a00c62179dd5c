package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of the API. Their labels are routes, not paths, and only well-known methods. So
// the requests of clients can't create an unlimited number of series.
type metrics struct {
	inFlight prometheus.Gauge
	requests *prometheus.CounterVec   // route, method, code
	duration *prometheus.HistogramVec // route, method
	bytesIn  *prometheus.CounterVec   // route
	bytesOut *prometheus.CounterVec   // route
	refusals *prometheus.CounterVec   // reason
	streams  prometheus.Gauge
	events   prometheus.Counter
	passedOn *prometheus.CounterVec // result

	served sync.Map // *servedMetrics by servedAs: a look-up here costs less than WithLabelValues
}

// servedAs are the labels of a request.
type servedAs struct {
	route, method string
	status        int
}

// servedMetrics are the series of requests with the same labels.
type servedMetrics struct {
	requests, bytesIn, bytesOut prometheus.Counter
	duration                    prometheus.Observer
}

// Results of requests that this broker forwarded to the broker that it knew as the owner of a queue.
const (
	passedAnswered = "answered"
	passedRefused  = "refused" // the other broker isn't the owner, can't serve, or doesn't know this broker
	passedDeaf     = "deaf"    // the other broker did not answer
)

// Reasons why access control refuses a request: values of the label reason.
const (
	refusedMissing   = "missing"   // no key
	refusedWrong     = "wrong"     // an invalid, expired or revoked key
	refusedThrottled = "throttled" // an invalid, expired or revoked key, too often from one address
	refusedForbidden = "forbidden" // a valid key without the access that the action needs
)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seb_http_requests_in_flight", Help: "HTTP requests being served.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_http_requests_total", Help: "HTTP requests served; code 499: the client left or was cut off before the response.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "seb_http_request_duration_seconds",
			Help:    "Time from the request's headers to the end of its response, including waits that the caller asked for.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "method"}),
		bytesIn: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_http_request_bytes_total", Help: "Bytes read of request bodies, before decoding.",
		}, []string{"route"}),
		bytesOut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_http_response_bytes_total", Help: "Bytes written of response bodies.",
		}, []string{"route"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_http_access_refused_total", Help: "Requests refused by access control: no key, an invalid key, too many invalid keys, or a key without the scope or topic.",
		}, []string{"reason"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "seb_http_event_streams", Help: "Open streams of server-sent events, of reads and queues.",
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seb_http_events_total", Help: "Records sent as server-sent events.",
		}),
		passedOn: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seb_http_passed_on_total", Help: "Requests forwarded to the owner of a queue, by result.",
		}, []string{"result"}),
	}
	for _, reason := range []string{refusedMissing, refusedWrong, refusedThrottled, refusedForbidden} {
		m.refusals.WithLabelValues(reason) // creates the series at 0, so that an alert notices the first refusal
	}
	for _, result := range []string{passedAnswered, passedRefused, passedDeaf} {
		m.passedOn.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.inFlight, m.requests, m.duration, m.bytesIn, m.bytesOut, m.refusals, m.streams, m.events, m.passedOn)
	}
	return m
}

// buildInfo returns a metric whose label is the version of the program.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "seb_build_info", Help: "Always 1; the label has the version of the broker.", ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 })
}

func (m *metrics) observe(w *response, r *http.Request, took time.Duration) {
	s := m.of(servedAs{routeOf(r), methodOf(r), w.status})
	s.requests.Inc()
	s.duration.Observe(took.Seconds())
	s.bytesIn.Add(float64(w.bytesIn))
	s.bytesOut.Add(float64(w.bytesOut))
}

func (m *metrics) of(as servedAs) *servedMetrics {
	if s, found := m.served.Load(as); found {
		return s.(*servedMetrics)
	}
	s := &servedMetrics{
		requests: m.requests.WithLabelValues(as.route, as.method, strconv.Itoa(as.status)),
		bytesIn:  m.bytesIn.WithLabelValues(as.route),
		bytesOut: m.bytesOut.WithLabelValues(as.route),
		duration: m.duration.WithLabelValues(as.route, as.method),
	}
	m.served.Store(as, s)
	return s
}

// routeOf returns the name of the route that served r.
func routeOf(r *http.Request) string { return routeName(r.Pattern) }

// routeName returns the pattern of a route without the {$} that says where the path ends.
func routeName(pattern string) string {
	if pattern == "" || pattern == unmatched {
		return "unmatched"
	}
	return strings.TrimSuffix(pattern, "{$}")
}

func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	default:
		return "other"
	}
}
