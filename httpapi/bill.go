package httpapi

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb"
)

// Prices are a store's prices in dollars, before taxes, discounts and free
// monthly allowances.
type Prices struct {
	Name   string `json:"name"`             // short, such as s3
	Of     string `json:"of"`               // the provider, and which of its products
	AsOf   string `json:"as_of,omitempty"`  // the month in which the prices were looked up, such as 2026-11
	Source string `json:"source,omitempty"` // where the prices were looked up

	ClassA  float64 `json:"class_a_per_million"`  // the price of a million PUT or LIST requests
	ClassB  float64 `json:"class_b_per_million"`  // the price of a million GET requests
	Storage float64 `json:"storage_per_gb_month"` // the price of storing 10^9 bytes for a month

	Note string `json:"note,omitempty"` // other costs that a reader should know about
}

// Check returns an error if a price is negative, not a number or above a million dollars.
func (p Prices) Check() error {
	for _, price := range []float64{p.ClassA, p.ClassB, p.Storage} {
		if math.IsNaN(price) || price < 0 || price > dollarsMax {
			return fmt.Errorf("a price is %v dollars: it must be from 0 to %d", price, int64(dollarsMax))
		}
	}
	return nil
}

const (
	dollarsMax = 1e6
	month      = 30 * 24 * time.Hour
	// servedMin is how long a broker must have served before it estimates the cost of a month.
	servedMin = time.Minute
)

// bill is what a broker has used of its store, and what that costs.
type bill struct {
	Since    string       `json:"since"`
	Serving  string       `json:"serving"`
	Requests billRequests `json:"requests"`
	Causes   []billCause  `json:"causes"` // the requests by what they were for, the most expensive first
	Bytes    billBytes    `json:"bytes"`
	Stored   billStored   `json:"stored"`
	Prices   *Prices      `json:"prices"` // null if the prices are not known
	SoFar    *cost        `json:"so_far"` // null if the prices are not known
	Month    *cost        `json:"month"`  // an estimate; null if the prices are not known or the broker has served for less than servedMin
	Hint     string       `json:"hint,omitempty"`
}

// billRequests are numbers of requests, in the classes that stores bill.
type billRequests struct {
	ClassA int64 `json:"class_a"`
	ClassB int64 `json:"class_b"`
	Free   int64 `json:"free"`
}

// billCause are the requests of one cause.
type billCause struct {
	Cause   string   `json:"cause"`
	ClassA  int64    `json:"class_a"`
	ClassB  int64    `json:"class_b"`
	Free    int64    `json:"free"`
	Dollars *float64 `json:"dollars"` // what they have cost; null if the prices are not known
}

// causesOf returns the causes that have requests: those with the most expensive requests first, else by name.
func causesOf(causes map[string]seb.StoreUse, p *Prices) []billCause {
	list := []billCause{}
	for cause, u := range causes {
		r := requestsOf(u)
		if r == (billRequests{}) {
			continue
		}
		c := billCause{Cause: cause, ClassA: r.ClassA, ClassB: r.ClassB, Free: r.Free}
		if p != nil {
			c.Dollars = new(dollars(p.requests(r)))
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b billCause) int {
		if p != nil && *a.Dollars != *b.Dollars {
			return cmp.Compare(*b.Dollars, *a.Dollars)
		}
		return cmp.Compare(a.Cause, b.Cause)
	})
	return list
}

type billBytes struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

type billStored struct {
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
	Covers  string `json:"covers"`
}

const storedCovers = "objects that hold records of the log, whichever broker wrote them; checkpoints, objects without records, and older versions of objects are not counted"

// cost is in dollars.
type cost struct {
	Requests float64 `json:"requests"`
	Storage  float64 `json:"storage"`
	Total    float64 `json:"total"`
}

func requestsOf(u seb.StoreUse) billRequests {
	return billRequests{ClassA: u.Creates + u.Lists, ClassB: u.Gets, Free: u.Deletes}
}

// requests returns what r costs.
func (p *Prices) requests(r billRequests) float64 {
	return (float64(r.ClassA)*p.ClassA + float64(r.ClassB)*p.ClassB) / 1e6
}

// storage returns what it costs to store the given number of bytes for a month.
func (p *Prices) storage(bytes int64) float64 { return float64(bytes) / 1e9 * p.Storage }

func costOf(requests, storage float64) *cost {
	return &cost{dollars(requests), dollars(storage), dollars(requests + storage)}
}

// dollars rounds d to a billionth of a dollar: a GET costs less than a millionth.
func dollars(d float64) float64 { return math.Round(d*1e9) / 1e9 }

// billOf returns the bill for u. It estimates the cost of a month from the bytes stored now, and from the
// rate of requests since the broker began to serve: the requests that the start needed are subtracted.
func billOf(u seb.Usage, p *Prices) bill {
	b := bill{
		Since: u.Since.UTC().Format(timestampLayout), Serving: u.Serving.Round(time.Millisecond).String(),
		Requests: requestsOf(u.Store), Causes: causesOf(u.Causes, p),
		Bytes:  billBytes{u.Store.SentBytes, u.Store.ReceivedBytes},
		Stored: billStored{u.StoredObjects, u.StoredBytes, storedCovers},
		Prices: p,
	}
	if p == nil {
		b.Hint = "the prices of this store are unknown: start the broker with --prices for an estimate"
		return b
	}
	months := u.Serving.Hours() / month.Hours()
	requests, storage := p.requests(b.Requests), p.storage(u.StoredBytes)
	b.SoFar = costOf(requests, storage*months)
	if u.Serving < servedMin {
		b.Hint = "ask again later: a month is estimated once the broker has served for a minute"
		return b
	}
	b.Month = costOf((requests-p.requests(requestsOf(u.Opening)))/months, storage)
	return b
}

func (h *Handler) getBill(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, billOf(h.broker.Usage(), h.prices))
}

// billMetrics collects metrics of what the broker has used of its store, and what that costs.
type billMetrics struct {
	usage  func() seb.Usage
	prices *Prices // nil if the prices are not known: then the metrics have no dollars
}

var (
	billedRequests = prometheus.NewDesc("seb_store_billed_requests_total",
		"Requests to the object store, in the classes that stores bill: a (create, list), b (get) and free (delete).", []string{"class"}, nil)
	billedDollars = prometheus.NewDesc("seb_store_billed_requests_dollars_total",
		"What the requests to the object store have cost, in dollars. Absent if the broker does not know the prices (--prices).", []string{"class"}, nil)
	storedBytes = prometheus.NewDesc("seb_store_stored_bytes",
		"Size of the objects that hold records of the log, whichever broker wrote them.", nil, nil)
	storedDollars = prometheus.NewDesc("seb_store_stored_month_dollars",
		"What it costs to store the objects that hold records for a month, in dollars. Absent if the broker does not know the prices (--prices).", nil, nil)
)

// Describe implements [prometheus.Collector].
func (m *billMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{billedRequests, billedDollars, storedBytes, storedDollars} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *billMetrics) Collect(out chan<- prometheus.Metric) {
	u := m.usage()
	counter := func(d *prometheus.Desc, value float64, class string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, class)
	}
	gauge := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	r := requestsOf(u.Store)
	counter(billedRequests, float64(r.ClassA), "a")
	counter(billedRequests, float64(r.ClassB), "b")
	counter(billedRequests, float64(r.Free), "free")
	gauge(storedBytes, float64(u.StoredBytes))
	if p := m.prices; p != nil {
		counter(billedDollars, p.requests(billRequests{ClassA: r.ClassA}), "a")
		counter(billedDollars, p.requests(billRequests{ClassB: r.ClassB}), "b")
		gauge(storedDollars, p.storage(u.StoredBytes))
	}
}
