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
	"github.com/simple-event-broker/seb/price"
)

// dear are high prices, with which expected sums are easy to compute.
var dear = price.List{Name: "dear", Of: "a shop", ClassA: 5, ClassB: 0.4, Storage: 0.02}

func TestBillOfADay(t *testing.T) {
	u := seb.Usage{
		Since:   time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		Store:   seb.StoreUse{Creates: 99_000, Lists: 1_010, Gets: 50_030, Deletes: 7, SentBytes: 11, ReceivedBytes: 22},
		Opening: seb.StoreUse{Creates: 9, Lists: 1, Gets: 30, Deletes: 7},
		Causes: map[string]seb.StoreUse{
			"append": {Creates: 98_000, SentBytes: 11}, "compact": {Creates: 1000, Gets: 30}, "follow": {Gets: 50_000, Lists: 1000}, "start": {Lists: 10, Deletes: 7}, "read": {},
		},
		Serving: 24 * time.Hour, CacheHits: 2_500_000,
		// A tenth of the month is over; all brokers have counted since its first day.
		Month: map[string]seb.StoreUse{
			"append": {Creates: 300_000, SentBytes: 33}, "read": {Gets: 1_000_000, ReceivedBytes: 44}, "cause 9": {Lists: 100_000}, "delete": {},
		},
		MonthSince: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), MonthNow: time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC),
		StoredObjects: 3, StoredBytes: 15e9, DeadBytes: 2e9, DeadInSegmentsBytes: 1e9,
	}
	want := bill{
		Since: "2026-01-31T12:00:00.000Z", Serving: "24h0m0s",
		Requests: billRequests{ClassA: 100_010, ClassB: 50_030, Free: 7}, Bytes: billBytes{Sent: 11, Received: 22},
		Causes: []billCause{
			{"append", 98_000, 0, 0, new(0.49)}, {"follow", 1000, 50_000, 0, new(0.025)},
			{"compact", 1000, 30, 0, new(0.005012)}, {"start", 10, 0, 7, new(0.00005)},
		},
		Stored: billStored{Objects: 3, Bytes: 15e9, LiveBytes: 12e9, Dead: 2e9, DeadInSegments: 1e9, Covers: storedCovers}, Prices: &dear,
		Cache: billCache{Hits: 2_500_000, Dollars: new(1.0)},
		All: billMonth{
			Since: "2026-04-01T00:00:00.000Z", Until: "2026-04-04T00:00:00.000Z",
			Requests: billRequests{ClassA: 400_000, ClassB: 1_000_000}, Bytes: billBytes{33, 44},
			Causes: []billCause{{"append", 300_000, 0, 0, new(1.5)}, {"cause 9", 100_000, 0, 0, new(0.5)}, {"read", 0, 1_000_000, 0, new(0.4)}},
			SoFar:  &cost{Requests: 2.4, Storage: 0.03, Total: 2.43}, Projected: &cost{Requests: 24, Storage: 0.3, Total: 24.3},
		},
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

// Brokers that have counted for a part of the month only say so, and estimate the rest of it.
func TestBillOfAMonthThatWasNotCountedFromItsStart(t *testing.T) {
	now := time.Date(2026, 4, 16, 0, 0, 0, 0, time.UTC) // half of the month is left
	of := func(counted time.Duration) billMonth {
		return billOf(seb.Usage{Month: map[string]seb.StoreUse{"append": {Creates: 10_000}}, MonthSince: now.Add(-counted), MonthNow: now, StoredBytes: 1e9}, &dear).All
	}
	if m := of(24 * time.Hour); *m.SoFar != (cost{0.05, 0.000666667, 0.050666667}) || *m.Projected != (cost{0.8, 0.010666667, 0.810666667}) || m.Since != "2026-04-15T00:00:00.000Z" {
		t.Errorf("so far %+v, projected %+v since %s", m.SoFar, m.Projected, m.Since)
	}
	if m := of(59 * time.Minute); m.SoFar == nil || m.Projected != nil {
		t.Errorf("a month is projected from less than an hour: %+v", m.Projected)
	}
	if m := billOf(seb.Usage{MonthSince: now, MonthNow: now}, &dear).All; *m.SoFar != (cost{}) || m.Projected != nil {
		t.Errorf("nothing is said to cost %+v", m.SoFar)
	}
}

// The month has what another broker has told in the log, and all that this one has sent, although the log does not have that yet.
func TestBillOfAllBrokers(t *testing.T) {
	store := objstore.NewMemory()
	other, err := seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := other.Append(t.Context(), "orders", []seb.Record{{Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	s := newServerOn(t, store, seb.Options{}, Options{Prices: &dear})
	s.append("orders", "y")
	var b bill
	s.get("/v1/bill").json(t, &b)
	told := int64(3) // the other broker has told of its start, and of its first commit, in its second one
	if b.All.Requests.ClassA < b.Requests.ClassA+told || b.All.Requests.ClassB < b.Requests.ClassB || b.All.SoFar == nil || b.All.SoFar.Requests <= b.SoFar.Requests {
		t.Errorf("all brokers: %+v, this one: %+v", b.All, b.Requests)
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
	u := seb.Usage{Store: seb.StoreUse{Creates: 99_000, Lists: 1_000, Gets: 50_000, Deletes: 7}, StoredBytes: 15e9, DeadBytes: 2e9, DeadInSegmentsBytes: 1e9,
		Causes: map[string]seb.StoreUse{"append": {}}, Month: map[string]seb.StoreUse{"read": {Creates: 1, Lists: 2, Gets: 4_000_000, Deletes: 5}},
	}
	usage := func() seb.Usage { return u }
	const requests = `
# HELP seb_store_billed_requests_total Requests to the object store, in the classes that stores bill: a (create, list), b (get) and free (delete).
# TYPE seb_store_billed_requests_total counter
seb_store_billed_requests_total{class="a"} 100000
seb_store_billed_requests_total{class="b"} 50000
seb_store_billed_requests_total{class="free"} 7
# HELP seb_store_dead_bytes The part of seb_store_stored_bytes that no longer counts: of objects that will be deleted, or of records in segments that have others, too.
# TYPE seb_store_dead_bytes gauge
seb_store_dead_bytes{in="objects"} 2e+09
seb_store_dead_bytes{in="segments"} 1e+09
# HELP seb_store_month_requests Requests of all brokers to the object store in this calendar month (UTC), by what they were for, and by class: a (create, list), b (get) and free (delete).
# TYPE seb_store_month_requests gauge
seb_store_month_requests{cause="append",class="a"} 0
seb_store_month_requests{cause="append",class="b"} 0
seb_store_month_requests{cause="append",class="free"} 0
seb_store_month_requests{cause="read",class="a"} 3
seb_store_month_requests{cause="read",class="b"} 4e+06
seb_store_month_requests{cause="read",class="free"} 5
# HELP seb_store_stored_bytes Size of the objects that hold records of the log, whichever broker wrote them.
# TYPE seb_store_stored_bytes gauge
seb_store_stored_bytes 1.5e+10
`
	const dollars = `
# HELP seb_store_billed_requests_dollars_total What the requests to the object store have cost, in dollars. Absent if the broker does not know the prices (--prices).
# TYPE seb_store_billed_requests_dollars_total counter
seb_store_billed_requests_dollars_total{class="a"} 0.5
seb_store_billed_requests_dollars_total{class="b"} 0.02
# HELP seb_store_month_requests_dollars What the requests of all brokers in this calendar month have cost, in dollars. Absent if the broker does not know the prices (--prices).
# TYPE seb_store_month_requests_dollars gauge
seb_store_month_requests_dollars{cause="append"} 0
seb_store_month_requests_dollars{cause="read"} 1.600015
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
