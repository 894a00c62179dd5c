package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testdata/metrics.txt has what dashboards and alerts rely on: names, types, help, labels and buckets,
// without values, of all metrics of a broker that did a bit of everything.
func TestMetricsKeepNamesTypesLabelsAndBuckets(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer target.Close()
	broker := serve(t, nil, "--store", t.TempDir(), "--push-allow", "127.0.0.0/8", "--checkpoint-commits", "1")
	ask := func(method, path, body string, want int) {
		t.Helper()
		if a := <-begin(t, method, broker.url+path, body); a.err != nil || a.status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, a.status, a.body, a.err)
		}
	}
	const orders = "/v1/topics/orders"
	ask("POST", orders+"/records", "one", 201)
	ask("GET", orders+"/records", "", 200)
	ask("GET", orders+"/nothing", "", 404)
	ask("PUT", orders+"/consumers/billing", "", 201)
	ask("PUT", orders+"/queues/mail", "", 201)
	ask("POST", orders+"/queues/mail/receive", "", 200)
	ask("PUT", orders+"/queues/ship", "", 201)
	ask("PUT", orders+"/queues/ship/push", `{"url":"`+target.URL+`"}`, 201)
	ask("GET", "/metrics", "", 200) // counted in the next answer
	saysInMetrics(t, broker, `seb_push_deliveries_total{outcome="delivered",queue="ship",topic="orders"} 1`)
	saysInMetrics(t, broker, `seb_follow_lag_slots 0`)

	file, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(file)), "\n")
	deadline := time.After(startTimeout)
	for ticker := time.NewTicker(10 * time.Millisecond); ; { // until the last checkpoint is written
		a := <-begin(t, http.MethodGet, broker.url+"/metrics", "")
		if a.err != nil {
			t.Fatal(a.err)
		}
		diff := cmp.Diff(want, withoutValues(a.body))
		if diff == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal(diff)
		}
	}
}

var metricValue = regexp.MustCompile(` [0-9.e+-]+$`)

// withoutValues returns the lines about metrics of Seb in an answer, in their order, without the values.
func withoutValues(metrics string) []string {
	lines := slices.Collect(strings.Lines(metrics))
	lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "seb_") })
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "# ") {
			line = metricValue.ReplaceAllString(line, "")
		}
		lines[i] = line
	}
	return lines
}
