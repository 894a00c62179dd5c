package seb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	tokensMax = 1000 // of one call
	delayMax  = 366 * 24 * time.Hour
)

// Ack says that the work on records is done. It returns once the store has that, and
// shares the log's next commit with whatever else is going on. Any broker takes it.
//
// Each token is answered for itself: if some are refused the error is a [*TokensError]. One
// whose record may be with another worker by now is refused with CodeLeaseLost; one whose
// lease merely ran out is not.
func (q *Queue) Ack(ctx context.Context, tokens ...string) (err error) {
	defer writes(&err)
	answers, err := q.answer(ctx, tokens, true, func(_ *state.Draft, id uint64, of []*answer) []format.Entry { return doneEntries(id, of) })
	if err != nil {
		return err
	}
	return errorsOf(answers)
}

// doneEntries returns the entries that say that deliveries, which are in order, were done.
func doneEntries(queue uint64, of []*answer) (entries []format.Entry) {
	var in *format.RecordsDone
	for _, a := range of {
		if in == nil || in.Partition != uint32(a.partition) {
			in = &format.RecordsDone{Queue: queue, Partition: uint32(a.partition)}
			entries = append(entries, in)
		}
		if n := len(in.Runs); n > 0 && in.Runs[n-1].End() == a.offset && in.Runs[n-1].Number == a.number {
			in.Runs[n-1].Count++
			continue
		}
		in.Runs = append(in.Runs, format.Run{Offset: a.offset, Count: 1, Number: a.number})
	}
	return entries
}

// NackOptions say why a record is put back, and for how long.
type NackOptions struct {
	// Delay is how long until it is handed out again; nil means as the queue's backoff says.
	Delay *time.Duration
	// Reason is kept until the record is done, and shown with it if it is parked. At most 1 KiB.
	Reason string

	atLeast time.Duration // the least delay, if the queue's backoff is less
}

// Nack says that the work on records failed: they are handed out again after a time, or
// parked if that was the last attempt. Else it is as [Queue.Ack].
func (q *Queue) Nack(ctx context.Context, o NackOptions, tokens ...string) (err error) {
	defer writes(&err)
	if len(o.Reason) > state.ReasonBytesMax {
		return limited(CodeInvalidRequest, state.ReasonBytesMax, "the reason has %d bytes; it may have %d", len(o.Reason), state.ReasonBytesMax)
	}
	if o.Delay != nil && (*o.Delay < 0 || *o.Delay > delayMax) {
		return refused(CodeInvalidRequest, "delay is %v; it must be 0s to %v", *o.Delay, delayMax)
	}
	answers, err := q.answer(ctx, tokens, false, func(d *state.Draft, id uint64, of []*answer) (entries []format.Entry) {
		for _, a := range of {
			if a.isLast() && a.config.DeadLetterTopic != "" {
				a.deadLetter = true // it takes more than an entry
				continue
			}
			entries = append(entries, a.putBack(id, o, d.Time()))
		}
		return entries
	})
	if err != nil {
		return err
	}
	q.deadLetterAll(ctx, answers, o.Reason)
	return errorsOf(answers)
}

// bury parks records that go to a dead-letter topic.
func (q *Queue) deadLetterAll(ctx context.Context, answers []*answer, reason string) {
	var wg sync.WaitGroup
	for _, a := range answers {
		if !a.deadLetter {
			continue
		}
		wg.Go(func() {
			err := q.b.deadLetter(ctx, deadLettering{
				topic: q.topic, queue: q.name, topicID: a.topic, queueID: a.queue, config: a.config, last: a.delivery(), tries: a.attempt, reason: reason,
				may: func(d *state.Draft) *Error {
					if !d.QueueExists(a.queue) {
						return queueNotFound(q.topic, q.name)
					}
					return nil
				},
			})
			errors.As(err, &a.err)
		})
	}
	wg.Wait()
	failed := map[deliveryToken]*Error{}
	for _, a := range answers {
		if a.deadLetter && a.err != nil {
			failed[a.deliveryToken] = a.err
		}
	}
	for _, a := range answers {
		if err := failed[a.deliveryToken]; err != nil { // its token may be there twice
			a.err = err
		}
	}
}

// answer is what is said of one delivery.
type answer struct {
	deliveryToken
	config     QueueConfig
	attempt    int    // which of the attempts that the queue allows it is
	topic      uint64 // the queue's
	deadLetter bool   // the record is to be parked, with a copy elsewhere
	err        *Error
}

// dies tells whether the delivery was the last that the queue allows.
func (a *answer) isLast() bool { return a.attempt >= a.config.MaxAttempts }

// putBack returns the entry that says that the delivery failed; now is the commit's time.
func (a *answer) putBack(queue uint64, o NackOptions, now int64) *format.RecordPutBack {
	delay := a.config.backoff(a.attempt)
	if o.Delay != nil {
		delay = *o.Delay
	}
	delay = max(delay, o.atLeast)
	if a.isLast() {
		delay = 0 // of what is parked it is said when it was
	}
	return &format.RecordPutBack{
		Queue: queue, Partition: uint32(a.partition), Attempt: format.Attempt{Offset: a.offset, Number: a.number},
		NotBefore: now + delay.Microseconds(), DeadLetter: a.isLast(), Reason: o.Reason,
	}
}

// backoff returns how long a record waits after so many attempts have failed.
func (c QueueConfig) backoff(tries int) time.Duration {
	d := c.BackoffMin
	for range tries - 1 {
		if d = 2 * d; d >= c.BackoffMax {
			break
		}
	}
	d = min(d, c.BackoffMax)
	return d - rand.N(d/2+1)
}

// answer has entries committed about those deliveries among tokens that may be answered.
func (q *Queue) answer(ctx context.Context, tokens []string, done bool, entries func(d *state.Draft, id uint64, of []*answer) []format.Entry) ([]*answer, error) {
	if err := cmp.Or(q.check(), checkTokens(tokens), q.b.usable()); err != nil {
		return nil, err
	}
	answers, err := q.parse(tokens)
	if err != nil {
		return nil, err
	}
	if err := q.syncUnlessLast(ctx, answers); err != nil {
		return nil, err
	}
	return answers, q.b.join(ctx, &request{change: func(d *state.Draft) ([]format.Entry, *Error) {
		topic, id, refusal := q.find(d)
		if refusal != nil {
			return nil, refusal
		}
		return entries(d, id, q.answerable(d, topic, id, answers, done)), nil
	}})
}

func errorsOf(answers []*answer) error {
	errs := make([]error, len(answers))
	for i, a := range answers {
		if a.err != nil {
			errs[i] = a.err
		}
	}
	return tokensError(errs)
}

func checkTokens(tokens []string) error {
	if len(tokens) == 0 || len(tokens) > tokensMax {
		e := limited(CodeInvalidRequest, tokensMax, "%d tokens; it must be 1 to %d", len(tokens), tokensMax)
		e.Hint = "send the tokens that came with the records"
		return e
	}
	return nil
}

// parse reads tokens. If one is none, nothing is done with the others either.
func (q *Queue) parse(tokens []string) ([]*answer, error) {
	answers := make([]*answer, len(tokens))
	for i, s := range tokens {
		var err error
		if answers[i], err = q.parseOne(s); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (q *Queue) parseOne(token string) (*answer, error) {
	t, err := parseToken(token)
	if err == nil && t.cluster != q.b.clusterTag() {
		err = refused(CodeInvalidRequest, "token %q belongs to another bucket", token)
	}
	return &answer{deliveryToken: t}, err
}

// lookUnlessLast looks at the log if some delivery can't be answered as far as is known
// here: perhaps it is not known here yet. What is refused after that is refused for good.
func (q *Queue) syncUnlessLast(ctx context.Context, answers []*answer) error {
	if q.allLast(answers) {
		return nil
	}
	return q.b.syncNow(ctx, false)
}

func (q *Queue) allLast(answers []*answer) bool {
	q.b.live.RLock()
	defer q.b.live.RUnlock()
	t := q.b.live.State.Topic(q.topic)
	if t == nil {
		return false
	}
	found := q.b.live.State.Queue(t.ID, q.name)
	if found == nil {
		return false
	}
	return !slices.ContainsFunc(answers, func(a *answer) bool {
		return a.queue != found.ID || int(a.partition) >= len(t.Partitions) || a.offset >= t.Partitions[a.partition].End ||
			!found.IsLast(a.partition, a.offset, a.number)
	})
}

// answerable returns the answers that are about the last delivery of a record, in order,
// and notes what is wrong with the others; nothing if the answer is that the work is done,
// and that was said before.
func (q *Queue) answerable(d *state.Draft, topic, id uint64, answers []*answer, done bool) []*answer {
	config := queueConfigOf(d.QueueConfig(id))
	good := make([]*answer, 0, len(answers))
	for _, a := range answers {
		a.config, a.topic, a.deadLetter, a.err = config, topic, false, nil
		switch {
		case a.queue != id:
			a.err = elsewhere(a.deliveryToken, d.QueueExists(a.queue))
		case d.IsLast(id, uint32(a.partition), a.offset, a.number):
			_, last, _ := d.RecordState(id, uint32(a.partition), a.offset)
			a.attempt = int(a.number) - int(last.Redriven)
			good = append(good, a)
		case done && (q.b.dispatchers.DoneBy(a.queue, a.delivery()) || d.DoneBy(id, uint32(a.partition), a.offset, a.number)): // it is said again
		default:
			a.err = leaseLost(a.deliveryToken, whyLost(d, id, a.deliveryToken))
		}
	}
	slices.SortFunc(good, func(x, y *answer) int { return x.delivery().Compare(y.delivery().Place) })
	return slices.CompactFunc(good, func(x, y *answer) bool { return x.deliveryToken == y.deliveryToken })
}

func (t deliveryToken) delivery() leases.Delivery {
	return leases.Delivery{Place: leases.Place{Partition: t.partition, Offset: t.offset}, Attempt: t.number}
}

func whyLost(d *state.Draft, id uint64, t deliveryToken) string {
	switch done, a, _ := d.RecordState(id, uint32(t.partition), t.offset); {
	case !d.HasRecord(id, uint32(t.partition), t.offset):
		return "is of a record that does not exist"
	case done:
		return "is of a record that is done"
	case a.DeadLetter:
		return "is of a dead letter"
	case a.Redriven >= t.number:
		return "is of a delivery before the record was redriven"
	case a.Number > t.number:
		return fmt.Sprintf("is of delivery %d, and delivery %d came later", t.number, a.Number)
	default:
		return "is of a delivery that never happened"
	}
}
