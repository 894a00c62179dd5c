package change

import (
	"cmp"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// QueueName names a queue and its topic.
type QueueName struct{ Topic, Queue string }

// find returns the ids of the topic and the queue.
func (q QueueName) find(d *state.Draft) (topic format.TopicID, id format.QueueID, _ error) {
	topic, _, ok := d.TopicID(q.Topic)
	if !ok {
		return 0, 0, TopicNotFound(q.Topic)
	}
	id, ok = d.QueueID(topic, q.Queue)
	if !ok {
		return 0, 0, QueueNotFound(q.Topic, q.Queue)
	}
	return topic, id, nil
}

// The values of Order in a [QueueConfig]. With OrderKey, a queue hands out records with the same key in
// order, one at a time.
const (
	OrderNone = "none"
	OrderKey  = "key"
)

// Bounds on a [QueueConfig].
const (
	LeaseMin         = time.Second
	LeaseMax         = 12 * time.Hour
	queueAttemptsMax = 1000
	queueBackoffMax  = 24 * time.Hour
)

// QueueConfig is how a queue hands out records.
type QueueConfig struct {
	Lease                  time.Duration
	MaxAttempts            int
	BackoffMin, BackoffMax time.Duration
	DeadLetterTopic        string // "" means none
	Order                  string // OrderNone or OrderKey
	Paused                 bool
}

// QueueConfigOf converts the config in a log entry.
func QueueConfigOf(c format.QueueConfig) QueueConfig {
	config := QueueConfig{
		Lease: milliseconds(c.LeaseMS), MaxAttempts: int(c.Attempts), BackoffMin: milliseconds(c.BackoffMinMS), BackoffMax: milliseconds(c.BackoffMaxMS),
		DeadLetterTopic: c.DeadLetterTopic, Order: OrderNone, Paused: c.Paused,
	}
	if c.Ordered {
		config.Order = OrderKey
	}
	return config
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (c QueueConfig) stored() format.QueueConfig {
	return format.QueueConfig{
		LeaseMS: c.Lease.Milliseconds(), BackoffMinMS: c.BackoffMin.Milliseconds(), BackoffMaxMS: c.BackoffMax.Milliseconds(),
		Attempts: uint32(c.MaxAttempts), Ordered: c.Order == OrderKey, Paused: c.Paused, DeadLetterTopic: c.DeadLetterTopic,
	}
}

func (c QueueConfig) check() error {
	bad := func(format string, args ...any) error { return refused(CodeInvalidRequest, "", format, args...) }
	whole := func(d time.Duration) bool { return d%time.Millisecond == 0 }
	switch {
	case c.Lease < LeaseMin || c.Lease > LeaseMax || !whole(c.Lease):
		return bad("lease is %v; it must be 1s to 12h, in whole milliseconds", c.Lease)
	case c.MaxAttempts < 1 || c.MaxAttempts > queueAttemptsMax:
		return bad("max_attempts is %d; it must be 1 to %d", c.MaxAttempts, queueAttemptsMax)
	case c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin || c.BackoffMax > queueBackoffMax || !whole(c.BackoffMin) || !whole(c.BackoffMax):
		return bad("backoff is %v to %v; each must be 0s to 24h in whole milliseconds, and the first must not be longer than the second", c.BackoffMin, c.BackoffMax)
	case c.Order != OrderNone && c.Order != OrderKey:
		return bad("unknown order %q; use none or key", c.Order)
	case c.DeadLetterTopic != "" && CheckTopicName(c.DeadLetterTopic) != nil:
		return refused(CodeInvalidRequest, NamesHint, "invalid dead-letter topic name %.300q", c.DeadLetterTopic)
	}
	return nil
}

// checkDeadLetterTopic refuses a dead-letter topic that does not exist or is the queue's own topic.
func (q QueueName) checkDeadLetterTopic(d *state.Draft, name string) error {
	if name == "" {
		return nil
	}
	if name == q.Topic {
		return refused(CodeInvalidRequest, "name another topic: else the queue would receive its own dead letters again",
			"topic %q can't be its own dead-letter topic", q.Topic)
	}
	if _, _, ok := d.TopicID(name); !ok {
		r := TopicNotFound(name)
		r.Hint = "create the dead-letter topic first"
		return r
	}
	return nil
}

// QueueUpdate says what to change about a queue; a nil field leaves the value as it is. A QueueUpdate
// shares no memory with the caller.
type QueueUpdate struct {
	Lease                  *time.Duration
	MaxAttempts            *int
	BackoffMin, BackoffMax *time.Duration
	DeadLetterTopic        *string
	Order                  *string
	Paused                 *bool
}

func (u QueueUpdate) apply(c QueueConfig) QueueConfig {
	set(&c.Lease, u.Lease)
	set(&c.MaxAttempts, u.MaxAttempts)
	set(&c.BackoffMin, u.BackoffMin)
	set(&c.BackoffMax, u.BackoffMax)
	set(&c.DeadLetterTopic, u.DeadLetterTopic)
	set(&c.Order, u.Order)
	set(&c.Paused, u.Paused)
	if u.BackoffMin != nil && u.BackoffMax == nil {
		c.BackoffMax = max(c.BackoffMax, c.BackoffMin)
	}
	return c
}

// SetQueue changes a queue. If the queue does not exist and Create is set, SetQueue creates the queue. If the queue
// exists and New is set, SetQueue is refused.
type SetQueue struct {
	QueueName
	Update    QueueUpdate
	Create    bool
	New       bool
	Defaults  QueueConfig // what a new queue has in the fields that Update leaves nil
	From      Position    // where a new queue begins in each partition
	QueuesMax int         // how many queues the log may have

	// Created is a result: whether the queue did not exist before.
	Created bool
}

// Apply implements engine.Change.
func (x *SetQueue) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, partitions, ok := d.TopicID(x.Topic)
	if !ok {
		return nil, TopicNotFound(x.Topic)
	}
	id, exists := d.QueueID(topic, x.Queue)
	x.Created = !exists
	switch {
	case !exists && !x.Create:
		return nil, QueueNotFound(x.Topic, x.Queue)
	case !exists:
		return x.create(d, topic, partitions)
	case x.New:
		return nil, refused(CodeQueueExists, "", "queue %q of topic %q exists", x.Queue, x.Topic)
	}
	old := QueueConfigOf(d.QueueConfig(id))
	config := x.Update.apply(old)
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.Order != old.Order {
		return nil, refused(CodeInvalidRequest, "create another queue with that order",
			"queue %q of topic %q has the order %s, which can't change", x.Queue, x.Topic, old.Order)
	}
	if config == old {
		return nil, nil
	}
	if config.DeadLetterTopic != old.DeadLetterTopic { // check only a new name, so that a queue whose dead-letter topic was deleted can still be paused
		if err := x.checkDeadLetterTopic(d, config.DeadLetterTopic); err != nil {
			return nil, err
		}
	}
	return []format.Entry{&format.QueueSet{ID: id, Topic: topic, Name: x.Queue, Config: config.stored()}}, nil
}

// create returns the entries that create the queue.
func (x *SetQueue) create(d *state.Draft, topic format.TopicID, partitions uint32) ([]format.Entry, error) {
	if d.QueueCount() >= x.QueuesMax {
		return nil, limited(CodeTooManyQueues, x.QueuesMax, "there are %d queues, which is the maximum", d.QueueCount())
	}
	config := x.Update.apply(x.Defaults)
	if err := cmp.Or(config.check(), x.checkDeadLetterTopic(d, config.DeadLetterTopic)); err != nil {
		return nil, err
	}
	if x.From.Exact && partitions > 1 {
		return nil, refused(CodeInvalidRequest, "begin at earliest or latest",
			"can't begin at offset %d in each of %d partitions", x.From.Offset, partitions)
	}
	id := d.NextQueueID()
	entries := []format.Entry{&format.QueueSet{ID: id, Topic: topic, Name: x.Queue, Config: config.stored()}}
	for p := range format.Partition(partitions) {
		start := d.Start(topic, p)
		end, _ := d.End(topic, p)
		at := x.From.In(start, end)
		if at < start || at > end {
			return nil, OutOfRange(x.Topic, p, at, start, end)
		}
		if at > 0 {
			entries = append(entries, &format.QueuePurged{Queue: id, Partition: p, Before: at})
		}
	}
	return entries, nil
}

// DeleteQueue deletes a queue.
type DeleteQueue struct{ QueueName }

// Apply implements engine.Change.
func (x DeleteQueue) Apply(d *state.Draft) ([]format.Entry, error) {
	_, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	return []format.Entry{&format.QueueDeleted{ID: id}}, nil
}

// PurgeQueue marks all records of a queue as done.
type PurgeQueue struct {
	QueueName

	// Purged is a result: how many records were not done before.
	Purged int64
}

// Apply implements engine.Change.
func (x *PurgeQueue) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	x.Purged = 0
	topic, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	_, partitions, _ := d.TopicID(x.Topic)
	for p := range format.Partition(partitions) {
		end, _ := d.End(topic, p)
		if left := d.QueueLeft(id, p); left > 0 {
			x.Purged += left
			entries = append(entries, &format.QueuePurged{Queue: id, Partition: p, Before: end})
		}
	}
	return entries, nil
}
