package seb

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/state"
)

// PushOptions are the options of [Broker.DeliverPushed].
type PushOptions struct {
	// Grace is how long requests to targets may go on after the context of DeliverPushed has ended.
	// 0 means that each request may go on until the timeout of its target.
	Grace time.Duration
	// Proxy, if set, receives all requests to targets. Then the proxy decides where requests may go,
	// instead of Options.PushNetworks and Options.PushDenied. Environment variables that name a
	// proxy are ignored.
	Proxy *url.URL
	// RootCAs are the certificate authorities that targets' certificates must come from.
	// Default: the system's.
	RootCAs *x509.CertPool

	// dial connects to targets; nil means over the network. Tests in virtual time set dial.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// DeliverPushed delivers the records of queues that have a push target, until ctx ends. After that,
// it returns as soon as no request is under way. If several brokers of a bucket run DeliverPushed,
// the owner of a queue pushes the queue's records. A broker takes over queues without an owner, and
// queues that have work but whose owner has written nothing to the log for 30 s.
//
// A record whose request is answered 2xx is done. Every other record is delivered again or becomes
// a dead letter, as the queue's config says. Only one DeliverPushed may run at a time. Call
// [Broker.Shutdown] only after DeliverPushed has returned, so that the answers to the last requests
// are still committed.
func (b *Broker) DeliverPushed(ctx context.Context, o PushOptions) (err error) {
	defer reads(&err)
	ctx, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-b.engine.Done():
			end()
		case <-ctx.Done():
		}
	})
	defer watch.Wait()
	defer end()
	err = b.pushes.Run(ctx, func(q push.Pushed) (push.Queue, push.Options) {
		return pushQueue{b.Queue(q.Topic, q.Name), func() bool { return stillPushed(b.engine, q) }}, push.Options{
			Topic: q.Topic, TopicID: q.TopicID, Queue: q.Name, Networks: b.opts.pushNetworks(),
			Proxy: o.Proxy, RootCAs: o.RootCAs, Dial: o.dial, Grace: o.Grace, Logger: b.opts.Logger, Metrics: b.pushMetrics,
		}
	})
	if err != nil {
		return refused(CodeInvalidRequest, "%v", err)
	}
	return nil
}

// pushBroker gives the supervisor of pushed queues access to the broker: it implements push.Broker.
type pushBroker struct{ b *Broker }

// Pushed implements push.Broker.
func (x pushBroker) Pushed() map[format.QueueID]push.Pushed {
	found := map[format.QueueID]push.Pushed{}
	x.b.engine.View(func(s *state.State) {
		for q := range s.PushedQueues() {
			if q.Push.Stopped != "" || q.Config.Paused {
				continue
			}
			d, o := x.b.dispatchers.Owner(q)
			found[q.ID] = push.Pushed{
				ID: q.ID, Topic: s.TopicByID(q.Topic).Name, Name: q.Name, TopicID: x.b.TopicTag(q.Topic), Target: change.TargetOf(q.Push),
				Epoch: o.Epoch, Owned: o.Owned, Owner: o.Address, Seen: o.Seen,
				Here: d != nil,
				Mine: o.Address != "" && o.Address == x.b.opts.Address && !x.b.dispatchers.HasLost(o),
			}
		}
	})
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
	if err != nil || d != nil || o.Epoch != q.Epoch {
		return ifNoQueue(err) // the queue was deleted, or has a new owner by now
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
	_, err := x.b.change(ctx, change.StopPush{
		QueueName: change.QueueName{Topic: q.Topic, Queue: q.Name}, Target: q.Target, Why: why,
	})
	return ifNoQueue(err)
}

// Follow implements push.Broker.
func (x pushBroker) Follow() (leave func()) { return x.b.engine.Follow() }

// Follows implements push.Broker.
func (x pushBroker) Follows() bool {
	return x.b.engine.SyncAge() < engine.FollowIntervalMax+5*time.Second
}

// ifNoQueue wraps err with push.ErrNoQueue if err says that this broker does not own the queue, or
// that there is no such queue.
func ifNoQueue(err error) error {
	switch CodeOf(err) {
	case CodeQueueNotFound, CodeTopicNotFound, CodeQueueElsewhere:
		return fmt.Errorf("%w: %w", push.ErrNoQueue, public(err))
	default:
		return public(err)
	}
}

// stillPushed reports whether a queue still has the target with which the push began, and is not paused.
func stillPushed(e *engine.Engine, q push.Pushed) (still bool) {
	e.View(func(s *state.State) {
		now := s.QueueByID(q.ID)
		still = now != nil && !now.Config.Paused && change.PushesTo(now.Push, q.Target)
	})
	return still
}

// pushing is an engine.Observer. It tells the supervisor when a commit may have changed which queues this
// broker has to push.
type pushing struct{ *push.Supervisor }

func (x pushing) Loaded(*state.State) { x.Notify() }

func (x pushing) Applying([]format.Entry, state.Moment) {}

func (x pushing) Applied(_ *state.State, entries []format.Entry, _ state.Moment) {
	for _, e := range entries {
		switch e.(type) {
		case *format.QueuePushSet, *format.QueueSet, *format.QueueDeleted, *format.TopicDeleted,
			*format.QueueOwned, *format.QueueReleased:
			x.Notify()
		}
	}
}
