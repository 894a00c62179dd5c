package seb

import (
	"context"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// DeadMessage is a dead letter: a record that is not handed out again, unless a call of
// [Queue.Redrive] redrives it.
type DeadMessage struct {
	Record
	// Attempts is how often the record was delivered. Deliveries before the last redrive of the
	// record don't count.
	Attempts int
	// Reason is why the last attempt failed.
	Reason string
	// Parked is when the record became a dead letter, by the store's clock.
	Parked time.Time
}

// Place is the partition and offset of a record.
type Place struct {
	Partition int32
	Offset    Offset
}

// DeadOptions are the options of [Queue.Dead].
type DeadOptions struct {
	// From is the place where the list begins; the zero Place is before all dead letters. There
	// need not be a dead letter at that place.
	From Place
	// Limit is the maximum number of records; 0 means 100. Up to 1,000.
	Limit int
	// MaxBytes bounds keys, values and headers together; 0 means 1 MiB. The first record is
	// returned whatever its size.
	MaxBytes int64
}

const (
	deadDefault = 100
	deadMax     = 1000
)

// Dead returns dead letters, sorted by partition and offset. If there are further dead letters, more
// is true and next is the place of the first of them. A record that can no longer be read comes without
// key, value, headers and timestamp.
func (q *Queue) Dead(ctx context.Context, o DeadOptions) (dead []DeadMessage, next Place, more bool, err error) {
	defer reads(&err)
	def(&o.Limit, deadDefault)
	def(&o.MaxBytes, receiveBytes)
	if o.MaxBytes < 0 || o.Limit < 0 || o.Limit > deadMax {
		return nil, Place{}, false, limited(CodeInvalidRequest, deadMax, "limit is %d and max_bytes is %d; limit must be 1 to %d, max_bytes at least 1", o.Limit, o.MaxBytes, deadMax)
	}
	if err := q.mustExist(ctx); err != nil {
		return nil, Place{}, false, err
	}
	topic, list := q.deadLetters(o.From, o.Limit+1)
	if more = len(list) > o.Limit; more {
		next = Place{list[o.Limit].Partition, list[o.Limit].Offset}
		list = list[:o.Limit]
	}
	for i := 0; i < len(list); {
		n, err := q.readDead(ctx, topic, list[i:i+runOf(list[i:])], o.MaxBytes)
		if err != nil {
			return nil, Place{}, false, err
		}
		for ; n > 0; n, i = n-1, i+1 {
			if o.MaxBytes -= list[i].bytes(); o.MaxBytes < 0 && i > 0 {
				next = Place{list[i].Partition, list[i].Offset}
				clear(list[i:]) // so that the memory of the records that are not returned can be freed
				return list[:i], next, true, nil
			}
		}
	}
	return list, next, more, nil
}

// runOf returns how many records at the beginning of the list are in the same partition and have
// offsets without gaps.
func runOf(list []DeadMessage) int {
	for i := 1; i < len(list); i++ {
		if list[i].Partition != list[0].Partition || list[i].Offset != list[i-1].Offset+1 {
			return i
		}
	}
	return len(list)
}

// readDead reads the contents of dead letters that are in one partition and have offsets without gaps. It
// handles at least the first dead letter, and returns how many it has handled. A record that can no longer
// be read stays without contents.
func (q *Queue) readDead(ctx context.Context, topic TopicID, run []DeadMessage, bytes int64) (int, error) {
	f, err := q.b.Fetch(ctx, q.topic, run[0].Partition, At(run[0].Offset),
		FetchOptions{Limit: len(run), MaxBytes: max(1, bytes), TopicTag: q.b.TopicTag(topic)})
	switch {
	case CodeOf(err) == CodeTopicRecreated: // the queue was deleted with its topic
		return 0, change.QueueNotFound(q.topic, q.name)
	case CodeOf(err) == CodeDataLost || CodeOf(err) == CodeOffsetOutOfRange:
		return 1, nil
	case err != nil:
		return 0, err
	}
	for i := range f.Records {
		run[i].Record = f.Records[i]
	}
	return max(1, len(f.Records)), nil
}

// deadLetters returns up to limit dead letters from a place on, sorted, without their contents,
// and the id of their topic.
func (q *Queue) deadLetters(from Place, limit int) (topic TopicID, list []DeadMessage) {
	err := q.view(func(_ *state.State, t *state.Topic, found *state.Queue) {
		topic = t.ID
		for at, a := range found.DeadLetters(format.Partition(from.Partition), from.Offset) {
			if len(list) == limit {
				break
			}
			list = append(list, DeadMessage{
				Record:   Record{Partition: int32(at.Partition), Offset: at.Offset},
				Attempts: int(a.Used()), Reason: a.Reason, Parked: time.UnixMicro(a.NotBefore).UTC(),
			})
		}
	})
	if err != nil {
		return 0, nil // the queue was deleted meanwhile
	}
	return topic, list
}

// RedriveOptions are the options of [Queue.Redrive].
type RedriveOptions struct {
	// Places are the dead letters to redrive, up to 1,000; an empty list means all, up to Limit.
	Places []Place
	// Limit is the maximum number of records; 0 means 10,000. Up to 10,000.
	Limit int
}

const redriveMax = 10_000

// Redriven is the result of [Queue.Redrive].
type Redriven struct {
	// Records is how many dead letters were redriven.
	Records int
	// Remaining is how many dead letters are left.
	Remaining int64
}

// Redrive makes the queue hand out dead letters again, each up to [QueueConfig].MaxAttempts times.
// In a queue with [OrderKey], later records of the same key may have been handed out already.
func (q *Queue) Redrive(ctx context.Context, o RedriveOptions) (_ Redriven, err error) {
	defer writes(&err)
	def(&o.Limit, redriveMax)
	if o.Limit < 0 || o.Limit > redriveMax || len(o.Places) > tokensMax {
		return Redriven{}, limited(CodeInvalidRequest, redriveMax, "%d records are named, and the limit is %d; at most %d records may be named, and the limit must be 1 to %d", len(o.Places), o.Limit, tokensMax, redriveMax)
	}
	if err := q.check(); err != nil {
		return Redriven{}, err
	}
	x := change.Redrive{QueueName: q.names(), Limit: o.Limit}
	for _, at := range o.Places {
		x.Places = append(x.Places, leases.Place{Partition: format.Partition(at.Partition), Offset: at.Offset})
	}
	entries, err := q.b.change(ctx, x)
	if err != nil {
		return Redriven{}, err
	}
	redriven := 0
	for _, entry := range entries {
		redriven += len(entry.(*format.RecordsRedriven).Offsets)
	}
	return Redriven{Records: redriven, Remaining: q.deadCount()}, nil
}

// deadCount returns how many dead letters there are; 0 if the queue was deleted.
func (q *Queue) deadCount() (count int64) {
	if err := q.view(func(_ *state.State, _ *state.Topic, found *state.Queue) { count = found.DeadLetterCount() }); err != nil {
		return 0
	}
	return count
}
