package year_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

// bucket has the objects of a modelled store. Its clock is that of the bubble. Large objects lie in files, so that a year of records
// need not fit into memory.
type bucket struct {
	dir string

	mu      sync.Mutex
	objects map[string]object
	keys    []string // of objects, in order, and of some that were deleted since
	gone    int      // how many of keys were deleted
	files   int      // created so far, for their names
	held    map[kind]tally
}

type object struct {
	kind kind
	size int64
	body []byte // nil if the object is in a file
	file string
}

// kind is what an object is, for the tables.
type kind string

const (
	commits     kind = "commits"
	data        kind = "data objects"
	segments    kind = "segments"
	checkpoints kind = "checkpoints"
	others      kind = "others"
)

// tally counts objects and their bytes.
type tally struct{ Objects, Bytes int64 }

const (
	fileBytesMin = 64 << 10 // objects of this size, and larger ones, lie in files
	pageKeys     = 1000
)

func newBucket(t *testing.T) *bucket {
	return &bucket{dir: t.TempDir(), objects: map[string]object{}, held: map[kind]tally{}}
}

// kindOf tells what an object is by its key and its first bytes.
func kindOf(key string, first []byte) kind {
	switch {
	case strings.HasPrefix(key, format.LogPrefix):
		return commits
	case strings.HasPrefix(key, format.CheckpointPrefix):
		return checkpoints
	case !strings.HasPrefix(key, format.DataPrefix):
		return others
	}
	if p, err := format.DecodePrologue(first); err == nil && p.Kind == format.KindSegment {
		return segments
	}
	return data
}

func (b *bucket) holds() map[kind]tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := map[kind]tally{}
	for k, n := range b.held {
		held[k] = n
	}
	return held
}

// addLocked counts an object, or no longer counts it if n is -1.
func (b *bucket) addLocked(o object, n int64) {
	sum := b.held[o.kind]
	b.held[o.kind] = tally{sum.Objects + n, sum.Bytes + n*o.size}
}

func (b *bucket) create(key string, parts [][]byte) error {
	body := slices.Concat(parts...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[key]; ok {
		return fmt.Errorf("create %s: %w", key, objstore.ErrExists)
	}
	key = strings.Clone(key)
	o := object{kind: kindOf(key, body), size: int64(len(body)), body: body}
	if len(body) >= fileBytesMin {
		b.files++
		o.body, o.file = nil, filepath.Join(b.dir, strconv.Itoa(b.files))
		if err := os.WriteFile(o.file, body, 0o600); err != nil {
			return err
		}
	}
	b.objects[key] = o
	b.addLocked(o, 1)
	if i, found := slices.BinarySearch(b.keys, key); found {
		b.gone--
	} else {
		b.keys = slices.Insert(b.keys, i, key)
	}
	return nil
}

func (b *bucket) get(key string, off, n int64) (body []byte, size int64, err error) {
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	if !ok {
		return nil, 0, fmt.Errorf("get %s: %w", key, objstore.ErrNotFound)
	}
	from := min(off, o.size)
	end := o.size
	if n >= 0 {
		end = min(from+n, o.size)
	}
	if o.file == "" {
		return slices.Clone(o.body[from:end]), o.size, nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, 0, err
	}
	body = make([]byte, end-from)
	_, err = io.ReadFull(io.NewSectionReader(f, from, end-from), body)
	return body, o.size, errors.Join(err, f.Close())
}

func (b *bucket) list(prefix, after string, limit int) (page objstore.Page) {
	if limit <= 0 || limit > pageKeys {
		limit = pageKeys
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone > len(b.keys)/2 {
		b.keys = slices.DeleteFunc(b.keys, func(key string) bool {
			_, ok := b.objects[key]
			return !ok
		})
		b.gone = 0
	}
	i, _ := slices.BinarySearch(b.keys, max(prefix, after))
	for ; i < len(b.keys) && strings.HasPrefix(b.keys[i], prefix); i++ {
		if _, ok := b.objects[b.keys[i]]; !ok || b.keys[i] <= after {
			continue
		}
		if len(page.Keys) == limit {
			page.More = true
			break
		}
		page.Keys = append(page.Keys, b.keys[i])
	}
	return page
}

func (b *bucket) delete(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	if !ok {
		return nil
	}
	delete(b.objects, key)
	b.addLocked(o, -1)
	b.gone++
	if o.file != "" {
		return os.Remove(o.file)
	}
	return nil
}

// store is a store whose requests take a time.
type store struct {
	bucket  *bucket
	takes   time.Duration
	refuses bool // to delete
}

// during executes a request in the middle of the time that it takes.
func (s store) during(ctx context.Context, do func() error) (at time.Time, err error) {
	wait.For(ctx, s.takes/2)
	if err := ctx.Err(); err != nil {
		return at, err
	}
	at = time.Now().UTC()
	err = do()
	wait.For(ctx, s.takes-s.takes/2)
	return at, err
}

// Create implements objstore.Store.
func (s store) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	return s.during(ctx, func() error { return s.bucket.create(key, parts) })
}

// Get implements objstore.Store.
func (s store) Get(ctx context.Context, key string, off, n int64) (o objstore.Object, err error) {
	o.Time, err = s.during(ctx, func() (err error) {
		o.Body, o.Size, err = s.bucket.get(key, off, n)
		return err
	})
	return o, err
}

// List implements objstore.Store.
func (s store) List(ctx context.Context, prefix, after string, limit int) (page objstore.Page, err error) {
	at, err := s.during(ctx, func() error {
		page = s.bucket.list(prefix, after, limit)
		return nil
	})
	page.Time = at
	return page, err
}

// Delete implements objstore.Store.
func (s store) Delete(ctx context.Context, key string) (time.Time, error) {
	return s.during(ctx, func() error {
		if s.refuses {
			return fmt.Errorf("delete %s: %w", key, fs.ErrPermission)
		}
		return s.bucket.delete(key)
	})
}
