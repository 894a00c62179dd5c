package seb

import (
	"context"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/state"
)

// Topic is a topic as it is at one moment.
type Topic struct {
	// ID is never used again, also not for a topic created later under the
	// same name.
	ID         uint64
	Name       string
	Created    time.Time
	Partitions []Partition
}

// Partition is one ordered log of a topic's records.
type Partition struct {
	Partition int32
	// Start is the first offset it holds, End the next one to be given.
	Start, End Offset
	// Bytes is what its batches take in the store.
	Bytes int64
	// LastTimestamp is the largest of its last batch; zero if there was none.
	LastTimestamp time.Time
}

// TopicOptions say how a topic is to be created.
type TopicOptions struct {
	// Partitions is their number; 0 means 1.
	Partitions int32
}

const topicNameBytesMax = 249

// CheckTopicName returns why no topic may have that name, nil if one may.
// Names are Kafka's: 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-", but not "." and "..".
func CheckTopicName(name string) error {
	ok := name != "" && name != "." && name != ".." && len(name) <= topicNameBytesMax
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		e := refused(CodeInvalidTopicName, "%q is no topic name", name)
		e.Hint = fmt.Sprintf("use 1 to %d of a-z, A-Z, 0-9, ., _ and -, but not . or ..", topicNameBytesMax)
		return e
	}
	return nil
}

// CreateTopic creates a topic. created is false if there was one of that name
// with as many partitions already; with another number it is CodeTopicExists.
func (b *Broker) CreateTopic(ctx context.Context, name string, opts TopicOptions) (t Topic, created bool, err error) {
	def(&opts.Partitions, 1)
	if err := CheckTopicName(name); err != nil {
		return Topic{}, false, err
	}
	if opts.Partitions < 1 || int(opts.Partitions) > b.opts.Limits.Partitions {
		return Topic{}, false, limited(CodeTooManyPartitions, b.opts.Limits.Partitions,
			"%d partitions; a topic may have 1 to %d", opts.Partitions, b.opts.Limits.Partitions)
	}
	if err := b.stateRoom(); err != nil {
		return Topic{}, false, err
	}
	var item *commitlog.TopicCreated
	err = b.change(ctx, name, func(d *state.Draft) (commitlog.Item, *Error) {
		item = nil
		if _, n, ok := d.TopicID(name); ok {
			if n != uint32(opts.Partitions) {
				return nil, refused(CodeTopicExists, "topic %q exists with %d partitions", name, n)
			}
			return nil, nil
		}
		if d.TopicCount() >= b.opts.Limits.Topics {
			return nil, limited(CodeTooManyTopics, b.opts.Limits.Topics, "there are %d topics already", b.opts.Limits.Topics)
		}
		item = &commitlog.TopicCreated{ID: d.NextTopicID(), Partitions: uint32(opts.Partitions), Name: name}
		return item, nil
	})
	if err != nil {
		return Topic{}, false, err
	}
	t, err = b.describeChanged(name)
	return t, item != nil, err
}

// DeleteTopic deletes a topic with all its records.
func (b *Broker) DeleteTopic(ctx context.Context, name string) error {
	if err := CheckTopicName(name); err != nil {
		return err
	}
	return b.change(ctx, name, func(d *state.Draft) (commitlog.Item, *Error) {
		id, _, ok := d.TopicID(name)
		if !ok {
			return nil, topicNotFound(name)
		}
		return &commitlog.TopicDeleted{ID: id}, nil
	})
}

// AddPartitions gives a topic more partitions, count in all. Records with keys
// that come later may go to other partitions than those before.
func (b *Broker) AddPartitions(ctx context.Context, name string, count int32) (Topic, error) {
	if count < 1 || int(count) > b.opts.Limits.Partitions {
		return Topic{}, limited(CodeTooManyPartitions, b.opts.Limits.Partitions,
			"%d partitions; a topic may have 1 to %d", count, b.opts.Limits.Partitions)
	}
	if err := b.stateRoom(); err != nil {
		return Topic{}, err
	}
	if err := CheckTopicName(name); err != nil {
		return Topic{}, err
	}
	err := b.change(ctx, name, func(d *state.Draft) (commitlog.Item, *Error) {
		id, n, ok := d.TopicID(name)
		switch {
		case !ok:
			return nil, topicNotFound(name)
		case n > uint32(count):
			return nil, refused(CodeInvalidRequest, "topic %q has %d partitions; their number can't be reduced to %d", name, n, count)
		case n == uint32(count):
			return nil, nil
		}
		return &commitlog.PartitionsAdded{Topic: id, Partitions: uint32(count)}, nil
	})
	if err != nil {
		return Topic{}, err
	}
	return b.describeChanged(name)
}

// Topic describes a topic.
func (b *Broker) Topic(ctx context.Context, name string) (Topic, error) {
	if err := b.freshen(ctx); err != nil {
		return Topic{}, asRead(err)
	}
	if _, _, err := b.lookUp(ctx, name); err != nil {
		return Topic{}, asRead(err)
	}
	t, err := b.describe(name)
	return t, asRead(err)
}

// Topics describes all topics, by name.
func (b *Broker) Topics(ctx context.Context) ([]Topic, error) {
	if err := b.freshen(ctx); err != nil {
		return nil, asRead(err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	ts := make([]Topic, 0, b.state.TopicCount())
	for _, t := range b.state.Topics() {
		ts = append(ts, describe(t))
	}
	return ts, nil
}

// change has a request about topics committed. It looks at the log first: the
// request may be refused on any state from here on, but not on an older one.
func (b *Broker) change(ctx context.Context, topic string, f func(*state.Draft) (commitlog.Item, *Error)) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.lookNow(ctx, false); err != nil {
		return notSent(err)
	}
	r := &request{topic: topic, began: time.Now(), change: f, done: make(chan struct{})}
	if err := b.gather.joinChange(r); err != nil {
		return err
	}
	_, err := (&Pending{b, r}).Wait(ctx)
	return err
}

// stateRoom refuses what would grow the state beyond its budget.
func (b *Broker) stateRoom() error {
	b.mu.RLock()
	used := b.state.Memory()
	b.mu.RUnlock()
	if used < b.opts.StateMemory {
		return nil
	}
	return &Error{
		Code:    CodeOverStateBudget,
		Detail:  fmt.Sprintf("what the broker knows about the log takes %d bytes of the %d it may", used, b.opts.StateMemory),
		Hint:    "delete topics that are no longer needed, or give the broker more --state-memory; fewer, larger commits (--linger) make it grow slower",
		Outcome: NotCommitted, RetryAfter: time.Minute, Limit: b.opts.StateMemory,
	}
}

func topicNotFound(name string) *Error {
	e := refused(CodeTopicNotFound, "there is no topic %q", name)
	e.Hint = "create it first, or append to it"
	return e
}

// lookUp finds a topic, after a look at the log if it isn't known here.
func (b *Broker) lookUp(ctx context.Context, name string) (id uint64, partitions int, err error) {
	if err := CheckTopicName(name); err != nil {
		return 0, 0, err
	}
	for looked := false; ; looked = true {
		b.mu.RLock()
		t := b.state.Topic(name)
		if t != nil {
			id, partitions = t.ID, len(t.Partitions)
		}
		b.mu.RUnlock()
		if t != nil {
			return id, partitions, nil
		}
		if looked {
			return 0, 0, topicNotFound(name)
		}
		if err := b.lookNow(ctx, false); err != nil {
			return 0, 0, err
		}
	}
}

// topicForAppend finds a topic, or creates it if that is allowed.
func (b *Broker) topicForAppend(ctx context.Context, name string) (id uint64, partitions int, err error) {
	if err := b.stateRoom(); err != nil {
		return 0, 0, err
	}
	id, partitions, err = b.lookUp(ctx, name)
	if CodeOf(err) == CodeTopicNotFound && !b.opts.NoAutoCreate {
		_, _, err = b.CreateTopic(ctx, name, TopicOptions{})
		if err != nil && CodeOf(err) != CodeTopicExists {
			return 0, 0, err
		}
		id, partitions, err = b.lookUp(ctx, name)
	}
	return id, partitions, err
}

func (b *Broker) describe(name string) (Topic, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	t := b.state.Topic(name)
	if t == nil {
		return Topic{}, topicNotFound(name)
	}
	return describe(t), nil
}

// describeChanged describes a topic after a change of it was committed. It may
// have been deleted since, even by the same commit: that is no refusal.
func (b *Broker) describeChanged(name string) (Topic, error) {
	t, err := b.describe(name)
	if err != nil {
		err = topicNotFound(name).withOutcome(Unknown)
	}
	return t, err
}

func describe(t *state.Topic) Topic {
	d := Topic{ID: t.ID, Name: t.Name, Created: time.UnixMicro(t.Created).UTC(), Partitions: make([]Partition, len(t.Partitions))}
	for i, p := range t.Partitions {
		d.Partitions[i] = Partition{Partition: int32(i), Start: Offset(p.Start), End: Offset(p.End), Bytes: p.Bytes}
		if p.End > 0 {
			d.Partitions[i].LastTimestamp = time.UnixMilli(p.MaxTime).UTC()
		}
	}
	return d
}
