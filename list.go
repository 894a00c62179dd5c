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
	// May tells which names the caller may see; nil means all. Names that it refuses cost no memory.
	May func(name string) bool
	// Reserve reserves the memory of a listed value for its turn; nil means [Broker.ReserveMore]. An adapter
	// whose client reads the value during its turn reserves from a share: see [Broker.NewReservation].
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
}

func (o ListOptions) may(name string) bool { return o.May == nil || o.May(name) }

// listStep is how many keys are read while the state is locked once.
const listStep = 256

type reserveFunc = func(ctx context.Context, bytes int64) (release func(), err error)

// listing describes values T of the state by their keys K.
type listing[K, T any] struct {
	// next returns what follows a key, in order; nothing at the end.
	next func(s *state.State, after K) []K
	// bytes returns the memory that the description takes; ok is false if the value is gone.
	bytes    func(s *state.State, k K) (n int64, ok bool)
	describe func(s *state.State, k K) T
}

// keys iterates over what follows a key.
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

// list iterates over the values that follow a key and that the caller may see, each as it is when its turn
// comes. It reserves the memory of a value during its turn, by reserve unless that is nil.
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

// value describes the value of a key, with its memory reserved until release is called. ok is false if it is gone.
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
		release() // it has grown since
	}
	return value, func() {}, false, nil
}

// names returns the names of values.
func names[T any](values []T, name func(T) string) []string {
	list := make([]string, len(values))
	for i, x := range values {
		list[i] = name(x)
	}
	return list
}

// PartitionCount returns how many partitions a topic has as far as this broker knows, 0 if
// there is no such topic. An adapter uses it to reserve memory before a request whose answer grows with partitions.
func (b *Broker) PartitionCount(topic string) (count int) {
	b.engine.View(func(s *state.State) {
		if t := s.Topic(topic); t != nil {
			count = len(t.Partitions)
		}
	})
	return count
}

// Collect returns all values of a list, or the error that ends it.
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
