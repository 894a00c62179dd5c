package fsck_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// heapInUse returns the size of the objects that are still referenced.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The bucket stores only the first bytes of the heads. The store adds the zeros that follow.
func TestLargeHeadsReadTogetherShareABound(t *testing.T) {
	for name, damaged := range map[string]bool{"sound": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const count, bound = 16, 128 << 20
				s := newSmith(t)
				var size int64
				var want []string
				for range count {
					c := s.next()
					c.Entries = []format.Entry{&format.UnknownEntry{Kind: 999, Body: make([]byte, 32<<20)}}
					key := s.put(c, nil)
					size = c.Size()
					start := append([]byte(nil), s.objects[key][:200]...)
					if damaged {
						start[199] = 1
						want = append(want, "corrupt "+key)
					}
					s.objects[key] = start
				}
				store := storetest.NewFaulty(s.store())
				var mu sync.Mutex
				var peak uint64
				store.On(objstore.VerbGet, format.LogPrefix, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
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
						peak = max(peak, heapInUse())
					}
					return a, nil
				})
				before := heapInUse()
				r := check(t, store, false)
				wantFindings(t, r, want...)
				if used := int64(peak) - int64(before); used > bound {
					t.Errorf("the heads of %d commits took %d MiB at once, more than %d MiB", count, used>>20, int64(bound)>>20)
				}
			})
		})
	}
}

// The check does not read the records of an object that is larger than any that brokers write.
func TestRecordsOfATooLargeObjectAreNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSmith(t)
		s.entries(&format.TopicCreated{ID: 1, Partitions: 1, Name: "events"})
		h := &format.DataHead{Cluster: s.cluster, Ref: format.DataRef{Seq: 1, ID: 7}, Batches: 1, PayloadSize: 3 << 30}
		c := s.next()
		c.PayloadSize = 3 << 30
		s.objects[h.Ref.Key()] = format.EncodeDataHead(h)
		s.objects[format.LogKey(2)] = format.EncodeCommit(c)
		store := storetest.NewFaulty(s.store())
		store.On(objstore.VerbGet, "", func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if q.N > 1<<20 {
				t.Errorf("it gets %d bytes of %s", q.N, q.Key)
				return storetest.Answer{}, objstore.ErrNotFound
			}
			a, err := next(ctx, q)
			if q.Key == h.Ref.Key() || q.Key == format.LogKey(2) {
				a.Size += 3 << 30
			}
			return a, err
		})
		wantFindings(t, check(t, store, true), "corrupt "+h.Ref.Key(), "corrupt "+format.LogKey(2))
	})
}
