package seb

import (
	"context"
	"iter"
)

// ListOptions say which part of a list is wanted. The zero value means all of it. Whoever wants
// a page stops the iteration, and passes the last name as After to get the next page.
type ListOptions struct {
	// After is a name: the list begins with the first one that follows it.
	After string
	// May tells which names the caller may see; nil means all. The others cost no memory.
	May func(name string) bool
	// Reserve reserves the memory of an item for its turn; nil means [Broker.ReserveMore]. An adapter whose
	// client reads an item during its turn reserves from a share: see [Broker.NewReservation].
	Reserve func(ctx context.Context, bytes int64) (release func(), err error)
}

func (o ListOptions) may(name string) bool { return o.May == nil || o.May(name) }

// listStep is how many items are looked up under one stay in the state's lock.
const listStep = 256

type reserveFunc = func(ctx context.Context, bytes int64) (release func(), err error)

// listing describes items T of the state, which are known by K. Its functions are called with the
// state locked.
type listing[K, T any] struct {
	// next returns what follows a key, in order; nothing at the end.
	next func(after K) []K
	// bytes returns the memory that the description takes; ok is false if the item is gone.
	bytes    func(k K) (n int64, ok bool)
	describe func(k K) T
}

// keys iterates over what follows a key.
func (l listing[K, T]) keys(b *Broker, after K) iter.Seq[K] {
	return func(yield func(K) bool) {
		for {
			b.live.RLock()
			ks := l.next(after)
			b.live.RUnlock()
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

// list iterates over the items that follow a key and that may be seen, each as it is when its turn comes. The
// memory of an item is reserved during its turn, by reserve unless that is nil.
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
				yield(none, canceled(ctx))
				return
			}
			if !may(k) {
				continue
			}
			item, release, ok, err := l.item(ctx, b, k, reserve)
			if err != nil {
				yield(none, err)
				return
			}
			more := !ok || yield(item, nil)
			release()
			if !more {
				return
			}
		}
	}
}

// item describes an item, with its memory reserved until release is called. ok is false if the item is gone.
func (l listing[K, T]) item(ctx context.Context, b *Broker, k K, reserve reserveFunc) (item T, release func(), ok bool, _ error) {
	b.live.RLock()
	n, ok := l.bytes(k)
	b.live.RUnlock()
	for ok {
		release, err := reserve(ctx, n)
		if err != nil {
			return item, nil, false, err
		}
		b.live.RLock()
		now, still := l.bytes(k)
		described := still && now <= n
		if described {
			item = l.describe(k)
		}
		b.live.RUnlock()
		if described {
			return item, release, true, nil
		}
		release()
		n, ok = now, still // it has grown since
	}
	return item, func() {}, false, nil
}

// names returns the names of items.
func names[T any](items []T, name func(T) string) []string {
	list := make([]string, len(items))
	for i, x := range items {
		list[i] = name(x)
	}
	return list
}

// PartitionCount returns how many partitions a topic has as far as this broker knows, 0 if
// there is no such topic. An adapter reserves memory by it before it asks for what grows with partitions.
func (b *Broker) PartitionCount(topic string) int {
	b.live.RLock()
	defer b.live.RUnlock()
	if t := b.live.State.Topic(topic); t != nil {
		return len(t.Partitions)
	}
	return 0
}

// Collect returns all items of a list, or the error that ends it.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var items []T
	for x, err := range list {
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return items, nil
}
