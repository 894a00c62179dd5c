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
	Attempts int            // the number of this delivery; a record's first delivery, and the first after a redrive, have number 1
	// If DeadLetterTopic is not "", the caller has to append a copy of the record to that topic, and
	// commit the copy together with a [DeadLetter].
	DeadLetterTopic string
	Outdated        bool  // the delivery is not the last delivery of the record, or the record is done
	Err             error // why the answer is refused; nil if the answer is not refused
}

// AckRecords marks records as done. Apply decides about each answer separately, and sets Err of each
// answer that it refuses.
type AckRecords struct {
	QueueName
	Answers []*Answer
	Synced  bool // the broker has synced since the answers came, so refusals need no further sync
}

// Apply implements engine.Change.
func (x AckRecords) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return doneEntries(id, answerable(d, topic, id, x.Answers, true)), nil
}

// RefusedPart implements engine.PartChange.
func (x AckRecords) RefusedPart() bool { return !x.Synced && anyOutdated(x.Answers) }

// RefusedPart implements engine.PartChange.
func (x NackRecords) RefusedPart() bool { return !x.Synced && anyOutdated(x.Answers) }

// anyOutdated reports whether an answer was refused that a newer state may accept: perhaps the owner of the queue has lowered
// the dispatch limit below the record, then raised it again, and then handed out the record.
func anyOutdated(answers []*Answer) bool {
	return slices.ContainsFunc(answers, func(a *Answer) bool { return a.Outdated })
}

// doneEntries returns the entries that mark records as done. The answers must be sorted by partition
// and offset.
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

// NackRecords puts records back for a later delivery, or makes them dead letters. Apply decides about
// each answer separately, and sets Err of each answer that it refuses.
type NackRecords struct {
	QueueName
	Delay   *time.Duration // how long a record waits for the next delivery; nil means the queue's backoff
	AtLeast time.Duration  // the shortest wait, even if Delay or the queue's backoff is shorter
	Reason  string
	Answers []*Answer
	Synced  bool // as in AckRecords
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
			a.DeadLetterTopic = config.DeadLetterTopic // the caller commits a DeadLetter together with a copy of the record
			continue
		}
		entries = append(entries, &format.RecordPutBack{
			Queue: id, Partition: a.Partition, Attempt: format.Attempt{Offset: a.Offset, Number: a.Attempt},
			NotBefore: d.Time() + x.delay(config, a.Attempts, last).Microseconds(), DeadLetter: last, Reason: x.Reason,
		})
	}
	return entries, nil
}

// delay returns how long a record waits for the next delivery. attempts is how many deliveries of the
// record have failed. last says that the last allowed delivery has failed, so no delivery follows.
func (x NackRecords) delay(config format.QueueConfig, attempts int, last bool) time.Duration {
	if last {
		return 0 // NotBefore in the entry is then the time at which the record becomes a dead letter
	}
	delay := Backoff{milliseconds(config.BackoffMinMS), milliseconds(config.BackoffMaxMS)}.After(attempts)
	if x.Delay != nil {
		delay = *x.Delay
	}
	return max(delay, x.AtLeast)
}

// answerable returns the answers that are accepted, sorted by partition and offset, without duplicates.
// An answer is accepted if a worker may still answer the delivery: see [state.Draft.IsLast].
// answerable refuses all other answers: it sets Err of each. If done is set, there is one exception:
// an answer is neither returned nor refused if an earlier entry of this commit has acknowledged the same
// delivery.
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
		case done && d.DoneBy(id, p, a.Offset, a.Attempt): // an earlier entry of this commit has acknowledged this delivery
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
		return "names a record that the queue does not have: the record was deleted, or the token is not the one that came with the record"
	case done:
		return "belongs to a record that is done"
	case a.DeadLetter:
		return "belongs to a dead letter"
	case a.Redriven >= x.Attempt:
		return "belongs to a delivery that was made before the record was redriven"
	case a.Number > x.Attempt:
		return fmt.Sprintf("belongs to delivery %d, and delivery %d came later", x.Attempt, a.Number)
	default:
		return "names a delivery that the log does not have: check that the token is the one that came with the record"
	}
}
