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

// OwnerSilence bounds how long an owner may write nothing to the log: after that, brokers that can't
// ask the owner consider it lost.
const OwnerSilence = 30 * time.Second

var (
	// ErrClosed refuses a takeover: this broker has released its queues.
	ErrClosed = errors.New("the broker shuts down")
	// ErrUndecided is returned when the caller's context ended before a takeover. The takeover goes on.
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
	Seen    time.Time // when the owner last showed itself in the log, by the store's clock
}

// Owner returns a queue's owner and, if this broker is the owner, the queue's dispatcher. The caller
// holds the state's lock.
func (x *Dispatchers) Owner(q *state.Queue) (*Dispatcher, Owner) {
	d := x.Of(q.ID)
	if d != nil && (d.epoch != q.Epoch || !q.Owned) {
		d = nil // the commit loop is about to close it
	}
	return d, Owner{q.ID, q.Epoch, q.Owned, q.Address, q.Session, time.UnixMicro(q.Seen)}
}

// mute reports whether this broker can't ask the owner. It can't if the owner has no address, or no
// session to prove its identity (as in older versions). This broker can't ask either if the owner has
// the same address: then the owner is an earlier process of this broker, or both have the address of a
// load balancer.
func (x *Dispatchers) mute(o Owner) bool {
	return o.Address == "" || o.Session == format.SessionKey{} || o.Session == x.opts.Session || o.Address == x.opts.Address
}

// MayTake returns nil if this broker may take a queue over, else an *ElsewhereError. deaf says that
// the owner was asked, and did not answer.
//
// The owner is a session, not an address. A broker considers the owner lost if the broker can't ask
// the owner, or if nobody or another session answers at the owner's address. But brokers that can't
// ask each other must not take a queue from each other in turn. So a broker that lost a queue waits
// until the new owner has been silent for OwnerSilence.
func (x *Dispatchers) MayTake(o Owner, deaf bool) error {
	if !o.Owned || o.Session == x.opts.Session {
		return nil // no broker owns the queue, or this one does and is about to open its dispatcher
	}
	mute := x.mute(o)
	// Silence in the log does not prove that an owner is lost if it can be asked and answers, since an owner
	// without work writes nothing. So silence counts only if deaf or mute is set.
	silent := max(x.b.StoreNow().Sub(o.Seen), x.silentFor(o.Queue, o.Seen)) > OwnerSilence
	if (deaf || mute) && (silent || !x.HasLost(o.Queue)) {
		return nil
	}
	if o.Address != "" && o.Address == x.opts.Address {
		x.warnOfSharedAddress.Do(func() {
			x.logger.Warn("another broker has this broker's address, so neither can forward requests to the other: give each broker an address that leads to it alone (seb serve --advertise)", "address", o.Address)
		})
	}
	return &ElsewhereError{mute}
}

// silence is about an owner that took a queue over from this broker. seen is the log's time at which the
// owner last showed itself. since is when silentFor was first called with that time, by the monotonic
// clock.
type silence struct {
	seen  time.Time
	since time.Time
}

// silentFor returns a lower bound of the time for which the owner that took a queue over from this broker
// has not shown itself in the log; 0 if no broker took it over. seen is the log's time at which the owner last
// showed itself. The store's time minus seen would be too small if the store's clock was set back: then
// the log's time is ahead of the store's.
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

// HasLost tells whether another broker has taken a queue over from this one.
func (x *Dispatchers) HasLost(queue format.QueueID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, lost := x.lost[queue]
	return lost
}

// takeovers tracks the takeovers by this broker that are under way.
type takeovers struct {
	flights singleflight.Group // one per queue at a time
	running sync.WaitGroup

	mu   sync.Mutex
	over bool // the broker shuts down: no takeover may begin
}

// TakeOver makes this broker the next owner of a queue, after o. It returns nil when this broker is
// the owner, and also when the queue was deleted or has an owner other than o by now. deaf says that o
// was asked, and did not answer. most is how many records the caller wants.
//
// If ctx ends first, TakeOver returns ErrUndecided, and the takeover goes on. If the takeover stopped,
// this broker could become the owner without knowing it. It would then have to take the queue over
// from itself, and all records below the dispatch limit would be uncertain. Other errors are
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

// begin runs a takeover in a goroutine. If the broker shuts down, it runs nothing and returns false.
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

// endTakeovers refuses new takeovers, and waits for running ones until ctx ends.
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

// commitOwner commits this broker as the next owner, for a caller that wants up to most records. When
// the commit is applied, the queue's dispatcher opens.
func (x *Dispatchers) commitOwner(o Owner, deaf bool, most int) error {
	// The caller may have found no dispatcher just before another caller's takeover ended. Without this
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
		return nil, nil // another takeover was faster
	}
	return []format.Entry{
		&format.QueueOwned{Queue: id, Epoch: x.epoch, Windows: d.QueueDispatchLimits(id, topic, firstReach(x.most, partitions)), Address: x.address},
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

// expect registers a takeover. When the takeover's commit is applied, the queue's dispatcher is opened.
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

// open opens the dispatcher of a queue that this broker took over by a commit; at is when that commit
// was applied. The dispatcher must know the delays in the next commit, so open is called before the
// next commit is applied.
func (x *Dispatchers) open(s *state.State, queue format.QueueID, at state.Moment) {
	x.mu.Lock()
	take, expected := x.expected[queue]
	x.mu.Unlock()
	q := s.QueueByID(queue)
	if !expected || q == nil || !q.Owned || q.Epoch != take.epoch || q.Session != x.opts.Session {
		return // another broker took the queue over
	}
	d := x.newDispatcher(s, q, at)
	d.pace.need(d.shown, int64(take.most))
	if take.contested {
		d.contested = d.shown.Add(ownerContested)
	}
	x.put(d)
	x.logger.Info("took over a queue", "topic", d.names.Topic, "queue", d.names.Queue, "epoch", d.epoch)
}
