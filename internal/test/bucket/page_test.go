package bucket_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Brokers of a copy know the idempotency keys that the source had in pages, and write pages of their own.
func TestCopyRemembersIdempotencyKeys(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10}))
		kit.MustCreateTopic(t, b, "t", 1)
		add := func(b *seb.Broker, n int) seb.Offset {
			a, err := b.Append(t.Context(), "t", kit.Values(fmt.Sprint(n)), seb.ToPartition(0), seb.IdempotencyKey(fmt.Sprint("k", n)))
			must(t, err)
			return a.Ranges[0].Offset
		}
		var want []seb.Offset
		for n := range 50 {
			want = append(want, add(b, n))
			time.Sleep(time.Minute)
		}
		must(t, b.Close())
		pages := func(store objstore.Store) int {
			log, err := offline.Open(t.Context(), store, nil, offline.Moment{})
			must(t, err)
			return len(log.State.Pages())
		}
		if n := pages(store); n < 5 {
			t.Fatalf("the source has %d pages", n)
		}
		_, copied, to := copyLog(t, store, options(offline.Moment{}))
		if n := pages(to); n != 0 {
			t.Errorf("the copy begins with %d pages", n)
		}
		for n := range want {
			if got := add(copied, n); got != want[n] {
				t.Fatalf("key %d is not known: it leads to offset %d instead of %d", n, got, want[n])
			}
		}
		for n := range 20 {
			add(copied, 100+n)
			time.Sleep(time.Minute)
		}
		must(t, copied.Close())
		if pages(to) == 0 {
			t.Error("brokers of the copy write no pages")
		}
	})
}

// A restore of an earlier state reads only the pages of the checkpoint that it begins with.
func TestPagesOfLaterCheckpointsAreNotRead(t *testing.T) {
	compactSoon(t)
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		b := kit.OpenOnly(t, store, kit.InVirtualTime(seb.Options{Batching: seb.Immediate(), CheckpointCommits: 10}))
		kit.MustCreateTopic(t, b, "t", 1)
		var then time.Time
		for n := range 100 {
			_, err := b.Append(t.Context(), "t", kit.Values("v"), seb.ToPartition(0), seb.IdempotencyKey(fmt.Sprint("k", n)))
			must(t, err)
			time.Sleep(time.Minute)
			if n == 50 {
				then = time.Now()
			}
		}
		must(t, b.Close())
		before := store.Count(objstore.VerbGet, format.DataPrefix)
		log, err := offline.Open(t.Context(), store, nil, offline.Moment{Time: then.UnixMicro()})
		must(t, err)
		reads, pages := store.Count(objstore.VerbGet, format.DataPrefix)-before, len(log.State.Pages())
		if pages < 5 || reads > pages {
			t.Errorf("%d reads for %d pages", reads, pages)
		}
	})
}
