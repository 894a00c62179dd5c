package seb

import (
	"context"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/state"
)

// Follower reads a topic's partitions side by side: first the records that exist, then
// new ones. [Follower.Bookmark] returns its position. It also reads partitions that are
// added later. It holds no resources and needs no Close. It is for one goroutine.
type Follower struct {
	b     *Broker
	topic string
	id    uint64
	only  int32   // the one partition, or AllPartitions
	next  []int64 // offsets to read next, by partition; one alone if only is a partition
	turn  int     // index in next of the partition to serve first
	round *round  // if not nil, it has the offsets instead of next
}

// NewFollower returns a follower of a topic's partition, or of AllPartitions, that begins at
// the given position in each. [At] is for one partition only.
func (b *Broker) NewFollower(ctx context.Context, topic string, partition int32, from Position) (_ *Follower, err error) {
	defer reads(&err)
	f, err := b.newFollower(ctx, topic, partition, from)
	if b.recreated(topic, err) {
		f, err = b.newFollower(ctx, topic, partition, from)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (b *Broker) newFollower(ctx context.Context, topic string, partition int32, from Position) (*Follower, error) {
	f, err := b.follower(ctx, topic, partition)
	if err != nil {
		return nil, err
	}
	if err := f.begin(from); err != nil {
		return nil, err
	}
	if from.kind == fromTime {
		return f, f.seek(ctx, from.n)
	}
	return f, f.inRange(ctx)
}

// ResumeFollower returns a follower of the topic that goes on at a bookmark. It fails with
// CodeTopicRecreated if the bookmark is of another topic than the one that has the name now,
// and with CodeOffsetOutOfRange if records past the bookmark were deleted.
func (b *Broker) ResumeFollower(ctx context.Context, topic string, from Bookmark) (_ *Follower, err error) {
	defer reads(&err)
	f, err := b.resumeFollower(ctx, topic, from)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (b *Broker) resumeFollower(ctx context.Context, topic string, from Bookmark) (*Follower, error) {
	if from.Partition < AllPartitions || len(from.Offsets) == 0 || from.Partition >= 0 && len(from.Offsets) > 1 {
		return nil, errBookmark(from.String())
	}
	for synced := false; ; synced = true {
		f, err := b.follower(ctx, topic, from.Partition)
		switch {
		case err != nil:
			return nil, err
		case from.Cluster == b.clusterTag() && from.Topic == f.id:
			for _, o := range from.Offsets {
				f.next = append(f.next, int64(o))
			}
			return f, f.inRange(ctx)
		case synced:
			return nil, topicRecreated(topic)
		}
		// Perhaps this broker does not know the new topic yet.
		if err := b.engine.Sync(ctx); err != nil {
			return nil, err
		}
	}
}

// clusterTag is a short id of the log, which distinguishes it from most others.
func (b *Broker) clusterTag() string { return b.engine.ClusterID().String()[:clusterDigits] }

// TopicTag returns the text, such as 1f0c6a3e.7, by which other programs distinguish a topic
// from every other one, of other buckets too. The text of a [Bookmark] begins with it.
func (b *Broker) TopicTag(id uint64) string {
	return Bookmark{Cluster: b.clusterTag(), Topic: id, Partition: AllPartitions}.String()
}

// follower returns a follower, without offsets, of a topic and partition that exist. The
// state of the topic is no older than Options.StaleMax.
func (b *Broker) follower(ctx context.Context, topic string, partition int32) (*Follower, error) {
	if err := b.engine.Usable(); err != nil {
		return nil, err
	}
	if err := b.engine.SyncIfOld(ctx); err != nil {
		return nil, err
	}
	id, count, err := b.findTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	if partition < AllPartitions || int(partition) >= count {
		if err := b.engine.Sync(ctx); err != nil {
			return nil, err
		}
	}
	return &Follower{b: b, topic: topic, id: id, only: partition}, nil
}

// partitions returns the followed partitions in the state.
func (f *Follower) partitions(s *state.State) ([]state.Partition, error) {
	t := s.TopicByID(f.id)
	switch {
	case t == nil:
		return nil, topicDeleted(f.topic)
	case f.only != AllPartitions && (f.only < 0 || int(f.only) >= len(t.Partitions)):
		return nil, partitionNotFound(f.topic, f.only, len(t.Partitions))
	case f.only != AllPartitions:
		return t.Partitions[f.only : f.only+1], nil
	case len(t.Partitions) > FollowPartitionsMax:
		e := limited(CodeTooManyPartitions, FollowPartitionsMax, "topic %q has %d partitions; a follower reads at most %d",
			f.topic, len(t.Partitions), FollowPartitionsMax)
		e.Hint = "follow its partitions one by one"
		return nil, e
	case len(f.next) > len(t.Partitions):
		return nil, partitionNotFound(f.topic, int32(len(f.next)-1), len(t.Partitions))
	}
	return t.Partitions, nil
}

// cursor returns a cursor of the partition at an index of next.
func (f *Follower) cursor(i int) *cursor {
	if f.round != nil {
		return f.b.newCursor(f.topic, f.id, int32(i), f.round.next(f, i))
	}
	if f.only != AllPartitions {
		return f.b.newCursor(f.topic, f.id, f.only, f.next[i])
	}
	return f.b.newCursor(f.topic, f.id, int32(i), f.next[i])
}

// begin sets every partition to a position, all as they are at one moment.
func (f *Follower) begin(from Position) (err error) {
	f.b.engine.View(func(s *state.State) { err = f.beginIn(s, from) })
	return err
}

func (f *Follower) beginIn(s *state.State, from Position) error {
	ps, err := f.partitions(s)
	if err != nil {
		return err
	}
	if (from.kind == fromOffset || from.kind == fromOffsetOn) && len(ps) > 1 {
		e := refused(CodeInvalidRequest, "can't begin at offset %d in each of %d partitions", from.n, len(ps))
		e.Hint = "name one partition, or begin at earliest, latest, the last N records or a time"
		return e
	}
	f.next = make([]int64, len(ps))
	for i := range ps {
		f.next[i] = from.between(ps[i].Start, ps[i].End)
	}
	return nil
}

// inRange checks that every offset is inside of its partition. It syncs before it refuses one.
func (f *Follower) inRange(ctx context.Context) error {
	_, err := f.ready()
	if CodeOf(err) == CodeOffsetOutOfRange || CodeOf(err) == CodePartitionNotFound {
		if err := f.b.engine.Sync(ctx); err != nil {
			return err
		}
		_, err = f.ready()
	}
	return err
}

// ready returns the index of the first partition, from turn on, that has records; -1 if none
// has. It returns an error if an offset is outside of its partition.
func (f *Follower) ready() (i int, err error) {
	if f.round != nil {
		return f.round.ready(f)
	}
	f.b.engine.View(func(s *state.State) { i, err = f.readyIn(s) })
	return i, err
}

func (f *Follower) readyIn(s *state.State) (int, error) {
	ps, err := f.partitions(s)
	if err != nil {
		return -1, err
	}
	for len(f.next) < len(ps) {
		f.next = append(f.next, 0) // a partition that was added is read from its start
	}
	found := -1
	for k := range ps {
		i := (f.turn + k) % len(ps)
		switch {
		case f.next[i] < ps[i].Start || f.next[i] > ps[i].End:
			return -1, outOfRange(f.topic, f.cursor(i).partition, f.next[i], ps[i].Start, ps[i].End)
		case found < 0 && f.next[i] < ps[i].End:
			found = i
		}
	}
	return found, nil
}

// seek moves every partition to a time, up to engine.ReadsMax at once.
func (f *Follower) seek(ctx context.Context, ms int64) error {
	var (
		wg    sync.WaitGroup
		errs  = make([]error, len(f.next))
		slots = make(chan struct{}, engine.ReadsMax)
	)
	for i := range f.next {
		slots <- struct{}{}
		c := f.cursor(i)
		wg.Go(func() {
			errs[i] = c.seek(ctx, ms)
			f.next[i] = c.offset
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Bookmark returns the follower's position: past all records that Next has returned. A
// consumer's follower of more than [FollowPartitionsMax] partitions returns a bookmark without
// offsets, which can't be resumed: the consumer's commits are its position.
func (f *Follower) Bookmark() Bookmark {
	m := Bookmark{Cluster: f.b.clusterTag(), Topic: f.id, Partition: f.only, Offsets: make([]Offset, len(f.next))}
	for i, o := range f.next {
		m.Offsets[i] = Offset(o)
	}
	return m
}

// Wait returns true as soon as there are records to read, and false after d. It reads no
// records, so a waiting caller needs no memory for them.
func (f *Follower) Wait(ctx context.Context, d time.Duration) (_ bool, err error) {
	defer reads(&err)
	i, err := f.wait(ctx, d)
	return i >= 0, err
}

// wait returns the index of a partition that has records, -1 if none has after d.
func (f *Follower) wait(ctx context.Context, d time.Duration) (int, error) {
	var timeout <-chan time.Time
	for {
		if err := f.b.engine.Usable(); err != nil {
			return -1, err
		}
		next := f.b.engine.Await(f.id, f.only)
		i, err := f.ready()
		if err != nil || i >= 0 || d <= 0 {
			return i, err
		}
		if timeout == nil {
			timer := time.NewTimer(d)
			defer timer.Stop()
			timeout = timer.C
			defer f.b.engine.Follow()()
		}
		select {
		case <-next:
		case <-timeout:
			return -1, nil
		case <-ctx.Done():
			return -1, ctx.Err()
		case <-f.b.engine.Done():
			return -1, f.b.engine.Usable()
		}
	}
}

// Next returns the next records of one partition; successive calls take the partitions in
// turn. Like [Broker.Fetch] it returns what it has rather than wait for the rest. It returns
// no records and no error if none came within opts.Wait. The records share memory with the
// broker's cache: the caller must not change it.
//
// The follower stays usable after an error. An error with a RetryAfter is temporary. After
// CodeTopicNotFound (the topic was deleted), CodeOffsetOutOfRange (records that were not read
// yet were deleted) and CodeDataLost a retry does not help.
func (f *Follower) Next(ctx context.Context, opts FetchOptions) (_ []Record, err error) {
	defer reads(&err)
	def(&opts.Limit, fetchRecordsDefault)
	def(&opts.MaxBytes, fetchBytesDefault)
	if opts.Limit < 0 || opts.MaxBytes < 0 || opts.Wait < 0 {
		return nil, refused(CodeInvalidRequest, "limit, bytes and wait can't be negative")
	}
	// A reader that has much to catch up with never waits, and so never syncs. But it must
	// learn of other brokers' commits: its API key may have been revoked.
	if err := f.b.engine.SyncIfOlder(ctx, engine.FollowIntervalMax/2); err != nil {
		return nil, err
	}
	i, err := f.wait(ctx, opts.Wait)
	if err != nil || i < 0 {
		return nil, err
	}
	c := f.cursor(i)
	start, end, err := c.locate(opts.MaxBytes, opts.Limit)
	if err != nil {
		return nil, err
	}
	if start, end, err = c.reserve(ctx, &opts, start, end); err != nil {
		return nil, err
	}
	found, err := c.read(ctx, opts, start, end)
	if f.round != nil {
		f.round.ahead[i] = c.offset
	} else {
		f.next[i] = c.offset
	}
	f.turn = i + 1
	return found.Records, err
}
