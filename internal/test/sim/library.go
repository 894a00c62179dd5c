package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/simple-event-broker/seb"
)

// caller does an operation at a broker, and notes the answer in the operation.
type caller interface {
	append(ctx context.Context, o *op, key string, values []string)
	// cut takes a cut of topics at a broker. ok is false if there was no answer, or an error.
	cut(ctx context.Context, broker string, topics []string) (cut seb.Cut, ok bool)
	// decide appends on the conditions of o.decision.
	decide(ctx context.Context, o *op, values []string)
	read(ctx context.Context, o *op, opts seb.FetchOptions)
	create(ctx context.Context, o *op, partitions int)
	delete(ctx context.Context, o *op)
	trim(ctx context.Context, o *op)
	update(ctx context.Context, o *op)

	consume(ctx context.Context, o *op, opts seb.FetchOptions)
	commit(ctx context.Context, o *op)
	set(ctx context.Context, o *op)
	describe(ctx context.Context, o *op)
	list(ctx context.Context, o *op)
	forget(ctx context.Context, o *op)

	queuer
}

// library calls the methods of the broker, as a program that embeds the broker does.
type library struct {
	broker  *seb.Broker
	history *history
}

func (l library) append(ctx context.Context, o *op, key string, values []string) {
	records := make([]seb.Record, len(values))
	for i, v := range values {
		records[i].Value = []byte(v)
		if key != "" {
			records[i].Key = []byte(key)
		}
	}
	var opts []seb.AppendOption
	if o.partition >= 0 {
		opts = append(opts, seb.ToPartition(int32(o.partition)))
	}
	if o.key != "" {
		opts = append(opts, seb.IdempotencyKey(o.key))
	}
	if o.delay != nil {
		opts = append(opts, seb.Delay(*o.delay))
	}
	if o.ifOffset != nil {
		opts = append(opts, seb.IfOffset(*o.ifOffset))
	}
	a, err := l.broker.Append(ctx, o.topic, records, opts...)
	o.ranges = a.Ranges
	o.fail(err)
}

func (l library) read(ctx context.Context, o *op, opts seb.FetchOptions) {
	f, err := l.broker.Fetch(ctx, o.topic, int32(o.partition), o.from, opts)
	o.next, o.end = f.Next, f.End
	for _, r := range f.Records {
		o.found(l.history, r.Offset, string(r.Value))
	}
	o.fail(err)
}

func (l library) create(ctx context.Context, o *op, partitions int) {
	_, _, err := l.broker.CreateTopic(ctx, o.topic, seb.TopicOptions{Partitions: int32(partitions)})
	o.fail(err)
}

func (l library) delete(ctx context.Context, o *op) {
	o.fail(l.broker.DeleteTopic(ctx, o.topic))
}

func (l library) trim(ctx context.Context, o *op) {
	p, err := l.broker.DeleteRecords(ctx, o.topic, int32(o.partition), o.before)
	o.start, o.end = p.Start, p.End
	o.fail(err)
}

func (l library) update(ctx context.Context, o *op) {
	u := seb.TopicUpdate{RetentionBytes: &o.config}
	if o.partition > 0 {
		u.Partitions = new(int32(o.partition))
	}
	t, err := l.broker.UpdateTopic(ctx, o.topic, u)
	o.is = shape{len(t.Partitions), t.Config.RetentionBytes}
	o.fail(err)
}

// fail notes an error in the operation.
func (o *op) fail(err error) {
	if err == nil {
		return
	}
	var e *seb.Error
	if !errors.As(err, &e) {
		o.failure, o.detail = "no code", err.Error()
		return
	}
	o.failure, o.outcome, o.start, o.end, o.detail = e.Code, e.Outcome, e.Start, e.End, e.Detail
	if e.Err != nil {
		o.detail += fmt.Sprintf(": %.150v", e.Err)
	}
}

// found notes a record that the operation read.
func (o *op) found(h *history, at seb.Offset, value string) {
	id, ok := h.identify(value)
	if !ok {
		h.violate("NoPhantom", "%s/%d holds %.40q at %d, which nobody sent", o.topic, o.partition, value, at)
	}
	o.records = append(o.records, seen{at, id})
}
