package seb

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// ownerSilence is how long an owner may write nothing to the log before brokers that can't ask
// it take it for lost.
const ownerSilence = 30 * time.Second

// dispatcher returns the queue's dispatcher, to a caller that wants up to most records. If
// another broker owns the queue, it fails with CodeQueueElsewhere; if none does, this broker
// takes the queue over. It syncs before it refuses a queue that this broker does not know.
func (q *Queue) dispatcher(ctx context.Context, most int) (*dispatch.Dispatcher, error) {
	for synced := false; ; {
		d, owner, err := q.ownedHere()
		if code := CodeOf(err); !synced && (code == CodeTopicNotFound || code == CodeQueueNotFound) {
			if err := q.b.engine.Sync(ctx); err != nil {
				return nil, err
			}
			synced = true
			continue
		}
		if err != nil || d != nil {
			return d, err
		}
		if q.b.shutdown.Load() {
			return nil, engine.ErrClosed // the next owner could not tell whether the records were handed out
		}
		if err := q.b.mayTake(owner, false); err != nil {
			return nil, err
		}
		if err := q.takeOver(ctx, owner, false, most); err != nil {
			return nil, err
		}
	}
}

// owner is what the log says of a queue's owner.
type owner struct {
	queue   uint64
	epoch   uint64
	owned   bool
	address string
	session format.SessionKey
	seen    time.Time // by the store's clock
}

// mute tells whether b can't ask the owner: the owner has no address, or no session to prove its
// identity, as in older versions. It can't ask at its own address either: the owner is an
// earlier process of this broker, or both have the address of a load balancer.
func (o owner) mute(b *Broker) bool {
	return o.address == "" || o.session == format.SessionKey{} || o.session == b.session.public || o.address == b.opts.Address
}

func ownerOf(q *state.Queue) owner {
	return owner{q.ID, q.Epoch, q.Owned, q.Address, q.Session, time.UnixMicro(q.Seen)}
}

// ownedHere returns the queue's owner, and the dispatcher if that is this broker.
func (q *Queue) ownedHere() (d *dispatch.Dispatcher, o owner, err error) {
	err = q.view(func(_ *state.State, _ *state.Topic, found *state.Queue) {
		d, o = q.b.dispatchers.Of(found.ID), ownerOf(found)
		if d != nil && (d.Epoch() != found.Epoch || !found.Owned) {
			d = nil // the commit loop is about to close it
		}
	})
	return d, o, err
}

// mayTake returns nil if this broker may take a queue over, else an error that names the owner.
// deaf tells that the owner was asked, and did not answer.
//
// An owner is its session, not its address. A broker takes an owner for lost if it can't ask it,
// or if another session or none answers at its address. But brokers that can't ask each other
// must not take a queue from each other in turn: a broker that lost it waits until the owner
// has been silent for ownerSilence.
func (b *Broker) mayTake(o owner, deaf bool) error {
	if !o.owned || o.session == b.session.public {
		return nil // nobody's, or this broker's own, which is about to have its dispatcher
	}
	mute := o.mute(b)
	// The log need not hear of an owner that can be asked.
	silent := max(b.engine.StoreNow().Sub(o.seen), b.dispatchers.SilentFor(o.queue, o.seen)) > ownerSilence
	if (deaf || mute) && (silent || !b.dispatchers.HasLost(o.queue)) {
		return nil
	}
	e := refused(CodeQueueElsewhere, "another broker hands out the records of this queue")
	e.Address, e.Session, e.Epoch = o.address, SessionKey(o.session), o.epoch
	if mute {
		if o.address != "" && o.address == b.opts.Address {
			b.takeovers.warning.Do(func() {
				b.opts.Logger.Warn("another broker has this broker's address, so neither can forward requests to the other: give each broker an address that leads to it alone (seb serve --advertise)", "address", o.address)
			})
		}
		e.Address, e.Session, e.RetryAfter = "", SessionKey{}, time.Second
		e.Hint = "try again after Retry-After seconds, or ask the other brokers; if each has an address of its own that the others reach (seb serve --advertise), they forward such requests"
	}
	return e
}

// TakeOver makes this broker the queue's owner in place of the owner of that epoch, which was
// asked and did not answer.
func (q *Queue) TakeOver(ctx context.Context, epoch uint64) (err error) {
	defer reads(&err)
	if err := q.check(); err != nil {
		return err
	}
	d, o, err := q.ownedHere()
	if err != nil || d != nil || o.epoch != epoch {
		return err // the queue has another owner by now
	}
	if err := q.b.mayTake(o, true); err != nil {
		return err
	}
	return q.takeOver(ctx, o, true, 0)
}

// Owner syncs and returns the address and the epoch of the queue's owner. The address is "" if
// the queue has no owner or the owner has no address.
func (q *Queue) Owner(ctx context.Context) (address string, epoch uint64, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.engine.Sync(ctx)); err != nil {
		return "", 0, err
	}
	_, o, err := q.ownedHere()
	if err != nil || !o.owned {
		return "", o.epoch, err
	}
	return o.address, o.epoch, nil
}

// takeOver makes this broker the owner after o, unless the queue has another owner by now. The
// takeover goes on if the caller goes away or the store takes too long: a broker that does not
// know that it is the owner would have to take over from itself, and all records below its
// dispatch limit would be uncertain. deaf tells that o was asked, and did not answer; most is
// how many records the caller wants.
func (q *Queue) takeOver(ctx context.Context, o owner, deaf bool, most int) error {
	taken := make(chan error, 1)
	begun := q.b.takeovers.begin(q.b.engine.Go, func() {
		_, err, _ := q.b.takeovers.flights.Do(q.topic+"/"+q.name, func() (any, error) { return nil, q.commitOwner(o, deaf, most) })
		taken <- err
	})
	if !begun {
		return engine.ErrClosed
	}
	timer := time.NewTimer(q.b.opts.AppendTimeout)
	defer timer.Stop()
	select {
	case err := <-taken:
		return err
	case <-timer.C:
		return &Error{
			Code: CodeStoreUnavailable, Detail: fmt.Sprintf("could not commit queue ownership within %v", q.b.opts.AppendTimeout),
			Outcome: Unknown, RetryAfter: time.Second, Err: q.b.engine.StoreErr(),
		}
	case <-ctx.Done():
		return canceled(ctx.Err()).with(Unknown)
	}
}

// takeovers has the takeovers by this broker that are under way.
type takeovers struct {
	flights singleflight.Group // one per queue at a time
	running sync.WaitGroup

	warning sync.Once // of an address that several brokers have

	mu   sync.Mutex
	over bool // the broker shuts down: no takeover may begin
}

// begin runs a takeover, unless the broker shuts down.
func (x *takeovers) begin(run func(func()), takeover func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	x.running.Add(1)
	run(func() {
		defer x.running.Done()
		takeover()
	})
	return true
}

// end refuses new takeovers, and waits for running ones until ctx ends.
func (x *takeovers) end(ctx context.Context, run func(func())) {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	settled := make(chan struct{})
	run(func() {
		x.running.Wait()
		close(settled)
	})
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// commitOwner commits this broker as the next owner, for a caller that wants up to most
// records. The commit opens the queue's dispatcher.
func (q *Queue) commitOwner(o owner, deaf bool, most int) error {
	b := q.b
	// The caller may have found no dispatcher just before another caller's takeover was done:
	// then this broker would take over from itself.
	if d, now, err := q.ownedHere(); err != nil || d != nil || now.epoch != o.epoch {
		return err
	}
	if err := b.engine.Sync(b.engine.Life()); err != nil {
		return err
	}
	b.dispatchers.Expect(dispatch.Takeover{Queue: o.queue, Epoch: o.epoch + 1, Contested: o.owned && (deaf || o.mute(b)), Most: most})
	defer b.dispatchers.Forget(o.queue)
	ticket, err := b.engine.Submit(b.engine.Life(), &engine.Request{Synced: true, Change: ownQueue{
		namedQueue: q.namedQueue, id: o.queue, epoch: o.epoch + 1, session: b.session.public, address: b.opts.Address, most: most,
	}})
	if err != nil {
		return err
	}
	return ticket.Settled(b.engine.Life())
}

// ownQueue is the change that makes a broker the owner of a queue.
type ownQueue struct {
	namedQueue
	id      uint64
	epoch   uint64 // that the broker gets
	session format.SessionKey
	address string
	most    int // how many records the first receiver wants
}

// Apply implements engine.Change.
func (x ownQueue) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	_, partitions, _ := d.TopicID(x.topic)
	if epoch, _ := d.QueueEpoch(id); id != x.id || epoch+1 != x.epoch {
		return nil, nil // another takeover was faster
	}
	return []format.Entry{
		&format.QueueOwned{Queue: id, Epoch: x.epoch, Windows: d.QueueDispatchLimits(id, topic, dispatch.FirstReach(x.most, partitions)), Address: x.address},
		&format.SessionNamed{Session: x.session, Queue: id, Epoch: x.epoch},
	}, nil
}
