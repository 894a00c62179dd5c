package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/sebprom"
)

// A series with the name of a topic, a queue or a consumer needs a key with the scope metrics for the topic.
func TestMetricsShowNamesToKeysThatMaySeeThem(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := newServer(t, seb.Options{}, Options{Registerer: registry, Gatherer: registry})
	registry.MustRegister(sebprom.NewCollector(s.broker.Metrics))
	for _, tenant := range []string{"acme", "zorg"} {
		s.append(tenant+".orders", "x")
		for _, kind := range []string{"consumers", "queues"} {
			s.do("PUT", "/v1/topics/"+tenant+".orders/"+kind+"/"+tenant+"-mail", nil).want(t, http.StatusCreated)
		}
	}
	wantSeen := func(key, want string, header ...string) {
		t.Helper()
		a := s.get("/metrics", header...)
		a.want(t, http.StatusOK)
		var seen []string
		for _, tenant := range []string{"acme", "zorg"} {
			if strings.Contains(a.body, tenant) {
				seen = append(seen, tenant)
			}
		}
		if got := strings.Join(seen, " "); got != want || !strings.Contains(a.body, "\nseb_applied_slot ") {
			t.Errorf("%s sees the names of %q, want %q, in\n%s", key, got, want, a.body)
		}
	}
	wantSeen("anyone, while there are no keys,", "acme zorg")
	_, ops := newKey(t, s.broker, "ops", seb.ScopeAdmin)
	_, all := newKey(t, s.broker, "prometheus", seb.ScopeMetrics)
	_, one := newKey(t, s.broker, "one", seb.ScopeMetrics, "acme.*")
	_, reader := newKey(t, s.broker, "reader", seb.ScopeRead|seb.ScopeWrite)
	_, tenant := newKey(t, s.broker, "tenant", seb.ScopeAdmin, "zorg.*")
	wantSeen("admin", "acme zorg", bearer(ops)...)
	wantSeen("a key for metrics", "acme zorg", bearer(all)...)
	wantSeen("a key for metrics of one tenant", "acme", bearer(one)...)
	wantSeen("a key without the scope", "", bearer(reader)...)
	wantSeen("a tenant's admin", "zorg", bearer(tenant)...)
	// The scope metrics gives no other access.
	s.get("/v1/topics", bearer(all)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
	s.get("/v1/topics/acme.orders/records", bearer(all)...).wantProblem(t, http.StatusForbidden, seb.CodeForbidden)
}

// A read that waits for a record counts the record once.
func TestMetricsCountARecordAfterAWaitOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		registry.MustRegister(sebprom.NewCollector(s.broker.Metrics))
		s.append("orders", "zero")
		got := make(chan answer)
		for _, wait := range []func() answer{
			func() answer { return s.get(ordersPath + "?offset=latest&wait=1m") },
			func() answer {
				return s.get("/records?topic-name=orders&offset=2&timeout=1m", "Accept", "multipart/form-data")
			},
		} {
			go func() { got <- wait() }()
			synctest.Wait()
			s.append("orders", "a record")
			(<-got).want(t, http.StatusOK)
		}
		want := `
# HELP seb_topic_appended_bytes_total Bytes of keys, values and headers of the topic's records in commits that this broker wrote to the log.
# TYPE seb_topic_appended_bytes_total counter
seb_topic_appended_bytes_total{topic="orders"} 20
# HELP seb_topic_appended_records_total Records of the topic in commits that this broker wrote to the log.
# TYPE seb_topic_appended_records_total counter
seb_topic_appended_records_total{topic="orders"} 3
# HELP seb_topic_read_bytes_total Bytes of keys, values and headers of the topic's records that this broker read for its clients.
# TYPE seb_topic_read_bytes_total counter
seb_topic_read_bytes_total{topic="orders"} 16
# HELP seb_topic_read_records_total Records of the topic that this broker read for its clients: for reads, streams, consumers and queues.
# TYPE seb_topic_read_records_total counter
seb_topic_read_records_total{topic="orders"} 2
`
		err := testutil.GatherAndCompare(registry, strings.NewReader(want), "seb_topic_appended_bytes_total", "seb_topic_appended_records_total",
			"seb_topic_read_bytes_total", "seb_topic_read_records_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// Callers that read metrics slowly make others wait, but the broker holds at most two answers.
func TestMetricsServeFewCallersAtATime(t *testing.T) {
	registry := prometheus.NewRegistry()
	bubbleOn(t, objstore.NewMemory(), seb.Options{}, Options{Registerer: registry, Gatherer: registry}, 0, func(t *testing.T, s *server) {
		registry.MustRegister(sebprom.NewCollector(s.broker.Metrics))
		for i := range 200 { // an answer is larger than the buffers of a connection
			s.do("PUT", fmt.Sprintf("/v1/topics/orders%d", i), nil).want(t, http.StatusCreated)
			s.do("PUT", fmt.Sprintf("/v1/topics/orders%d/consumers/billing", i), nil).want(t, http.StatusCreated)
		}
		_, prometheus := newKey(t, s.broker, "prometheus", seb.ScopeAdmin)
		var keys []string
		for i := range scrapesMax {
			_, key := newKey(t, s.broker, fmt.Sprint("slow", i), seb.ScopeAdmin)
			keys = append(keys, key)
		}
		var slow []io.Closer
		read := func(key string) {
			slow = append(slow, s.dial("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+key+"\r\n\r\n"))
			synctest.Wait()
		}
		for range scrapesMax { // one key has one turn, however often it asks
			read(keys[0])
		}
		for i := range scrapesMax { // callers without the scope have turns of their own
			_, plain := newKey(t, s.broker, fmt.Sprint("plain", i), seb.ScopeRead)
			read(plain)
		}
		s.get("/metrics", bearer(prometheus)...).want(t, http.StatusOK)
		for _, key := range keys[1:] {
			read(key)
		}
		began := time.Now()
		p := s.get("/metrics", bearer(prometheus)...).wantProblem(t, http.StatusTooManyRequests, seb.CodeOverMemoryBudget)
		if waited := time.Since(began); waited != scrapeWaitMax {
			t.Errorf("refused after %v: %+v", waited, p)
		}
		got := make(chan answer)
		go func() { got <- s.get("/metrics", bearer(prometheus)...) }()
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
