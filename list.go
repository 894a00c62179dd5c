package seb

import (
	"context"
	"iter"

	"github.com/simple-event-broker/seb/internal/state"
)

// ListOptions select a part of a list. The zero value selects all of it. To get pages, a caller stops
// the iteration, and passes the last name as After to get the next page.
type ListOptions struct {
	// After is a name: the list begins with the first name that follows it.
	After string
	// May reports whether the caller may see a name; nil means all names. No memory is reserved for
	// names that the caller may not see.
	May func(name string) bool
	// Reserve reserves the memory of a value before the loop body runs; the list calls release after it. nil means
	// [Broker.ReserveMore]. If the loop body sends the value to a client, which may be slow, reserve from a share:
	// see [Broker.NewReservation]. [Broker.Queues] does not call Reserve, since a QueueInfo is small.
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
}

func (o ListOptions) may(name string) bool { return o.May == nil || o.May(name) }

// listStep is how many keys a list reads each time that it locks the state.
const listStep = 256

type reserveFunc = func(ctx context.Context, bytes int64) (release func(), err error)

// listing tells how to list the things of one kind in the state, such as the queues of a topic: K is the type
// of their keys (names or ids), and T is the type of the descriptions that the caller gets, such as [QueueInfo].
type listing[K, T any] struct {
	// next returns the next few keys after the given key, in order; an empty list if there are none.
	next func(s *state.State, after K) []K
	// bytes returns the memory that the description of a thing takes; ok is false if the thing was deleted.
	bytes    func(s *state.State, k K) (n int64, ok bool)
	describe func(s *state.State, k K) T
}

// keys iterates over the keys after the given key.
func (l listing[K, T]) keys(b *Broker, after K) iter.Seq[K] {
	return func(yield func(K) bool) {
		for {
			var ks []K
			b.engine.View(func(s *state.State) { ks = l.next(s, after) })
			for _, k := range ks {
				if after = k; !yield(k) {
					return
				}
			}
			if len(ks) == 0 {
				return
			}
		}
	}
}

// list yields the descriptions of the things whose keys come after the given key. It skips a thing if may
// returns false for the thing's key. It makes each description just before it yields it, and reserves the
// memory of the description while the loop body runs: with reserve, or with b.ReserveMore if reserve is nil.
func (l listing[K, T]) list(ctx context.Context, b *Broker, after K, may func(K) bool, reserve reserveFunc) iter.Seq2[T, error] {
	if reserve == nil {
		reserve = b.ReserveMore
	}
	return func(yield func(T, error) bool) {
		var none T
		if err := b.current(ctx); err != nil {
			yield(none, err)
			return
		}
		for k := range l.keys(b, after) {
			if ctx.Err() != nil {
				yield(none, ctx.Err())
				return
			}
			if !may(k) {
				continue
			}
			value, release, ok, err := l.value(ctx, b, k, reserve)
			if err != nil {
				yield(none, err)
				return
			}
			more := !ok || yield(value, nil)
			release()
			if !more {
				return
			}
		}
	}
}

// value returns the description of the thing with a key. The memory of the description is reserved until
// release is called. ok is false if the thing was deleted.
func (l listing[K, T]) value(ctx context.Context, b *Broker, k K, reserve reserveFunc) (value T, release func(), ok bool, _ error) {
	var n int64
	b.engine.View(func(s *state.State) { n, ok = l.bytes(s, k) })
	for ok {
		release, err := reserve(ctx, n)
		if err != nil {
			return value, nil, false, err
		}
		described := false
		b.engine.View(func(s *state.State) {
			var now int64
			now, ok = l.bytes(s, k)
			if described = ok && now <= n; described {
				value = l.describe(s, k)
			}
			n = now
		})
		if described {
			return value, release, true, nil
		}
		release() // the description takes more memory now: reserve again
	}
	return value, func() {}, false, nil
}

func names[T any](values []T, name func(T) string) []string {
	list := make([]string, len(values))
	for i, x := range values {
		list[i] = name(x)
	}
	return list
}

// PartitionCount returns how many partitions a topic has as far as this broker knows, 0 if there is no
// such topic. An adapter calls it to reserve memory for an answer whose size depends on this number.
func (b *Broker) PartitionCount(topic string) (count int) {
	b.engine.View(func(s *state.State) {
		if t := s.Topic(topic); t != nil {
			count = len(t.Partitions)
		}
	})
	return count
}

// Collect returns all values of a list, or the error that ends the list.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var values []T
	for x, err := range list {
		if err != nil {
			return nil, err
		}
		values = append(values, x)
	}
	return values, nil
}
