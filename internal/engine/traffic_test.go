package engine

import (
	"fmt"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// topicsOf is a state with topics, to which one entry at a time is applied.
type topicsOf struct {
	t       testing.TB
	live    state.Live
	traffic *traffic
}

func newTopicsOf(t testing.TB, topics int) *topicsOf {
	x := &topicsOf{t: t, live: state.Live{State: state.New()}}
	x.traffic = newTraffic(x.live.Viewer())
	for i := range topics {
		x.apply(&format.TopicCreated{ID: format.TopicID(i + 1), Partitions: 1, Name: fmt.Sprint("t", i+1)})
	}
	return x
}

func (x *topicsOf) apply(entry format.Entry) {
	x.t.Helper()
	entries := []format.Entry{entry}
	x.live.Lock()
	err := x.live.State.Apply(&format.Commit{Seq: x.live.State.Seq() + 1, Entries: entries})
	x.live.Unlock()
	if err != nil {
		x.t.Fatal(err)
	}
	x.traffic.Applied(x.live.State, entries, state.Moment{})
}

// readRecords returns the series of records read, by topic.
func (x *topicsOf) readRecords() map[string]float64 {
	series := map[string]float64{}
	for _, f := range x.traffic.families() {
		if f.Name != "seb_topic_read_records_total" {
			continue
		}
		if f.Kind != metric.Counter {
			x.t.Errorf("%s is of kind %d", f.Name, f.Kind)
		}
		for _, s := range f.Series {
			series[s.Labels[0]] = s.Value
		}
	}
	return series
}

// The topics that are used first have counters of their own; the others share counters. A deleted topic makes
// room for a new one, and no counter falls.
func TestTrafficIsBounded(t *testing.T) {
	const most = trafficTopicsMax
	x := newTopicsOf(t, most+3)
	for id := format.TopicID(most + 3); id > 1; id-- { // topics 3 and 2 are used last
		x.traffic.read(id, 2, 10)
	}
	got := x.readRecords()
	if len(got) != most+1 || got["t3"] != 0 || got["t4"] != 2 || got[""] != 4 {
		t.Fatalf("%d series; t3 %v, t4 %v, others %v", len(got), got["t3"], got["t4"], got[""])
	}
	x.apply(&format.TopicDeleted{ID: 4})
	x.traffic.read(4, 1, 1) // a read that was under way
	x.traffic.read(3, 1, 1)
	x.traffic.read(2, 1, 1)
	got = x.readRecords()
	_, still := got["t4"]
	if len(got) != most+1 || still || got["t3"] != 1 || got[""] != 6 {
		t.Errorf("%d series after a deletion; t4 %v, t3 %v, others %v", len(got), still, got["t3"], got[""])
	}
	x.traffic.Loaded(state.New()) // a state without these topics
	if own := *x.traffic.byID.Load(); len(own) != 0 {
		t.Errorf("%d topics that are gone have counters", len(own))
	}
}

func TestTrafficAllocatesNothing(t *testing.T) {
	x := newTopicsOf(t, 2)
	appends := []*Append{{ID: 1, Count: 1, content: 10}, {ID: 2, Count: 1, content: 10}}
	if n := testing.AllocsPerRun(100, func() {
		x.traffic.read(2, 1, 10)
		done := tally{of: x.traffic}
		done.add(appends)
		done.count()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTraffic(b *testing.B) {
	x := newTopicsOf(b, trafficTopicsMax)
	for id := range format.TopicID(trafficTopicsMax) {
		x.traffic.read(id+1, 1, 1)
	}
	appends := []*Append{{ID: 500, Count: 1, content: 10}}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			x.traffic.read(700, 1, 10)
		}
	})
	b.Run("append", func(b *testing.B) { // of commits with 100 appends
		for b.Loop() {
			done := tally{of: x.traffic}
			for range 100 {
				done.add(appends)
			}
			done.count()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(100*b.N), "ns/append")
	})
}
