package seb

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// Inside the package an error has an outcome only if that is Unknown. What callers are told is
// decided where a public method returns: each begins with one of the following two, deferred.
// A test in internal/test/hygiene finds one that does not.

// reads ends a method that commits nothing, or whose error is not about what it commits:
// the error has no outcome.
func reads(err *error) { *err = withoutOutcome(*err) }

// writes ends a method that commits something, or that is asked before something is
// committed: nothing was and nothing will be, unless the error says that this is unknown.
func writes(err *error) { *err = notCommitted(*err) }

// reading is reads for a list.
func reading[T any](list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		list(func(x T, err error) bool { return yield(x, withoutOutcome(err)) })
	}
}

func withoutOutcome(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Outcome != "" {
		return e.with("")
	}
	return err
}

func notCommitted(err error) error {
	if tokens, ok := errors.AsType[*TokensError](err); ok {
		each := make([]error, len(tokens.Errors))
		for i := range each {
			each[i] = notCommitted(tokens.Errors[i])
		}
		return &TokensError{Errors: each}
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Outcome == "" {
		return e.with(NotCommitted)
	}
	return err
}

// maybeCommitted returns err as that of a write which may be in the log.
func maybeCommitted(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.with(Unknown)
	}
	return err
}

// unknown tells whether a write that ended in err may be in the log.
func unknown(err error) bool { return OutcomeOf(notCommitted(err)) == Unknown }

// with returns a copy of e that has that outcome.
func (e *Error) with(o Outcome) *Error {
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

// refused returns the refusal of a request that is the caller's to change.
func refused(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// limited returns the refusal of a request that passes a limit.
func limited(code Code, limit int, format string, args ...any) *Error {
	e := refused(code, format, args...)
	e.Limit = int64(limit)
	return e
}

// canceled returns the error of a caller whose context ended.
func canceled(ctx context.Context) *Error {
	return &Error{Code: CodeCanceled, Detail: "the caller went away or its time was up", Err: ctx.Err()}
}

func errClosed() error {
	return &Error{Code: CodeBrokerClosed, Detail: "the broker is closed or closing", RetryAfter: time.Second,
		Hint: "send the request to another broker, or to this one when it is back"}
}

func topicNotFound(name string) *Error {
	return refused(CodeTopicNotFound, "there is no topic %q", name)
}

func topicDeleted(name string) *Error {
	return refused(CodeTopicNotFound, "topic %q was deleted", name)
}

func topicRecreated(name string) *Error {
	e := refused(CodeTopicRecreated, "what was read before is of another topic of the name %q, which is no more", name)
	e.Hint = "begin anew: nothing of what is here now has been read"
	return e
}

func partitionNotFound(topic string, partition int32, count int) *Error {
	has := "only 0"
	if count > 1 {
		has = fmt.Sprintf("only 0 to %d", count-1)
	}
	return refused(CodePartitionNotFound, "topic %q has no partition %d, %s", topic, partition, has)
}

func outOfRange(topic string, partition int32, offset, start, end int64) *Error {
	holds := fmt.Sprintf("holds offsets %d to %d, and %d comes next", start, end-1, end)
	if start == end {
		holds = fmt.Sprintf("is empty, and %d comes next", end)
	}
	e := refused(CodeOffsetOutOfRange, "partition %d of topic %q %s: %d is outside", partition, topic, holds, offset)
	e.Start, e.End = Offset(start), Offset(end)
	e.Hint = "use earliest, latest, or an offset inside"
	return e
}

// offsetConflict says that a partition does not end where an append insisted.
func offsetConflict(topic string, partition int32, end, insisted int64) *Error {
	e := refused(CodeOffsetConflict, "the next offset of partition %d of topic %q is %d, not %d", partition, topic, end, insisted)
	e.End = Offset(end)
	e.Hint = "read what was appended before that offset, and decide anew"
	return e
}

func consumerNotFound(topic, name string) *Error {
	return refused(CodeConsumerNotFound, "topic %q has no consumer %q", topic, name)
}

func queueNotFound(topic, name string) *Error {
	return refused(CodeQueueNotFound, "topic %q has no queue %q", topic, name)
}

func leaseLost(t deliveryToken, why string) *Error {
	e := refused(CodeLeaseLost, "token %q %s", t, why)
	e.Hint = "another worker may have the record, or has done it: leave it"
	return e
}

// elsewhere refuses a token that another queue has given.
func elsewhere(t deliveryToken, exists bool) *Error {
	if !exists {
		return leaseLost(t, "is of a queue that was deleted")
	}
	e := leaseLost(t, "is of another queue")
	e.Hint = "send it to the queue that handed out the record, which still waits for it"
	return e
}

func keyReused() *Error {
	e := refused(CodeIdempotencyKeyReused, "the idempotency key was used for another append to this topic, or another commit")
	e.Hint = "use a new key for each append or commit, and the same one only to send the same again"
	return e
}

func overMemory(detail string, limit int64) *Error {
	return &Error{
		Code:       CodeOverMemoryBudget,
		Detail:     detail,
		Hint:       "try again later, send less at a time, or give the broker more --memory",
		RetryAfter: time.Second,
		Limit:      limit,
	}
}

func errBookmark(s string) error {
	const shown = 80
	if len(s) > shown {
		s = s[:shown] + "..."
	}
	return &Error{
		Code:   CodeInvalidRequest,
		Detail: fmt.Sprintf("%q is no place to go on from", s),
		Hint:   "use the text that came with the last record, such as 1f0c6a3e.7:41,0,12, unchanged",
	}
}

func unauthorized(detail, hint string) *Error {
	return &Error{Code: CodeUnauthorized, Detail: detail, Hint: hint}
}

func needsKey() *Error {
	return unauthorized("an API key is needed", "send it as Authorization: Bearer KEY, or give it to seb as SEB_KEY; whoever runs this Seb creates one with `seb key create`")
}

func malformedKey() *Error {
	return unauthorized("that is no API key", "a key is seb_, a number, _ and 64 hex digits, as `seb key create` showed it")
}

func expired(a Access) *Error { return expiredAt(a.caller().signed, a.Until) }

func expiredAt(signed bool, at time.Time) *Error {
	what := "the API key expired"
	if signed {
		what = "the signed URL expired"
	}
	return unauthorized(what+" at "+at.UTC().Format(time.RFC3339), "get a new one")
}
