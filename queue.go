package seb

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Queue hands out a topic's records as work: each record goes to one worker at a time. If the
// worker fails, or the worker's lease on the record ends before the worker answers, the queue hands
// out the record again. A record whose last attempt failed becomes a dead letter. The queue is
// stored in the log, so every broker knows it. The records stay in the topic as they are.
//
// Each record is delivered at least once. The log counts the deliveries of each record, from 1
// on, so the count survives crashes and changes of owner.
//
// A Queue holds no resources. All methods are safe for concurrent use.
type Queue struct {
	b *Broker
	namedQueue
}

// namedQueue names a queue and its topic.
type namedQueue struct{ topic, name string }

// Queue returns the topic's queue of that name, whether it exists or not. Names of queues follow
// the same rules as names of topics.
func (b *Broker) Queue(topic, name string) *Queue { return &Queue{b, namedQueue{topic, name}} }

// QueueOrder is the order in which a queue hands out records.
type QueueOrder string

const (
	// OrderNone hands out records roughly in the order of their offsets, as many at a time
	// as workers ask for, up to about 65,000.
	OrderNone QueueOrder = "none"
	// OrderKey hands out the records of a key in order, one at a time: the next record goes out
	// when the previous record is done or a dead letter. Records without a key have no order.
	OrderKey QueueOrder = "key"
)

// QueueConfig is how a queue hands out records.
type QueueConfig struct {
	// Lease is how long a worker has for a record, unless the worker asks for another time in
	// [Queue.Receive] or [Queue.Extend]. 1 s to 12 h.
	Lease time.Duration
	// MaxAttempts is the maximum number of deliveries of a record. 1 to 1,000.
	MaxAttempts int
	// BackoffMin is how long a record that failed waits for its second delivery. The wait doubles
	// with each further delivery, up to BackoffMax. A random part of each wait, up to half of it, is
	// subtracted. 0 to 24 h.
	BackoffMin, BackoffMax time.Duration
	// DeadLetterTopic receives copies of the dead letters; "" means that no copies are made.
	DeadLetterTopic string
	Order           QueueOrder
	// Paused stops handing out records. Workers can still acknowledge the records that they
	// have, or put them back.
	Paused bool
}

// Defaults of [QueueConfig].
const (
	QueueLeaseDefault        = 30 * time.Second
	QueueMaxAttemptsDefault  = 5
	QueueBackoffMinDefault   = time.Second
	QueueBackoffMaxDefault   = time.Hour
	PushedMaxAttemptsDefault = change.PushedMaxAttempts // of a queue that is pushed: see [Queue.SetPush]
	PushedBackoffMaxDefault  = change.PushedBackoffMax
)

const (
	queueLeaseMin = change.LeaseMin
	queueLeaseMax = change.LeaseMax
)

var queueDefaults = change.QueueConfig{
	Lease: QueueLeaseDefault, MaxAttempts: QueueMaxAttemptsDefault,
	BackoffMin: QueueBackoffMinDefault, BackoffMax: QueueBackoffMaxDefault, Order: change.OrderNone,
}

// QueueUpdate says what to change about a queue. Where a field is nil, the value stays as it is; a
// new queue gets the default.
type QueueUpdate struct {
	Lease                  *time.Duration
	MaxAttempts            *int
	BackoffMin, BackoffMax *time.Duration
	DeadLetterTopic        *string
	Order                  *QueueOrder // can't change once the queue exists
	Paused                 *bool
}

// copied returns a pointer to a copy of *p; nil if p is nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// copied returns a copy of the update for a change.
func (u QueueUpdate) copied() change.QueueUpdate {
	return change.QueueUpdate{
		Lease: copied(u.Lease), MaxAttempts: copied(u.MaxAttempts), BackoffMin: copied(u.BackoffMin), BackoffMax: copied(u.BackoffMax),
		DeadLetterTopic: copied(u.DeadLetterTopic), Order: (*string)(copied(u.Order)), Paused: copied(u.Paused),
	}
}

func queueConfigOf(stored format.QueueConfig) QueueConfig {
	c := change.QueueConfigOf(stored)
	return QueueConfig{
		Lease: c.Lease, MaxAttempts: c.MaxAttempts, BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax,
		DeadLetterTopic: c.DeadLetterTopic, Order: QueueOrder(c.Order), Paused: c.Paused,
	}
}

func (q namedQueue) names() change.QueueName { return change.QueueName{Topic: q.topic, Queue: q.name} }

func (q namedQueue) check() error {
	if err := change.CheckTopicName(q.topic); err != nil {
		return err
	}
	if change.CheckTopicName(q.name) != nil {
		e := refused(CodeInvalidRequest, "invalid queue name %.300q", q.name)
		e.Hint = change.NamesHint
		return e
	}
	return nil
}

// Set changes the queue, and creates it if it does not exist. A new queue begins at the given
// position in every partition: [Earliest], [Latest], or [At] an offset if the topic has one
// partition. If the queue exists, the position has no effect.
func (q *Queue) Set(ctx context.Context, u QueueUpdate, from Position) (_ QueueInfo, created bool, err error) {
	defer writes(&err)
	return q.set(ctx, u, &from, false)
}

// Create creates the queue as Set does. It fails with CodeQueueExists if the queue exists.
func (q *Queue) Create(ctx context.Context, u QueueUpdate, from Position) (_ QueueInfo, err error) {
	defer writes(&err)
	info, _, err := q.set(ctx, u, &from, true)
	return info, err
}

// Update changes the queue. It fails with CodeQueueNotFound if the queue does not exist. It works
// even if the state is full (see [Options].StateMemory), so that the queue can still be paused.
func (q *Queue) Update(ctx context.Context, u QueueUpdate) (_ QueueInfo, err error) {
	defer writes(&err)
	info, _, err := q.set(ctx, u, nil, false)
	return info, err
}

// set creates or changes the queue. If mustBeNew is true, the queue must not exist; if from is nil, it must exist.
func (q *Queue) set(ctx context.Context, u QueueUpdate, from *Position, mustBeNew bool) (_ QueueInfo, created bool, _ error) {
	if err := cmp.Or(q.check(), checkQueueFrom(from)); err != nil {
		return QueueInfo{}, false, err
	}
	x := &change.SetQueue{QueueName: q.names(), Update: u.copied(), New: mustBeNew}
	if from != nil {
		x.Create, x.From = true, from.stored()
		x.Defaults, x.QueuesMax = queueDefaults, q.b.opts.Limits.Queues
	}
	if _, err := q.b.change(ctx, x); err != nil {
		return QueueInfo{}, false, err
	}
	info, err := q.describe()
	if err != nil { // the change was committed, but the queue was deleted since, perhaps by the same commit
		return QueueInfo{}, false, maybeCommitted(change.QueueNotFound(q.topic, q.name))
	}
	return info, x.Created, nil
}

func checkQueueFrom(from *Position) error {
	if from != nil && (from.kind == fromTime || from.kind == fromLast) {
		e := refused(CodeInvalidRequest, "a queue can't begin at a time or at the last N records")
		e.Hint = "use earliest, latest or an offset"
		return e
	}
	return nil
}

// Delete deletes the queue: the log forgets which records are done. The records stay in the topic.
func (q *Queue) Delete(ctx context.Context) (err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return err
	}
	_, err = q.b.change(ctx, change.DeleteQueue{QueueName: q.names()})
	return err
}

// Purge marks all records of the queue as done, dead letters included, and returns how many of
// them were not done before. The records stay in the topic.
func (q *Queue) Purge(ctx context.Context) (n int64, err error) {
	defer writes(&err)
	if err := q.check(); err != nil {
		return 0, err
	}
	x := &change.PurgeQueue{QueueName: q.names()}
	if _, err := q.b.change(ctx, x); err != nil {
		return 0, err
	}
	return x.Purged, nil
}

// QueueInfo is a queue as it is at one moment.
type QueueInfo struct {
	Topic, Name string
	Created     time.Time
	Config      QueueConfig
	// Ready records may be handed out now, Delayed ones later, Leased ones are with
	// workers, and Dead ones are dead letters.
	Ready, Delayed, Leased, Dead int64
	// Held records may be with workers that got them from an earlier owner, which was lost.
	// The new owner does not hand them out before HeldUntil, which is zero if Held is 0. The
	// workers that have them can still acknowledge them.
	Held      int64
	HeldUntil time.Time
	// Exact is false if this broker does not own the queue: then the broker can't tell leased
	// and held records from ready ones, and counts all of them in Ready.
	Exact bool
	// Oldest is about when the oldest record that is neither done nor a dead letter was written;
	// zero if there is no such record.
	Oldest time.Time
	// Owner is the address of the broker that owns the queue, "" if no broker owns the queue or the
	// owner has no address. Session is the owner's session, zero if the owner runs an old version of Seb
	// without sessions. Epoch rises with each new owner.
	Owner   string
	Session SessionKey
	Epoch   Epoch
	// Received and Acknowledged are records per second, averaged over about the last minute; 0
	// unless Exact is true.
	Received, Acknowledged float64
}

// Describe returns the queue's config, counts and owner. It fails with CodeQueueNotFound if the
// queue does not exist.
func (q *Queue) Describe(ctx context.Context) (_ QueueInfo, err error) {
	defer reads(&err)
	if err := q.mustExist(ctx); err != nil {
		return QueueInfo{}, err
	}
	return q.describe()
}

// mustExist returns an error unless the queue exists. It syncs before it refuses a queue that this
// broker does not know.
func (q *Queue) mustExist(ctx context.Context) error {
	if err := cmp.Or(q.check(), q.b.current(ctx)); err != nil {
		return err
	}
	if _, _, err := q.b.findTopic(ctx, q.topic); err != nil {
		return err
	}
	err := q.exists()
	if CodeOf(err) == CodeQueueNotFound { // another broker may have created the queue
		if err := q.b.engine.Sync(ctx); err != nil {
			return err
		}
		err = q.exists()
	}
	return err
}

func (q *Queue) exists() error { return q.view(func(*state.State, *state.Topic, *state.Queue) {}) }

// view calls f with the state, the queue and its topic. It fails if the queue or the topic does not exist.
func (q *Queue) view(f func(s *state.State, t *state.Topic, found *state.Queue)) (err error) {
	q.b.engine.View(func(s *state.State) {
		t := s.Topic(q.topic)
		if t == nil {
			err = change.TopicNotFound(q.topic)
		} else if found := s.Queue(t.ID, q.name); found == nil {
			err = change.QueueNotFound(q.topic, q.name)
		} else {
			f(s, t, found)
		}
	})
	return err
}

func (q *Queue) describe() (QueueInfo, error) {
	info, d, err := q.known()
	addOwnersView(d, &info)
	return info, err
}

// known describes the queue from the state alone. It also returns the queue's dispatcher if this broker
// owns the queue.
func (q *Queue) known() (info QueueInfo, d *dispatch.Dispatcher, err error) {
	err = q.view(func(s *state.State, t *state.Topic, found *state.Queue) {
		info, d = describeQueue(s, t, found, q.b.engine.NowIn(s)), q.b.dispatchers.Of(found.ID)
	})
	return info, d, err
}

// describeQueue describes a queue from the state alone. now is the log's time, in microseconds
// since 1970.
func describeQueue(s *state.State, t *state.Topic, q *state.Queue, now int64) QueueInfo {
	info := QueueInfo{
		Topic: t.Name, Name: q.Name, Created: time.UnixMicro(q.Created).UTC(), Config: queueConfigOf(q.Config), Epoch: q.Epoch,
	}
	if q.Owned {
		info.Owner, info.Session = q.Address, SessionKey(q.Session)
	}
	for i, p := range t.Partitions {
		c := q.Count(format.Partition(i), p.Start, p.End, now)
		info.Dead += c.DeadLetters
		info.Delayed += c.Later
		info.Ready += c.Left - c.DeadLetters
		if ms, ok := s.TimeAt(t, format.Partition(i), c.First); ok && c.Left > c.DeadLetters {
			if at := time.UnixMilli(ms).UTC(); info.Oldest.IsZero() || at.Before(info.Oldest) {
				info.Oldest = at
			}
		}
	}
	for d := range s.DelayedOf(t.ID) {
		if d.Due > now {
			info.Delayed += int64(d.Count) - q.DoneCount(d)
		}
	}
	info.Ready = max(0, info.Ready-info.Delayed)
	return info
}

// Queues iterates over the queues of a topic, sorted by name. It describes a queue when the
// iteration reaches that queue. An error ends the iteration, and comes with a zero QueueInfo.
func (b *Broker) Queues(ctx context.Context, topic string, o ListOptions) iter.Seq2[QueueInfo, error] {
	return reading(func(yield func(QueueInfo, error) bool) {
		id, err := b.TopicID(ctx, topic)
		if err != nil {
			yield(QueueInfo{}, err)
			return
		}
		l := listing[string, QueueInfo]{next: func(s *state.State, after string) []string {
			return names(s.QueuesAfter(id, after, listStep), func(q *state.Queue) string { return q.Name })
		}}
		for name := range l.keys(b, o.After) {
			if ctx.Err() != nil { // describing a queue takes long if the topic has many delays
				yield(QueueInfo{}, ctx.Err())
				return
			}
			if !o.may(name) {
				continue
			}
			info, err := b.Queue(topic, name).describe()
			if CodeOf(err) == CodeQueueNotFound || CodeOf(err) == CodeTopicNotFound {
				continue // the queue was deleted meanwhile
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	})
}
