package seb

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

const (
	// An owner that is not heard of for so long is taken for lost by those who can't ask it.
	ownerSilence = 30 * time.Second
)

// dispatcher returns the queue's dispatcher, to a caller that wants at most so many records. If another broker owns the queue that is
// CodeQueueElsewhere; if none does, this one takes it over. A queue that is not known here may
// be new: the log is read to its end before it is refused.
func (q *Queue) dispatcher(ctx context.Context, most int) (*dispatch.Dispatcher, error) {
	for looked := false; ; {
		d, owner, err := q.ownedHere()
		if code := CodeOf(err); !looked && (code == CodeTopicNotFound || code == CodeQueueNotFound) {
			if err := q.b.syncNow(ctx, false); err != nil {
				return nil, err
			}
			looked = true
			continue
		}
		if err != nil || d != nil {
			return d, err
		}
		if q.b.shutdown.Load() {
			return nil, errClosed() // what it hands out now would be left in doubt
		}
		if err := q.b.mayTake(owner, false); err != nil {
			return nil, err
		}
		if err := q.takeOver(ctx, owner, false, most); err != nil {
			return nil, err
		}
	}
}

// owner is what the log says of who owns a queue.
type owner struct {
	queue   uint64
	epoch   uint64
	owned   bool
	address string
	session format.SessionKey
	seen    time.Time // by the store's clock
}

// mute tells whether b can't ask the owner: it has no address, or no session that could
// prove to be the one which answers there, as those of older versions. Where the address
// is that of b, b itself would answer, or nobody knows who: an earlier process of the same
// had it, or the brokers share that of a load balancer.
func (o owner) mute(b *Broker) bool {
	return o.address == "" || o.session == format.SessionKey{} || o.session == b.session.public || o.address == b.opts.Address
}

func ownerOf(q *state.Queue) owner {
	return owner{q.ID, q.Epoch, q.Owned, q.Address, q.Session, time.UnixMicro(q.Seen)}
}

// ownedHere returns the dispatcher if this broker owns the queue, else who does.
func (q *Queue) ownedHere() (*dispatch.Dispatcher, owner, error) {
	b := q.b
	b.live.RLock()
	defer b.live.RUnlock()
	t := b.live.State.Topic(q.topic)
	if t == nil {
		return nil, owner{}, topicNotFound(q.topic)
	}
	found := b.live.State.Queue(t.ID, q.name)
	if found == nil {
		return nil, owner{}, queueNotFound(q.topic, q.name)
	}
	d := b.dispatchers.Of(found.ID)
	if d != nil && (d.Epoch() != found.Epoch || !found.Owned) {
		d = nil // the commit loop is about to drop it
	}
	return d, ownerOf(found), nil
}

// mayTake tells whether this broker may take a queue over, or says who has it. deaf
// tells that the owner was asked, and did not answer.
//
// An owner is its session, not its address. One that can't be asked, or where somebody else
// or nobody answers, is taken for lost, as an earlier process of this broker is. But brokers that can't ask each other must not take a
// queue from each other in turn: one that lost it waits until its owner has been silent for long.
func (b *Broker) mayTake(o owner, deaf bool) error {
	if !o.owned {
		return nil
	}
	mute := o.mute(b)
	// One that can be asked need not show itself.
	silent := max(b.log.StoreNow().Sub(o.seen), b.dispatchers.SilentFor(o.queue, o.seen)) > ownerSilence
	if (deaf || mute) && (silent || !b.dispatchers.HasLost(o.queue)) {
		return nil
	}
	e := refused(CodeQueueElsewhere, "another broker hands out the records of this queue")
	e.Address, e.Session, e.Epoch = o.address, SessionKey(o.session), o.epoch
	if mute {
		if o.address != "" && o.address == b.opts.Address {
			b.warnOfSharedAddress.Do(func() {
				b.logger.Warn("another broker has this broker's address, so neither can forward requests to the other: give each broker an address that leads to it alone (seb serve --advertise)", "address", o.address)
			})
		}
		e.Address, e.Session, e.RetryAfter = "", SessionKey{}, time.Second
		e.Hint = "try again after Retry-After seconds, or ask the other brokers; if each has an address of its own that the others reach (seb serve --advertise), they forward such requests"
	}
	return e
}

// TakeOver makes this broker the queue's owner in the place of the one with that epoch,
// which was asked and did not answer.
func (q *Queue) TakeOver(ctx context.Context, epoch uint64) (err error) {
	defer reads(&err)
	if err := q.check(); err != nil {
		return err
	}
	d, o, err := q.ownedHere()
	if err != nil || d != nil || o.epoch != epoch {
		return err // it has another owner by now
	}
	if err := q.b.mayTake(o, true); err != nil {
		return err
	}
	return q.takeOver(ctx, o, true, 0)
}

// Owner looks at the log and tells who hands out the queue's records: at what address, ""
// if nobody does or it has none, and which of its owners that is.
func (q *Queue) Owner(ctx context.Context) (address string, epoch uint64, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), q.b.syncNow(ctx, false)); err != nil {
		return "", 0, err
	}
	_, o, err := q.ownedHere()
	if err != nil || !o.owned {
		return "", o.epoch, err
	}
	return o.address, o.epoch, nil
}

// takeOver makes this broker the owner after the one that is known here, unless there is
// another by now. That goes on when the caller goes away, or the store takes too long: an
// owner that does not know that it is one would have to take over from itself, and leave its
// whole window in doubt. deaf tells that the owner before was asked, and did not answer; most
// is how many records are asked for.
func (q *Queue) takeOver(ctx context.Context, o owner, deaf bool, most int) error {
	taken := make(chan error, 1)
	begun := q.b.takeovers.begin(&q.b.tasks, func() {
		_, err, _ := q.b.takeovers.flights.Do(q.topic+"/"+q.name, func() (any, error) { return nil, q.commitOwner(o, deaf, most) })
		taken <- err
	})
	if !begun {
		return errClosed()
	}
	timer := time.NewTimer(q.b.opts.AppendTimeout)
	defer timer.Stop()
	select {
	case err := <-taken:
		return err
	case <-timer.C:
		return &Error{
			Code: CodeStoreUnavailable, Detail: fmt.Sprintf("could not commit queue ownership within %v", q.b.opts.AppendTimeout),
			Outcome: Unknown, RetryAfter: time.Second, Err: q.b.lastStoreError(),
		}
	case <-ctx.Done():
		return canceled(ctx).with(Unknown)
	}
}

// takeovers are those of queues by this broker that are under way.
type takeovers struct {
	flights singleflight.Group // one of a queue at a time
	running sync.WaitGroup

	mu   sync.Mutex
	over bool // the broker shuts down: it takes over no more queues
}

// begin runs a takeover, unless the broker goes.
func (x *takeovers) begin(tasks *sync.WaitGroup, takeover func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return false
	}
	x.running.Add(1)
	tasks.Go(func() {
		defer x.running.Done()
		takeover()
	})
	return true
}

// end has no takeover begin, and waits for running ones until ctx ends.
func (x *takeovers) end(ctx context.Context, tasks *sync.WaitGroup) {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	settled := make(chan struct{})
	tasks.Go(func() {
		x.running.Wait()
		close(settled)
	})
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// commitOwner has the log say that this broker is the next owner, which is asked for at most
// so many records. The commit opens the queue's dispatcher.
func (q *Queue) commitOwner(o owner, deaf bool, most int) error {
	b := q.b
	// Whoever found no dispatcher may have looked just before another's takeover was done, and
	// seen this broker as the owner before itself.
	if d, now, err := q.ownedHere(); err != nil || d != nil || now.epoch != o.epoch {
		return err
	}
	if err := b.syncNow(b.life, false); err != nil {
		return err
	}
	b.dispatchers.Expect(dispatch.Takeover{Queue: o.queue, Epoch: o.epoch + 1, Contested: o.owned && (deaf || o.mute(b)), Most: most})
	defer b.dispatchers.Forget(o.queue)
	p, err := b.joinAsync(b.life, &request{synced: true, change: func(d *state.Draft) ([]format.Entry, *Error) {
		topic, id, refusal := q.find(d)
		if refusal != nil {
			return nil, refusal
		}
		_, partitions, _ := d.TopicID(q.topic)
		if epoch, _ := d.QueueEpoch(id); id != o.queue || epoch != o.epoch {
			return nil, nil // somebody was faster
		}
		return []format.Entry{
			&format.QueueOwned{Queue: id, Epoch: o.epoch + 1, Windows: d.QueueDispatchLimits(id, topic, dispatch.FirstReach(most, partitions)), Address: b.opts.Address},
			&format.SessionNamed{Session: b.session.public, Queue: id, Epoch: o.epoch + 1},
		}, nil
	}})
	if err != nil {
		return err
	}
	return p.settled(b.life)
}
