package httpapi

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/price"
)

const (
	month = 30 * 24 * time.Hour
	// servedMin is how long a broker must have served before it estimates the cost of a month.
	servedMin = time.Minute
	// monthMin is how long brokers must have counted requests in a calendar month before the whole month is estimated.
	monthMin = time.Hour
)

// bill is what a broker has used of its store, and what that costs.
type bill struct {
	Since    string       `json:"since"`
	Serving  string       `json:"serving"`
	Requests billRequests `json:"requests"`
	Causes   []billCause  `json:"causes"` // the requests by what they were for, the most expensive first
	Bytes    billBytes    `json:"bytes"`
	Stored   billStored   `json:"stored"`
	Prices   *price.List  `json:"prices"` // null if the prices are not known
	SoFar    *cost        `json:"so_far"` // null if the prices are not known
	Month    *cost        `json:"month"`  // an estimate; null if the prices are not known or the broker has served for less than servedMin
	All      billMonth    `json:"calendar_month"`
	Cache    billCache    `json:"cache"`
	Hint     string       `json:"hint,omitempty"`
}

// billMonth is what all brokers of the log have asked of the store in a calendar month, in UTC.
type billMonth struct {
	Since     string       `json:"since"`
	Until     string       `json:"until"`
	Requests  billRequests `json:"requests"`
	Causes    []billCause  `json:"causes"`
	Bytes     billBytes    `json:"bytes"`
	SoFar     *cost        `json:"so_far"`    // null if the prices are not known
	Projected *cost        `json:"projected"` // for the whole month; null if the prices are not known, or too little time has passed
}

// billCache says what the cache has saved.
type billCache struct {
	Hits    int64    `json:"hits"`
	Dollars *float64 `json:"dollars_at_most"` // if each hit had been a GET of its own; null if the prices are not known
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
func causesOf(causes map[string]seb.StoreUse, p *price.List) []billCause {
	list := []billCause{}
	for cause, u := range causes {
		r := requestsOf(u)
		if r == (billRequests{}) {
			continue
		}
		c := billCause{Cause: cause, ClassA: r.ClassA, ClassB: r.ClassB, Free: r.Free}
		if p != nil {
			c.Dollars = new(dollars(p.OfRequests(u)))
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
	Objects        int64  `json:"objects"`
	Bytes          int64  `json:"bytes"`
	LiveBytes      int64  `json:"live_bytes"`
	Dead           int64  `json:"dead_bytes"`             // in objects that will be deleted
	DeadInSegments int64  `json:"dead_in_segments_bytes"` // in segments that have live records, too
	Covers         string `json:"covers"`
}

func storedOf(u *seb.Usage) billStored {
	return billStored{u.StoredObjects, u.StoredBytes, u.StoredBytes - u.DeadBytes - u.DeadInSegmentsBytes, u.DeadBytes, u.DeadInSegmentsBytes, storedCovers}
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

func costOf(requests, storage float64) *cost {
	return &cost{dollars(requests), dollars(storage), dollars(requests + storage)}
}

// dollars rounds d to a billionth of a dollar: a GET costs less than a millionth.
func dollars(d float64) float64 { return math.Round(d*1e9) / 1e9 }

// billOf returns the bill for u. It estimates the cost of a month from the bytes stored now, and from the
// rate of requests since the broker began to serve: the requests that the start needed are subtracted.
func billOf(u seb.Usage, p *price.List) bill {
	b := bill{
		Since: u.Since.UTC().Format(timestampLayout), Serving: u.Serving.Round(time.Millisecond).String(),
		Requests: requestsOf(u.Store), Causes: causesOf(u.Causes, p),
		Bytes:  billBytes{u.Store.SentBytes, u.Store.ReceivedBytes},
		Stored: storedOf(&u), All: monthOf(&u, p), Cache: billCache{Hits: u.CacheHits},
		Prices: p,
	}
	if p == nil {
		b.Hint = "the prices of this store are unknown: start the broker with --prices for an estimate"
		return b
	}
	b.Cache.Dollars = new(dollars(p.OfRequests(seb.StoreUse{Gets: u.CacheHits})))
	months := u.Serving.Hours() / month.Hours()
	requests, storage := p.OfRequests(u.Store), p.OfStorage(u.StoredBytes)
	b.SoFar = costOf(requests, storage*months)
	if u.Serving < servedMin {
		b.Hint = "ask again later: a month is estimated once the broker has served for a minute"
		return b
	}
	b.Month = costOf((requests-p.OfRequests(u.Opening))/months, storage)
	return b
}

// monthOf returns what all brokers have used in the calendar month. It assumes that they go on as in the part of the month that they
// have counted, and that as much was stored as now.
func monthOf(u *seb.Usage, p *price.List) billMonth {
	var sum seb.StoreUse
	for _, use := range u.Month {
		sum = sum.Plus(use)
	}
	m := billMonth{
		Since: u.MonthSince.UTC().Format(timestampLayout), Until: u.MonthNow.UTC().Format(timestampLayout),
		Requests: requestsOf(sum), Causes: causesOf(u.Month, p), Bytes: billBytes{sum.SentBytes, sum.ReceivedBytes},
	}
	if p == nil {
		return m
	}
	now := u.MonthNow.UTC()
	end := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	counted, length := now.Sub(u.MonthSince), end.Sub(time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
	requests, storage := p.OfRequests(sum), p.OfStorage(u.StoredBytes)
	m.SoFar = costOf(requests, storage*counted.Hours()/length.Hours())
	if counted >= monthMin {
		m.Projected = costOf(requests+requests/counted.Hours()*end.Sub(now).Hours(), storage*end.Sub(u.MonthSince).Hours()/length.Hours())
	}
	return m
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
	prices *price.List // nil if the prices are not known: then the metrics have no dollars
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
	deadBytes = prometheus.NewDesc("seb_store_dead_bytes",
		"The part of seb_store_stored_bytes that no longer counts: of objects that will be deleted, or of records in segments that have others, too.", []string{"in"}, nil)
	monthRequests = prometheus.NewDesc("seb_store_month_requests",
		"Requests of all brokers to the object store in this calendar month (UTC), by what they were for, and by class: a (create, list), b (get) and free (delete).", []string{"cause", "class"}, nil)
	monthDollars = prometheus.NewDesc("seb_store_month_requests_dollars",
		"What the requests of all brokers in this calendar month have cost, in dollars. Absent if the broker does not know the prices (--prices).", []string{"cause"}, nil)
)

// Describe implements [prometheus.Collector].
func (m *billMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{billedRequests, billedDollars, storedBytes, storedDollars, deadBytes, monthRequests, monthDollars} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *billMetrics) Collect(out chan<- prometheus.Metric) {
	u := m.usage()
	counter := func(d *prometheus.Desc, value float64, class string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, class)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	r := requestsOf(u.Store)
	counter(billedRequests, float64(r.ClassA), "a")
	counter(billedRequests, float64(r.ClassB), "b")
	counter(billedRequests, float64(r.Free), "free")
	gauge(storedBytes, float64(u.StoredBytes))
	gauge(deadBytes, float64(u.DeadBytes), "objects")
	gauge(deadBytes, float64(u.DeadInSegmentsBytes), "segments")
	months := map[string]seb.StoreUse{}
	maps.Copy(months, u.Month)
	for cause := range u.Causes { // so that the metrics of a cause don't come and go
		months[cause] = u.Month[cause]
	}
	for cause, use := range months {
		r := requestsOf(use)
		gauge(monthRequests, float64(r.ClassA), cause, "a")
		gauge(monthRequests, float64(r.ClassB), cause, "b")
		gauge(monthRequests, float64(r.Free), cause, "free")
	}
	if p := m.prices; p != nil {
		counter(billedDollars, p.OfRequests(seb.StoreUse{Creates: u.Store.Creates, Lists: u.Store.Lists, SentBytes: u.Store.SentBytes}), "a")
		counter(billedDollars, p.OfRequests(seb.StoreUse{Gets: u.Store.Gets, ReceivedBytes: u.Store.ReceivedBytes}), "b")
		gauge(storedDollars, p.OfStorage(u.StoredBytes))
		for cause, use := range months {
			gauge(monthDollars, p.OfRequests(use), cause)
		}
	}
}
