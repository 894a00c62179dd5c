package seb

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/leases"
)

// Message is a record that a worker has received.
type Message struct {
	Record
	// Token identifies this delivery for [Queue.Ack], [Queue.Nack] and [Queue.Extend].
	Token string
	// Attempt is how often the record was delivered, this delivery included. The count restarts
	// when [Queue.Redrive] redrives the record.
	Attempt int
	// LeasedUntil is when the record may go to another worker, unless this worker answers or
	// extends the lease before that time. It is a time of the owner's clock: a worker on another
	// machine should rely on the length of the lease instead.
	LeasedUntil time.Time
}

// ReceiveOptions are the options of [Queue.Receive].
type ReceiveOptions struct {
	// Max is the maximum number of records; 0 means 1. Up to 1,000.
	Max int
	// Wait is how long to wait for the first record.
	Wait time.Duration
	// Lease is how long the worker has for the records; 0 means the queue's lease.
	Lease time.Duration
	// MaxBytes bounds keys, values and headers together; 0 means 1 MiB. The first record is
	// returned whatever its size.
	MaxBytes int64
	// Reserve, if set, reserves memory for the records. Receive calls Reserve before each try to
	// take records. If Receive gets no records, it calls release, so that a waiting receiver holds
	// no memory. An error of Reserve ends Receive.
	Reserve func(context.Context) (release func(), err error)
	// InFlight, if set, bounds how many messages of this and earlier calls the worker has:
	// Receive waits until the worker may have another one.
	InFlight *InFlight

	// admit, if set, returns how many records Receive may take; most is how many Receive wants.
	// Receive calls admit before Reserve. If Receive gets no records, it calls release.
	admit func(ctx context.Context, most int) (n int, release func(), err error)
}

const (
	receiveMax   = 1000
	receiveBytes = 1 << 20
	// ReceiveWaitMax is the longest that a [Queue.Receive] waits.
	ReceiveWaitMax = time.Hour
)

func (o *ReceiveOptions) check() error {
	def(&o.Max, 1)
	def(&o.MaxBytes, receiveBytes)
	switch {
	case o.MaxBytes < 0:
		return refused(CodeInvalidRequest, "max_bytes is %d; it must be at least 1", o.MaxBytes)
	case o.Max < 1 || o.Max > receiveMax:
		return limited(CodeInvalidRequest, receiveMax, "max is %d; it must be 1 to %d", o.Max, receiveMax)
	case o.Wait < 0 || o.Wait > ReceiveWaitMax:
		return refused(CodeInvalidRequest, "wait is %v; it must be 0s to %v", o.Wait, ReceiveWaitMax)
	}
	return checkLease(o.Lease)
}

func checkLease(lease time.Duration) error {
	if lease != 0 && lease < queueLeaseMin || lease > queueLeaseMax {
		return refused(CodeInvalidRequest, "lease is %v; it must be 1s to 12h", lease)
	}
	return nil
}

// Receive leases records to the caller. It returns no records and no error if none came within
// opts.Wait. The records share memory with the broker's cache: don't change what they point to.
//
// One broker at a time owns a queue and hands out the queue's records. If another broker owns the
// queue, Receive fails with CodeQueueElsewhere, and [Error.Address] is that broker's address.
func (q *Queue) Receive(ctx context.Context, opts ReceiveOptions) (_ []Message, err error) {
	defer reads(&err)
	if err := cmp.Or(opts.check(), q.check(), q.b.current(ctx)); err != nil {
		return nil, err
	}
	received, err := q.b.dispatchers.Receive(ctx, dispatch.ReceiveOptions{
		Max: opts.Max, MaxBytes: opts.MaxBytes, Lease: opts.Lease, InFlight: opts.InFlight.inner(), Deadline: time.Now().Add(opts.Wait), Admit: opts.admission(),
	}, func() (*dispatch.Dispatcher, error) { return q.dispatcher(ctx, opts.Max) })
	if of, ok := errors.AsType[*dispatch.ReadError](err); ok {
		err = of.Err
	}
	if err != nil || len(received) == 0 {
		return nil, err
	}
	messages := make([]Message, len(received))
	for i, x := range received {
		x.Token.Cluster = clusterTag(q.b.engine)
		messages[i] = Message{Record: x.Records.(records)[x.Index], Token: x.Token.String(), Attempt: x.Attempt, LeasedUntil: x.Until.UTC()}
	}
	return messages, nil
}

// admission returns the method reserve; nil if neither admit nor Reserve is set.
func (o ReceiveOptions) admission() func(ctx context.Context) (n int, release func(), err error) {
	if o.admit == nil && o.Reserve == nil {
		return nil
	}
	return o.reserve
}

// reserve calls admit and Reserve. It returns how many records may be taken, and a function to call if
// no records are taken.
func (o ReceiveOptions) reserve(ctx context.Context) (int, func(), error) {
	n, leave := o.Max, func() {}
	if o.admit != nil {
		var err error
		if n, leave, err = o.admit(ctx, o.Max); err != nil {
			return 0, nil, err
		}
	}
	if o.Reserve == nil {
		return n, leave, nil
	}
	release, err := o.Reserve(ctx)
	if err != nil {
		leave()
		return 0, nil, err
	}
	return n, func() {
		release()
		leave()
	}, nil
}

// Return gives back messages of [Queue.Receive] that did not reach their worker, for example
// because the worker's connection is gone. The next receiver gets them with the same attempt
// numbers. Return does nothing for messages that this broker has not handed out: their leases run
// out.
func (q *Queue) Return(messages []Message) (err error) {
	defer reads(&err)
	tokens := make([]string, len(messages))
	for i := range messages {
		tokens[i] = messages[i].Token
	}
	answers, err := parseAnswers(tokens, clusterTag(q.b.engine))
	if err != nil {
		return err
	}
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return err
	}
	var out []leases.Delivery
	for _, a := range answers {
		if a.Queue == d.Queue() {
			out = append(out, a.Delivery)
		}
	}
	d.Return(out...)
	return nil
}

// InFlight bounds how many messages of one queue a worker has at a time: see
// [ReceiveOptions.InFlight]. A message counts until the worker has answered it, through any
// broker, or until the message's lease has ended. The count restarts at zero when another broker
// becomes the queue's owner. Only one Receive at a time may use an InFlight.
type InFlight struct{ in dispatch.InFlight }

// NewInFlight returns an [InFlight] that allows the worker the given number of messages, 1 to 1,000.
func NewInFlight(most int) (_ *InFlight, err error) {
	defer reads(&err)
	if most < 1 || most > receiveMax {
		return nil, limited(CodeInvalidRequest, receiveMax, "%d messages in flight are not allowed: the number must be 1 to %d", most, receiveMax)
	}
	return &InFlight{dispatch.InFlight{Max: most}}, nil
}

// inner returns the counter for a dispatcher; nil if f is nil.
func (f *InFlight) inner() *dispatch.InFlight {
	if f == nil {
		return nil
	}
	return &f.in
}
