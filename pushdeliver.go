package seb

import (
	"context"
	"crypto/x509"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/wait"
)

const (
	// pushTick is how often to see whether owners of pushed queues do their work.
	pushTick = 5 * time.Second
	// pushShows is for how long the log may not hear of an owner that has records to push;
	// with a tick, that makes the 10 s after which it shows itself.
	pushShows = dispatch.OwnerShows - pushTick
	// pushRetry is how long to wait before a queue is pushed again, or taken over, that
	// could not be.
	pushRetry = time.Second
	// pushStopMax bounds one try to say in the log that a target is gone.
	pushStopMax = 10 * time.Second
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
func (b *Broker) DeliverPushed(ctx context.Context, o PushOptions) error {
	changes := &b.pushes
	if !changes.delivering.CompareAndSwap(false, true) {
		return asRead(refused(CodeInvalidRequest, "this broker delivers pushed records already"))
	}
	defer changes.delivering.Store(false)
	d := &deliveries{
		b: b, o: o, running: map[uint64]*pushRun{}, watched: map[uint64]watch{},
		busy: map[uint64]bool{}, again: make(chan struct{}, 1),
	}
	d.run(ctx)
	return nil
}

// deliveries are those of one broker. All but what holds mu is one goroutine's.
type deliveries struct {
	b     *Broker
	o     PushOptions
	tasks sync.WaitGroup
	again chan struct{} // holds a token when there is something to look at
	leave func()        // the tail, which is watched while there are pushed queues

	running map[uint64]*pushRun // by queue
	watched map[uint64]watch

	mu   sync.Mutex
	busy map[uint64]bool // queues that something is being done about
}

// watch is since when the log has not heard of an owner that has work to do.
type watch struct {
	epoch uint64
	seen  time.Time
	since time.Time
}

func (d *deliveries) run(ctx context.Context) {
	defer d.tasks.Wait()
	defer d.stopAll()
	tick := time.NewTicker(pushTick)
	defer tick.Stop()
	for {
		d.reap()
		queues := d.b.pushedQueues()
		d.follow(len(queues) > 0)
		d.endRuns(queues)
		for _, q := range queues {
			d.look(ctx, q)
		}
		select {
		case <-d.b.pushes.changed:
		case <-d.again:
		case <-tick.C:
			d.watch(ctx)
		case <-ctx.Done():
			return
		case <-d.b.loopDone:
			return
		}
	}
}

func (d *deliveries) stopAll() {
	d.follow(false)
	for _, r := range d.running {
		r.end()
	}
}

// follow has the log watched, or not: only who looks at it sees that an owner is gone.
func (d *deliveries) follow(on bool) {
	switch {
	case on && d.leave == nil:
		d.leave = d.b.tail.wait()
	case !on && d.leave != nil:
		d.leave()
		d.leave = nil
	}
}

func (d *deliveries) nudge() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// look has a queue pushed if this broker owns it, and takes it over if nobody does.
func (d *deliveries) look(ctx context.Context, q pushedQueue) {
	switch {
	case q.here && d.running[q.queue] == nil:
		d.begin(ctx, q)
	case !q.owned, !q.here && d.b.wasOwn(q.owner):
		d.takeOver(ctx, q)
	}
}

// wasOwn tells whether the owner was this broker, before it was started anew.
func (b *Broker) wasOwn(o owner) bool {
	return o.address != "" && o.address == b.opts.Address && !b.dispatchers.HasLost(o.queue)
}

// aside has something done about a queue beside what else there is to do, unless there is
// something done about it already. What fails waits before it can be tried again.
func (d *deliveries) aside(ctx context.Context, q pushedQueue, doing string, f func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[q.queue] {
		return
	}
	d.busy[q.queue] = true
	d.tasks.Go(func() {
		switch err := f(); CodeOf(err) {
		case CodeQueueNotFound, CodeTopicNotFound, CodeQueueElsewhere: // which the log tells as well
		default:
			if err != nil && ctx.Err() == nil {
				d.b.logger.Warn(doing+" failed; trying again", "topic", q.q.topic, "queue", q.q.name, "err", err)
				wait.For(ctx, pushRetry)
			}
		}
		d.mu.Lock()
		delete(d.busy, q.queue)
		d.mu.Unlock()
		d.nudge()
	})
}

func (d *deliveries) takeOver(ctx context.Context, q pushedQueue) {
	d.aside(ctx, q, "taking over a queue to push its records", func() error { return q.q.takeOver(ctx, q.owner, false, 0) })
}

// watch looks after the owners of queues that have work: this broker shows that it is
// there, and takes the place of those that don't.
func (d *deliveries) watch(ctx context.Context) {
	queues := d.b.pushedQueues()
	for id := range d.watched {
		if _, ok := queues[id]; !ok {
			delete(d.watched, id)
		}
	}
	for id, q := range queues {
		if !q.owned || !q.due() {
			delete(d.watched, id)
			continue
		}
		w := d.watched[id]
		if w.epoch != q.epoch || !w.seen.Equal(q.seen) {
			w = watch{q.epoch, q.seen, time.Now()}
			d.watched[id] = w
		}
		switch quiet := time.Since(w.since); {
		case q.here && quiet >= pushShows:
			d.show(ctx, q)
		case !q.here && quiet > ownerSilence && d.b.tail.age() < pushTick+followIntervalMax:
			d.b.logger.Warn("takes over a queue whose owner does not push", "topic", q.q.topic, "queue", q.q.name, "owner", q.address, "silent", quiet)
			d.takeOver(ctx, q)
		}
	}
}

// show has the log hear of this broker.
func (d *deliveries) show(ctx context.Context, q pushedQueue) {
	if x := d.b.dispatchers.Of(q.queue); x != nil {
		d.aside(ctx, q, "telling other brokers that this one pushes a queue", func() error { return x.Show(ctx) })
	}
}
