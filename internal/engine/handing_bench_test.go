package engine

import (
	"encoding/binary"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/handover"
	"github.com/simple-event-broker/seb/internal/mesh"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

type makeTopic uint32

func (n makeTopic) Apply(d *state.Draft) ([]format.Entry, error) {
	return []format.Entry{&format.TopicCreated{ID: d.NextTopicID(), Partitions: uint32(n), Name: "t"}}, nil
}

// BenchmarkBundles measures how many bundles of 64 other brokers a broker checks, takes and commits, with a store in memory.
// Each bundle has 15 requests of one record of 100 bytes, for 15 partitions, so it has 15 batches. The benchmark uses one
// goroutine, which does the work of the mesh and of the commit loop. Sealing is the work of the other brokers, and is not measured.
func BenchmarkBundles(b *testing.B) {
	const senders, batches = 64, 15
	began := time.Now()
	e := New(objstore.NewMemory(), Options{
		Batching: atOnce{}, AppendTimeout: 30 * time.Second, StaleMax: time.Second, CheckpointCommits: 1 << 30, CheckpointLarge: 1 << 30,
		IdempotencyKeys: 100, Memory: 256 << 20, StateMemory: 4 << 30, Session: format.SessionID{1}, DeleteDelay: 24 * time.Hour, Margin: time.Hour,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Boot: func() time.Duration { return time.Since(began) }, Wall: time.Now,
	})
	if err := e.recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer e.end()
	first := &Request{Change: makeTopic(batches), Synced: true}
	e.Begin(b.Context(), first)
	if _, err := e.batcher.join(first); err != nil {
		b.Fatal(err)
	}
	e.commit(nil)
	topic := first.entries[0].(*format.TopicCreated).ID

	numbers := [senders]uint64{}
	seal := func(i int) []byte {
		numbers[i]++
		set := &batchSet{filling: map[partitionKey]*batch{}}
		for p := range batches {
			r := &Request{Appends: []*Append{appendOf(topic, []format.Partition{format.Partition(p)}, string(make([]byte, 100)))}}
			set.requests = append(set.requests, r)
			set.add(r, r.Appends[0])
		}
		set.finish()
		x := &bundle{Mark: handover.Mark{Session: handover.Session{2, byte(i)}, Number: numbers[i]}, sets: []*batchSet{set}}
		binary.LittleEndian.PutUint64(x.Draw[:], numbers[i])
		x.limits = bundleLimits{StateMemory: 4 << 30, IdempotencyKeys: 100}
		x.seal(callersOf)
		return x.bytes
	}
	var taken time.Duration
	for range b.N {
		var sealed [senders][]byte
		for i := range sealed {
			sealed[i] = seal(i)
		}
		begin := time.Now()
		applied, hash := e.log.Position()
		for i, bytes := range sealed {
			from := format.SessionID{2, byte(i)}
			e.hand.mailbox.call(from, 1)
			if err := (meshLog{e}).Handed(from, mesh.Bundle{Call: 1, Sealed: bytes, After: applied, AfterHash: hash}); err != nil {
				b.Fatal(err)
			}
		}
		e.readMail()
		clear(e.hand.gave) // else it would wait for the other brokers, which have no connections
		e.commit(nil)
		taken += time.Since(begin)
		if now, _ := e.log.Position(); now != applied+1 || e.hand.receiver.Hand() != 0 {
			b.Fatalf("at slot %d after %d, with %d bundles in hand", now, applied, e.hand.receiver.Hand())
		}
	}
	b.ReportMetric(float64(b.N*senders)/taken.Seconds(), "bundles/s")
	b.ReportMetric(float64(b.N*senders*batches)/taken.Seconds(), "batches/s")
}
