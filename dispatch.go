package seb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	// Dispatchers may fill 1/prefetchShare of [Options].Memory with records that they read ahead.
	// This memory does not belong to the memory budget. Otherwise slow workers would keep a part of
	// the budget in use for a long time.
	prefetchShare = 16

	recordBytes = int64(unsafe.Sizeof(Record{}))
	headerBytes = int64(unsafe.Sizeof(Header{}))
)

// dispatchBroker gives dispatchers access to the broker: it implements dispatch.Broker.
type dispatchBroker struct{ b *Broker }

// Commit implements dispatch.Broker.
func (x dispatchBroker) Commit(ctx context.Context, r dispatch.Request) error {
	ticket, err := x.b.engine.Submit(ctx, &engine.Request{Change: r.Change, Callers: callersOf(ctx), Synced: r.Synced, Urgent: r.Urgent})
	switch {
	case err != nil:
	case r.Settled:
		err = ticket.Settled(ctx)
	default:
		err = ticket.Wait(ctx)
	}
	return commitErrorOf(err)
}

// Sync implements dispatch.Broker.
func (x dispatchBroker) Sync(ctx context.Context) error { return x.b.engine.Sync(ctx) }

// SyncToAct implements dispatch.Broker.
func (x dispatchBroker) SyncToAct(ctx context.Context) error { return x.b.engine.SyncToAct(ctx) }

// Follow implements dispatch.Broker.
func (x dispatchBroker) Follow() (leave func()) { return x.b.engine.Follow() }

// Done implements dispatch.Broker.
func (x dispatchBroker) Done() <-chan struct{} { return x.b.engine.Done() }

// StoreNow implements dispatch.Broker.
func (x dispatchBroker) StoreNow() time.Time { return x.b.engine.StoreNow() }

// DeadLetter implements dispatch.Broker.
func (x dispatchBroker) DeadLetter(ctx context.Context, d *dispatch.Dispatcher, last leases.Delivery, attempts int) error {
	copyTo, ok := x.deadLetterTopic(d.Queue())
	if !ok {
		return nil // the queue was deleted
	}
	names := d.Names()
	err := x.b.deadLetter(ctx, deadLettering{
		DeadLetter: change.DeadLetter{
			QueueName: change.QueueName(names), QueueID: d.Queue(), Last: last, Reason: reasonLeaseLost, Epoch: d.Epoch(),
		},
		topicID: d.Topic(), copyTo: copyTo, attempts: attempts,
	})
	if CodeOf(err) == CodeLeaseLost {
		return nil // the record is done, or a dead letter already
	}
	return commitErrorOf(err)
}

func (x dispatchBroker) deadLetterTopic(queue format.QueueID) (name string, exists bool) {
	x.b.engine.View(func(s *state.State) {
		if q := s.QueueByID(queue); q != nil {
			name, exists = q.Config.DeadLetterTopic, true
		}
	})
	return name, exists
}

func commitErrorOf(err error) error {
	if err == nil {
		return nil
	}
	err = public(err)
	if errors.Is(err, dispatch.ErrNotOwner) {
		err = &Error{Code: CodeQueueElsewhere, Detail: "the broker no longer owns the queue", Err: err}
	}
	e := &dispatch.CommitError{Err: err, Unknown: unknown(err)}
	if of, found := errors.AsType[*Error](err); found {
		e.RetryAfter = of.RetryAfter
	}
	return e
}

// Read implements dispatch.Broker.
func (x dispatchBroker) Read(ctx context.Context, d *dispatch.Dispatcher, first leases.Place, most int, bytes int64) (dispatch.Records, int, error) {
	topic := d.Names().Topic
	f, err := x.b.Fetch(ctx, topic, int32(first.Partition), At(first.Offset), FetchOptions{
		Limit: most, MaxBytes: bytes, TopicTag: x.b.TopicTag(d.Topic()),
	})
	if err == nil && len(f.Records) == 0 {
		err = refused(CodeDataLost, "offset %d of partition %d of topic %q can't be read", first.Offset, first.Partition, topic)
	}
	switch code := CodeOf(err); {
	case err == nil:
	case code == CodeOffsetOutOfRange, code == CodeTopicNotFound, code == CodeTopicRecreated:
		return nil, 0, &dispatch.ReadError{Err: err, Deleted: true}
	case code == CodeDataLost:
		return nil, 0, &dispatch.ReadError{Err: err, Lost: true}
	case code == "" && ctx.Err() != nil:
		return nil, 0, ctx.Err()
	default:
		return nil, 0, err
	}
	return records(f.Records), int(f.Next - first.Offset), nil
}

// Go implements dispatch.Broker.
func (x dispatchBroker) Go(f func()) { x.b.engine.Go(f) }

// Find implements dispatch.Records.
func (rs records) Find(offset format.Offset) (i int, ok bool) {
	return slices.BinarySearchFunc(rs, offset, func(r Record, offset format.Offset) int { return cmp.Compare(r.Offset, offset) })
}

// Key implements dispatch.Records.
func (rs records) Key(i int) []byte { return rs[i].Key }

// Bytes implements dispatch.Records.
func (rs records) Bytes(i int) int64 { return rs[i].bytes() }

// Own implements dispatch.Records. It replaces the records by copies, so that the memory of the batch
// from which they were read can be freed. It returns how many bytes the copies take.
func (rs records) Own() (total int64) {
	var n int64
	for i := range rs {
		n += rs[i].bytes()
		total += recordBytes + int64(len(rs[i].Headers))*headerBytes
	}
	buf := make([]byte, 0, n)
	own := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, b...)
		return buf[from:len(buf):len(buf)]
	}
	for i := range rs {
		r := &rs[i]
		r.Key, r.Value = own(r.Key), own(r.Value)
		for j := range r.Headers {
			r.Headers[j].Value = own(r.Headers[j].Value)
		}
	}
	return total + n
}

// addOwnersView adds to info what only the queue's owner knows. d is the queue's dispatcher; nil means
// that this broker is not the owner, and addOwnersView adds nothing. It returns what the owner knows. The caller
// must not hold the state's lock.
func addOwnersView(d *dispatch.Dispatcher, info *QueueInfo) (x dispatch.Info) {
	if d == nil || d.Epoch() != info.Epoch {
		return x
	}
	x = d.Info()
	info.Exact, info.Leased, info.Held, info.HeldUntil = x.Exact, x.Leased, x.Held, x.HeldUntil
	info.Ready = max(0, info.Ready-info.Leased-info.Held)
	info.Received, info.Acknowledged = x.ReceivedRate, x.AcknowledgedRate
	return x
}
