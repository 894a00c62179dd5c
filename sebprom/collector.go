// Package sebprom exports a broker's metrics to Prometheus:
//
//	prometheus.MustRegister(sebprom.NewCollector(broker.Metrics))
//
// The package is separate, so that only programs which import it link the Prometheus client.
package sebprom

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/simple-event-broker/seb/metric"
)

// Collector is a [prometheus.Collector]. Keep it registered only while the broker is in use. A registry
// accepts the collector of only one broker, since the metrics of all brokers have the same names.
type Collector struct {
	read  func() []metric.Family
	descs map[string]*prometheus.Desc
}

// NewCollector returns a collector of the metrics that read returns. read may be the method Metrics of a
// broker. NewCollector calls read once to learn the families; all later calls must return the same families.
// Each collection calls read again.
func NewCollector(read func() []metric.Family) *Collector {
	c := &Collector{read: read, descs: map[string]*prometheus.Desc{}}
	for _, f := range read() {
		c.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, f := range c.read() {
		for _, s := range f.Series {
			out <- series(c.descs[f.Name], f.Kind, s)
		}
	}
}

func series(d *prometheus.Desc, kind metric.Kind, s metric.Series) prometheus.Metric {
	switch kind {
	case metric.Counter:
		return prometheus.MustNewConstMetric(d, prometheus.CounterValue, s.Value, s.Labels...)
	case metric.Gauge:
		return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, s.Value, s.Labels...)
	case metric.Histogram:
		buckets := make(map[float64]uint64, len(s.Distribution.Buckets))
		for _, b := range s.Distribution.Buckets {
			buckets[b.Max] = b.Count
		}
		return prometheus.MustNewConstHistogram(d, s.Distribution.Count, s.Distribution.Sum, buckets, s.Labels...)
	default:
		panic(fmt.Sprintf("metric of unknown kind %d", kind))
	}
}
