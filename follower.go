package seb

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Follower reads a topic's partitions side by side: first the records that exist, then
// new ones. It also reads partitions that are added later. [Follower.Bookmark] returns the
// follower's position. A Follower holds no resources and needs no Close. Only one goroutine at a
// time may use it.
type Follower struct {
	b     *Broker
	topic string
	id    TopicID
	only  int32    // the only partition that the follower reads, or AllPartitions
	next  []Offset // next offset to read of each partition; one offset if the follower reads one partition
	turn  int      // index of the partition that is read first if it has records
	round *round   // nil, unless the topic has too many partitions for a Bookmark: then round has the offsets, and next is nil
}

// NewFollower returns a follower of a topic's partition, or of AllPartitions, that begins at
// the given position in each partition. A position made by [At] or [AtOrAfter] is refused if
// there are several partitions.
func (b *Broker) NewFollower(ctx context.Context, topic string, partition int32, from Position) (_ *Follower, err error) {
	defer reads(&err)
	f := &Follower{b: b, topic: topic, only: partition}
	if err := twiceIfRecreated(b, topic, func() error { return f.begin(ctx, from) }); err != nil {
		return nil, err
	}
	return f, nil
}

// ResumeFollower returns a follower of the topic that goes on at a bookmark. It fails with
// CodeTopicRecreated if the topic that has the name now is not the bookmark's topic. It fails with
// CodeOffsetOutOfRange if records that follow the bookmark were deleted.
func (b *Broker) ResumeFollower(ctx context.Context, topic string, from Bookmark) (_ *Follower, err error) {
	defer reads(&err)
	if from.Partition < AllPartitions || len(from.Offsets) == 0 || from.Partition >= 0 && len(from.Offsets) > 1 {
		return nil, errBookmark(from.String())
	}
	f := &Follower{b: b, topic: topic, only: from.Partition, next: slices.Clone(from.Offsets)}
	if err := f.find(ctx, from.topicTag()); err != nil {
		return nil, err
	}
	if err := f.inRange(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// find sets the id of the topic. If tag is not empty, find fails unless the topic has this tag (see
// Broker.TopicTag). If the last sync is older than Options.StaleMax, find first syncs.
func (f *Follower) find(ctx context.Context, tag string) (err error) {
	if err := f.b.engine.SyncIfOld(ctx); err != nil {
		return err
	}
	f.id, err = findPartition(ctx, f.b, f.topic, tag, f.only)
	return err
}

// partitions returns the followed partitions as they are in the state.
func (f *Follower) partitions(s *state.State) ([]state.Partition, error) {
	t := s.TopicByID(f.id)
	switch {
	case t == nil:
		return nil, change.TopicDeleted(f.topic)
	case f.only != AllPartitions && (f.only < 0 || int(f.only) >= len(t.Partitions)):
		return nil, change.PartitionNotFound(f.topic, format.Partition(f.only), len(t.Partitions))
	case f.only != AllPartitions:
		return t.Partitions[f.only : f.only+1], nil
	case len(t.Partitions) > FollowPartitionsMax:
		e := limited(CodeTooManyPartitions, FollowPartitionsMax, "topic %q has %d partitions; a follower reads at most %d",
			f.topic, len(t.Partitions), FollowPartitionsMax)
		e.Hint = "follow its partitions one by one"
		return nil, e
	case len(f.next) > len(t.Partitions):
		return nil, change.PartitionNotFound(f.topic, format.Partition(len(f.next)-1), len(t.Partitions))
	}
	return t.Partitions, nil
}

// cursor returns a cursor for the partition with index i among the partitions that the follower reads.
func (f *Follower) cursor(i int) *engine.Cursor {
	var offset Offset
	if f.round != nil {
		offset = f.round.next(f, i)
	} else {
		offset = f.next[i]
	}
	return f.b.engine.NewCursor(f.topic, f.id, format.Partition(f.partition(i)), offset)
}

// partition returns the number of the partition with index i among the partitions that the follower reads.
func (f *Follower) partition(i int) int32 {
	if f.only != AllPartitions {
		return f.only
	}
	return int32(i)
}

// begin finds the topic, and sets the follower to a position in every partition. It takes the bounds of
// all partitions from the state at one moment.
func (f *Follower) begin(ctx context.Context, from Position) error {
	f.next = nil // an earlier call of begin may have set it
	err := f.find(ctx, "")
	if err != nil {
		return err
	}
	f.b.engine.View(func(s *state.State) { err = f.beginIn(s, from) })
	switch {
	case err != nil:
		return err
	case from.kind == fromTime:
		return f.seek(ctx, from.n)
	}
	return f.inRange(ctx)
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
	f.next = make([]Offset, len(ps))
	for i := range ps {
		f.next[i] = from.stored().In(ps[i].Start, ps[i].End)
	}
	return nil
}

// inRange checks that every offset is inside of its partition. It syncs before it refuses an offset.
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

// ready returns the index of the next partition that has records to read; -1 if no partition has any. It
// checks the partitions from f.turn to the last one, then those from 0 on. It returns an error if an offset
// is outside of its partition.
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
			return -1, change.OutOfRange(f.topic, format.Partition(f.partition(i)), f.next[i], ps[i].Start, ps[i].End)
		case found < 0 && f.next[i] < ps[i].End:
			found = i
		}
	}
	return found, nil
}

// seek moves the follower, in every partition, to the first record from a time on. ms is that time
// in milliseconds since 1970. seek searches up to engine.ReadsMax partitions at once.
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
			errs[i] = c.Seek(ctx, ms)
			f.next[i] = c.Offset
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
// offsets. No follower can resume at such a bookmark: the consumer stores the position.
func (f *Follower) Bookmark() Bookmark {
	return Bookmark{Cluster: clusterTag(f.b.engine), Topic: f.id, Partition: f.only, Offsets: slices.Clone(f.next)}
}

// Wait returns true as soon as there are records to read. It returns false if there are still none
// when the time d has passed. It reads no records, so a waiting caller needs no memory for records.
func (f *Follower) Wait(ctx context.Context, d time.Duration) (_ bool, err error) {
	defer reads(&err)
	i, err := f.wait(ctx, d)
	return i >= 0, err
}

// wait waits up to d. It returns the index of a partition that has records to read; -1 if none has any.
func (f *Follower) wait(ctx context.Context, d time.Duration) (i int, err error) {
	i = -1
	err = f.b.engine.Await(ctx, f.id, format.Partition(f.only), d, func() (_ bool, err error) {
		if err = f.b.engine.Usable(); err == nil {
			i, err = f.ready()
		}
		return i >= 0, err
	})
	return i, err
}

// Next returns the next records of one partition; successive calls take the partitions in
// turn. Like [Broker.Fetch], it may return fewer records than there are. It returns no records
// and no error if none came within opts.Wait. The records share memory with the broker's
// cache: don't change what they point to.
//
// The follower stays usable after an error. An error with a RetryAfter is temporary. After
// CodeTopicNotFound (the topic was deleted), CodeOffsetOutOfRange (records that were not read
// yet were deleted) and CodeDataLost a retry does not help.
func (f *Follower) Next(ctx context.Context, opts FetchOptions) (_ []Record, err error) {
	defer reads(&err)
	bounds, err := opts.read()
	if err != nil {
		return nil, err
	}
	// While there are records to read, f.wait returns at once and does not sync. Sync here, so that
	// the broker learns of other brokers' commits even then: a commit may revoke the reader's API key.
	if err := f.b.engine.SyncIfOlder(ctx, engine.FollowIntervalMax/2); err != nil {
		return nil, err
	}
	i, err := f.wait(ctx, opts.Wait)
	if err != nil || i < 0 {
		return nil, err
	}
	c, to := f.cursor(i), page{partition: f.partition(i)}
	err = c.Read(ctx, bounds, &to)
	if f.round != nil {
		f.round.ahead[i] = c.Offset
	} else {
		f.next[i] = c.Offset
	}
	f.turn = i + 1 // after an error too: the next call may fail in the same way, and other partitions may have records
	return to.records, err
}
