// Package metric has the form in which a broker tells its metrics: plain numbers, with names and help. It
// knows no monitoring system; package sebprom turns them into those of Prometheus.
package metric

// Kind is how the values of a family change.
type Kind int

// Kinds of families.
const (
	Counter   Kind = iota // it only grows, while the broker runs
	Gauge                 // it goes up and down
	Histogram             // it counts observations by size
)

// Family is all series of one name.
type Family struct {
	Name   string // ends with the unit, such as seb_commit_bytes
	Help   string
	Kind   Kind
	Labels []string // their names
	Series []Series // may be empty
}

// Series is one value of a family, as it was when it was read.
type Series struct {
	Labels       []string      // their values, in the order of the family's Labels
	Value        float64       // of a counter or a gauge
	Distribution *Distribution // of a histogram
}

// Distribution is what a histogram has observed.
type Distribution struct {
	Count   uint64
	Sum     float64
	Buckets []Bucket // by rising Max; what is above the last one is in Count alone
}

// Bucket counts the observations of at most Max, those of smaller buckets included.
type Bucket struct {
	Max   float64
	Count uint64
}

// One returns a family without labels, which has one series.
func One(kind Kind, name, help string, value float64) Family {
	return Family{Name: name, Help: help, Kind: kind, Series: []Series{{Value: value}}}
}

// Add adds a series of a counter or a gauge.
func (f *Family) Add(value float64, labels ...string) {
	f.Series = append(f.Series, Series{Labels: labels, Value: value})
}
