package commitlog

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// largeHeads writes count commits, whose heads have headBytes bytes each. The bucket stores only the first bytes
// of these heads: the returned fault adds the zeros that follow. The fault also measures the memory in use while
// all Gets of large ranges that were sent together are under way, and stores the maximum in peak.
func (r *rig) largeHeads(count, headBytes int, peak *uint64) storetest.Fault {
	r.Helper()
	const stored = 200
	var (
		prev format.Hash
		size int64
	)
	for s := format.Seq(1); s <= format.Seq(count); s++ {
		c := &format.Commit{Cluster: r.constants.ID, Seq: s, Prev: prev, Entries: []format.Entry{&format.UnknownEntry{Kind: 100, Body: make([]byte, headBytes)}}}
		if _, err := r.memory.Create(r.Context(), format.LogKey(s), format.EncodeCommit(c)[:stored]); err != nil {
			r.Fatal(err)
		}
		prev, size = c.Hash, c.Size()
	}
	var mu sync.Mutex
	return func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		n := min(q.N, size-q.Off)
		body := make([]byte, n)
		a, err := storetest.Delay(time.Second)(ctx, q, next)
		if err != nil {
			return a, err
		}
		copy(body, a.Body)
		a.Body, a.Size = body, size
		if n >= 1<<20 {
			mu.Lock()
			defer mu.Unlock()
			*peak = max(*peak, heapInUse())
		}
		return a, nil
	}
}

func TestImpossibleStartSparesTheRestOfTheHead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		c := &format.Commit{Cluster: r.constants.ID, Seq: 1, Entries: []format.Entry{&format.UnknownEntry{Kind: 100, Body: make([]byte, 1<<20)}}}
		object := format.EncodeCommit(c)
		if _, err := r.memory.Create(t.Context(), format.LogKey(1), object, []byte("a payload that the head does not have")); err != nil {
			t.Fatal(err)
		}
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.LogPrefix, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if q.Off+q.N > headRead {
				t.Errorf("it gets %d bytes at %d", q.N, q.Off)
			}
			return next(ctx, q)
		})
		if err := b.Recover(t.Context()); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("recovery: %v", err)
		}
	})
}

// heapInUse returns the size of the objects that are still referenced.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestLargeHeadsReadTogetherShareABound(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const count, headBytes = 16, 32 << 20
		var peak uint64
		fault := r.largeHeads(count, headBytes, &peak)
		before := heapInUse()
		b := r.newBroker()
		b.store.On(objstore.VerbGet, format.LogPrefix, fault)
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.requireAt(count)
		if used := int64(peak) - int64(before); used > aheadBytesMax {
			t.Errorf("the heads of %d commits took %d MiB at once, more than %d MiB", count, used>>20, aheadBytesMax>>20)
		}
	})
}
