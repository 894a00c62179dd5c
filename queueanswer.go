package seb

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	tokensMax = 1000 // per call
	delayMax  = 366 * 24 * time.Hour
)

// Ack marks the records of tokens as done. It returns once the store has the commit, which may
// also have changes of other requests. Every broker can do this, not only the queue's owner.
//
// Ack may accept some tokens and refuse others: then the error is a [*TokensError]. A token is
// refused with CodeLeaseLost if the record may have gone to another worker. The end of the
// lease alone is no reason to refuse a token.
func (q *Queue) Ack(ctx context.Context, tokens ...string) (err error) {
	defer writes(&err)
	r, ctx := newRequest(ctx)
	answers, synced, err := q.answers(ctx, tokens)
	if err != nil {
		return err
	}
	r.Change = change.AckRecords{QueueName: q.names(), Answers: answers, Synced: synced}
	if err := q.b.engine.Commit(ctx, r); err != nil {
		return err
	}
	for _, a := range answers {
		if a.Outdated && q.b.dispatchers.DoneBy(a.Queue, a.Delivery) {
			a.Err = nil // a repeated acknowledgement is no error
		}
	}
	return errorsOf(answers)
}

// NackOptions are the options of [Queue.Nack].
type NackOptions struct {
	// Delay is how long the record waits for its next delivery; nil means the queue's backoff.
	Delay *time.Duration
	// Reason is kept until the record is done, and shown with a dead letter. At most 1 KiB.
	Reason string

	atLeast time.Duration // minimum of the delay, even if the queue's backoff is shorter
}

// Nack says that the work on the records of tokens failed. Each record is handed out again after a
// delay, or becomes a dead letter if the attempt was the last one. Nack may accept some tokens and
// refuse others: see [Queue.Ack].
func (q *Queue) Nack(ctx context.Context, o NackOptions, tokens ...string) (err error) {
	defer writes(&err)
	if len(o.Reason) > state.ReasonBytesMax {
		return limited(CodeInvalidRequest, state.ReasonBytesMax, "the reason has %d bytes; at most %d bytes are allowed", len(o.Reason), state.ReasonBytesMax)
	}
	if o.Delay != nil && (*o.Delay < 0 || *o.Delay > delayMax) {
		return refused(CodeInvalidRequest, "delay is %v; it must be 0s to %v", *o.Delay, delayMax)
	}
	r, ctx := newRequest(ctx)
	answers, synced, err := q.answers(ctx, tokens)
	if err != nil {
		return err
	}
	x := change.NackRecords{QueueName: q.names(), Delay: copied(o.Delay), AtLeast: o.atLeast, Reason: o.Reason, Answers: answers, Synced: synced}
	r.Change = x
	if err := q.b.engine.Commit(ctx, r); err != nil {
		return err
	}
	q.deadLetterAll(ctx, answers, o.Reason)
	return errorsOf(answers)
}

// deadLetterAll turns the records of all answers with a DeadLetterTopic into dead letters, and copies each
// record to that topic.
func (q *Queue) deadLetterAll(ctx context.Context, answers []*change.Answer, reason string) {
	var wg sync.WaitGroup
	for _, a := range answers {
		if a.DeadLetterTopic == "" {
			continue
		}
		wg.Go(func() {
			a.Err = q.b.deadLetter(ctx, deadLettering{
				DeadLetter: change.DeadLetter{QueueName: q.names(), QueueID: a.Queue, Last: a.Delivery, Reason: reason},
				topicID:    a.TopicID, copyTo: a.DeadLetterTopic, attempts: a.Attempts,
			})
		})
	}
	wg.Wait()
	failed := map[string]error{}
	for _, a := range answers {
		if a.DeadLetterTopic != "" && a.Err != nil {
			failed[a.Token] = a.Err
		}
	}
	for _, a := range answers {
		if err := failed[a.Token]; err != nil { // if the caller sent a token twice, both answers get the error
			a.Err = err
		}
	}
}

// answers parses tokens. It syncs unless this broker knows that each token belongs to the last delivery
// of its record: see syncUnlessLast.
func (q *Queue) answers(ctx context.Context, tokens []string) (answers []*change.Answer, synced bool, err error) {
	if err := cmp.Or(q.check(), checkTokens(tokens), q.b.engine.Usable()); err != nil {
		return nil, false, err
	}
	if answers, err = parseAnswers(tokens, clusterTag(q.b.engine)); err != nil {
		return nil, false, err
	}
	synced, err = q.syncUnlessLast(ctx, answers)
	return answers, synced, err
}

// errorsOf returns the refusals of answers; nil if all were accepted.
func errorsOf(answers []*change.Answer) error {
	if !slices.ContainsFunc(answers, func(a *change.Answer) bool { return a.Err != nil }) {
		return nil
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.Err
	}
	return tokensError(errs)
}

func checkTokens(tokens []string) error {
	if len(tokens) == 0 || len(tokens) > tokensMax {
		e := limited(CodeInvalidRequest, tokensMax, "there are %d tokens; there must be 1 to %d", len(tokens), tokensMax)
		e.Hint = "send the tokens that came with the records"
		return e
	}
	return nil
}

// parseAnswers parses tokens. If one of them is invalid, or belongs to a log whose tag is not cluster, parseAnswers
// returns an error, and no answers.
func parseAnswers(tokens []string, cluster string) ([]*change.Answer, error) {
	answers := make([]*change.Answer, len(tokens))
	for i, s := range tokens {
		var err error
		if answers[i], err = parseAnswer(s, cluster); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func parseAnswer(token, cluster string) (*change.Answer, error) {
	t, err := parseToken(token)
	if err == nil && t.Cluster != cluster {
		e := refused(CodeInvalidRequest, "token %q was handed out by the brokers of another store", token)
		e.Hint = "send the token to a broker of the store that handed out the record; if that store is gone, drop the record"
		err = e
	}
	return &change.Answer{Token: token, Queue: t.Queue, Delivery: t.Delivery}, err
}

// syncUnlessLast syncs unless, as far as this broker knows, each token belongs to the last delivery of the
// token's record. Any other token may belong to a delivery that another broker has made since the last
// sync. After the sync this broker knows that delivery too. So it may refuse the tokens that still do not
// belong to the last delivery of a record.
func (q *Queue) syncUnlessLast(ctx context.Context, answers []*change.Answer) (synced bool, err error) {
	if q.allLast(answers) {
		return false, nil
	}
	return true, q.b.engine.Sync(ctx)
}

func (q *Queue) allLast(answers []*change.Answer) (all bool) {
	err := q.view(func(_ *state.State, t *state.Topic, found *state.Queue) {
		all = !slices.ContainsFunc(answers, func(a *change.Answer) bool {
			return a.Queue != found.ID || int(a.Partition) >= len(t.Partitions) || a.Offset >= t.Partitions[a.Partition].End ||
				!found.IsLast(a.Partition, a.Offset, a.Attempt)
		})
	})
	return err == nil && all
}
