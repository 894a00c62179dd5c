package sebprom_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/sebprom"
)

func TestCollectorReportsCurrentUse(t *testing.T) {
	sent := metric.Family{Name: "sent_total", Help: "Letters sent.", Kind: metric.Counter, Labels: []string{"to", "by"}}
	size := metric.Family{Name: "size_bytes", Help: "Sizes.", Kind: metric.Histogram}
	read := func() []metric.Family {
		return []metric.Family{sent, metric.One(metric.Gauge, "left", "Letters left.", 2), size}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(sebprom.NewCollector(read)) // before any family has series
	if err := registry.Register(sebprom.NewCollector(read)); err == nil {
		t.Error("the same names were registered twice")
	}
	sent.Add(3, "paris", "air")
	size.Series = []metric.Series{{Distribution: &metric.Distribution{Count: 4, Sum: 9.5, Buckets: []metric.Bucket{{Max: 1, Count: 2}, {Max: 2, Count: 3}}}}}
	want := `
# HELP left Letters left.
# TYPE left gauge
left 2
# HELP sent_total Letters sent.
# TYPE sent_total counter
sent_total{by="air",to="paris"} 3
# HELP size_bytes Sizes.
# TYPE size_bytes histogram
size_bytes_bucket{le="1"} 2
size_bytes_bucket{le="2"} 3
size_bytes_bucket{le="+Inf"} 4
size_bytes_sum 9.5
size_bytes_count 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
