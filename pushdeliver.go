package seb

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// PushOptions are how a broker delivers pushed records.
type PushOptions struct {
	// Grace is how long requests to targets may go on when DeliverPushed is to end. Default
	// 0: as long as their targets' timeout.
	Grace time.Duration
	// Proxy takes all requests to targets, if it is set, and decides where they may go in
	// the place of Options.PushNetworks. None is taken from the environment.
	Proxy *url.URL
	// RootCAs are whom the certificates of targets must come from. Default: the system's.
	RootCAs *x509.CertPool

	// dial makes connections to targets; nil means by the network. Tests in virtual time set it.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// DeliverPushed delivers the records of queues that [Queue.SetPush] was called for, until
// ctx ends, and returns when no request is under way any more. Of the brokers of a bucket
// that do so, the one pushes that owns the queue: it takes over what nobody owns, and from
// an owner that the log has not heard of for 30 s although there is work.
//
// What is answered 2xx is done. What is not comes again as the queue's config says. Call
// it once at a time, and let it return before [Broker.Shutdown]: what is under way then
// can still be answered for.
func (b *Broker) DeliverPushed(ctx context.Context, o PushOptions) (err error) {
	defer reads(&err)
	ctx, end := context.WithCancel(ctx)
	defer end()
	b.tasks.Go(func() {
		select {
		case <-b.loopDone:
			end()
		case <-ctx.Done():
		}
	})
	err = b.pushes.Run(ctx, func(q push.Pushed) (push.Queue, push.Options) {
		return pushQueue{b.Queue(q.Topic, q.Name), func() bool { return b.pushesStill(q) }}, push.Options{
			Topic: q.Topic, TopicID: q.TopicID, Queue: q.Name, Networks: b.pushNetworks(),
			Proxy: o.Proxy, RootCAs: o.RootCAs, Dial: o.dial, Grace: o.Grace, Logger: b.logger, Metrics: b.metrics.push,
		}
	})
	if err != nil {
		return refused(CodeInvalidRequest, "%v", err)
	}
	return nil
}

// pushBroker is the broker as the supervisor of pushed queues needs it.
type pushBroker struct{ b *Broker }

// Pushed implements push.Broker.
func (x pushBroker) Pushed() map[uint64]push.Pushed {
	found := map[uint64]push.Pushed{}
	x.b.live.RLock()
	defer x.b.live.RUnlock()
	for q := range x.b.live.State.PushedQueues() {
		if q.Push.Stopped != "" || q.Config.Paused {
			continue
		}
		d, o := x.b.dispatchers.Of(q.ID), ownerOf(q)
		found[q.ID] = push.Pushed{
			ID: q.ID, Topic: x.b.live.State.TopicByID(q.Topic).Name, Name: q.Name, TopicID: x.b.TopicTag(q.Topic), Target: targetOf(q.Push),
			Epoch: o.epoch, Owned: o.owned, Owner: o.address, Seen: o.seen,
			Here: d != nil && q.Owned && d.Epoch() == q.Epoch,
			Mine: o.address != "" && o.address == x.b.opts.Address && !x.b.dispatchers.HasLost(o.queue),
		}
	}
	return found
}

// HasWork implements push.Broker.
func (x pushBroker) HasWork(q push.Pushed) bool {
	info, _, err := x.b.Queue(q.Topic, q.Name).known()
	return err == nil && info.Ready+info.Held > 0
}

// TakeOver implements push.Broker.
func (x pushBroker) TakeOver(ctx context.Context, q push.Pushed) error {
	queue := x.b.Queue(q.Topic, q.Name)
	d, o, err := queue.ownedHere()
	if err != nil || d != nil || o.epoch != q.Epoch {
		return ifNoQueue(err) // it has another owner by now
	}
	return ifNoQueue(queue.takeOver(ctx, o, false, 0))
}

// Show implements push.Broker.
func (x pushBroker) Show(ctx context.Context, q push.Pushed) error {
	d := x.b.dispatchers.Of(q.ID)
	if d == nil {
		return push.ErrNoQueue
	}
	return ifNoQueue(d.Show(ctx))
}

// Stop implements push.Broker.
func (x pushBroker) Stop(ctx context.Context, q push.Pushed, why string) error {
	return ifNoQueue(x.b.Queue(q.Topic, q.Name).changePush(ctx, func(now *format.QueuePush) (*format.QueuePush, *Error) {
		if !isPushedTo(now, q.Target) {
			return now, nil // it has another target by now
		}
		stopped := *now
		stopped.Stopped = why
		return &stopped, nil
	}))
}

// Follow implements push.Broker.
func (x pushBroker) Follow() (leave func()) { return x.b.tail.wait() }

// Follows implements push.Broker.
func (x pushBroker) Follows() bool { return x.b.tail.age() < followIntervalMax+5*time.Second }

// ifNoQueue wraps an error that says that this broker does not hand out the queue.
func ifNoQueue(err error) error {
	switch CodeOf(err) {
	case CodeQueueNotFound, CodeTopicNotFound, CodeQueueElsewhere:
		return fmt.Errorf("%w: %w", push.ErrNoQueue, err)
	default:
		return err
	}
}

// pushesStill tells whether a queue should be pushed as it was.
func (b *Broker) pushesStill(q push.Pushed) bool {
	b.live.RLock()
	defer b.live.RUnlock()
	now := b.live.State.QueueByID(q.ID)
	return now != nil && !now.Config.Paused && isPushedTo(now.Push, q.Target)
}

func isPushedTo(p *format.QueuePush, t push.Target) bool {
	return p != nil && p.Stopped == "" && targetOf(p).Equal(t)
}

// pushing has the supervisor of pushed queues observe the log.
type pushing struct{ *push.Supervisor }

func (x pushing) loaded(*state.State) { x.Notify() }

func (x pushing) applying([]format.Entry, logTime) {}

func (x pushing) applied(_ *state.State, entries []format.Entry, _ logTime) {
	for _, it := range entries {
		switch it.(type) {
		case *format.QueuePushSet, *format.QueueSet, *format.QueueDeleted, *format.TopicDeleted,
			*format.QueueOwned, *format.QueueReleased:
			x.Notify()
		}
	}
}
