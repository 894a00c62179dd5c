package seb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	tokensMax = 1000 // per call
	delayMax  = 366 * 24 * time.Hour
)

// Ack marks records as done. It returns once the store has the commit, which it shares with
// other requests. Any broker can do it.
//
// Each token is decided alone: if some are refused, the error is a [*TokensError]. A token is
// refused with CodeLeaseLost if its record may have gone to another worker. It is not refused
// merely because the lease ran out.
func (q *Queue) Ack(ctx context.Context, tokens ...string) (err error) {
	defer writes(&err)
	answers, err := q.answers(ctx, tokens)
	if err != nil {
		return err
	}
	if err := q.b.engine.Commit(ctx, &engine.Request{Change: ackRecords{q.namedQueue, answers}, Callers: callersOf(ctx)}); err != nil {
		return err
	}
	for _, a := range answers {
		if a.outdated && q.b.dispatchers.DoneBy(a.Queue, a.Delivery) {
			a.err = nil // acknowledged again
		}
	}
	return errorsOf(answers)
}

// ackRecords is the change of [Queue.Ack].
type ackRecords struct {
	namedQueue
	answers []*answer // with results
}

// Apply implements engine.Change.
func (x ackRecords) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return doneEntries(id, answerable(d, topic, id, x.answers, true)), nil
}

// doneEntries returns the entries that mark records as done; the deliveries are sorted.
func doneEntries(queue uint64, of []*answer) (entries []format.Entry) {
	var in *format.RecordsDone
	for _, a := range of {
		if in == nil || in.Partition != uint32(a.Partition) {
			in = &format.RecordsDone{Queue: queue, Partition: uint32(a.Partition)}
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

// NackOptions are the options of [Queue.Nack].
type NackOptions struct {
	// Delay is how long the record waits for its next delivery; nil means the queue's backoff.
	Delay *time.Duration
	// Reason is kept until the record is done, and shown with a dead letter. At most 1 KiB.
	Reason string

	atLeast time.Duration // minimum of the delay, whatever the queue's backoff
}

// Nack says that the work on records failed: they are handed out again after a time, or become
// dead letters if that was their last attempt. Tokens are decided as by [Queue.Ack].
func (q *Queue) Nack(ctx context.Context, o NackOptions, tokens ...string) (err error) {
	defer writes(&err)
	if len(o.Reason) > state.ReasonBytesMax {
		return limited(CodeInvalidRequest, state.ReasonBytesMax, "the reason has %d bytes; it may have %d", len(o.Reason), state.ReasonBytesMax)
	}
	if o.Delay != nil && (*o.Delay < 0 || *o.Delay > delayMax) {
		return refused(CodeInvalidRequest, "delay is %v; it must be 0s to %v", *o.Delay, delayMax)
	}
	answers, err := q.answers(ctx, tokens)
	if err != nil {
		return err
	}
	if err := q.b.engine.Commit(ctx, &engine.Request{Change: nackRecords{q.namedQueue, o, answers}, Callers: callersOf(ctx)}); err != nil {
		return err
	}
	q.deadLetterAll(ctx, answers, o.Reason)
	return errorsOf(answers)
}

// nackRecords is the change of [Queue.Nack].
type nackRecords struct {
	namedQueue
	options NackOptions
	answers []*answer // with results
}

// Apply implements engine.Change.
func (x nackRecords) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	for _, a := range answerable(d, topic, id, x.answers, false) {
		if a.isLast() && a.config.DeadLetterTopic != "" {
			a.deadLetter = true // an entry is not enough: it needs a copy
			continue
		}
		entries = append(entries, a.putBack(id, x.options, d.Time()))
	}
	return entries, nil
}

// deadLetterAll makes dead letters of the records that go to a dead-letter topic.
func (q *Queue) deadLetterAll(ctx context.Context, answers []*answer, reason string) {
	var wg sync.WaitGroup
	for _, a := range answers {
		if !a.deadLetter {
			continue
		}
		wg.Go(func() {
			err := q.b.deadLetter(ctx, deadLettering{
				topic: q.topic, queue: q.name, topicID: a.topic, queueID: a.Queue, config: a.config, last: a.Delivery, attempts: a.used, reason: reason,
			})
			a.err, _ = publicError(err)
		})
	}
	wg.Wait()
	failed := map[dispatch.Token]*Error{}
	for _, a := range answers {
		if a.deadLetter && a.err != nil {
			failed[a.Token] = a.err
		}
	}
	for _, a := range answers {
		if err := failed[a.Token]; err != nil { // the caller may have sent a token twice
			a.err = err
		}
	}
}

// answer is a worker's answer to one delivery.
type answer struct {
	dispatch.Token

	// Set by answerable.
	config     QueueConfig
	used       int    // attempts, this one included, counted since the record was redriven
	topic      uint64 // of the queue
	deadLetter bool   // the record becomes a dead letter, with a copy in the dead-letter topic
	outdated   bool   // the delivery is not its record's last, or the record is done
	err        *Error
}

// isLast tells whether the delivery was the last attempt that the queue allows.
func (a *answer) isLast() bool { return a.used >= a.config.MaxAttempts }

// putBack returns the entry that says that the delivery failed; now is the commit's time.
func (a *answer) putBack(queue uint64, o NackOptions, now int64) *format.RecordPutBack {
	delay := dispatch.Backoff{Min: a.config.BackoffMin, Max: a.config.BackoffMax}.After(a.used)
	if o.Delay != nil {
		delay = *o.Delay
	}
	delay = max(delay, o.atLeast)
	if a.isLast() {
		delay = 0 // NotBefore of a dead letter is when it became one
	}
	return &format.RecordPutBack{
		Queue: queue, Partition: uint32(a.Partition), Attempt: format.Attempt{Offset: a.Offset, Number: a.Attempt},
		NotBefore: now + delay.Microseconds(), DeadLetter: a.isLast(), Reason: o.Reason,
	}
}

// answers returns the answers of those tokens, after a sync if the state does not have each
// delivery as its record's last.
func (q *Queue) answers(ctx context.Context, tokens []string) ([]*answer, error) {
	if err := cmp.Or(q.check(), checkTokens(tokens), q.b.engine.Usable()); err != nil {
		return nil, err
	}
	answers, err := q.b.parseAnswers(tokens)
	if err != nil {
		return nil, err
	}
	return answers, q.syncUnlessLast(ctx, answers)
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

// parseAnswers parses tokens. If one is invalid, it refuses all of them.
func (b *Broker) parseAnswers(tokens []string) ([]*answer, error) {
	answers := make([]*answer, len(tokens))
	for i, s := range tokens {
		var err error
		if answers[i], err = b.parseAnswer(s); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (b *Broker) parseAnswer(token string) (*answer, error) {
	t, err := parseToken(token)
	if err == nil && t.Cluster != clusterTag(b.engine) {
		err = refused(CodeInvalidRequest, "token %q belongs to another bucket", token)
	}
	return &answer{Token: t}, err
}

// syncUnlessLast syncs unless the state has each delivery as its record's last: another broker
// may have made it. A token that is refused after that is refused for good.
func (q *Queue) syncUnlessLast(ctx context.Context, answers []*answer) error {
	if q.allLast(answers) {
		return nil
	}
	return q.b.engine.Sync(ctx)
}

func (q *Queue) allLast(answers []*answer) (all bool) {
	err := q.view(func(_ *state.State, t *state.Topic, found *state.Queue) {
		all = !slices.ContainsFunc(answers, func(a *answer) bool {
			return a.Queue != found.ID || int(a.Partition) >= len(t.Partitions) || a.Offset >= t.Partitions[a.Partition].End ||
				!found.IsLast(a.Partition, a.Offset, a.Attempt)
		})
	})
	return err == nil && all
}

// answerable returns the answers to deliveries that are their record's last, sorted, and sets
// the error of the others. If done is set, an acknowledgement of what the same delivery has
// already marked as done in this commit is neither returned nor an error.
func answerable(d *state.Draft, topic, id uint64, answers []*answer, done bool) []*answer {
	config := queueConfigOf(d.QueueConfig(id))
	good := make([]*answer, 0, len(answers))
	for _, a := range answers {
		a.config, a.topic, a.deadLetter, a.outdated, a.err = config, topic, false, false, nil
		switch {
		case a.Queue != id:
			a.err = elsewhere(a.Token, d.QueueExists(a.Queue))
		case d.IsLast(id, uint32(a.Partition), a.Offset, a.Attempt):
			_, last, _ := d.RecordState(id, uint32(a.Partition), a.Offset)
			a.used = int(a.Attempt) - int(last.Redriven)
			good = append(good, a)
		case done && d.DoneBy(id, uint32(a.Partition), a.Offset, a.Attempt): // acknowledged again
		default:
			a.outdated = true
			a.err = leaseLost(a.Token, whyLost(d, id, a.Token))
		}
	}
	slices.SortFunc(good, func(x, y *answer) int { return x.Compare(y.Place) })
	return slices.CompactFunc(good, func(x, y *answer) bool { return x.Token == y.Token })
}

func whyLost(d *state.Draft, id uint64, t dispatch.Token) string {
	switch done, a, _ := d.RecordState(id, uint32(t.Partition), t.Offset); {
	case !d.HasRecord(id, uint32(t.Partition), t.Offset):
		return "is of a record that does not exist"
	case done:
		return "is of a record that is done"
	case a.DeadLetter:
		return "is of a dead letter"
	case a.Redriven >= t.Attempt:
		return "is of a delivery before the record was redriven"
	case a.Number > t.Attempt:
		return fmt.Sprintf("is of delivery %d, and delivery %d came later", t.Attempt, a.Number)
	default:
		return "is of a delivery that never happened"
	}
}
