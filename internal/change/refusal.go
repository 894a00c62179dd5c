package change

import (
	"errors"
	"fmt"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
)

// The codes of refusals. The public API has the same codes.
const (
	CodeInvalidRequest    = "invalid_request"
	CodeInvalidTopicName  = "invalid_topic_name"
	CodeTopicNotFound     = "topic_not_found"
	CodeTopicExists       = "topic_exists"
	CodePartitionNotFound = "partition_not_found"
	CodeOffsetOutOfRange  = "offset_out_of_range"
	CodeTooManyTopics     = "too_many_topics"
	CodeConsumerNotFound  = "consumer_not_found"
	CodePositionConflict  = "position_conflict"
	CodeEndsConflict      = "ends_conflict"
	CodeTooEarly          = "too_early"
	CodeTooManyConsumers  = "too_many_consumers"
	CodeQueueNotFound     = "queue_not_found"
	CodeQueueExists       = "queue_exists"
	CodeTooManyQueues     = "too_many_queues"
	CodePushNotFound      = "push_not_found"
	CodeLeaseLost         = "lease_lost"
	CodeKeyNotFound       = "key_not_found"
	CodeKeyExists         = "key_exists"
	CodeTooManyKeys       = "too_many_keys"
)

// Refusal says why a change, or another request, is refused. The same request can't succeed until
// the state changes.
type Refusal struct {
	Code   string
	Detail string // one sentence: what was wrong
	Hint   string // what to do next; may be empty
	Part   string // the name of the refused part of a [Commit]; may be empty
	Limit  int64  // the limit that the request exceeds; 0 on other refusals
	// Start and End are the bounds of the partition if Code is CodeOffsetOutOfRange.
	Start, End format.Offset
}

// Error returns code, part, detail and hint in one line.
func (r *Refusal) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: ", r.Code)
	if r.Part != "" {
		fmt.Fprintf(&s, "%s: ", r.Part)
	}
	s.WriteString(r.Detail)
	if r.Hint != "" {
		fmt.Fprintf(&s, "; %s", r.Hint)
	}
	return s.String()
}

// The following functions never return nil: in an error variable, a nil *Refusal would not equal nil.

func refused(code, hint, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// limited refuses a request that exceeds a limit.
func limited(code string, limit int, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...), Limit: int64(limit)}
}

// TopicNotFound refuses a topic that does not exist.
func TopicNotFound(name string) *Refusal {
	return refused(CodeTopicNotFound, "", "there is no topic %q", name)
}

// TopicDeleted refuses a request for a topic that was deleted after the request came.
func TopicDeleted(name string) *Refusal {
	return refused(CodeTopicNotFound, "", "topic %q was deleted", name)
}

// PartitionNotFound refuses a partition that a topic with count partitions does not have.
func PartitionNotFound(topic string, partition format.Partition, count int) *Refusal {
	has := "only 0"
	if count > 1 {
		has = fmt.Sprintf("only 0 to %d", count-1)
	}
	return refused(CodePartitionNotFound, "", "topic %q has no partition %d, %s", topic, partition, has)
}

// OutOfRange refuses an offset outside of a partition that holds the offsets from start to end-1.
func OutOfRange(topic string, partition format.Partition, offset, start, end format.Offset) *Refusal {
	holds := fmt.Sprintf("holds offsets %d to %d, and %d comes next: %d is outside", start, end-1, end, offset)
	hint := fmt.Sprintf("use earliest, latest, or an offset from %d to %d", start, end)
	if start == end {
		holds = fmt.Sprintf("holds no records; its next record gets offset %d: %d is outside", end, offset)
		hint = fmt.Sprintf("use earliest, latest or %d, which all mean the next record of an empty partition", end)
	}
	r := refused(CodeOffsetOutOfRange, hint, "partition %d of topic %q %s", partition, topic, holds)
	r.Start, r.End = start, end
	return r
}

// KeyNotFound refuses an API key that does not exist.
func KeyNotFound(id format.KeyID) *Refusal {
	return refused(CodeKeyNotFound, "it was revoked or never created; list the keys to see which exist", "there is no API key %d", id)
}

// ConsumerNotFound refuses a consumer that does not exist.
func ConsumerNotFound(topic, name string) *Refusal {
	return refused(CodeConsumerNotFound, "", "topic %q has no consumer %q", topic, name)
}

// QueueNotFound refuses a queue that does not exist.
func QueueNotFound(topic, name string) *Refusal {
	return refused(CodeQueueNotFound, "", "topic %q has no queue %q", topic, name)
}

// PushNotFound refuses to change the push target of a queue that has none.
func PushNotFound(topic, queue string) *Refusal {
	return refused(CodePushNotFound, "", "queue %q of topic %q has no push target", queue, topic)
}

// LeaseLost refuses a token whose delivery a worker may no longer answer. why continues the sentence
// that begins with the token.
func LeaseLost(token, why string) *Refusal {
	return refused(CodeLeaseLost, "stop the work on this record: it may be with another worker, done, deleted, or a dead letter", "token %q %s", token, why)
}

// TokenElsewhere refuses a token of another queue. The refusal does not tell whether that queue exists:
// the caller may have invented the token, and may not be allowed to see the queue.
func TokenElsewhere(token string) *Refusal {
	return refused(CodeLeaseLost, "send the token to the queue that handed out the record; if that queue was deleted, drop the record", "token %q belongs to another queue", token)
}

// ofPart sets the Part of a refusal to the name of a part of a [Commit]. It returns any other error as
// it is.
func ofPart(part string, err error) error {
	var r *Refusal
	if !errors.As(err, &r) {
		return err
	}
	of := *r
	of.Part = part
	return &of
}
