package seb_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/metric"
	"github.com/simple-event-broker/seb/objstore"
)

// A collector describes the families only once, so they must always be the same, even after the broker
// has ended.
func TestMetricsHaveTheSameFamiliesAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		families := func(b *seb.Broker) (without []metric.Family) {
			for _, f := range b.Metrics() {
				for _, s := range f.Series {
					if len(s.Labels) != len(f.Labels) || (s.Distribution != nil) != (f.Kind == metric.Histogram) {
						t.Errorf("%s has the series %+v", f.Name, s)
					}
				}
				f.Series = nil
				without = append(without, f)
			}
			return without
		}
		b := openOnly(t, objstore.NewMemory(), kit.InVirtualTime(immediate()))
		first := families(b)
		mustCreateTopic(t, b, "t", 1)
		mustReset(t, b.Consumer("t", "reader"), seb.Earliest)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		appendTo(t, b, 0, 2)
		mustReceive(t, q, 1, 0)
		time.Sleep(time.Minute)
		if diff := cmp.Diff(first, families(b)); diff != "" {
			t.Error(diff)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, families(b)); diff != "" {
			t.Error("of a closed broker:", diff)
		}
	})
}
