package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// entriesOf is a change with given entries.
type entriesOf []format.Entry

// Apply implements [engine.Change].
func (x entriesOf) Apply(*state.Draft) ([]format.Entry, error) { return x, nil }

// BenchmarkCheckpointOfManyKeys opens a log that remembers a million idempotency keys and has 100,000 consumers, after 1,000 of each
// were touched since the checkpoint before. It reports how long that takes, the bytes of the checkpoint and of its pages, and the bytes
// that a checkpoint without pages would have.
func BenchmarkCheckpointOfManyKeys(b *testing.B) {
	const keys, consumers, touched = 1_000_000, 100_000, 1000
	store, err := objstore.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	open := func() *engine.Engine {
		o := options(b)
		o.IdempotencyKeys, o.StateMemory, o.Memory = 2*keys, 1<<30, 256<<20
		e := engine.New(store, o)
		if err := e.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		return e
	}
	e := open()
	commit := func(entries ...format.Entry) {
		if err := e.Commit(b.Context(), &engine.Request{Change: entriesOf(entries), Synced: true, Urgent: true}); err != nil {
			b.Fatal(err)
		}
	}
	remember := func(from, to int) {
		var entries []format.Entry
		for n := from; n < to; n++ {
			entries = append(entries, &format.AppendKeyed{Topic: 1, Key: keyHash(n * 0x9e3779b1), Print: format.Digest{byte(n)}, Ranges: []format.KeyedRange{{Count: 1, Base: format.Offset(n % touched)}}})
		}
		commit(entries...)
	}
	move := func(from, to int) {
		var entries []format.Entry
		for n := from; n < to; n++ {
			entries = append(entries, &format.PositionsMoved{Consumer: format.ConsumerID(n + 1), Positions: []format.Position{{Offset: format.Offset(1 + n%touched)}}})
		}
		commit(entries...)
	}
	if err := e.RaiseLevel(b.Context()); err != nil {
		b.Fatal(err)
	}
	commit(&format.TopicCreated{ID: 1, Partitions: 1, Name: "t"})
	if err := e.Commit(b.Context(), &engine.Request{Appends: []*engine.Append{appending(1, make([]string, touched)...)}, Synced: true, Urgent: true}); err != nil {
		b.Fatal(err)
	}
	for n := 0; n < consumers; n += touched {
		var entries []format.Entry
		for i := range touched {
			entries = append(entries, &format.ConsumerCreated{ID: format.ConsumerID(n + i + 1), Topic: 1, Name: fmt.Sprintf("consumer-%06d", n+i)})
		}
		commit(entries...)
		move(n, n+touched)
	}
	for n := 0; n < keys; n += touched {
		remember(n, n+touched)
	}
	paged := func() (n int) {
		e.View(func(s *state.State) {
			for _, p := range s.Pages() {
				n += int(p.Keys)
			}
		})
		return n
	}
	n := keys
	for begin := time.Now(); paged() < keys-50_000; n++ {
		if time.Since(begin) > 5*time.Minute {
			b.Fatalf("only %d keys are in pages", paged())
		}
		remember(n, n+1)
	}
	remember(n, n+touched)
	move(0, touched)
	if err := e.Shutdown(nil); err != nil {
		b.Fatal(err)
	}
	list, err := store.List(b.Context(), format.CheckpointPrefix, "", 0)
	if err != nil {
		b.Fatal(err)
	}
	o, err := store.Get(b.Context(), list.Keys[len(list.Keys)-1], 0, 1)
	if err != nil {
		b.Fatal(err)
	}
	var pages, inAll int64
	count := 0
	for b.Loop() {
		e = open()
		b.StopTimer()
		pages, count = 0, 0
		e.View(func(s *state.State) {
			if got := s.KeyedCount(s.Time()); got != n+touched {
				b.Fatalf("%d keys are remembered, not %d", got, n+touched)
			}
			for _, p := range s.Pages() {
				pages, count = pages+int64(p.Ref.Size), count+1
			}
			inAll = int64(len(s.KeyedSection()))
		})
		if err := e.Shutdown(nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(o.Size), "checkpoint-bytes")
	b.ReportMetric(float64(inAll-pages), "of-it-keys-bytes")
	b.ReportMetric(float64(pages), "page-bytes")
	b.ReportMetric(float64(count), "pages")
	b.ReportMetric(float64(o.Size+pages), "without-pages-bytes")
}
