package seb

import (
	"cmp"
	"context"
	"iter"
	"time"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/auth"
	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Topic is a topic as it is at one moment.
type Topic struct {
	// ID is unique among all topics that the log ever had, including deleted topics of the same
	// name.
	ID         TopicID
	Name       string
	Created    time.Time
	Config     TopicConfig
	Partitions []Partition
	Retention  *TopicRetention // nil if the topic keeps all records, and in Broker.Topics
}

// TopicConfig says how long records are kept. Zero means no limit. Records beyond either limit are deleted.
type TopicConfig struct {
	// Retention is the age up to which records are kept, in whole milliseconds. It counts from the commit of a record, by the
	// store's clock, not from the record's timestamp. Records may be a twentieth older, at least a minute, at most 6 hours.
	Retention time.Duration
	// RetentionBytes is how many bytes of each partition are kept at least, as stored. A partition may have a twentieth more.
	RetentionBytes int64
	// RetentionPastQueues says that records are deleted although a queue of the topic has not done them.
	RetentionPastQueues bool
}

// TopicRetention tells how far the deletion of old records has come.
type TopicRetention struct {
	Oldest time.Time // when the oldest record was committed, by the store's clock, or earlier, as far as the broker knows; zero without records
	Next   time.Time // when the next records are deleted because of their age; zero without such a limit, or without records
	Queue  string    // a queue that holds records which would be deleted without it, since it has not done them; "" if none does
	Waits  string    // why the broker deletes nothing although it is time; "" if it does
}

func (c TopicConfig) check() error {
	switch {
	case c.Retention < 0 || c.Retention%time.Millisecond != 0:
		e := refused(CodeInvalidRequest, "retention is %v; it must be at least 0s, in whole milliseconds", c.Retention)
		e.Hint = "give a time such as 168h, or 0 for no limit"
		return e
	case c.RetentionBytes < 0:
		e := refused(CodeInvalidRequest, "retention_bytes is %d; it must be at least 0", c.RetentionBytes)
		e.Hint = "give a number of bytes, or 0 for no limit"
		return e
	}
	return nil
}

func (c TopicConfig) stored() format.TopicConfig {
	return format.TopicConfig{RetentionMS: c.Retention.Milliseconds(), RetentionBytes: c.RetentionBytes, PastQueues: c.RetentionPastQueues}
}

func configOf(c format.TopicConfig) TopicConfig {
	return TopicConfig{Retention: time.Duration(c.RetentionMS) * time.Millisecond, RetentionBytes: c.RetentionBytes, RetentionPastQueues: c.PastQueues}
}

// Partition is one ordered log of a topic's records.
type Partition struct {
	Partition int32
	// Start is the first offset that the partition holds, End the next offset to be assigned.
	Start, End Offset
	// Bytes is the size of the partition's batches in the store.
	Bytes int64
	// LastTimestamp is the largest timestamp in the partition's last batch; zero if the
	// partition never had a batch.
	LastTimestamp time.Time
}

// PartitionBytes is the memory that a [Partition] takes.
const PartitionBytes = int64(unsafe.Sizeof(Partition{}))

// TopicOptions are the options of a new topic.
type TopicOptions struct {
	// Partitions is the number of partitions; 0 means 1.
	Partitions int32
	Config     TopicConfig
}

// TopicUpdate says what to change about a topic; nil leaves a value as it is.
type TopicUpdate struct {
	// Partitions is the new number of partitions, which can't be lower than the old number. If
	// it is higher, new records of a key may go to another partition than earlier records of
	// the key.
	Partitions          *int32
	Retention           *time.Duration // see TopicConfig
	RetentionBytes      *int64
	RetentionPastQueues *bool
}

// CheckTopicName returns an error with CodeInvalidTopicName unless a topic may have the name.
// The rules are Kafka's: 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-", but not "." or "..".
func CheckTopicName(name string) (err error) {
	defer writes(&err)
	return change.CheckTopicName(name)
}

// CreateTopic creates a topic. If a topic of that name exists with the same number of
// partitions, and has each config value that opts sets, CreateTopic changes nothing and
// created is false. If the existing topic differs, CreateTopic returns CodeTopicExists. Topics whose names begin with "_seb."
// are for admins: for a caller without [ScopeAdmin] (see [WithAccess]), CreateTopic fails with CodeForbidden.
func (b *Broker) CreateTopic(ctx context.Context, name string, opts TopicOptions) (_ Topic, created bool, err error) {
	defer writes(&err)
	def(&opts.Partitions, 1)
	if err := change.CheckTopicName(name); err != nil {
		return Topic{}, false, err
	}
	if err := cmp.Or(b.opts.Limits.checkPartitionCount(opts.Partitions), opts.Config.check()); err != nil {
		return Topic{}, false, err
	}
	if c, ok := callerOf(ctx); ok && !c.admin && auth.Reserved(name) {
		return Topic{}, false, forbidden("use an API key with the scope admin", "only admins create topic %q", name)
	}
	entries, err := b.change(ctx, change.CreateTopic{
		Name: name, Partitions: uint32(opts.Partitions), Config: opts.Config.stored(), TopicsMax: b.opts.Limits.Topics,
	})
	if err != nil {
		return Topic{}, false, err
	}
	_, created = entryOf[*format.TopicCreated](entries)
	t, err := b.describeChanged(name)
	return t, created, err
}

func (l *Limits) checkPartitionCount(n int32) error {
	if n < 1 || int(n) > l.Partitions {
		return limited(CodeTooManyPartitions, l.Partitions, "the number of partitions is %d; it must be 1 to %d", n, l.Partitions)
	}
	return nil
}

// DeleteTopic deletes a topic with all its records, consumers and queues. [Broker.DeadLetteredTo]
// tells which queues of other topics use the topic as their dead-letter topic.
func (b *Broker) DeleteTopic(ctx context.Context, name string) (err error) {
	defer writes(&err)
	if err := change.CheckTopicName(name); err != nil {
		return err
	}
	_, err = b.change(ctx, change.DeleteTopic{Name: name})
	return err
}

// QueueName names a queue.
type QueueName struct{ Topic, Queue string }

// DeadLetteredTo returns the queues whose dead-letter topic has that name, as far as this
// broker knows, the oldest queue first. If the topic is deleted, these queues stay: their next
// dead letter creates the topic again. With [Options.NoAutoCreate], brokers don't create the topic, and
// don't copy dead letters until somebody creates it.
func (b *Broker) DeadLetteredTo(topic string) (names []QueueName) {
	b.engine.View(func(s *state.State) {
		for _, q := range s.DeadLetteredTo(topic) {
			names = append(names, QueueName{s.TopicByID(q.Topic).Name, q.Name})
		}
	})
	return names
}

// UpdateTopic makes all changes of u to a topic, or none.
func (b *Broker) UpdateTopic(ctx context.Context, name string, u TopicUpdate) (_ Topic, err error) {
	defer writes(&err)
	x := change.UpdateTopic{Name: name, PastQueues: u.RetentionPastQueues}
	var config TopicConfig
	if u.Partitions != nil {
		if err := b.opts.Limits.checkPartitionCount(*u.Partitions); err != nil {
			return Topic{}, err
		}
		x.Partitions = uint32(*u.Partitions)
	}
	if u.Retention != nil {
		config.Retention = *u.Retention
		x.RetentionMS = new(u.Retention.Milliseconds())
	}
	if u.RetentionBytes != nil {
		config.RetentionBytes = *u.RetentionBytes
		x.RetentionBytes = new(*u.RetentionBytes)
	}
	if err := cmp.Or(config.check(), change.CheckTopicName(name)); err != nil {
		return Topic{}, err
	}
	if _, err := b.change(ctx, x); err != nil {
		return Topic{}, err
	}
	return b.describeChanged(name)
}

// DeleteRecords moves the start of a partition up to the given offset. The records with lower
// offsets are deleted: readers no longer see them. If the partition already starts at that offset or
// after it, DeleteRecords changes nothing. It fails with CodeOffsetOutOfRange if the offset is
// negative, or beyond the end of the partition.
func (b *Broker) DeleteRecords(ctx context.Context, topic string, partition int32, before Offset) (_ Partition, err error) {
	defer writes(&err)
	if err := change.CheckTopicName(topic); err != nil {
		return Partition{}, err
	}
	if _, err := b.change(ctx, change.DeleteRecords{Topic: topic, Partition: format.Partition(partition), Before: before}); err != nil {
		return Partition{}, err
	}
	t, err := b.describeChanged(topic)
	if err != nil {
		return Partition{}, err
	}
	if int(partition) >= len(t.Partitions) {
		return Partition{}, maybeCommitted(change.TopicNotFound(topic)) // the topic was deleted meanwhile, and created again with fewer partitions
	}
	return t.Partitions[partition], nil
}

// current syncs if the last sync is older than Options.StaleMax. It returns an error if the broker
// was closed or has stopped, because the broker's state is not up to date then.
func (b *Broker) current(ctx context.Context) error {
	if err := b.engine.Usable(); err != nil {
		return err
	}
	return b.engine.SyncIfOld(ctx)
}

// TopicID returns the id of a topic. It first syncs if the last sync is older than Options.StaleMax.
func (b *Broker) TopicID(ctx context.Context, name string) (id TopicID, err error) {
	defer reads(&err)
	if err := b.current(ctx); err != nil {
		return 0, err
	}
	id, _, err = b.findTopic(ctx, name)
	return id, err
}

// Topic describes a topic. It fails with CodeTopicNotFound if there is no such topic.
func (b *Broker) Topic(ctx context.Context, name string) (_ Topic, err error) {
	defer reads(&err)
	if _, err := b.TopicID(ctx, name); err != nil {
		return Topic{}, err
	}
	return b.describe(name)
}

// Topics iterates over the topics, sorted by name. It describes a topic when the iteration reaches that
// topic, and reserves the memory of the description while the loop body runs: see [ListOptions]. An error
// ends the iteration, and comes with a zero Topic.
func (b *Broker) Topics(ctx context.Context, o ListOptions) iter.Seq2[Topic, error] {
	l := listing[string, Topic]{
		next: func(s *state.State, after string) []string {
			return names(s.TopicsAfter(after, listStep), func(t *state.Topic) string { return t.Name })
		},
		bytes: func(s *state.State, name string) (int64, bool) {
			t := s.Topic(name)
			if t == nil {
				return 0, false
			}
			return int64(len(t.Partitions)) * PartitionBytes, true
		},
		describe: func(s *state.State, name string) Topic { return describe(s.Topic(name)) },
	}
	return reading(l.list(ctx, b, o.After, o.may, o.Reserve))
}

// change commits a change and returns the entries of the change. It syncs first, so that it does
// not refuse the change because of a state from before the call.
func (b *Broker) change(ctx context.Context, c engine.Change) ([]format.Entry, error) {
	r, ctx := newRequest(ctx)
	if err := b.engine.Usable(); err != nil {
		return nil, err
	}
	if err := b.engine.Sync(ctx); err != nil {
		return nil, err
	}
	r.Change, r.Synced = c, true
	ticket, err := b.engine.Submit(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, err
	}
	return ticket.Entries(), nil
}

// entryOf returns the first entry of type T; ok is false if there is none.
func entryOf[T format.Entry](entries []format.Entry) (e T, ok bool) {
	for _, entry := range entries {
		if e, ok = entry.(T); ok {
			return e, true
		}
	}
	return e, false
}

func hasTopic(e *engine.Engine, id TopicID) (has bool) {
	e.View(func(s *state.State) { has = s.TopicByID(id) != nil })
	return has
}

// findTopic finds a topic. If this broker does not know the topic, findTopic syncs before it fails.
func (b *Broker) findTopic(ctx context.Context, name string) (id TopicID, partitions int, err error) {
	if err := change.CheckTopicName(name); err != nil {
		return 0, 0, err
	}
	for synced := false; ; synced = true {
		found := false
		b.engine.View(func(s *state.State) {
			if t := s.Topic(name); t != nil {
				id, partitions, found = t.ID, len(t.Partitions), true
			}
		})
		if found {
			return id, partitions, nil
		}
		if synced {
			return 0, 0, change.TopicNotFound(name)
		}
		if err := b.engine.Sync(ctx); err != nil {
			return 0, 0, err
		}
	}
}

// findTagged finds a topic. If want is not empty, findTagged fails unless the topic has the tag want.
// It syncs before it fails, since this broker may not know the topic with that tag yet.
func (b *Broker) findTagged(ctx context.Context, name, want string) (id TopicID, partitions int, err error) {
	for synced := false; ; synced = true {
		id, partitions, err = b.findTopic(ctx, name)
		switch {
		case err != nil || want == "" || b.TopicTag(id) == want:
			return id, partitions, err
		case synced:
			return 0, 0, topicRecreated(name)
		}
		if err := b.engine.Sync(ctx); err != nil {
			return 0, 0, err
		}
	}
}

// topicForAppend finds a topic, or creates it if that is allowed.
func (b *Broker) topicForAppend(ctx context.Context, name string, o appendOptions) (id TopicID, partitions int, err error) {
	if err := b.engine.RoomForRecords(ctx); err != nil {
		return 0, 0, err
	}
	id, partitions, err = b.findTopic(ctx, name)
	if CodeOf(err) == CodeTopicNotFound && !b.opts.NoAutoCreate {
		if err := o.checkNew(name); err != nil {
			return 0, 0, err
		}
		_, _, err = b.CreateTopic(ctx, name, TopicOptions{})
		if err != nil && CodeOf(err) != CodeTopicExists {
			return 0, 0, withoutOutcome(err) // the topic may exist now, but nothing was appended
		}
		id, partitions, err = b.findTopic(ctx, name)
	}
	return id, partitions, err
}

func (b *Broker) describe(name string) (described Topic, err error) {
	b.engine.View(func(s *state.State) {
		if t := s.Topic(name); t != nil {
			described = describe(t)
		} else {
			err = change.TopicNotFound(name)
		}
	})
	if err == nil && (described.Config.Retention > 0 || described.Config.RetentionBytes > 0) {
		described.Retention = new(TopicRetention(b.engine.Retention(described.ID)))
	}
	return described, err
}

// describeChanged describes a topic after a change of the topic was committed. If the topic was deleted
// since, perhaps by the same commit, the error has the outcome Unknown: the change is in the log.
func (b *Broker) describeChanged(name string) (Topic, error) {
	t, err := b.describe(name)
	if err != nil {
		err = maybeCommitted(change.TopicNotFound(name))
	}
	return t, err
}

func describe(t *state.Topic) Topic {
	d := Topic{ID: t.ID, Name: t.Name, Created: time.UnixMicro(t.Created).UTC(), Config: configOf(t.Config), Partitions: make([]Partition, len(t.Partitions))}
	for i, p := range t.Partitions {
		d.Partitions[i] = Partition{Partition: int32(i), Start: p.Start, End: p.End, Bytes: p.Bytes}
		if p.End > 0 {
			d.Partitions[i].LastTimestamp = time.UnixMilli(p.MaxTime).UTC()
		}
	}
	return d
}
