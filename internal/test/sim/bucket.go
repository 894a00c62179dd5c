package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// bucket is the store that all brokers use. It keeps the bytes of the first object that was created under
// each key, even after that object was deleted.
type bucket struct {
	*objstore.Memory

	mu     sync.Mutex
	first  map[string][]byte
	since  map[string]time.Time // when the current object of a key was created
	firsts map[string]time.Time // when the first object of a key was created
	ghosts int                  // objects that a late request created again after their deletion
	// collected counts the objects that brokers have deleted.
	collected int
}

func newBucket() *bucket {
	return &bucket{Memory: objstore.NewMemory(), first: map[string][]byte{}, since: map[string]time.Time{}, firsts: map[string]time.Time{}}
}

// Create implements [objstore.Store].
func (b *bucket) Create(ctx context.Context, key string, parts ...[]byte) (time.Time, error) {
	b.mu.Lock() // held during the call, so that b.first gets the object that was created first
	defer b.mu.Unlock()
	at, err := b.Memory.Create(ctx, key, parts...)
	if err != nil || strings.HasPrefix(key, format.ProbePrefix) {
		return at, err
	}
	b.since[key] = at
	if b.first[key] != nil {
		b.ghosts++
		return at, nil
	}
	b.first[key], b.firsts[key] = slices.Concat(parts...), at
	return at, nil
}

// Delete implements [objstore.Store], for brokers.
func (b *bucket) Delete(ctx context.Context, key string) (time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since[key].IsZero() {
		b.collected++
	}
	delete(b.since, key)
	return b.Memory.Delete(ctx, key)
}

// remove deletes the object under a key.
func (b *bucket) remove(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.since, key)
	_, err := b.Memory.Delete(context.Background(), key)
	return err
}

// keys returns the keys under a prefix, in order.
func (b *bucket) keys(prefix string) ([]string, error) {
	var all []string
	for after := ""; ; {
		page, err := b.List(context.Background(), prefix, after, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Keys...)
		if !page.More {
			return all, nil
		}
		after = all[len(all)-1]
	}
}

// seqs returns the slots that the keys under a prefix name, in order.
func (b *bucket) seqs(prefix string) ([]format.Seq, error) {
	keys, err := b.keys(prefix)
	seqs := make([]format.Seq, 0, len(keys))
	for _, key := range keys {
		q, ok := format.ParseSeqKey(prefix, key)
		if !ok {
			return nil, fmt.Errorf("an invalid key: %s", key)
		}
		seqs = append(seqs, q)
	}
	return seqs, err
}

// created returns when the current object under a key was created; the zero time if there is no such object.
func (b *bucket) created(key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since[key]
}

func (b *bucket) stands(key string) bool { return !b.created(key).IsZero() }

// original returns the first object that was created under a key, or nil.
func (b *bucket) original(key string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.first[key]
}

// visible returns when the first object under a key was created.
func (b *bucket) visible(key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.firsts[key]
}

// made returns the slots that the keys under a prefix name of all objects that ever were in the bucket, in order.
func (b *bucket) made(prefix string) (seqs []format.Seq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.first {
		if q, ok := format.ParseSeqKey(prefix, key); ok {
			seqs = append(seqs, q)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// write lists the objects of the bucket, with the entries of commits.
func (b *bucket) write(w *strings.Builder) {
	keys, err := b.keys("")
	fmt.Fprintf(w, "the bucket holds %d objects (%v):\n", len(keys), err)
	for _, key := range keys {
		body := b.original(key)
		fmt.Fprintf(w, "  %s %d bytes", key, len(body))
		if c, err := format.DecodeCommit(body); err == nil {
			fmt.Fprintf(w, " nonce %x prev %.8v:", c.Nonce[:4], c.Prev)
			for _, entry := range c.Entries {
				fmt.Fprintf(w, " %T%+v", entry, entry)
			}
		}
		w.WriteByte('\n')
	}
}
