// Package metric has the types of a broker's metrics: plain numbers with names and help. It
// depends on no monitoring system; package sebprom converts them for Prometheus.
package metric

// Kind says how the values of a family change.
type Kind int

// Kinds of families.
const (
	Counter   Kind = iota // never falls while the broker runs
	Gauge                 // rises and falls
	Histogram             // counts observations by their values
)

// Family is a metric: all series with the same name.
type Family struct {
	Name   string // such as seb_commit_bytes; ends with the unit if there is a unit
	Help   string
	Kind   Kind
	Labels []string // the names of the labels
	Series []Series // may be empty
}

// Series is one value of a family, at the time it was read.
type Series struct {
	Labels       []string      // the values of the labels, in the order of the family's Labels
	Value        float64       // only of a counter or a gauge
	Distribution *Distribution // only of a histogram
}

// Distribution holds the observations of a histogram.
type Distribution struct {
	Count   uint64
	Sum     float64
	Buckets []Bucket // ascending by Max; no bucket counts observations above the last Max (Count and Sum include them)
}

// Bucket counts the observations that are at most Max, including those in the buckets before this one.
type Bucket struct {
	Max   float64
	Count uint64
}

// One returns a family of one series without labels.
func One(kind Kind, name, help string, value float64) Family {
	return Family{Name: name, Help: help, Kind: kind, Series: []Series{{Value: value}}}
}

// Add adds a series of a counter or a gauge.
func (f *Family) Add(value float64, labels ...string) {
	f.Series = append(f.Series, Series{Labels: labels, Value: value})
}
