package httpapi

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/simple-event-broker/seb"
)

// The functions below return what the HTTP API writes for a value. A program that shows such values shows them
// in the same form.

// TopicJSON describes a topic, without its topic_id.
func TopicJSON(t seb.Topic) json.RawMessage {
	return written(func(c *chunks) { c.topic(&t, "") })
}

// PartitionJSON describes a partition of a topic.
func PartitionJSON(p seb.Partition) json.RawMessage { return mustMarshal(toPartitionJSON(p)) }

// ConsumerJSON describes a consumer.
func ConsumerJSON(info seb.ConsumerInfo) json.RawMessage {
	return written(func(c *chunks) { c.consumer(&info) })
}

// QueueJSON describes a queue.
func QueueJSON(q seb.QueueInfo) json.RawMessage {
	all := func(string) bool { return true }
	return mustMarshal(toQueueJSON(&q, all, time.Now()))
}

// DeadJSON describes a dead letter.
func DeadJSON(m seb.DeadMessage) json.RawMessage {
	return written(func(c *chunks) { c.deadMessage(&m) })
}

// MessageJSON describes a message that a worker received.
func MessageJSON(m seb.Message) json.RawMessage {
	return written(func(c *chunks) { c.message(&m) })
}

// PushJSON describes a push target. secret is "" unless it is to be shown.
func PushJSON(p seb.PushInfo, secret string) json.RawMessage {
	return mustMarshal(toPushJSON(p, secret))
}

// KeyJSON describes an API key. secret is "" unless it is to be shown.
func KeyJSON(k seb.Key, secret string) json.RawMessage {
	return written(func(c *chunks) { c.key(&k, secret) })
}

// written returns what write writes.
func written(write func(*chunks)) json.RawMessage {
	var b bytes.Buffer
	c := newChunks(&b)
	defer c.free()
	write(c)
	_ = c.flush() // a buffer takes everything
	return b.Bytes()
}

func mustMarshal(v any) json.RawMessage {
	b, err := marshal(v)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return b
}
