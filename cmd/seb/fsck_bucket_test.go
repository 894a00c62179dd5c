package main

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/objstore"
)

// bucket is a store's objects by key, which tests damage.
type bucket map[string][]byte

// goodBucket is what brokers wrote, otherBucket the same of another cluster:
//
//	slot  1 topic orders    4 records of gone (checkpoint)   7 topic gone deleted
//	      2 topic gone      5 records of orders              8 to 11 records of orders (checkpoints 8, 11)
//	      3 records         6 records in a data object
var goodBucket, otherBucket = sync.OnceValues(writeBucket), sync.OnceValues(writeBucket)

// lowBucket is the same below level 6 of the log.
var lowBucket = sync.OnceValues(func() (bucket, error) { return writeBucketWith(seb.Options{HoldFormat: true}) })

func writeBucket() (bucket, error) { return writeBucketWith(seb.Options{}) }

func writeBucketWith(opts seb.Options) (bucket, error) {
	ctx, store := context.Background(), objstore.NewMemory()
	opts.Batching, opts.CheckpointCommits = seb.Immediate(), 4
	b, err := seb.Open(ctx, store, opts)
	if err != nil {
		return nil, err
	}
	create := func(topic string, partitions int32) error {
		_, _, err := b.CreateTopic(ctx, topic, seb.TopicOptions{Partitions: partitions})
		return err
	}
	appendTo := func(topic string, partition int32, values ...string) error {
		var rs []seb.Record
		for _, v := range values {
			rs = append(rs, seb.Record{Key: []byte("k"), Value: []byte(v)})
		}
		_, err := b.Append(ctx, topic, rs, seb.ToPartition(partition))
		return err
	}
	large := slices.Repeat([]string{strings.Repeat("x", 600<<10)}, 7) // more than fits into a commit
	for _, step := range []func() error{
		func() error { return create("orders", 2) },
		func() error { return create("gone", 1) },
		func() error { return appendTo("orders", 0, "a", "b") },
		func() error { return appendTo("gone", 0, "c") },
		func() error { return waitFor(ctx, store, format.CheckpointKey(4)) },
		func() error { return appendTo("orders", 1, "d") },
		func() error { return appendTo("orders", 0, large...) },
		func() error { return b.DeleteTopic(ctx, "gone") },
		func() error { return appendTo("orders", 0, "e") },
		func() error { return waitFor(ctx, store, format.CheckpointKey(8)) },
		func() error { return appendTo("orders", 0, "f") },
		func() error { return appendTo("orders", 1, "g") },
		func() error { return appendTo("orders", 0, "h") },
		b.Close,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return readBucket(ctx, store)
}

func waitFor(ctx context.Context, store objstore.Store, key string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err := store.Get(ctx, key, 0, 1); err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		<-time.After(time.Millisecond)
	}
}

func readBucket(ctx context.Context, store objstore.Store) (bucket, error) {
	page, err := store.List(ctx, "", "", 1000)
	if err != nil {
		return nil, err
	}
	b := bucket{}
	for _, key := range page.Keys {
		o, err := store.Get(ctx, key, 0, -1)
		if err != nil {
			return nil, err
		}
		b[key] = o.Body
	}
	return b, nil
}

// copyOf returns a bucket that may be damaged.
func copyOf(t *testing.T, of func() (bucket, error)) bucket {
	t.Helper()
	b, err := of()
	if err != nil {
		t.Fatal(err)
	}
	return maps.Clone(b)
}

func (b bucket) store(t *testing.T) *objstore.Memory {
	t.Helper()
	m := objstore.NewMemory()
	for key, body := range b {
		if _, err := m.Create(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// key returns the only key that begins with prefix.
func (b bucket) key(t *testing.T, prefix string) string {
	t.Helper()
	var found []string
	for key := range b {
		if strings.HasPrefix(key, prefix) {
			found = append(found, key)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects under %s", len(found), prefix)
	}
	return found[0]
}

// edit replaces an object by a changed copy.
func (b bucket) edit(key string, change func([]byte) []byte) { b[key] = change(bytes.Clone(b[key])) }

func (b bucket) delete(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if b[key] == nil {
			t.Fatalf("there is no %s", key)
		}
		delete(b, key)
	}
}

// commit changes the head of a slot and encodes it again, with sound checksums.
func (b bucket) commit(t *testing.T, slot format.Seq, change func(*format.Commit)) {
	t.Helper()
	key := format.LogKey(slot)
	c, err := format.DecodeCommit(b[key])
	if err != nil {
		t.Fatal(err)
	}
	payload := b[key][c.PayloadStart:]
	change(c)
	b[key] = append(format.EncodeCommit(c), payload...)
}

// found lists what a report found, as "class key" or "class key through".
func found(r *fsck.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		out = append(out, strings.TrimSpace(string(f.Class)+" "+f.Key+" "+f.Through))
	}
	return out
}
