package seb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// DeadMessage is a record that is parked: it is not handed out again unless it is
// redriven.
type DeadMessage struct {
	Record
	// Attempts is how often it was handed out since it was redriven.
	Attempts int
	// Reason is why the last attempt came to nothing.
	Reason string
	// Parked is when it was, by the store's clock.
	Parked time.Time
}

// Place is where a record is.
type Place struct {
	Partition int32
	Offset    Offset
}

// DeadOptions say which parked records are wanted.
type DeadOptions struct {
	// From is the first place that is wanted: the zero value is the beginning.
	From Place
	// Limit is their number at most; 0 means 100. Up to 1,000.
	Limit int
	// MaxBytes is a bound of keys, values and headers together; 0 means 1 MiB. It is soft:
	// one record is returned whatever its size.
	MaxBytes int64
}

const (
	deadDefault = 100
	deadMax     = 1000
)

// Dead returns parked records by partition and offset, and the place to go on from; more
// is false if these are the last. A record that can't be read any more comes without its contents.
func (q *Queue) Dead(ctx context.Context, o DeadOptions) (dead []DeadMessage, next Place, more bool, _ error) {
	def(&o.Limit, deadDefault)
	def(&o.MaxBytes, receiveBytes)
	if o.MaxBytes < 0 || o.Limit < 0 || o.Limit > deadMax {
		return nil, Place{}, false, limited(CodeInvalidRequest, deadMax, "%d records, %d bytes; it must be 1 to %d records, and at least a byte", o.Limit, o.MaxBytes, deadMax).withOutcome("")
	}
	if _, err := q.Describe(ctx); err != nil {
		return nil, Place{}, false, err
	}
	topic, parked := q.parked(o.From)
	if more = len(parked) > o.Limit; more {
		next = Place{parked[o.Limit].Partition, parked[o.Limit].Offset}
		parked = parked[:o.Limit]
	}
	for i, x := range parked {
		f, err := q.b.Fetch(ctx, q.topic, x.Partition, At(x.Offset), FetchOptions{Limit: 1, MaxBytes: 1, TopicTag: q.b.TopicTag(topic)})
		switch {
		case err == nil && len(f.Records) > 0:
			parked[i].Record = f.Records[0]
		case CodeOf(err) == CodeTopicRecreated: // and the queue went with the one before
			return nil, Place{}, false, asRead(queueNotFound(q.topic, q.name))
		case err != nil && CodeOf(err) != CodeDataLost && CodeOf(err) != CodeOffsetOutOfRange:
			return nil, Place{}, false, err
		}
		if o.MaxBytes -= parked[i].bytes(); o.MaxBytes < 0 && i > 0 {
			return parked[:i], Place{x.Partition, x.Offset}, true, nil
		}
	}
	return parked, next, more, nil
}

// parked returns the parked records from a place on, in order, without their contents, and
// the id of their topic.
func (q *Queue) parked(from Place) (topic uint64, list []DeadMessage) {
	q.b.mu.RLock()
	defer q.b.mu.RUnlock()
	t := q.b.state.Topic(q.topic)
	if t == nil {
		return 0, nil
	}
	found := q.b.state.Queue(t.ID, q.name)
	for i := 0; found != nil && i < len(t.Partitions); i++ {
		found.EachAttempt(int32(i), func(offset int64, a state.Attempt) {
			if a.Parked && (int32(i) > from.Partition || int32(i) == from.Partition && Offset(offset) >= from.Offset) {
				list = append(list, DeadMessage{
					Record:   Record{Partition: int32(i), Offset: Offset(offset)},
					Attempts: int(a.Tries()), Reason: a.Reason, Parked: time.UnixMicro(a.NotBefore).UTC(),
				})
			}
		})
	}
	slices.SortFunc(list, func(x, y DeadMessage) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	return t.ID, list
}

// RedriveOptions say which parked records are handed out again.
type RedriveOptions struct {
	// Places are those that are meant, up to 1,000; none means all, up to Limit.
	Places []Place
	// Limit is their number at most; 0 means 10,000, which is the most.
	Limit int
}

const redriveMax = 10_000

// Redrive takes parked records back to work, with all the attempts that the queue allows, and
// returns how many it took. Where keys keep their order they go out when they can: others of their key
// went past them when they were parked.
func (q *Queue) Redrive(ctx context.Context, o RedriveOptions) (n int, _ error) {
	def(&o.Limit, redriveMax)
	if o.Limit < 0 || o.Limit > redriveMax || len(o.Places) > tokensMax {
		return 0, limited(CodeInvalidRequest, redriveMax, "%d places, %d records; it must be up to %d places, or 1 to %d records", len(o.Places), o.Limit, tokensMax, redriveMax)
	}
	if err := q.check(); err != nil {
		return 0, err
	}
	var redriven int // the commit loop's until the outcome is known
	err := q.b.change(ctx, func(d *state.Draft) (items []commitlog.Item, _ *Error) {
		redriven = 0
		_, id, refusal := q.find(d)
		if refusal != nil {
			return nil, refusal
		}
		var in *commitlog.RecordsRedriven
		for _, x := range q.toRedrive(d, id, o) {
			if in == nil || in.Partition != uint32(x.Partition) {
				in = &commitlog.RecordsRedriven{Queue: id, Partition: uint32(x.Partition)}
				items = append(items, in)
			}
			in.Offsets = append(in.Offsets, x.Offset)
			redriven++
		}
		return items, nil
	})
	if err != nil {
		return 0, err
	}
	return redriven, nil
}

// toRedrive returns the records that are meant and parked, in order.
func (q *Queue) toRedrive(d *state.Draft, id uint64, o RedriveOptions) (list []leases.Place) {
	if len(o.Places) == 0 {
		for _, x := range d.Parked(id, o.Limit) {
			list = append(list, place(x.Partition, x.Offset))
		}
		return list
	}
	for _, x := range o.Places {
		if x.Partition < 0 || x.Offset < 0 {
			continue
		}
		if done, a, _ := d.RecordState(id, uint32(x.Partition), int64(x.Offset)); !done && a.Parked {
			list = append(list, place(uint32(x.Partition), int64(x.Offset)))
		}
	}
	slices.SortFunc(list, leases.Place.Compare)
	return slices.Compact(list)
}
