package commitlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// rig is a bucket in memory and its brokers, in virtual time.
type rig struct {
	*testing.T
	memory    *objstore.Memory
	constants format.Cluster
	start     time.Time
	nonces    uint64
	pages     map[format.Seq][]format.Page // of checkpoints
}

// inBubble runs a test on an empty bucket whose D is 24 h, with a margin of 1 h.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, memory: objstore.NewMemory(objstore.WithClock(time.Now)), start: time.Now().Add(-time.Hour)}
		var err error
		if r.constants, err = OpenCluster(t.Context(), r.memory, testDelay, testMargin, time.Now()); err != nil {
			t.Fatal(err)
		}
		test(t, r)
	})
}

// openEmpty returns a broker that recovered when log/ was empty. Its Gets of slot s pass through
// fault.
func (r *rig) openEmpty(s format.Seq, fault storetest.Fault) *broker {
	r.Helper()
	b := r.newBroker()
	restore := b.store.On(objstore.VerbList, format.LogPrefix, func(ctx context.Context, q storetest.Request, next storetest.Next) (storetest.Answer, error) {
		a, err := next(ctx, q)
		a.Keys = nil
		return a, err
	})
	if err := b.Recover(r.Context()); err != nil {
		r.Fatal(err)
	}
	restore()
	b.store.On(objstore.VerbGet, format.LogKey(s), fault)
	return b
}

// broker is a Log, the faulty store between the Log and the bucket, and the commits that the Log
// applied.
type broker struct {
	*Log
	*rig
	store   *storetest.Faulty
	applied []format.Hash
	objects int            // number of objects that were read whole
	last    *format.Commit // the last commit applied
	builds  int
	reports []error
}

// Load implements [Fold]. The body of a checkpoint is the hashes of all commits.
func (b *broker) Load(c *format.Checkpoint, read func([]format.Page) ([][]byte, error)) error {
	if pages := b.rig.pages[c.Seq]; pages != nil {
		bodies, err := read(pages)
		if err != nil {
			return err
		}
		for i, body := range bodies {
			if err := pages[i].Check(body); err != nil {
				return err
			}
		}
	}
	b.applied = nil
	for h := range slices.Chunk(c.Body, len(format.Hash{})) {
		b.applied = append(b.applied, format.Hash(h))
	}
	if format.Seq(len(b.applied)) != c.Seq {
		return fmt.Errorf("a checkpoint of %d commits as of slot %d", len(b.applied), c.Seq)
	}
	return nil
}

// Apply implements [Fold].
func (b *broker) Apply(c *format.Commit, object []byte) error {
	if format.Seq(len(b.applied)+1) != c.Seq {
		return fmt.Errorf("slot %d after slot %d", c.Seq, len(b.applied))
	}
	if object != nil {
		b.objects++
		if int64(len(object)) != c.Size() {
			return fmt.Errorf("slot %d came with %d of its %d bytes", c.Seq, len(object), c.Size())
		}
	}
	b.applied, b.last = append(b.applied, c.Hash), c
	return nil
}

// newBroker returns a broker that has not recovered.
func (r *rig) newBroker() *broker {
	b := &broker{rig: r, store: storetest.NewFaulty(r.memory)}
	b.Log = NewLog(b.store, r.constants, b, Clock{Now: time.Now, Boot: func() time.Duration { return time.Since(r.start) }}, time.Second)
	return b
}

// open returns a broker that has recovered.
func (r *rig) open() *broker {
	r.Helper()
	b := r.newBroker()
	if err := b.Recover(r.Context()); err != nil {
		r.Fatal(err)
	}
	return b
}

// build returns a function that builds a commit with payload, both in an entry and inline.
func (b *broker) build(payload string) func(Next) (*format.Commit, [][]byte) {
	return func(Next) (*format.Commit, [][]byte) {
		b.builds++
		b.nonces++
		c := &format.Commit{PayloadSize: uint32(len(payload)), Entries: []format.Entry{&format.UnknownEntry{Kind: 100, Body: []byte(payload)}}}
		binary.LittleEndian.PutUint64(c.Nonce[:], b.nonces)
		return c, [][]byte{[]byte(payload)}
	}
}

func (b *broker) commit(ctx context.Context, payload string) (*format.Commit, error) {
	return b.Commit(ctx, b.build(payload), func(err error) { b.reports = append(b.reports, err) })
}

// mustCommit commits payload, and requires that it wins slot want.
func (b *broker) mustCommit(want format.Seq, payload string) *format.Commit {
	b.Helper()
	c, err := b.commit(b.Context(), payload)
	if err != nil {
		b.Fatalf("commit %q: %v", payload, err)
	}
	if c.Seq != want || c != b.last {
		b.Fatalf("%q is committed in slot %d, not %d; the last commit applied is that of slot %d", payload, c.Seq, want, b.last.Seq)
	}
	return c
}

// fill commits slots up to last.
func (b *broker) fill(last format.Seq) {
	b.Helper()
	for s, _ := b.Position(); s < last; s++ {
		b.mustCommit(s+1, fmt.Sprint("payload ", s+1))
	}
}

func (b *broker) mustLook() {
	b.Helper()
	if err := b.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// requireAt asserts the applied slot, and that the applied commits are those of the log.
func (b *broker) requireAt(want format.Seq) {
	b.Helper()
	seq, hash := b.Position()
	if seq != want || format.Seq(len(b.applied)) != want || (want > 0 && b.applied[want-1] != hash) {
		b.Fatalf("the log is at slot %d, the fold at %d, not %d", seq, len(b.applied), want)
	}
}

// checkpoint writes a checkpoint of what b has applied.
func (b *broker) checkpoint() {
	b.Helper()
	seq, hash := b.Position()
	c := &format.Checkpoint{Cluster: b.constants.ID, Seq: seq, Hash: hash}
	for _, h := range b.applied {
		c.Body = append(c.Body, h[:]...)
	}
	b.put(format.CheckpointKey(seq), format.EncodeCheckpoint(c), c.Body)
}

func (r *rig) put(key string, parts ...[]byte) {
	r.Helper()
	if _, err := r.memory.Create(r.Context(), key, parts...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) get(key string) []byte {
	r.Helper()
	o, err := r.memory.Get(r.Context(), key, 0, -1)
	if err != nil {
		r.Fatal(err)
	}
	return o.Body
}

func (r *rig) remove(keys ...string) {
	r.Helper()
	for _, key := range keys {
		if _, err := r.memory.Delete(r.Context(), key); err != nil {
			r.Fatal(err)
		}
	}
}

// replace overwrites an object, which a store promises not to do.
func (r *rig) replace(key string, object []byte) {
	r.Helper()
	r.remove(key)
	r.put(key, object)
}

// payloads returns the payloads of all objects in log/.
func (r *rig) payloads() (out []string) {
	r.Helper()
	for after := ""; ; {
		page, err := r.memory.List(r.Context(), format.LogPrefix, after, 0)
		if err != nil {
			r.Fatal(err)
		}
		for _, key := range page.Keys {
			object := r.get(key)
			c, err := format.DecodeCommit(object)
			if err != nil {
				r.Fatal(err)
			}
			out = append(out, string(object[c.PayloadStart:]))
			after = key
		}
		if !page.More {
			return out
		}
	}
}

// requireOnce asserts that payload is in the log exactly once.
func (r *rig) requireOnce(payload string) {
	r.Helper()
	n := 0
	for _, p := range r.payloads() {
		if p == payload {
			n++
		}
	}
	if n != 1 {
		r.Fatalf("%q stands in the log %d times: %q", payload, n, r.payloads())
	}
}

// requireHalted asserts that the broker has halted, and why.
func (b *broker) requireHalted(err, want error) {
	b.Helper()
	requireIs(b.T, err, want)
	requests := b.store.Count("", "")
	if _, err := b.commit(b.Context(), "too late"); !errors.Is(err, want) {
		b.Fatalf("a commit after the halt: %v", err)
	}
	requireIs(b.T, b.Sync(b.Context()), want)
	if n := b.store.Count("", "") - requests; n != 0 {
		b.Fatalf("it sent %d requests after the halt", n)
	}
}

// sleep advances the virtual time.
func (r *rig) sleep(d time.Duration) { time.Sleep(d) }

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x10
	return b
}
