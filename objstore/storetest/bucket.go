package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/objstore"
)

// Bucket is a store in memory whose content a test can change: the test can overwrite and remove objects,
// copy the whole content, and restore a copy later. Bucket stores every version of every object with its
// time, so that faults can answer with old content. It keeps the promises of [objstore.Store] as long as the
// test changes no content. It is safe for concurrent use, and never blocks.
type Bucket struct {
	mu      sync.RWMutex
	objects map[string][]version // oldest first
	keys    []string             // sorted; includes those of removed objects
}

// version is the content of a key from a certain time on.
type version struct {
	at   time.Time
	body []byte // nil if the object was removed
}

// Copy is the content of a bucket at one time: bodies by key. Callers must not change the bodies.
type Copy map[string][]byte

// NewBucket returns an empty bucket, whose clock is time.Now.
func NewBucket() *Bucket { return &Bucket{objects: make(map[string][]version)} }

// Bucket returns a new bucket with the content of the copy.
func (c Copy) Bucket() *Bucket {
	b := NewBucket()
	b.Restore(c, "")
	return b
}

func now() time.Time { return time.Now().UTC() }

// asOfLocked returns the object that was under key at a time, or nil.
func (b *Bucket) asOfLocked(key string, at time.Time) []byte {
	for _, v := range slices.Backward(b.objects[key]) {
		if !v.at.After(at) {
			return v.body
		}
	}
	return nil
}

func (b *Bucket) latestLocked(key string) version {
	if vs := b.objects[key]; len(vs) > 0 {
		return vs[len(vs)-1]
	}
	return version{}
}

func (b *Bucket) putLocked(key string, body []byte) {
	if b.latestLocked(key).body == nil && body == nil {
		return
	}
	if i, ok := slices.BinarySearch(b.keys, key); !ok {
		b.keys = slices.Insert(b.keys, i, key)
	}
	b.objects[key] = append(b.objects[key], version{now(), body})
}

// put writes body under key. If the key has an object, put replaces the object only if replace returns true
// for it. put reports whether it wrote body.
func (b *Bucket) put(key string, body []byte, replace func(there version) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there := b.latestLocked(key); there.body != nil && !replace(there) {
		return false
	}
	b.putLocked(key, body)
	return true
}

// joined returns the parts as one body, which is never nil.
func joined(parts [][]byte) []byte {
	if body := slices.Concat(parts...); body != nil {
		return body
	}
	return []byte{}
}

func always(version) bool { return true }
func never(version) bool  { return false }

// Put writes body under key, and replaces any object there.
func (b *Bucket) Put(key string, body []byte) { b.put(key, joined([][]byte{body}), always) }

// Remove removes an object, if it exists.
func (b *Bucket) Remove(key string) { b.put(key, nil, always) }

// Body returns the bytes of the object under key, or nil. Callers must not change the bytes.
func (b *Bucket) Body(key string) []byte {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.latestLocked(key).body
}

// Keys returns the keys of all objects that begin with prefix, in order.
func (b *Bucket) Keys(prefix string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for key := range b.Copy() {
			if strings.HasPrefix(key, prefix) && !yield(key) {
				return
			}
		}
	})
}

// Copy returns the present content of the bucket.
func (b *Bucket) Copy() Copy { return b.CopyAsOf(now()) }

// CopyAsOf returns the content of the bucket at an earlier time.
func (b *Bucket) CopyAsOf(at time.Time) Copy {
	b.mu.RLock()
	defer b.mu.RUnlock()
	c := make(Copy)
	for _, key := range b.keys {
		if body := b.asOfLocked(key, at); body != nil {
			c[key] = body
		}
	}
	return c
}

// Restore replaces all objects whose keys begin with prefix ("" for all) by those of
// a copy, atomically. It removes objects that the copy does not have.
func (b *Bucket) Restore(c Copy, prefix string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := slices.AppendSeq(slices.Clone(b.keys), maps.Keys(c))
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) {
			b.putLocked(key, c[key])
		}
	}
}

// begin returns an error if the request's context has ended or its key is invalid.
func begin(ctx context.Context, verb objstore.Verb, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	if err := objstore.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// Create implements [objstore.Store].
func (b *Bucket) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	if err := begin(ctx, objstore.VerbCreate, key); err != nil {
		return time.Time{}, err
	}
	if !b.put(key, joined(parts), never) {
		return now(), fmt.Errorf("create %s: %w", key, objstore.ErrExists)
	}
	return now(), nil
}

// Get implements [objstore.Store].
func (b *Bucket) Get(ctx context.Context, key string, off, n int64) (objstore.Object, error) {
	return b.getAsOf(ctx, now(), key, off, n)
}

// getAsOf returns what Get would have returned at an earlier time.
func (b *Bucket) getAsOf(ctx context.Context, at time.Time, key string, off, n int64) (objstore.Object, error) {
	if err := begin(ctx, objstore.VerbGet, key); err != nil {
		return objstore.Object{}, err
	}
	if off < 0 {
		return objstore.Object{}, fmt.Errorf("get %s: offset %d is negative", key, off)
	}
	b.mu.RLock()
	body := b.asOfLocked(key, at)
	b.mu.RUnlock()
	if body == nil {
		return objstore.Object{Time: now()}, fmt.Errorf("get %s: %w", key, objstore.ErrNotFound)
	}
	size := int64(len(body))
	from := min(off, size)
	end := size
	if n >= 0 {
		end = from + min(n, size-from)
	}
	return objstore.Object{Body: slices.Clone(body[from:end]), Size: size, Time: now()}, nil
}

// List implements [objstore.Store].
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) (objstore.Page, error) {
	return b.listAsOf(ctx, now(), prefix, after, limit)
}

const pageKeys = 1000

// listAsOf returns what List would have returned at an earlier time.
func (b *Bucket) listAsOf(ctx context.Context, at time.Time, prefix, after string, limit int) (objstore.Page, error) {
	if err := ctx.Err(); err != nil {
		return objstore.Page{}, fmt.Errorf("list %s: %w", prefix, err)
	}
	if err := objstore.CheckPrefix(prefix); err != nil {
		return objstore.Page{}, fmt.Errorf("list: %w", err)
	}
	if limit <= 0 || limit > pageKeys {
		limit = pageKeys
	}
	page := objstore.Page{Time: now()}
	b.mu.RLock()
	defer b.mu.RUnlock()
	i, _ := slices.BinarySearch(b.keys, max(prefix, after))
	for _, key := range b.keys[i:] {
		switch {
		case !strings.HasPrefix(key, prefix):
			return page, nil
		case key <= after || b.asOfLocked(key, at) == nil:
		case len(page.Keys) == limit:
			page.More = true
			return page, nil
		default:
			page.Keys = append(page.Keys, key)
		}
	}
	return page, nil
}

// Delete implements [objstore.Store].
func (b *Bucket) Delete(ctx context.Context, key string) (time.Time, error) {
	if err := begin(ctx, objstore.VerbDelete, key); err != nil {
		return time.Time{}, err
	}
	b.Remove(key)
	return now(), nil
}
