package sim

import (
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb"
)

// queuer does an operation with a queue at a broker.
type queuer interface {
	receive(ctx context.Context, o *op, opts seb.ReceiveOptions)
	ack(ctx context.Context, o *op)
	nack(ctx context.Context, o *op)
	extend(ctx context.Context, o *op)
	open(ctx context.Context, o *op, p *plan)
	pause(ctx context.Context, o *op) // pauses or resumes the queue
	redrive(ctx context.Context, o *op)
	purge(ctx context.Context, o *op)
	dissolve(ctx context.Context, o *op)
}

func (l library) queue(o *op) *seb.Queue { return l.broker.Queue(o.topic, o.queue) }

func (l library) receive(ctx context.Context, o *op, opts seb.ReceiveOptions) {
	opts.Lease = o.lease
	messages, err := l.queue(o).Receive(ctx, opts)
	for _, m := range messages {
		o.receive(l.history, message{token: m.Token, toldAttempt: m.Attempt, until: l.history.since(m.LeasedUntil)}, string(m.Value))
	}
	o.fail(err)
}

func (o *op) rawTokens() []string {
	tokens := make([]string, len(o.tokens))
	for i, m := range o.tokens {
		tokens[i] = m.token
	}
	return tokens
}

// judge notes the error of each token.
func (o *op) judge(err error) {
	var some *seb.TokensError
	if !errors.As(err, &some) {
		o.fail(err)
		return
	}
	o.verdicts = make([]seb.Code, len(o.tokens))
	for i, err := range some.Errors {
		o.verdicts[i] = seb.CodeOf(err)
	}
}

func (l library) ack(ctx context.Context, o *op) { o.judge(l.queue(o).Ack(ctx, o.rawTokens()...)) }

func (l library) nack(ctx context.Context, o *op) {
	o.judge(l.queue(o).Nack(ctx, seb.NackOptions{Delay: o.delay, Reason: o.reason}, o.rawTokens()...))
}

func (l library) extend(ctx context.Context, o *op) {
	until, err := l.queue(o).Extend(ctx, o.lease, o.rawTokens()...)
	if !until.IsZero() {
		o.until = l.history.since(until)
	}
	o.judge(err)
}

func (l library) open(ctx context.Context, o *op, p *plan) {
	from := seb.Earliest
	if o.to == "latest" {
		from = seb.Latest
	}
	var err error
	_, o.created, err = l.queue(o).Set(ctx, p.queueUpdate(), from)
	o.fail(err)
}

func (l library) pause(ctx context.Context, o *op) {
	_, err := l.queue(o).Update(ctx, seb.QueueUpdate{Paused: new(o.kind == pauses)})
	o.fail(err)
}

func (l library) redrive(ctx context.Context, o *op) {
	n, err := l.queue(o).Redrive(ctx, seb.RedriveOptions{})
	o.touched = int64(n.Records)
	o.fail(err)
}

func (l library) purge(ctx context.Context, o *op) {
	n, err := l.queue(o).Purge(ctx)
	o.touched = n
	o.fail(err)
}

func (l library) dissolve(ctx context.Context, o *op) { o.fail(l.queue(o).Delete(ctx)) }

// since returns the time from the start of the run to t.
func (h *history) since(t time.Time) time.Duration { return t.Sub(h.begun) }
