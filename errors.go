package seb

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code names a kind of error. Codes are stable: programs may compare them, and
// adapters map each to their protocol's own status in one table.
type Code string

// The codes, by whose doing they are: the caller's, the load's, the store's.
const (
	CodeInvalidRequest    Code = "invalid_request"
	CodeInvalidTopicName  Code = "invalid_topic_name"
	CodeTopicNotFound     Code = "topic_not_found"
	CodeTopicExists       Code = "topic_exists"
	CodePartitionNotFound Code = "partition_not_found"
	// CodeTopicRecreated says that a bookmark is of a topic that is no more: it was
	// deleted, and this one has its name, or it is of another bucket.
	CodeTopicRecreated   Code = "topic_recreated"
	CodeOffsetOutOfRange Code = "offset_out_of_range"
	CodeOffsetConflict   Code = "offset_conflict"
	CodeConsumerNotFound Code = "consumer_not_found"
	// CodePositionConflict says that the consumer is not where the caller believes it
	// to be.
	CodePositionConflict Code = "position_conflict"
	CodeTooManyConsumers Code = "too_many_consumers"
	CodeQueueNotFound    Code = "queue_not_found"
	CodeTooManyQueues    Code = "too_many_queues"
	// CodePushNotFound says that the queue's records are not pushed anywhere.
	CodePushNotFound Code = "push_not_found"
	// CodeLeaseLost says that a token is not of the last delivery of a record that is
	// still to be done: another worker may have it.
	CodeLeaseLost Code = "lease_lost"
	// CodeQueueElsewhere says that another broker hands out the records of the queue.
	CodeQueueElsewhere Code = "queue_elsewhere"
	// CodeTooManyDelayed says that no more records can be delayed for now.
	CodeTooManyDelayed    Code = "too_many_delayed"
	CodeRecordTooLarge    Code = "record_too_large"
	CodeRequestTooLarge   Code = "request_too_large"
	CodeTooManyHeaders    Code = "too_many_headers"
	CodeTooManyTopics     Code = "too_many_topics"
	CodeTooManyPartitions Code = "too_many_partitions"
	// CodeIdempotencyKeyReused says that the key was used for other records.
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"

	// CodeUnauthorized says that the caller showed no API key, or none that is good.
	CodeUnauthorized Code = "unauthorized"
	// CodeForbidden says that the caller's API key is good, but not for this.
	CodeForbidden   Code = "forbidden"
	CodeKeyNotFound Code = "key_not_found"
	CodeKeyExists   Code = "key_exists"
	CodeTooManyKeys Code = "too_many_keys"

	CodeOverMemoryBudget Code = "over_memory_budget"
	CodeOverStateBudget  Code = "over_state_budget"
	// CodeIdempotencyKeysFull says that no more idempotency keys are remembered for now.
	CodeIdempotencyKeysFull Code = "idempotency_keys_full"

	// CodeStoreUnavailable says that the store did not answer in time, or not usefully.
	CodeStoreUnavailable Code = "store_unavailable"
	// CodeStoreUnusable says that the store can't keep a log, whatever is tried.
	CodeStoreUnusable Code = "store_unusable"
	// CodeDataLost says that an object which the log refers to is missing or damaged.
	CodeDataLost Code = "data_lost"
	// CodeBrokerStopped says that the broker stopped itself because the log is damaged.
	CodeBrokerStopped Code = "broker_stopped"
	// CodeBrokerClosed says that the broker was closed.
	CodeBrokerClosed Code = "broker_closed"
	// CodeCanceled says that the caller's context ended first; the cause is the context's error.
	CodeCanceled Code = "canceled"
)

// Outcome tells what became of a write that ended in an error.
type Outcome string

const (
	// NotCommitted means that it is not in the log and never will be.
	NotCommitted Outcome = "not_committed"
	// Unknown means that it may be in the log, or may still get there. Only a
	// retry that the log itself can recognise is safe from duplicates.
	Unknown Outcome = "unknown"
)

// Error is what every method of a [Broker] returns when it fails. Find it with
// [errors.As].
type Error struct {
	Code   Code
	Detail string // one sentence: what was wrong
	Hint   string // what to do next; may be empty
	// Part names the part of a [Commit] that was refused, and with it the whole, as in
	// "appends/0", "positions/2" or "acks/0/tokens/3"; "" on everything else.
	Part string

	// Outcome is set on failed writes, "" on everything else.
	Outcome Outcome
	// RetryAfter is how long to wait before trying again; 0 where a retry
	// can't help.
	RetryAfter time.Duration
	// Limit is the limit that was passed, in its own unit; 0 if none was.
	Limit int64
	// Start and End bound the partition when Code is CodeOffsetOutOfRange; End
	// alone when it is CodeOffsetConflict.
	Start, End Offset
	// Address is where the broker is that owns the queue, "" if it can't be asked, Session
	// which one must answer there, and Epoch which of the queue's owners that is, when Code
	// is CodeQueueElsewhere.
	Address string
	Session SessionKey
	Epoch   uint64
	// Err is the cause; may be nil.
	Err error
}

// Error returns code, detail, cause, outcome and hint in one line.
func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: ", e.Code)
	if e.Part != "" {
		fmt.Fprintf(&s, "%s: ", e.Part)
	}
	s.WriteString(e.Detail)
	if e.Err != nil {
		fmt.Fprintf(&s, ": %v", e.Err)
	}
	if e.Outcome != "" {
		fmt.Fprintf(&s, " (outcome: %s)", e.Outcome)
	}
	if e.Hint != "" {
		fmt.Fprintf(&s, "; %s", e.Hint)
	}
	return s.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of err, or "" if it carries none.
func CodeOf(err error) Code {
	if e, found := errors.AsType[*Error](err); found {
		return e.Code
	}
	return ""
}

// OutcomeOf returns what became of a write that returned err: "" when err is
// nil, and Unknown when err doesn't tell.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) && e.Outcome != "" {
		return e.Outcome
	}
	return Unknown
}

// withOutcome returns a copy of e that says what became of the write.
func (e *Error) withOutcome(o Outcome) *Error {
	c := *e
	c.Outcome = o
	return &c
}

// ofPart returns err as that of a part of a [Commit]; name is "" for what has no parts.
func ofPart(name string, err error) error {
	var e *Error
	if name == "" || !errors.As(err, &e) {
		return err
	}
	return e.of(name)
}

// of returns a copy of e that says which part of a [Commit] it is of.
func (e *Error) of(part string) *Error {
	c := *e
	c.Part = part
	return &c
}
