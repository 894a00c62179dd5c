package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/metric"
)

// consumersShown bounds the number of series. The oldest consumers are shown, so that
// creating others does not end a series.
const consumersShown = 1000

// consumerMetrics returns the metrics of consumers from the current state: a deleted consumer
// has no series.
func (b *Broker) consumerMetrics() []metric.Family {
	family := func(name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: metric.Gauge, Labels: []string{"topic", "consumer"}}
	}
	lag := family("seb_consumer_lag_records", "Records in the topic that the consumer has not committed.")
	missed := family("seb_consumer_missed_records", "Records that were deleted before the consumer committed them.")
	moved := family("seb_consumer_moved_timestamp_seconds", "When the consumer was last committed or reset, in seconds since 1970.")
	for _, c := range b.shownConsumers() {
		of := []string{c.topic, c.name}
		lag.Add(float64(c.lag), of...)
		missed.Add(float64(c.missed), of...)
		moved.Add(float64(c.moved.UnixMicro())/1e6, of...)
	}
	return []metric.Family{lag, missed, moved}
}

type consumerSums struct {
	topic, name string
	lag, missed int64
	moved       time.Time
}

// shownConsumers sums up the oldest consumers. It locks the state for each alone, so that
// commits don't wait for all of them.
func (b *Broker) shownConsumers() (sums []consumerSums) {
	for _, id := range b.oldestConsumers() {
		if s, ok := b.sumConsumer(id); ok {
			sums = append(sums, s)
		}
	}
	return sums
}

func (b *Broker) oldestConsumers() (ids []uint64) {
	b.engine.View(func(s *state.State) {
		for _, c := range s.OldestConsumers(consumersShown) {
			ids = append(ids, c.ID)
		}
	})
	return ids
}

func (b *Broker) sumConsumer(id uint64) (sums consumerSums, ok bool) {
	b.engine.View(func(s *state.State) {
		c := s.ConsumerByID(id)
		if c == nil {
			return
		}
		t := s.TopicByID(c.Topic)
		sums, ok = consumerSums{topic: t.Name, name: c.Name, moved: time.UnixMicro(c.Moved)}, true
		for i := range t.Partitions {
			p := positionOf(t, c, i)
			sums.lag += p.Lag()
			sums.missed += p.Missed()
		}
	})
	return sums, ok
}
