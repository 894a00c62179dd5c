package lag

import (
	"time"

	"github.com/simple-event-broker/seb/metric"
)

// Queue has the numbers of a queue.
type Queue struct {
	Topic, Name string
	// Left records are neither done nor dead letters, Delayed ones of them may not be handed out yet. Dead ones are dead letters.
	Left, Delayed, Dead int64
	Oldest              time.Time // about when the oldest record of Left was written; zero if there is none
	Pushed, Stopped     bool      // the queue has a push target; the receiver has ended the push
	// Exact says that this broker owns the queue. Otherwise, the following numbers are 0, and have no series.
	Exact                               bool
	Leased, Held                        int64
	Received, Acknowledged, DeadLetters int64 // totals since this broker last took the queue over
}

// OfQueues returns the metrics of queues.
func OfQueues(queues []Queue) []metric.Family {
	family := func(kind metric.Kind, name, help string) metric.Family {
		return metric.Family{Name: name, Help: help, Kind: kind, Labels: []string{"topic", "queue"}}
	}
	left := family(metric.Gauge, "seb_queue_left_records", "Records that are neither done nor dead letters, including those that are leased, held or delayed.")
	delayed := family(metric.Gauge, "seb_queue_delayed_records", "Records that may not be handed out yet.")
	dead := family(metric.Gauge, "seb_queue_dead_records", "Records that are dead letters.")
	oldest := family(metric.Gauge, "seb_queue_oldest_timestamp_seconds", "About when the oldest record that is neither done nor a dead letter was written, in seconds since 1970. Absent if there is no such record.")
	stopped := family(metric.Gauge, "seb_queue_push_stopped", "1 if the queue is no longer pushed because the receiver answered 410 (Gone), 0 if it is pushed. Absent if the queue has no push URL.")
	leased := family(metric.Gauge, "seb_queue_leased_records", "Records that are with workers, of queues that this broker owns.")
	held := family(metric.Gauge, "seb_queue_held_records", "Records that wait until a lease has passed, because a lost owner may have handed them out; of queues that this broker owns.")
	received := family(metric.Counter, "seb_queue_received_records_total", "Records that this broker has handed out since it last took the queue over.")
	acknowledged := family(metric.Counter, "seb_queue_acknowledged_records_total", "Records that were acknowledged through any broker since this broker last took the queue over.")
	died := family(metric.Counter, "seb_queue_dead_letters_total", "Records that became dead letters since this broker last took the queue over.")
	for _, q := range queues {
		of := []string{q.Topic, q.Name}
		left.Add(float64(q.Left), of...)
		delayed.Add(float64(q.Delayed), of...)
		dead.Add(float64(q.Dead), of...)
		if !q.Oldest.IsZero() {
			oldest.Add(float64(q.Oldest.UnixMicro())/1e6, of...)
		}
		if q.Pushed {
			n := 0.0
			if q.Stopped {
				n = 1
			}
			stopped.Add(n, of...)
		}
		if q.Exact {
			leased.Add(float64(q.Leased), of...)
			held.Add(float64(q.Held), of...)
			received.Add(float64(q.Received), of...)
			acknowledged.Add(float64(q.Acknowledged), of...)
			died.Add(float64(q.DeadLetters), of...)
		}
	}
	return []metric.Family{left, delayed, dead, oldest, stopped, leased, held, received, acknowledged, died}
}
