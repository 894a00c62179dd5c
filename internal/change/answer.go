package change

import (
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// Answer is a worker's answer to one delivery.
type Answer struct {
	Token string         // the text that identifies the delivery
	Queue format.QueueID // the queue that handed out the record, as the token says
	leases.Delivery

	// Results, which Apply sets:

	TopicID  format.TopicID // id of the queue's topic
	Attempts int            // deliveries since the record was redriven, this one included
	// DeadLetterTopic, unless it is "", is the topic to which a copy of the record must go. The
	// caller then has to commit a [DeadLetter] together with the copy.
	DeadLetterTopic string
	Outdated        bool  // the delivery is not the record's last one, or the record is done
	Err             error // why the answer is refused; nil if it is not
}

// AckRecords marks records as done. It decides each answer alone, and sets Err of each answer that it
// refuses.
type AckRecords struct {
	QueueName
	Answers []*Answer
}

// Apply implements engine.Change.
func (x AckRecords) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return doneEntries(id, answerable(d, topic, id, x.Answers, true)), nil
}

// doneEntries returns the entries that mark records as done. The answers must be sorted.
func doneEntries(queue format.QueueID, of []*Answer) (entries []format.Entry) {
	var in *format.RecordsDone
	for _, a := range of {
		if in == nil || in.Partition != a.Partition {
			in = &format.RecordsDone{Queue: queue, Partition: a.Partition}
			entries = append(entries, in)
		}
		if n := len(in.Runs); n > 0 && in.Runs[n-1].End() == a.Offset && in.Runs[n-1].Number == a.Attempt {
			in.Runs[n-1].Count++
			continue
		}
		in.Runs = append(in.Runs, format.Run{Offset: a.Offset, Count: 1, Number: a.Attempt})
	}
	return entries
}

// NackRecords puts records back for a later delivery, or makes them dead letters. It decides each
// answer alone, and sets Err of each answer that it refuses.
type NackRecords struct {
	QueueName
	Delay   *time.Duration // until the next delivery; nil means the queue's backoff
	AtLeast time.Duration  // minimum of the delay, whatever the queue's backoff
	Reason  string
	Answers []*Answer
}

// Apply implements engine.Change.
func (x NackRecords) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	config := d.QueueConfig(id)
	for _, a := range answerable(d, topic, id, x.Answers, false) {
		last := a.Attempts >= int(config.Attempts)
		if last && config.DeadLetterTopic != "" {
			a.DeadLetterTopic = config.DeadLetterTopic // needs a DeadLetter with a copy, not only an entry
			continue
		}
		entries = append(entries, &format.RecordPutBack{
			Queue: id, Partition: a.Partition, Attempt: format.Attempt{Offset: a.Offset, Number: a.Attempt},
			NotBefore: d.Time() + x.delay(config, a.Attempts, last).Microseconds(), DeadLetter: last, Reason: x.Reason,
		})
	}
	return entries, nil
}

// delay returns how long a record waits for the next delivery. attempts is how many have failed; last
// says that no delivery follows.
func (x NackRecords) delay(config format.QueueConfig, attempts int, last bool) time.Duration {
	if last {
		return 0 // the entry then has the time when the record became a dead letter
	}
	delay := Backoff{milliseconds(config.BackoffMinMS), milliseconds(config.BackoffMaxMS)}.After(attempts)
	if x.Delay != nil {
		delay = *x.Delay
	}
	return max(delay, x.AtLeast)
}

// answerable returns the answers that count, sorted and without duplicates: an answer counts if its
// delivery is the last one of the record, and the record is not done. answerable sets Err of all other
// answers. done says that the answers are acknowledgements. Then one more case is no error: the same
// delivery was acknowledged earlier in this commit, so there is nothing left to do.
func answerable(d *state.Draft, topic format.TopicID, id format.QueueID, answers []*Answer, done bool) []*Answer {
	good := make([]*Answer, 0, len(answers))
	for _, a := range answers {
		*a = Answer{Token: a.Token, Queue: a.Queue, Delivery: a.Delivery, TopicID: topic}
		p := a.Partition
		switch {
		case a.Queue != id:
			a.Err = TokenElsewhere(a.Token)
		case d.IsLast(id, p, a.Offset, a.Attempt):
			_, last, _ := d.RecordState(id, p, a.Offset)
			a.Attempts = int(a.Attempt) - int(last.Redriven)
			good = append(good, a)
		case done && d.DoneBy(id, p, a.Offset, a.Attempt): // the same acknowledgement again
		default:
			a.Outdated = true
			a.Err = LeaseLost(a.Token, whyLost(d, id, a.Delivery))
		}
	}
	slices.SortFunc(good, func(x, y *Answer) int { return x.Compare(y.Place) })
	return slices.CompactFunc(good, func(x, y *Answer) bool { return x.Delivery == y.Delivery })
}

func whyLost(d *state.Draft, id format.QueueID, x leases.Delivery) string {
	switch done, a, _ := d.RecordState(id, x.Partition, x.Offset); {
	case !d.HasRecord(id, x.Partition, x.Offset):
		return "belongs to a record that does not exist"
	case done:
		return "belongs to a record that is done"
	case a.DeadLetter:
		return "belongs to a dead letter"
	case a.Redriven >= x.Attempt:
		return "belongs to a delivery that was made before the record was redriven"
	case a.Number > x.Attempt:
		return fmt.Sprintf("belongs to delivery %d, and delivery %d came later", x.Attempt, a.Number)
	default:
		return "belongs to a delivery that never happened"
	}
}
