// Package lag has the metrics of consumers and queues: how far each of them is behind its topic.
package lag

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// Families returns the metrics of the consumers that exist now: of the oldest ones, at most most. A deleted consumer has no
// series. Families views the state once for each consumer, so that commits don't wait for all of them.
func Families(v state.Viewer, most int) []metric.Family {
	family := func(name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: metric.Gauge, Labels: []string{"topic", "consumer"}}
	}
	lag := family("seb_consumer_lag_records", "Records in the topic that the consumer has not committed.")
	missed := family("seb_consumer_missed_records", "Records that were deleted before the consumer committed them.")
	moved := family("seb_consumer_moved_timestamp_seconds", "When the consumer was last committed or reset, in seconds since 1970.")
	var oldest []format.ConsumerID
	v.View(func(s *state.State) {
		for _, c := range s.OldestConsumers(most) {
			oldest = append(oldest, c.ID)
		}
	})
	for _, id := range oldest {
		v.View(func(s *state.State) {
			c := s.ConsumerByID(id)
			if c == nil {
				return
			}
			t, behind, lost := s.TopicByID(c.Topic), format.Offset(0), format.Offset(0)
			for i := range t.Partitions {
				p, next := &t.Partitions[i], c.Position(format.Partition(i))
				behind += p.End - max(next, p.Start)
				lost += max(0, p.Start-next)
			}
			lag.Add(float64(behind), t.Name, c.Name)
			missed.Add(float64(lost), t.Name, c.Name)
			moved.Add(float64(c.Moved)/1e6, t.Name, c.Name)
		})
	}
	return []metric.Family{lag, missed, moved}
}
