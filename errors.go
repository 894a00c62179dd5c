package seb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/objstore"
)

// Code names a kind of error. Codes are stable: programs may compare them, and an
// adapter maps each of them to a status of its protocol.
type Code string

// The codes, grouped by cause: the request, the caller's access, the load, the store or the broker.
const (
	CodeInvalidRequest    Code = "invalid_request"
	CodeInvalidTopicName  Code = "invalid_topic_name"
	CodeTopicNotFound     Code = "topic_not_found"
	CodeTopicExists       Code = "topic_exists"
	CodePartitionNotFound Code = "partition_not_found"
	// CodeTopicRecreated says that a bookmark or a topic tag belongs to another topic, such as a deleted
	// topic that had the same name, or a topic in another bucket.
	CodeTopicRecreated   Code = "topic_recreated"
	CodeOffsetOutOfRange Code = "offset_out_of_range"
	CodeOffsetConflict   Code = "offset_conflict"
	CodeConsumerNotFound Code = "consumer_not_found"
	// CodePositionConflict says that the consumer does not have the positions or the version
	// that the caller expects.
	CodePositionConflict Code = "position_conflict"
	// CodeEndsConflict says that a topic did not end, before the commit, where [Commit].Ends says, or is another topic.
	CodeEndsConflict Code = "ends_conflict"
	// CodeTooEarly says that the log time of the commit would not be later than [Commit].After.
	CodeTooEarly         Code = "too_early"
	CodeTooManyConsumers Code = "too_many_consumers"
	CodeQueueNotFound    Code = "queue_not_found"
	CodeQueueExists      Code = "queue_exists"
	CodeTooManyQueues    Code = "too_many_queues"
	// CodePushNotFound says that the queue has no push target.
	CodePushNotFound Code = "push_not_found"
	// CodeLeaseLost says that a token does not belong to the last delivery of its record, or
	// that the record is done. Another worker may have the record.
	CodeLeaseLost Code = "lease_lost"
	// CodeQueueElsewhere says that another broker owns the queue.
	CodeQueueElsewhere Code = "queue_elsewhere"
	// CodeTooManyDelayed says that as many delayed appends wait as [Limits.Delayed] allows.
	CodeTooManyDelayed    Code = "too_many_delayed"
	CodeRecordTooLarge    Code = "record_too_large"
	CodeRequestTooLarge   Code = "request_too_large"
	CodeTooManyHeaders    Code = "too_many_headers"
	CodeTooManyTopics     Code = "too_many_topics"
	CodeTooManyPartitions Code = "too_many_partitions"
	// CodeIdempotencyKeyReused says that the idempotency key was used for another request.
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"

	// CodeUnauthorized says that the caller sent no API key, or an invalid one.
	CodeUnauthorized Code = "unauthorized"
	// CodeForbidden says that the caller's API key is valid, but does not permit the request.
	CodeForbidden   Code = "forbidden"
	CodeKeyNotFound Code = "key_not_found"
	CodeKeyExists   Code = "key_exists"
	CodeTooManyKeys Code = "too_many_keys"

	CodeOverMemoryBudget Code = "over_memory_budget"
	CodeOverStateBudget  Code = "over_state_budget"
	// CodeIdempotencyKeysFull says that the log remembers as many idempotency keys as
	// [Limits.IdempotencyKeys] allows.
	CodeIdempotencyKeysFull Code = "idempotency_keys_full"

	// CodeStoreUnavailable says that the store did not answer in time, or failed.
	CodeStoreUnavailable Code = "store_unavailable"
	// CodeStoreUnusable says that the store lacks what a log needs: a retry does not help.
	CodeStoreUnusable Code = "store_unusable"
	// CodeDataLost says that an object which the log refers to is missing or damaged.
	CodeDataLost Code = "data_lost"
	// CodeBrokerStopped says that the broker stopped itself, for example because the log is damaged
	// or a directory store's fsync failed. A store that can't be reached stops no broker.
	CodeBrokerStopped Code = "broker_stopped"
	// CodeBrokerClosed says that the broker was closed.
	CodeBrokerClosed Code = "broker_closed"
	// CodeCanceled says that the caller's context ended before the request was done. The cause is
	// the context's error.
	CodeCanceled Code = "canceled"
)

// Outcome tells whether a write that returned an error is in the log.
type Outcome string

const (
	// NotCommitted means that the write is not in the log and never will be.
	NotCommitted Outcome = "not_committed"
	// Unknown means that the write may be in the log, or may still get there. A retry can
	// make duplicates, unless the log can recognise the retry: see [IdempotencyKey].
	Unknown Outcome = "unknown"
)

// Error is the error of every method of a [Broker]. Find it with [errors.As].
type Error struct {
	Code   Code
	Detail string // one sentence: what was wrong
	Hint   string // what to do next; may be empty
	// Part names the part because of which a [Commit] was refused, such as
	// "appends/0", "positions/2", "acks/0/tokens/3", "ends/0" or "after"; "" on all other errors.
	Part string

	// Outcome is set on the errors of writes, "" on all others.
	Outcome Outcome
	// RetryAfter is how long to wait before a retry; 0 if a retry needs no wait, or can't help.
	RetryAfter time.Duration
	// Limit is the limit that the request exceeds, such as a number of bytes; 0 if it exceeds none. [Queue.Redrive]
	// sets it to 10,000, the maximum of RedriveOptions.Limit, even if there are too many Places (more than 1,000).
	Limit int64
	// Start and End bound the partition if Code is CodeOffsetOutOfRange: Start is the first offset
	// that the partition holds, End the next offset to be assigned. If Code is CodeOffsetConflict,
	// End is the next offset to be assigned, and Start is not set.
	Start, End Offset
	// Address, Session and Epoch are set if Code is CodeQueueElsewhere. Address is the address of
	// the queue's owner, "" if the owner has no address. Session is the owner's session: trust an
	// answer from Address only if the broker there proves that this session is its own. Epoch is
	// the owner's epoch.
	Address string
	Session SessionKey
	Epoch   Epoch
	// Err is the cause; may be nil.
	Err error
}

// Error returns code, part, detail, cause, outcome and hint in one line.
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

// CodeOf returns the code of err, or "" if err has none.
func CodeOf(err error) Code {
	if e, found := publicError(err); found {
		return e.Code
	}
	return ""
}

// OutcomeOf returns the outcome of a write that returned err: "" when err is
// nil, and Unknown when err has no outcome.
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

// public returns err in its public form: refusals of changes, and errors of the engine, of the memory
// budget and of contexts become an *Error, also inside joined errors. In a chain of errors, the
// outermost error of these kinds decides. Other errors stay as they are.
func public(err error) error {
	if err == nil {
		return nil
	}
	if worded, ok := worded(err); ok {
		return worded
	}
	return err
}

// worded returns the public form of err; ok is false if err has none.
func worded(err error) (_ error, ok bool) {
	switch e := err.(type) { //nolint:errorlint // worded unwraps the chain itself, one error at a time
	case *Error:
		return e, true
	case *TokensError:
		each := make([]error, len(e.Errors))
		for i := range each {
			each[i] = public(e.Errors[i])
		}
		return &TokensError{Errors: each}, true
	case *engine.UnknownError:
		if late, ok := errors.AsType[*engine.LateError](e.Err); ok {
			return maybeTooLate(late), true
		}
		return maybeCommitted(e.Err), true
	case *change.Refusal:
		return &Error{
			Code: Code(e.Code), Detail: e.Detail, Hint: e.Hint, Part: e.Part, Limit: e.Limit, Start: e.Start, End: e.End,
		}, true
	case *engine.StoppedError:
		return &Error{Code: CodeBrokerStopped, Detail: cmp.Or(e.Doing, "the broker stopped itself to protect the log"), Hint: e.Hint, Err: e.Err}, true
	case *engine.StoreError:
		return &Error{Code: CodeStoreUnavailable, Detail: e.Doing, Hint: e.Hint, RetryAfter: e.RetryAfter, Err: e.Err}, true
	case *engine.LateError:
		return tooLate(e), true
	case *engine.UnusableError:
		return storeUnusable(e), true
	case *engine.CacheError:
		return &Error{Code: CodeInvalidRequest, Detail: "CacheDir", Err: e.Err}, true
	case *engine.StateFullError:
		return overState(e), true
	case *engine.KeysFullError:
		return tooManyIdempotencyKeys(e.Limit), true
	case *engine.TopicDeletedError:
		return ofPart(e.Part, public(change.TopicDeleted(e.Topic))), true
	case *engine.EndConflictError:
		return ofPart(e.Part, offsetConflict(e.Topic, int32(e.Partition), e.End, e.Want)), true
	case *engine.PartitionNotFoundError:
		return worded(change.PartitionNotFound(e.Topic, e.Partition, e.Count))
	case *engine.OutOfRangeError:
		return worded(change.OutOfRange(e.Topic, e.Partition, e.Offset, e.Start, e.End))
	case *engine.DataLostError:
		return dataLost(e), true
	case *budget.FullError:
		return overMemory(e.Detail, e.Limit), true
	case interface{ Unwrap() []error }:
		each := e.Unwrap()
		out := make([]error, len(each))
		for i := range each {
			w, is := worded(each[i])
			if out[i] = each[i]; is {
				out[i], ok = w, true
			}
		}
		return errors.Join(out...), ok
	case interface{ Unwrap() error }:
		if _, is := errors.AsType[*Error](err); is {
			return err, true
		}
		return worded(e.Unwrap())
	}
	switch {
	case errors.Is(err, engine.ErrClosed):
		return errClosed(), true
	case errors.Is(err, engine.ErrWithdrawn):
		return refused(CodeCanceled, "the request was withdrawn"), true
	case errors.Is(err, engine.ErrKeyReused):
		return keyReused(), true
	case errors.Is(err, engine.ErrWaitedTooLong):
		return waitedTooLong(), true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return canceled(err), true
	}
	return nil, false
}

// publicError returns the *Error in public(err).
func publicError(err error) (*Error, bool) { return errors.AsType[*Error](public(err)) }

// Inside the package, an error has the outcome Unknown or no outcome. A public method sets the outcome that callers
// see: it begins with a deferred call of reads or writes, or returns an iterator made by reading. A test in
// internal/test/hygiene fails if a public method does neither, unless the test lists the method as an exception.

// reads removes the outcome from an error. A method defers it if the method commits nothing, or if
// the method's error does not tell whether something was committed.
func reads(err *error) { *err = withoutOutcome(*err) }

// writes sets the outcome of an error to NotCommitted, unless the outcome is Unknown. A method
// defers it if the method commits something, or if the method is a step before a commit, such as
// Authenticate and Reserve.
func writes(err *error) { *err = notCommitted(*err) }

// reading removes the outcome from the errors of an iterator, as reads does from one error.
func reading[T any](list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		list(func(x T, err error) bool { return yield(x, withoutOutcome(err)) })
	}
}

func withoutOutcome(err error) error {
	err = public(err)
	if e, ok := errors.AsType[*Error](err); ok && e.Outcome != "" {
		return e.with("")
	}
	return err
}

func notCommitted(err error) error {
	err = public(err)
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

// maybeCommitted returns err with the outcome Unknown.
func maybeCommitted(err error) error {
	err = public(err)
	if e, ok := errors.AsType[*Error](err); ok {
		return e.with(Unknown)
	}
	return err
}

// unknown tells whether a write that failed with err may be in the log.
func unknown(err error) bool { return OutcomeOf(notCommitted(err)) == Unknown }

// with returns a copy of e with the outcome o.
func (e *Error) with(o Outcome) *Error {
	c := *e
	c.Outcome = o
	return &c
}

// ofPart returns err with the name of the part of a [Commit] that caused err. With an empty name it
// returns err as it is.
func ofPart(name string, err error) error {
	e, ok := publicError(err)
	if name == "" || !ok {
		return err
	}
	return e.of(name)
}

// of returns a copy of e that names a part of a [Commit].
func (e *Error) of(part string) *Error {
	c := *e
	c.Part = part
	return &c
}

// refused returns the refusal of a request that can't succeed unless the caller changes it.
func refused(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// limited returns the refusal of a request that exceeds a limit.
func limited(code Code, limit int, format string, args ...any) *Error {
	e := refused(code, format, args...)
	e.Limit = int64(limit)
	return e
}

// canceled returns the error of a caller whose context ended with err.
func canceled(err error) *Error {
	return &Error{Code: CodeCanceled, Detail: "the caller canceled the request, or the deadline of the request passed", Err: err}
}

func errClosed() error {
	return &Error{Code: CodeBrokerClosed, Detail: "the broker is closed or closing", RetryAfter: time.Second,
		Hint: "send the request to another broker, or to this broker once it has started again"}
}

func topicRecreated(name string) *Error {
	e := refused(CodeTopicRecreated, "topic %q was deleted and created again since you began to read it, or is in another bucket", name)
	e.Hint = "read the topic from its start: you have read no record of the new topic"
	return e
}

// offsetConflict returns the refusal of an append that has the option IfOffset(insisted), while the next
// offset of the partition is end.
func offsetConflict(topic string, partition int32, end, insisted Offset) *Error {
	e := refused(CodeOffsetConflict, "the next offset of partition %d of topic %q is %d, not %d", partition, topic, end, insisted)
	e.End = end
	e.Hint = "another append came first, or the offset is wrong: read the end of the partition, then decide again"
	return e
}

// tooLate is the error of a caller that waited too long for its commit.
func tooLate(late *engine.LateError) *Error {
	return &Error{
		Code:       CodeStoreUnavailable,
		Detail:     fmt.Sprintf("the store did not confirm the write within %v", late.Within) + whyFull(late.Err),
		Hint:       "try again; the broker recovers by itself when the store answers again",
		RetryAfter: time.Second,
		Err:        late.Err,
	}
}

// whyFull returns the text to add to the detail of a store failure: ": the store is full" if err says so, else "". It
// returns no other cause, since other causes may name hosts and files, which only the operator may see.
func whyFull(err error) string {
	if f := objstore.FailureOf(err); f != nil && f.Full {
		return ": the store is full"
	}
	return ""
}

// maybeTooLate is tooLate for a request that may be in the log.
func maybeTooLate(late *engine.LateError) *Error {
	e := tooLate(late).with(Unknown)
	switch {
	case late.Keyed:
	case late.Changes:
		e.Hint = "the change may be in the log already, or get there later: before you send it again, check whether the log has it"
	default:
		e.Hint = "the records may be in the log already, or get there later, so the end of the partition does not show yet whether they will be there: read 'After an unknown outcome' in docs/guarantees.md before you append them again. With an idempotency key, send the same append again with the same key"
	}
	return e
}

func storeUnusable(x *engine.UnusableError) *Error {
	return &Error{
		Code:   CodeStoreUnusable,
		Detail: "Seb can't use this store: " + x.Detail,
		Hint:   "use a store that creates an object only if it does not exist (If-None-Match: *); seb doctor checks a store",
		Err:    x.Err,
	}
}

func overState(full *engine.StateFullError) *Error {
	return &Error{
		Code:   CodeOverStateBudget,
		Detail: full.Error(),
		Hint:   "delete topics that you no longer need, delete old records, or raise --state-memory; a longer --linger makes fewer commits, so the state grows more slowly",
		Limit:  full.Most, RetryAfter: time.Minute,
	}
}

func tooManyIdempotencyKeys(limit int) *Error {
	e := limited(CodeIdempotencyKeysFull, limit, "the log remembers %d idempotency keys, which is the maximum", limit)
	e.Hint = "wait, since the log forgets each key after 25 hours; put more records into each append; or raise --idempotency-keys-max on every broker"
	e.RetryAfter = time.Minute
	return e
}

func waitedTooLong() *Error {
	return &Error{
		Code: CodeStoreUnavailable, RetryAfter: time.Second,
		Detail: engine.ErrWaitedTooLong.Error(), Hint: "send the request again, with the same idempotency key",
	}
}

func dataLost(lost *engine.DataLostError) *Error {
	return &Error{
		Code:   CodeDataLost,
		Detail: fmt.Sprintf("the object %s, which holds offsets %d to %d, is missing or damaged", lost.Key, lost.First, lost.Last),
		Hint:   "restore the object from a copy or an earlier version of the bucket; other records are not affected",
		Err:    lost.Err,
	}
}

func keyReused() *Error {
	e := refused(CodeIdempotencyKeyReused, "the idempotency key was used before for an append to this topic, or a commit, that differs from this request in its records, partition, if_offset or delay")
	e.Hint = "use a new idempotency key for each append or commit; to repeat a request, send the same records, partition, if_offset and delay with the same key"
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
		Detail: fmt.Sprintf("invalid bookmark %q", s),
		Hint:   "use the text of a follower's bookmark, such as 1f0c6a3e.7:41,0,12, unchanged",
	}
}

func unauthorized(detail, hint string) *Error {
	return &Error{Code: CodeUnauthorized, Detail: detail, Hint: hint}
}

func needsKey() *Error {
	return unauthorized("an API key is needed", "send it as Authorization: Bearer KEY, or give it to seb as SEB_API_KEY; an operator creates one with `seb key create`")
}

func malformedKey() *Error {
	return unauthorized("malformed API key", "a key is seb_, a number, _ and 64 hex digits, as `seb key create` showed it")
}

func expired(a Access) *Error { return expiredAt(a.caller().signed, a.Until) }

func expiredAt(signed bool, at time.Time) *Error {
	what := "the API key expired"
	if signed {
		what = "the signed URL expired"
	}
	return unauthorized(what+" at "+at.UTC().Format(time.RFC3339), "get a new one")
}
