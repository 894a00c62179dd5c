package httpapi

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// dear are high prices, with which expected sums are easy to compute.
var dear = Prices{Name: "dear", Of: "a shop", ClassA: 5, ClassB: 0.4, Storage: 0.02}

func TestBillOfADay(t *testing.T) {
	u := seb.Usage{
		Since:   time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		Store:   seb.StoreUse{Creates: 99_000, Lists: 1_010, Gets: 50_030, Deletes: 7, SentBytes: 11, ReceivedBytes: 22},
		Opening: seb.StoreUse{Creates: 9, Lists: 1, Gets: 30, Deletes: 7},
		Causes: map[string]seb.StoreUse{
			"append": {Creates: 98_000, SentBytes: 11}, "compact": {Creates: 1000, Gets: 30}, "follow": {Gets: 50_000, Lists: 1000}, "start": {Lists: 10, Deletes: 7}, "read": {},
		},
		Serving:       24 * time.Hour,
		StoredObjects: 3, StoredBytes: 15e9,
	}
	want := bill{
		Since: "2026-01-31T12:00:00.000Z", Serving: "24h0m0s",
		Requests: billRequests{ClassA: 100_010, ClassB: 50_030, Free: 7}, Bytes: billBytes{Sent: 11, Received: 22},
		Causes: []billCause{
			{"append", 98_000, 0, 0, new(0.49)}, {"follow", 1000, 50_000, 0, new(0.025)},
			{"compact", 1000, 30, 0, new(0.005012)}, {"start", 10, 0, 7, new(0.00005)},
		},
		Stored: billStored{Objects: 3, Bytes: 15e9, Covers: storedCovers}, Prices: &dear,
		// 100,010 requests at $5 and 50,030 at $0.40 a million; 15 GB at $0.02 for a 30th of a month.
		SoFar: &cost{Requests: 0.520062, Storage: 0.01, Total: 0.530062},
		// 30 times 100,000 and 50,000 requests; 15 GB for a month.
		Month: &cost{Requests: 15.6, Storage: 0.3, Total: 15.9},
	}
	if diff := cmp.Diff(want, billOf(u, &dear)); diff != "" {
		t.Errorf("the bill of a day (-want +got):\n%s", diff)
	}
}

func TestBillOfAnIdleBrokerIsItsStorage(t *testing.T) {
	start := seb.StoreUse{Creates: 20, Gets: 40, Lists: 3}
	b := billOf(seb.Usage{Store: start, Opening: start, Serving: 10 * time.Minute, StoredBytes: 1e9}, &dear)
	if *b.Month != (cost{Storage: 0.02, Total: 0.02}) || b.SoFar.Requests != 0.000131 {
		t.Errorf("month %+v, so far %+v", b.Month, b.SoFar)
	}
}

func TestBillEstimatesNoMonthFromItsFirstMinute(t *testing.T) {
	b := billOf(seb.Usage{Store: seb.StoreUse{Creates: 1}, Serving: time.Minute - 1}, &dear)
	if b.Month != nil || b.SoFar == nil || !strings.Contains(b.Hint, "a minute") {
		t.Errorf("%+v", b)
	}
	if b = billOf(seb.Usage{Serving: time.Minute}, &dear); b.Month == nil || b.Hint != "" {
		t.Errorf("%+v", b)
	}
}

func TestPricesThatCannotBe(t *testing.T) {
	if err := dear.Check(); err != nil {
		t.Error(err)
	}
	for _, p := range []Prices{{ClassA: -1}, {ClassB: math.NaN()}, {Storage: math.Inf(1)}} {
		if p.Check() == nil {
			t.Errorf("%+v passes", p)
		}
	}
}

func TestBillOverHTTP(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{Prices: &dear})
	s.append("orders", "what creates the topic")
	var before, after bill
	s.get("/v1/bill").json(t, &before)
	s.append("orders", "x")
	s.get("/v1/bill").json(t, &after)
	if got := after.Requests.ClassA - before.Requests.ClassA; got != 1 || after.Requests.ClassB != before.Requests.ClassB {
		t.Errorf("an append is said to be %d requests of class A; before %+v, after %+v", got, before.Requests, after.Requests)
	}
	if after.Bytes.Sent-before.Bytes.Sent != after.Stored.Bytes-before.Stored.Bytes || before.Stored.Objects != 1 || after.Stored.Objects != 2 {
		t.Errorf("before %+v %+v, after %+v %+v", before.Bytes, before.Stored, after.Bytes, after.Stored)
	}
	if want := float64(after.Requests.ClassA*50+after.Requests.ClassB*4) / 1e7; after.SoFar == nil || math.Abs(after.SoFar.Requests-want) > 1e-12 {
		t.Errorf("so far %+v, want $%v for %+v", after.SoFar, want, after.Requests)
	}
	if since, err := time.Parse(time.RFC3339, after.Since); err != nil || time.Since(since) > time.Hour || after.Prices == nil || *after.Prices != dear {
		t.Errorf("since %s, prices %+v", after.Since, after.Prices)
	}
	s.get("/v1/bill?month=1").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

func TestBillWithoutPricesShowsUsage(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.get("/v1/bill")
	var b bill
	a.json(t, &b)
	if b.Requests.ClassA == 0 || b.Prices != nil || b.SoFar != nil || b.Month != nil || !strings.Contains(b.Hint, "--prices") {
		t.Errorf("%s", a.body)
	}
	if !strings.Contains(a.body, `"month":null`) {
		t.Errorf("null is not told: %s", a.body)
	}
}

func TestBillSendsNoRequestOfItsOwn(t *testing.T) {
	store := &brokenStore{Store: objstore.NewMemory()}
	s := newServerOn(t, store, seb.Options{}, Options{})
	store.down.Store(true)
	defer store.down.Store(false)
	var before, after bill
	s.get("/v1/bill").json(t, &before)
	s.get("/v1/bill").json(t, &after)
	if before.Requests != after.Requests {
		t.Errorf("%+v, then %+v", before.Requests, after.Requests)
	}
}

// As in any request with a key, the broker syncs to find out whether the key is still valid.
func TestBillWithAKeyCostsOneGETAtMost(t *testing.T) {
	s := newServer(t, seb.Options{StaleMax: time.Nanosecond}, Options{})
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	var before, after bill
	s.get("/v1/bill", bearer(ops)...).json(t, &before)
	s.get("/v1/bill", bearer(ops)...).json(t, &after)
	before.Requests.ClassB++
	if before.Requests != after.Requests {
		t.Errorf("%+v with the one, then %+v", before.Requests, after.Requests)
	}
}

func TestMetricsOfTheBill(t *testing.T) {
	u := seb.Usage{Store: seb.StoreUse{Creates: 99_000, Lists: 1_000, Gets: 50_000, Deletes: 7}, StoredBytes: 15e9}
	usage := func() seb.Usage { return u }
	const requests = `
# HELP seb_store_billed_requests_total Requests to the object store, in the classes that stores bill: a (create, list), b (get) and free (delete).
# TYPE seb_store_billed_requests_total counter
seb_store_billed_requests_total{class="a"} 100000
seb_store_billed_requests_total{class="b"} 50000
seb_store_billed_requests_total{class="free"} 7
# HELP seb_store_stored_bytes Size of the objects that hold records of the log, whichever broker wrote them.
# TYPE seb_store_stored_bytes gauge
seb_store_stored_bytes 1.5e+10
`
	const dollars = `
# HELP seb_store_billed_requests_dollars_total What the requests to the object store have cost, in dollars. Absent if the broker does not know the prices (--prices).
# TYPE seb_store_billed_requests_dollars_total counter
seb_store_billed_requests_dollars_total{class="a"} 0.5
seb_store_billed_requests_dollars_total{class="b"} 0.02
# HELP seb_store_stored_month_dollars What it costs to store the objects that hold records for a month, in dollars. Absent if the broker does not know the prices (--prices).
# TYPE seb_store_stored_month_dollars gauge
seb_store_stored_month_dollars 0.3
`
	if err := testutil.CollectAndCompare(&billMetrics{usage, &dear}, strings.NewReader(requests+dollars)); err != nil {
		t.Error(err)
	}
	if err := testutil.CollectAndCompare(&billMetrics{usage, nil}, strings.NewReader(requests)); err != nil {
		t.Error(err)
	}
}

// GET /metrics has the metrics of the bill, and the version, of the broker that serves it.
func TestMetricsHaveBillAndVersion(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := newServer(t, seb.Options{}, Options{Registerer: registry, Gatherer: registry, Prices: &dear, Version: "v1.2.3"})
	a := s.get("/metrics")
	for _, want := range []string{`seb_build_info{version="v1.2.3"} 1`, `seb_store_billed_requests_total{class="a"} `, `seb_store_billed_requests_dollars_total{class="b"} `} {
		if !strings.Contains(a.body, "\n"+want) {
			t.Errorf("there is no %s in\n%s", want, a.body)
		}
	}
}
