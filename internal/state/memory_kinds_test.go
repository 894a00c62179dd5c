package state

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// For each kind of entry, Memory returns about what the entries take on the heap, also after
// most of them were removed.
func TestMemoryCountsWhatEachKindTakes(t *testing.T) {
	const n = 20_000
	one := func(its ...format.Entry) []format.Entry { return its }
	for _, kind := range []struct {
		name  string
		count int
		setup []format.Entry
		add   func(i int) []format.Entry
		drop  func(i int) []format.Entry // nil: they expire by time
	}{
		{
			name: "topics", count: n,
			add: func(i int) []format.Entry {
				return one(&format.TopicCreated{ID: format.TopicID(i + 2), Partitions: 1, Name: fmt.Sprint("topic-", i)})
			},
			drop: func(i int) []format.Entry { return one(&format.TopicDeleted{ID: format.TopicID(i + 2)}) },
		},
		{
			name: "partitions", count: 100,
			add: func(i int) []format.Entry {
				return one(&format.TopicCreated{ID: format.TopicID(i + 2), Partitions: 1000, Name: fmt.Sprint("topic-", i)})
			},
			drop: func(i int) []format.Entry { return one(&format.TopicDeleted{ID: format.TopicID(i + 2)}) },
		},
		{
			name: "API keys", count: KeysMax - 1,
			add: func(i int) []format.Entry {
				return one(&format.KeyCreated{ID: format.KeyID(i + 1), Scopes: 1, Name: fmt.Sprint("key-", i), Topics: []string{strings.Clone("orders.*")}})
			},
			drop: func(i int) []format.Entry { return one(&format.KeyRevoked{ID: format.KeyID(i + 1)}) },
		},
		{
			name: "consumers", count: n,
			add: func(i int) []format.Entry {
				return one(&format.ConsumerCreated{ID: format.ConsumerID(i + 1), Topic: 1, Name: fmt.Sprint("consumer-", i)}, moved(format.ConsumerID(i+1), 0, 1))
			},
			drop: func(i int) []format.Entry { return one(&format.ConsumerDeleted{ID: format.ConsumerID(i + 1)}) },
		},
		{
			name: "queues", count: n,
			add: func(i int) []format.Entry {
				return one(queueSet(format.QueueID(i+1), 1, fmt.Sprint("queue-", i)), &format.QueuePurged{Queue: format.QueueID(i + 1), Before: 1})
			},
			drop: func(i int) []format.Entry { return one(&format.QueueDeleted{ID: format.QueueID(i + 1)}) },
		},
		{
			name: "idempotency keys", count: n,
			add: func(i int) []format.Entry {
				return one(&format.AppendKeyed{Key: format.Digest{byte(i), byte(i >> 8), 7}, Topic: 1, Ranges: []format.KeyedRange{{Count: 1}}})
			},
		},
		{
			name: "delays", count: n,
			add: func(i int) []format.Entry {
				base := int64(200_000 + i)
				return one(&format.Batch{Topic: 1, Count: 1, Size: 61, Base: format.Offset(base)}, delayedRun(1, 0, format.Offset(base), 1, 10))
			},
		},
		{
			name: "gaps in what is done", count: n, setup: one(queueSet(1, 1, "q"), owned(1, 1, 200_000)),
			add:  func(i int) []format.Entry { return one(runs(1, 0, format.Offset(2*i+1), 1, 1)) },
			drop: func(i int) []format.Entry { return one(runs(1, 0, format.Offset(2*i), 1, 1)) },
		},
		{
			name: "parked records", count: n, setup: one(queueSet(1, 1, "q"), owned(1, 1, 200_000)),
			add:  func(i int) []format.Entry { return one(back(1, 0, format.Offset(i), 1, true)) },
			drop: func(i int) []format.Entry { return one(&format.QueuePurged{Queue: 1, Before: format.Offset(i + 1)}) },
		},
	} {
		t.Run(kind.name, func(t *testing.T) {
			s := New()
			apply := func(at int64, entries []format.Entry) {
				mustApply(t, s, &format.Commit{Seq: s.Seq() + 1, Time: at, PayloadSize: 61, Entries: entries})
			}
			apply(1, append(one(&format.TopicCreated{ID: 1, Partitions: 1, Name: "a"}, &format.Batch{Topic: 1, Count: 200_000, Size: 61}), kind.setup...))
			heap, told := heapInUse(), s.Memory()
			took := func(what string) (measured, says float64) {
				measured = (float64(heapInUse()) - float64(heap)) / float64(kind.count)
				says = float64(s.Memory()-told) / float64(kind.count)
				t.Logf("%s: %.0f bytes of heap each; Memory tells %.0f", what, measured, says)
				runtime.KeepAlive(s)
				return measured, says
			}
			for i := range kind.count {
				apply(1, kind.add(i))
			}
			if measured, says := took("added"); measured > 1.2*says || measured < 0.7*says {
				t.Error("Memory is far off")
			}
			if kind.drop == nil {
				apply(10+KeyedFor.Microseconds(), one(&format.TopicConfigured{Topic: 1}))
			}
			for i := range kind.count {
				if kind.drop != nil {
					apply(1, kind.drop(i))
				}
			}
			if measured, says := took("gone again"); measured > says+8+float64(16<<10)/float64(kind.count) {
				t.Error("what was freed is still held")
			}
		})
	}
}
