package client

import (
	"context"
	"iter"
	"time"

	"github.com/simple-event-broker/seb"
)

// API has the methods with which a program uses a log. A [Client] reaches the log through brokers in other processes, and
// [Embedded] through a [seb.Broker] in the same process. So a program that uses an API moves from one to the
// other by one line.
//
// The methods do what the methods of [seb.Broker] with the same names do.
type API interface {
	Append(ctx context.Context, topic string, records []seb.Record, opts ...seb.AppendOption) (seb.Appended, error)
	Commit(ctx context.Context, c seb.Commit, opts ...seb.AppendOption) (seb.Committed, error)
	Cut(ctx context.Context, topics []string, o seb.CutOptions) (seb.Cut, error)

	Fetch(ctx context.Context, topic string, partition int32, from seb.Position, opts seb.FetchOptions) (seb.Fetched, error)
	Read(ctx context.Context, topic string, partition int32, from seb.Position) iter.Seq2[seb.Record, error]
	Follow(ctx context.Context, topic string, partition int32, from seb.Position) iter.Seq2[seb.Record, error]
	NewFollower(ctx context.Context, topic string, partition int32, from seb.Position) (Follower, error)
	ResumeFollower(ctx context.Context, topic string, from seb.Bookmark) (Follower, error)

	CreateTopic(ctx context.Context, name string, opts seb.TopicOptions) (t seb.Topic, created bool, err error)
	Topic(ctx context.Context, name string) (seb.Topic, error)
	Topics(ctx context.Context, o seb.ListOptions) iter.Seq2[seb.Topic, error]
	UpdateTopic(ctx context.Context, name string, u seb.TopicUpdate) (seb.Topic, error)
	DeleteTopic(ctx context.Context, name string) error
	DeleteRecords(ctx context.Context, topic string, partition int32, before seb.Offset) (seb.Partition, error)

	Consumer(topic, name string) Consumer
	Consumers(ctx context.Context, topic string, o seb.ListOptions) iter.Seq2[seb.ConsumerInfo, error]
	Queue(topic, name string) Queue
	Queues(ctx context.Context, topic string, o seb.ListOptions) iter.Seq2[seb.QueueInfo, error]

	CreateKey(ctx context.Context, opts seb.KeyOptions) (k seb.Key, secret string, err error)
	Keys(ctx context.Context, after seb.KeyID) iter.Seq2[seb.Key, error]
	RevokeKey(ctx context.Context, id seb.KeyID) (seb.Key, error)

	// Close releases what the Client or the broker uses. On a broker in this process, it is [seb.Broker.Close].
	Close() error
}

// Follower reads the partitions of a topic side by side, and waits for new records: see [seb.Follower].
type Follower interface {
	Next(ctx context.Context, opts seb.FetchOptions) ([]seb.Record, error)
	Wait(ctx context.Context, d time.Duration) (bool, error)
	Bookmark() seb.Bookmark
}

// Consumer is a named position in each partition of a topic: see [seb.Consumer].
type Consumer interface {
	Create(ctx context.Context) (info seb.ConsumerInfo, created bool, err error)
	Describe(ctx context.Context) (seb.ConsumerInfo, error)
	Commit(ctx context.Context, offsets seb.Offsets, opts ...seb.CommitOption) (version string, err error)
	Reset(ctx context.Context, from seb.Position) (info seb.ConsumerInfo, created bool, err error)
	ResetTo(ctx context.Context, offsets seb.Offsets) (info seb.ConsumerInfo, created bool, err error)
	Delete(ctx context.Context) error
	Follower(ctx context.Context, partition int32) (Follower, error)
	Follow(ctx context.Context) iter.Seq2[seb.Record, error]
}

// Queue hands out the records of a topic as work: see [seb.Queue]. A [seb.Worker] can use it as its Source.
type Queue interface {
	seb.WorkSource

	Set(ctx context.Context, u seb.QueueUpdate, from seb.Position) (info seb.QueueInfo, created bool, err error)
	Create(ctx context.Context, u seb.QueueUpdate, from seb.Position) (seb.QueueInfo, error)
	Update(ctx context.Context, u seb.QueueUpdate) (seb.QueueInfo, error)
	Describe(ctx context.Context) (seb.QueueInfo, error)
	Delete(ctx context.Context) error
	Purge(ctx context.Context) (int64, error)
	Dead(ctx context.Context, o seb.DeadOptions) (dead []seb.DeadMessage, next seb.Place, more bool, err error)
	Redrive(ctx context.Context, o seb.RedriveOptions) (seb.Redriven, error)

	Push(ctx context.Context) (seb.PushInfo, error)
	SetPush(ctx context.Context, u seb.PushUpdate) (info seb.PushInfo, secret string, created bool, err error)
	ResumePush(ctx context.Context) (seb.PushInfo, error)
	RemovePush(ctx context.Context) error
}

// Embedded returns the API of a broker in this process.
func Embedded(b *seb.Broker) API { return embedded{b} }

// embedded turns the types that a broker returns into interfaces.
type embedded struct{ *seb.Broker }

// Consumer returns the broker's consumer.
func (e embedded) Consumer(topic, name string) Consumer {
	return embeddedConsumer{e.Broker.Consumer(topic, name)}
}

// Queue returns the broker's queue.
func (e embedded) Queue(topic, name string) Queue { return e.Broker.Queue(topic, name) }

// NewFollower returns a follower of the broker.
func (e embedded) NewFollower(ctx context.Context, topic string, partition int32, from seb.Position) (Follower, error) {
	return follower(e.Broker.NewFollower(ctx, topic, partition, from))
}

// ResumeFollower returns a follower of the broker.
func (e embedded) ResumeFollower(ctx context.Context, topic string, from seb.Bookmark) (Follower, error) {
	return follower(e.Broker.ResumeFollower(ctx, topic, from))
}

type embeddedConsumer struct{ *seb.Consumer }

// Follower returns a follower of the broker.
func (c embeddedConsumer) Follower(ctx context.Context, partition int32) (Follower, error) {
	return follower(c.Consumer.Follower(ctx, partition))
}

// follower returns f as an interface, which is nil if there is an error.
func follower(f *seb.Follower, err error) (Follower, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
