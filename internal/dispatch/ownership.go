package dispatch

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// OwnerSilence is how long a queue's owner must have written nothing to the log before the broker that lost
// the queue to this owner takes the queue back. It does so only if it can't ask the owner or gets no answer.
const OwnerSilence = 30 * time.Second

var (
	// ErrClosed refuses a takeover: this broker shuts down and releases its queues.
	ErrClosed = errors.New("the broker shuts down")
	// ErrUndecided says that the caller's context ended before the takeover did. The takeover goes on.
	ErrUndecided = errors.New("this broker is still taking over the queue")
)

// ElsewhereError refuses a takeover: another broker owns the queue.
type ElsewhereError struct {
	Mute bool // this broker can't ask the owner
}

// Error implements error.
func (e *ElsewhereError) Error() string { return "another broker hands out the records of this queue" }

// Owner is what the log says about a queue's owner.
type Owner struct {
	Queue   format.QueueID
	Epoch   format.Epoch
	Owned   bool
	Address string
	Session format.SessionKey
	Seen    time.Time // time of the owner's last entry in the log, by the store's clock
}

// Owner returns a queue's owner and, if this broker is the owner, the queue's dispatcher. The caller
// must hold the state's lock.
func (x *Dispatchers) Owner(q *state.Queue) (*Dispatcher, Owner) {
	d := x.Of(q.ID)
	if d != nil && (d.epoch != q.Epoch || !q.Owned) {
		d = nil // the commit loop is about to close it
	}
	return d, Owner{q.ID, q.Epoch, q.Owned, q.Address, q.Session, time.UnixMicro(q.Seen)}
}

// mute reports whether this broker can't ask the owner. There are three reasons: the owner has no
// address; the owner has no session with which it could prove its identity (as in older versions); or
// the owner has this broker's session or address. An owner with this broker's address is an earlier
// process of this broker, or both brokers have the address of a load balancer.
func (x *Dispatchers) mute(o Owner) bool {
	return o.Address == "" || o.Session == format.SessionKey{} || o.Session == x.opts.Session || o.Address == x.opts.Address
}

// MayTake returns nil if this broker may take a queue over, else an *ElsewhereError. deaf says that
// this broker asked the owner and got no answer.
//
// The owner is a session, not an address. A broker considers the owner lost if the broker can't ask the
// owner, or if nobody or another session answers at the owner's address. But two brokers that can't ask
// each other must not take a queue from each other again and again. So a broker that lost a queue waits
// until the new owner has written nothing to the log for OwnerSilence.
func (x *Dispatchers) MayTake(o Owner, deaf bool) error {
	if !o.Owned || o.Session == x.opts.Session {
		return nil // no broker owns the queue, or this broker owns it and is about to open the dispatcher
	}
	mute := x.mute(o)
	// An owner without work writes nothing to the log, so silence alone does not prove that the owner
	// is lost. It counts only if this broker got no answer (deaf), or can't ask (mute).
	silent := max(x.b.StoreNow().Sub(o.Seen), x.silentFor(o.Queue, o.Seen)) > OwnerSilence
	if (deaf || mute) && (silent || !x.HasLost(o)) {
		return nil
	}
	if o.Address != "" && o.Address == x.opts.Address {
		x.warnOfSharedAddress.Do(func() {
			x.logger.Warn("another broker has this broker's address, so neither can forward requests to the other: give each broker an address that leads to it alone (seb serve --advertise)", "address", o.Address)
		})
	}
	return &ElsewhereError{mute}
}

// silence measures how long an owner that took a queue over from this broker has written nothing to the
// log. seen is the log's time of the owner's last entry. since is when silentFor was first called with
// that time, by this machine's monotonic clock.
type silence struct {
	seen  time.Time
	since time.Time
}

// silentFor returns for how long, at least, an owner that took a queue over from this broker has
// written nothing to the log; 0 if no broker took the queue over. seen is the log's time of the owner's
// last entry. silentFor measures by this machine's clock: if the store's clock was set back, the
// difference between the store's time and seen would be too small.
func (x *Dispatchers) silentFor(queue format.QueueID, seen time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, lost := x.lost[queue]
	if !lost {
		return 0
	}
	if !s.seen.Equal(seen) {
		s = silence{seen, time.Now()}
		x.lost[queue] = s
	}
	return time.Since(s.since)
}

// HasLost tells whether a broker has taken a queue over from this one. o is the queue's owner, which is another
// broker. The state shows the new owner a moment before the commit loop notes the loss and closes the dispatcher.
func (x *Dispatchers) HasLost(o Owner) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, lost := x.lost[o.Queue]
	d := x.byID[o.Queue]
	return lost || d != nil && d.epoch < o.Epoch
}

// takeovers has the takeovers by this broker that are under way.
type takeovers struct {
	flights singleflight.Group // at most one takeover of a queue at a time
	running sync.WaitGroup

	mu   sync.Mutex
	over bool // the broker shuts down: no takeover may begin
}

// TakeOver makes this broker the next owner of a queue, after the owner o. It returns nil when this
// broker is the owner, when the queue was deleted, or when the queue has another owner than o by now.
// deaf says that this broker asked o and got no answer. most is how many records the caller wants.
//
// If ctx ends first, TakeOver returns ErrUndecided, and the takeover goes on. If the takeover stopped
// instead, this broker could become the owner without knowing it, and would then take the queue over
// from itself. Such a takeover makes all records below the dispatch limit uncertain. Other errors are
// ErrClosed, and those of Broker.Sync and Broker.Commit.
func (x *Dispatchers) TakeOver(ctx context.Context, o Owner, deaf bool, most int) error {
	taken := make(chan error, 1)
	begun := x.begin(func() {
		_, err, _ := x.takeovers.flights.Do(strconv.FormatUint(uint64(o.Queue), 10), func() (any, error) { return nil, x.commitOwner(o, deaf, most) })
		taken <- err
	})
	if !begun {
		return ErrClosed
	}
	select {
	case err := <-taken:
		return err
	case <-ctx.Done():
		return ErrUndecided
	}
}

// begin runs a takeover in a goroutine. While the broker shuts down, begin runs nothing and returns
// false.
func (x *Dispatchers) begin(takeover func()) bool {
	t := &x.takeovers
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Add(1)
	x.b.Go(func() {
		defer t.running.Done()
		takeover()
	})
	return true
}

// endTakeovers refuses new takeovers. It waits until the takeovers under way have ended, or ctx has ended.
func (x *Dispatchers) endTakeovers(ctx context.Context) {
	t := &x.takeovers
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	settled := make(chan struct{})
	x.b.Go(func() {
		t.running.Wait()
		close(settled)
	})
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// commitOwner writes this broker into the log as the next owner after o. most is how many records the
// caller wants. When the commit is applied, [Dispatchers.open] opens the queue's dispatcher.
func (x *Dispatchers) commitOwner(o Owner, deaf bool, most int) error {
	// Another caller's takeover may have ended just after this caller found no dispatcher. Without this
	// check, this broker would then take the queue over from itself.
	names, ok := x.follows(o)
	if !ok {
		return nil
	}
	if err := x.b.Sync(x.opts.Life); err != nil {
		return err
	}
	x.expect(takeover{queue: o.Queue, epoch: o.Epoch + 1, contested: o.Owned && (deaf || x.mute(o)), most: most})
	defer x.forget(o.Queue)
	return x.b.Commit(x.opts.Life, Request{Synced: true, Settled: true, Change: own{
		names: names, queue: o.Queue, epoch: o.Epoch + 1, session: x.opts.Session, address: x.opts.Address, most: most,
	}})
}

// follows tells whether o is still the queue's last owner, and the queue has no dispatcher here. It
// also returns the names of the queue.
func (x *Dispatchers) follows(o Owner) (names Names, ok bool) {
	x.opts.State.View(func(s *state.State) {
		q := s.QueueByID(o.Queue)
		if q == nil {
			return
		}
		d, now := x.Owner(q)
		names, ok = Names{s.TopicByID(q.Topic).Name, q.Name}, d == nil && now.Epoch == o.Epoch
	})
	return names, ok
}

// own is the change that makes a broker the owner of a queue.
type own struct {
	names   Names
	queue   format.QueueID
	epoch   format.Epoch // the epoch that the broker gets
	session format.SessionKey
	address string
	most    int // how many records the first receiver wants
}

// Apply implements Change.
func (x own) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, ok := d.TopicID(x.names.Topic)
	if !ok {
		return nil, nil
	}
	id, ok := d.QueueID(topic, x.names.Queue)
	if !ok || id != x.queue {
		return nil, nil
	}
	if epoch, _ := d.QueueEpoch(id); epoch+1 != x.epoch {
		return nil, nil // another takeover was committed first
	}
	ahead := spreadOver(int(partitions), max(reachMin, min(int64(x.most), reachMax)))
	return []format.Entry{
		&format.QueueOwned{Queue: id, Epoch: x.epoch, Windows: d.QueueDispatchLimits(id, topic, ahead.next), Address: x.address},
		&format.SessionNamed{Session: x.session, Queue: id, Epoch: x.epoch},
	}, nil
}

// takeover is a takeover by this broker whose commit is under way.
type takeover struct {
	queue     format.QueueID
	epoch     format.Epoch // the epoch that this broker gets
	contested bool         // the previous owner did not answer, and may want the queue back
	most      int          // how many records a receiver has asked for
}

// expect registers a takeover, so that [Dispatchers.open] opens the dispatcher when the commit is
// applied.
func (x *Dispatchers) expect(t takeover) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expected[t.queue] = t
}

// forget undoes expect.
func (x *Dispatchers) forget(queue format.QueueID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.expected, queue)
}

// open opens the dispatcher of a queue after this broker took the queue over. at is when that commit
// was applied. The next commit may delay records, which the dispatcher must know. So the caller calls
// open before the next commit is applied.
func (x *Dispatchers) open(s *state.State, queue format.QueueID, at state.Moment) {
	x.mu.Lock()
	take, expected := x.expected[queue]
	x.mu.Unlock()
	q := s.QueueByID(queue)
	if !expected || q == nil || !q.Owned || q.Epoch != take.epoch || q.Session != x.opts.Session {
		return // another broker took the queue over, or the queue was deleted
	}
	d := x.newDispatcher(s, q, at)
	d.pace.need(d.shown, int64(take.most))
	if take.contested {
		d.contested = d.shown.Add(ownerContested)
	}
	x.put(d)
	x.logger.Info("took over a queue", "topic", d.names.Topic, "queue", d.names.Queue, "epoch", d.epoch)
}
