package seb

import (
	"github.com/simple-event-broker/seb/internal/digest"
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
	d := digest.New()
	d.Append(records(rs), len(rs), o.Append)
	return &engine.Key{Hashes: []format.Digest{digest.Key(int64(topic), o.Key, 0)}, Print: d.Sum(), Topic: topic}
}
