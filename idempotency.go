package seb

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

const (
	idempotencyKeyBytesMax = 255
	keysFullRetry          = time.Minute

	// keyedPatience is how long an append with an idempotency key may wait for its
	// commit. One that sleeps for longer, as its broker may, could come after the
	// log has forgotten that a retry through another broker was committed.
	// [state.KeyedFor] leaves room for it.
	keyedPatience = 50 * time.Minute
)

// IdempotencyKey makes a retry exact: the log remembers the append by key for at
// least 24 hours, and whoever appends the same records to the same topic with the same key
// meanwhile, through whichever broker, gets the first answer, with
// [Appended.Replayed] set. Other records under the same key fail with
// CodeIdempotencyKeyReused. So an append whose outcome is unknown can be sent again.
//
// A key has 1 to 255 bytes. [Limits.IdempotencyKeys] bounds how many are
// remembered; past it new ones fail with CodeIdempotencyKeysFull, and none is
// forgotten early.
func IdempotencyKey(key string) AppendOption {
	return func(o *appendOptions) { o.key, o.keyed = key, true }
}

// idempotencyKey is how the log knows an append again.
type idempotencyKey struct {
	hash  commitlog.Digest // of topic and key
	print commitlog.Digest // of all that was asked for
}

func newIdempotencyKey(topic uint64, records []Record, o appendOptions) *idempotencyKey {
	d := digester{sha256.New(), nil}
	d.number(int64(topic))
	d.bytes([]byte(o.key))
	return &idempotencyKey{hash: d.sum(), print: printOf(records, o)}
}

// printOf returns a hash of an append's records and options. A timestamp that the
// broker is to choose counts as none.
func printOf(records []Record, o appendOptions) commitlog.Digest {
	d := digester{sha256.New(), nil}
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
	return d.sum()
}

// digester hashes a sequence of numbers and strings, each told from the next.
type digester struct {
	hash.Hash
	scratch []byte
}

func (d *digester) number(n int64) {
	d.scratch = binary.AppendVarint(d.scratch[:0], n)
	d.Write(d.scratch)
}

func (d *digester) bytes(b []byte) {
	d.number(int64(len(b)))
	d.Write(b)
}

func (d *digester) sum() commitlog.Digest {
	return commitlog.Digest(d.Sum(nil)[:len(commitlog.Digest{})])
}

// replay settles a request whose key the log knows at that time. It needs
// confirm, on a state that is not older than the request.
func (b *Broker) replay(r *request, at int64) bool {
	b.mu.RLock()
	first, known := b.state.Keyed(r.key.hash, at)
	b.mu.RUnlock()
	if !known {
		return false
	}
	r.settled, r.doubtful = true, true
	if first.Print != r.key.print {
		r.err = keyReused()
		return true
	}
	r.result = Appended{Topic: r.topic, Replayed: true}
	for _, x := range first.Ranges {
		r.result.Count += int(x.Count)
		r.result.Ranges = append(r.result.Ranges, Range{Partition: int32(x.Partition), Offset: Offset(x.Base), Count: int(x.Count)})
	}
	return true
}

// confirm makes what was said of a request's key stand or fall by the end of the
// log, which err says could not be read: a topic that was deleted takes its keys
// along, and a key that there was no room for may be known there.
func (b *Broker) confirm(r *request, topic uint64, err error) {
	switch {
	case err != nil:
		r.result, r.err = Appended{}, mayBe(err)
	case !b.hasTopic(topic):
		r.result, r.err = Appended{}, topicDeleted(r.topic)
	case CodeOf(r.err) == CodeIdempotencyKeysFull:
		full := r.err
		if r.err = nil; !b.replay(r, b.foldTime()) {
			r.err = full
		}
	}
}

// mayBe returns err as that of a write which may be in the log.
func mayBe(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e.withOutcome(Unknown)
	}
	return err
}

func (b *Broker) hasTopic(id uint64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.state.TopicByID(id) != nil
}

// foldTime returns the time of the log's last commit, by which the log forgets keys.
func (b *Broker) foldTime() int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.state.Time()
}

// settle answers the requests of groups, which are finished, whose idempotency
// key another commit has used meanwhile, those which have waited for too long, and
// those for whose key there is no room. None of them goes into a commit any more.
func (b *Broker) settle(groups []*group, at int64) {
	room := b.opts.Limits.IdempotencyKeys - b.state.KeyedCount(at)
	for _, g := range groups {
		changed := false
		for _, r := range g.requests {
			switch {
			case r.key == nil || r.withdrawn || r.settled:
			case b.replay(r, at):
				changed = true
			case b.waited(r) > keyedPatience:
				r.settled, r.err = true, waitedTooLong()
				changed = true
			case room <= 0:
				r.settled, r.doubtful, r.err = true, true, keysFull(b.opts.Limits.IdempotencyKeys)
				changed = true
			default:
				room--
			}
		}
		if changed {
			g.takeOut()
		}
	}
}

// keyedItem returns the fact by which the log remembers a request whose batches
// are in the commit.
func keyedItem(r *request, topic uint64) *commitlog.AppendKeyed {
	x := &commitlog.AppendKeyed{Topic: topic, Key: r.key.hash, Print: r.key.print}
	for _, a := range resultOf(r).Ranges {
		x.Ranges = append(x.Ranges, commitlog.KeyedRange{Partition: uint32(a.Partition), Count: uint32(a.Count), Base: int64(a.Offset)})
	}
	return x
}

// waited returns how long ago a request came, by the clock that ran faster: one of
// them may have stood still while the machine slept.
func (b *Broker) waited(r *request) time.Duration {
	return max(b.opts.boot()-r.boot, time.Now().Round(0).Sub(r.began.Round(0)))
}

func waitedTooLong() *Error {
	return &Error{
		Code: CodeStoreUnavailable, Outcome: NotCommitted, RetryAfter: time.Second,
		Detail: "the append with an idempotency key waited too long for its commit", Hint: "send it again, with the same key",
	}
}

func keyReused() *Error {
	e := refused(CodeIdempotencyKeyReused, "the idempotency key was used for another append to this topic")
	e.Hint = "use a new key for each append, and the same one only to send the same records again"
	return e
}

func keysFull(limit int) *Error {
	e := limited(CodeIdempotencyKeysFull, limit, "%d idempotency keys are remembered already, which is the most", limit)
	e.Hint = "append without a key, or wait: each is forgotten after 24 hours"
	e.RetryAfter = keysFullRetry
	return e
}
