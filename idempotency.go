package seb

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

const (
	idempotencyKeyBytesMax = 255
	keysFullRetry          = time.Minute

	// keyedPatience is how long an append with an idempotency key may wait for its
	// commit. If its broker sleeps for longer, the append could be committed after the
	// log has forgotten that a retry through another broker was committed.
	// [state.KeyedFor] leaves room for it.
	keyedPatience = 50 * time.Minute
)

// IdempotencyKey makes a retry safe. The log remembers the append by key for at
// least 24 hours. A retry in that time, with the same records, topic and key, through any
// broker, appends nothing and gets the first answer, with [Appended.Replayed] set. Other
// records under the same key fail with CodeIdempotencyKeyReused. So a caller can send an
// append with an unknown outcome again.
//
// A key has 1 to 255 bytes. [Limits.IdempotencyKeys] bounds how many the log
// remembers. Beyond it, requests with new keys fail with CodeIdempotencyKeysFull; the log
// forgets no key early.
func IdempotencyKey(key string) AppendOption {
	return func(o *appendOptions) { o.key, o.keyed = key, true }
}

func (o appendOptions) checkKey() error {
	if o.keyed && (o.key == "" || len(o.key) > idempotencyKeyBytesMax) {
		return refused(CodeInvalidRequest, "an idempotency key has 1 to %d bytes, not %d", idempotencyKeyBytesMax, len(o.key))
	}
	return nil
}

// idempotencyKey is how the log recognises a request.
type idempotencyKey struct {
	// hashes are of topic and key; of a [Commit], of the key, the number of an append
	// and the caller's API key, one for each append, but at least one. One commit of the
	// log has all of them, so the first stands for all.
	hashes []format.Digest
	// unscoped are what hashes would be without an API key, if the caller has one: so
	// brokers remembered every commit before they told callers apart. One that is known so
	// is the same only if print is.
	unscoped []format.Digest
	print    format.Digest // of all that was asked for
	topic    uint64        // the append's, with which the key goes; 0 of a [Commit]
}

func newIdempotencyKey(topic uint64, records []Record, o appendOptions) *idempotencyKey {
	d := digester{sha256.New(), nil}
	d.append(records, o)
	return &idempotencyKey{hashes: []format.Digest{hashKey(int64(topic), o.key, 0)}, print: d.sum(), topic: topic}
}

func (k *idempotencyKey) hash() format.Digest { return k.hashes[0] }

// hashKey returns the hash of a key that means something within scope: a topic's id,
// or a number below 0; and there for the callers with one API key, or for all if that is 0.
func hashKey(scope int64, key string, caller uint64) format.Digest {
	d := digester{sha256.New(), nil}
	d.number(scope)
	d.bytes([]byte(key))
	if caller != 0 {
		d.number(int64(caller))
	}
	return d.sum()
}

// digester hashes a sequence of numbers and strings, each told from the next.
type digester struct {
	hash.Hash
	scratch []byte
}

// append hashes an append's records and options. A timestamp that the broker is to
// choose counts as no timestamp.
func (d *digester) append(records []Record, o appendOptions) {
	d.number(int64(o.partition))
	d.number(o.ifOffset)
	d.number(int64(len(o.partitions)))
	for _, p := range o.partitions {
		d.number(int64(p))
	}
	for i := range records {
		r := &records[i]
		d.number(int64(len(r.Headers)))
		for _, h := range r.Headers {
			d.bytes([]byte(h.Name))
			d.bytes(h.Value)
		}
		if r.Key == nil {
			d.number(-1)
		} else {
			d.bytes(r.Key)
		}
		d.bytes(r.Value)
		if r.Timestamp.IsZero() {
			d.number(-1)
		} else {
			d.number(r.Timestamp.UnixMilli())
		}
	}
	if o.delay != 0 || !o.due.IsZero() { // others have the hash that they had before there were delays
		d.number(int64(o.delay))
		d.number(o.due.UnixMicro())
	}
}

func (d *digester) offsets(o Offsets) {
	d.number(int64(len(o)))
	for _, p := range slices.Sorted(maps.Keys(o)) {
		d.number(int64(p))
		d.number(int64(o[p]))
	}
}

func (d *digester) number(n int64) {
	d.scratch = binary.AppendVarint(d.scratch[:0], n)
	d.Write(d.scratch)
}

func (d *digester) bytes(b []byte) {
	d.number(int64(len(b)))
	d.Write(b)
}

func (d *digester) sum() format.Digest {
	return format.Digest(d.Sum(nil)[:len(format.Digest{})])
}

// replay settles a request whose key the log knows at that time. It needs
// confirm, on a state that is not older than the request.
func (b *Broker) replay(r *request, at int64) bool {
	b.live.RLock()
	hashes := r.key.hashes
	first, known := b.live.State.Keyed(hashes[0], at)
	if !known && len(r.key.unscoped) > 0 {
		hashes = r.key.unscoped
		first, known = b.live.State.Keyed(hashes[0], at)
		known = known && first.Print == r.key.print // else it may be another caller's
	}
	if known && first.Print == r.key.print {
		r.results = make([]Appended, len(r.appends))
		for i, a := range r.appends {
			x, _ := b.live.State.Keyed(hashes[i], at) // as known as the first
			r.results[i] = appendedBefore(a.topic, x.Ranges)
		}
	}
	b.live.RUnlock()
	if !known {
		return false
	}
	r.settled, r.doubtful, r.replayed = true, true, true
	if first.Print != r.key.print {
		r.err = keyReused()
	}
	return true
}

// appendedBefore returns where the log remembers an append's records to stand.
func appendedBefore(topic string, ranges []format.KeyedRange) Appended {
	a := Appended{Topic: topic}
	for _, x := range ranges {
		a.Count += int(x.Count)
		a.Ranges = append(a.Ranges, Range{Partition: int32(x.Partition), Offset: Offset(x.Base), Count: int(x.Count)})
	}
	return a
}

// confirm checks, after a sync, how a request with a key was settled: a deleted topic
// takes its keys along, and another broker may have committed a key that had no room here.
// err is the error of the sync or commit that should have read the log to its end.
//
// A Commit keeps its answer when its topics are deleted: its other parts were done too.
func (b *Broker) confirm(r *request, err error) {
	switch {
	case err != nil:
		r.results, r.err = nil, maybeCommitted(err)
	case r.key.topic != 0 && !b.hasTopic(r.key.topic):
		r.results, r.err = nil, topicDeleted(r.appends[0].topic)
	case CodeOf(r.err) == CodeIdempotencyKeysFull:
		full := r.err
		if r.err = nil; !b.replay(r, b.foldTime()) {
			r.err = full
		}
	}
}

func (b *Broker) hasTopic(id uint64) bool {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.live.State.TopicByID(id) != nil
}

// foldTime returns the time of the log's last commit, by which the log forgets keys.
func (b *Broker) foldTime() int64 {
	b.live.RLock()
	defer b.live.RUnlock()
	return b.live.State.Time()
}

// settle answers the requests of finished batch sets that no later commit may
// take: appends of callers whose access has ended, since a revoked API key never
// comes back; requests whose idempotency key another commit has used meanwhile; those
// that have waited for too long; and those for whose key there is no room. A caller whose
// access ends in this very commit still has its appends in it.
func (b *Broker) settle(sets []*batchSet, at int64) {
	room := b.opts.Limits.IdempotencyKeys - b.live.State.KeyedCount(at)
	for _, g := range sets {
		changed := false
		for _, r := range g.requests {
			if len(r.appends) > 0 && !r.withdrawn && !r.settled {
				if refusal := b.batcher.allowed(r, b.live.State, b.storeNow()); refusal != nil {
					r.settled, r.err = true, refusal
					changed = true
				}
			}
			switch {
			case r.key == nil || r.withdrawn || r.settled:
			case b.replay(r, at):
				changed = true
			case b.waited(r, at) > keyedPatience:
				r.settled, r.err = true, waitedTooLong()
				changed = true
			case room < len(r.key.hashes):
				r.settled, r.doubtful, r.err = true, true, keysFull(b.opts.Limits.IdempotencyKeys)
				changed = true
			default:
				room -= len(r.key.hashes)
			}
		}
		if changed {
			g.takeOut()
		}
	}
}

// keyedEntries returns the entries by which the log remembers a request whose batches
// are in the commit.
func keyedEntries(r *request) []*format.AppendKeyed {
	entries := make([]*format.AppendKeyed, len(r.key.hashes))
	for i, hash := range r.key.hashes {
		entries[i] = &format.AppendKeyed{Key: hash, Print: r.key.print}
	}
	for i, a := range r.appends {
		entries[i].Topic = a.id
		for _, x := range resultOf(a).Ranges {
			entries[i].Ranges = append(entries[i].Ranges, format.KeyedRange{Partition: uint32(x.Partition), Count: uint32(x.Count), Base: int64(x.Offset)})
		}
	}
	return entries
}

// waited returns how long ago a request came, by the clock that ran fastest: the machine's
// clocks may have stood still while it slept. at is the log's time, by which keys are forgotten.
func (b *Broker) waited(r *request, at int64) time.Duration {
	return max(b.opts.boot()-r.boot, time.Since(r.began), time.Duration(at-r.came)*time.Microsecond)
}

func waitedTooLong() *Error {
	return &Error{
		Code: CodeStoreUnavailable, RetryAfter: time.Second,
		Detail: "the request with an idempotency key waited too long for its commit", Hint: "send it again, with the same key",
	}
}

func keysFull(limit int) *Error {
	e := limited(CodeIdempotencyKeysFull, limit, "the log remembers %d idempotency keys, and no more are allowed", limit)
	e.Hint = "send no key, or wait: each key is forgotten after 24 hours"
	e.RetryAfter = keysFullRetry
	return e
}
