package seb

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/option"
)

const idempotencyKeyBytesMax = 255

// IdempotencyKey makes a retry safe. The log remembers the key of an append for at least 24 hours.
// A retry in that time, with the same key, topic, records and options, through any broker, appends
// nothing and returns the result of the first append, with [Appended.Replayed] set. So a caller can
// send an append with an unknown outcome again. An append of other records with the same key fails
// with CodeIdempotencyKeyReused.
//
// A key has 1 to 255 bytes. While the log remembers as many keys as [Limits.IdempotencyKeys]
// allows, requests with new keys fail with CodeIdempotencyKeysFull: the log does not forget older
// keys to make room.
func IdempotencyKey(key string) AppendOption {
	return func(o *option.Append) { o.Key, o.Keyed = key, true }
}

func (o appendOptions) checkKey() error {
	if o.Keyed && (o.Key == "" || len(o.Key) > idempotencyKeyBytesMax) {
		return refused(CodeInvalidRequest, "an idempotency key has 1 to %d bytes, not %d", idempotencyKeyBytesMax, len(o.Key))
	}
	return nil
}

func newIdempotencyKey(topic TopicID, rs []Record, o appendOptions) *engine.Key {
	d := digester{sha256.New(), nil}
	d.append(rs, o)
	return &engine.Key{Hashes: []format.Digest{hashKey(int64(topic), o.Key, 0)}, Print: d.sum(), Topic: topic}
}

// hashKey returns the hash of an idempotency key. The same key has different hashes in different
// scopes, and for different callers. scope is a topic's id, or -1-i for append i of a commit.
// caller is the id of an API key; 0 stands for all callers.
func hashKey(scope int64, key string, caller uint64) format.Digest {
	d := digester{sha256.New(), nil}
	d.number(scope)
	d.bytes([]byte(key))
	if caller != 0 {
		d.number(int64(caller))
	}
	return d.sum()
}

// digester hashes a sequence of numbers and strings. It delimits each of them, so that
// different sequences have different hashes.
type digester struct {
	hash.Hash
	scratch []byte
}

// append hashes an append's records and options. For a record without a timestamp it hashes -1, because the
// broker gives such a record the current time, which differs in a retry.
func (d *digester) append(records []Record, o appendOptions) {
	d.number(int64(o.Partition))
	d.number(int64(o.IfOffset))
	d.number(int64(len(o.Partitions)))
	for _, p := range o.Partitions {
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
	if o.Delay != 0 || !o.Due.IsZero() { // an append without a delay must have the same hash as in old versions of Seb, which have no delays
		d.number(int64(o.Delay))
		d.number(o.Due.UnixMicro())
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
