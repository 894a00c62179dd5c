package objstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a store in the memory of the process: for tests, trials and benchmarks. It
// keeps every promise of [Store], except that its objects are lost when the process
// ends, and for what [WithDiscard] discards.
type Memory struct {
	now     func() time.Time
	discard []string

	mu      sync.RWMutex
	objects map[string]memoryObject
	// sorted holds the keys of objects in order if dirty is false. Create only appends the new key, and
	// Delete leaves the deleted key in sorted. The next List removes deleted keys and sorts the others.
	sorted []string
	dirty  bool
}

type memoryObject struct {
	body []byte // nil if discarded
	size int64
}

// MemoryOption changes how a Memory store behaves.
type MemoryOption func(*Memory)

// WithClock replaces time.Now in the store by the given function. The store calls the function from
// several goroutines, and without holding locks.
func WithClock(now func() time.Time) MemoryOption {
	return func(m *Memory) { m.now = now }
}

// WithDiscard makes the store keep no bytes of objects whose key begins with one of prefixes, so
// that a benchmark can write without end. Such objects exist, are listed and can't be created
// again, but Get returns an error that says that their bytes were discarded.
func WithDiscard(prefixes ...string) MemoryOption {
	return func(m *Memory) { m.discard = append(m.discard, prefixes...) }
}

// NewMemory returns an empty store.
func NewMemory(opts ...MemoryOption) *Memory {
	m := &Memory{now: time.Now, objects: make(map[string]memoryObject)}
	for _, opt := range opts {
		opt(m)
	}
	return m
}

// time returns the time of the store's clock. UTC drops the monotonic reading: the difference between two
// times with such readings would leave out the hours for which the machine was suspended.
func (m *Memory) time() time.Time { return m.now().UTC() }

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if err := begin(ctx, "create", key); err != nil {
		return time.Time{}, err
	}
	if m.has(key) { // if the key exists, the store need not copy the parts
		return m.time(), fmt.Errorf("create %s: %w", key, ErrExists)
	}
	var object memoryObject
	for _, part := range parts {
		object.size += int64(len(part))
	}
	if !m.discards(key) {
		object.body = slices.Concat(parts...)
		if object.body == nil {
			object.body = []byte{} // nil would mean that the bytes were discarded
		}
	}
	if !m.insert(key, object) {
		return m.time(), fmt.Errorf("create %s: %w", key, ErrExists)
	}
	return m.time(), nil
}

func (m *Memory) has(key string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, ok := m.objects[key]
	return ok
}

func (m *Memory) insert(key string, object memoryObject) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; ok {
		return false
	}
	key = strings.Clone(key) // key may be a substring of a large string
	m.objects[key] = object
	m.sorted = append(m.sorted, key)
	m.dirty = true
	return true
}

func (m *Memory) discards(key string) bool {
	return slices.ContainsFunc(m.discard, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string, off, n int64) (Object, error) {
	if err := begin(ctx, "get", key); err != nil {
		return Object{}, err
	}
	if err := checkRange(key, off); err != nil {
		return Object{}, err
	}
	m.mu.RLock()
	object, ok := m.objects[key]
	m.mu.RUnlock()
	switch {
	case !ok:
		return Object{Time: m.time()}, fmt.Errorf("get %s: %w", key, ErrNotFound)
	case object.body == nil:
		return Object{}, fmt.Errorf("get %s: its %d bytes were discarded on arrival (WithDiscard)", key, object.size)
	}
	from, end := clampRange(off, n, object.size)
	body := append(make([]byte, 0, end-from), object.body[from:end]...)
	return Object{Body: body, Size: object.size, Time: m.time()}, nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, prefix, after string, limit int) (Page, error) {
	if err := ctx.Err(); err != nil {
		return Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	if err := CheckPrefix(prefix); err != nil {
		return Page{}, fmt.Errorf("list: %w", err)
	}
	limit = pageLimit(limit)
	page := Page{Time: m.time()} // taken before the list is made: the time must not be later than the list
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sortLocked()
	i, _ := slices.BinarySearch(m.sorted, max(prefix, after))
	for ; i < len(m.sorted) && strings.HasPrefix(m.sorted[i], prefix); i++ {
		if m.sorted[i] <= after {
			continue
		}
		if len(page.Keys) == limit {
			page.More = true
			break
		}
		page.Keys = append(page.Keys, m.sorted[i])
	}
	return page, nil
}

// sortLocked makes sorted hold exactly the keys of objects, in order. It removes keys that were
// deleted, and duplicates of keys that were deleted and created again.
func (m *Memory) sortLocked() {
	if !m.dirty {
		return
	}
	m.sorted = slices.DeleteFunc(m.sorted, func(key string) bool {
		_, ok := m.objects[key]
		return !ok
	})
	slices.Sort(m.sorted)
	m.sorted = slices.Compact(m.sorted)
	m.dirty = false
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key string) (time.Time, error) {
	if err := begin(ctx, "delete", key); err != nil {
		return time.Time{}, err
	}
	m.mu.Lock()
	if _, ok := m.objects[key]; ok {
		delete(m.objects, key)
		m.dirty = true
	}
	m.mu.Unlock()
	return m.time(), nil
}

// begin returns an error if the request's context has ended or its key is invalid.
func begin(ctx context.Context, verb, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}
