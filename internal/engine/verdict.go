package engine

import (
	"errors"
	"strconv"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// errAgain says that a request of a bundle is not committed by this bundle, and belongs into a later one.
var errAgain = errors.New("the request belongs into a later bundle")

// errReplayed says that the log had the idempotency key of a request before.
var errReplayed = errors.New("the log has the idempotency key already")

// The codes of refusals in marks.
const (
	markEndConflict  = "end_conflict"
	markTopicDeleted = "topic_deleted"
	markStateFull    = "state_full"
	markKeyReused    = "key_reused"
	markKeysFull     = "keys_full"
	markWaited       = "waited"
	markCaller       = "caller"
)

// verdictOf returns what a mark says of a request that a commit leaves out because of err.
func verdictOf(request int, err error) format.Verdict {
	v := format.Verdict{Request: uint32(request), Code: format.VerdictRefused}
	conflict, _ := errors.AsType[*EndConflictError](err)
	deleted, _ := errors.AsType[*TopicDeletedError](err)
	stateFull, _ := errors.AsType[*StateFullError](err)
	keysFull, _ := errors.AsType[*KeysFullError](err)
	x := &v.Refusal
	switch {
	case errors.Is(err, errAgain):
		v.Code = format.VerdictAgain
	case errors.Is(err, errReplayed):
		v.Code = format.VerdictReplayed
	case conflict != nil:
		x.Code, x.Numbers = markEndConflict, [2]int64{int64(conflict.End), int64(conflict.append)}
	case deleted != nil:
		x.Code, x.Numbers[1] = markTopicDeleted, int64(deleted.append)
	case stateFull != nil:
		x.Code, x.Part, x.Numbers = markStateFull, strconv.Itoa(int(stateFull.Use)), [2]int64{stateFull.Used, stateFull.Need}
	case keysFull != nil:
		x.Code = markKeysFull
	case errors.Is(err, ErrKeyReused):
		x.Code = markKeyReused
	case errors.Is(err, ErrWaitedTooLong):
		x.Code = markWaited
	default:
		x.Code = markCaller
	}
	x.Shorten()
	return v
}

// refusalOf is the reverse of verdictOf, for a refused request of this broker.
func (e *Engine) refusalOf(r *Request, x format.MarkedRefusal) error {
	switch x.Code {
	case markEndConflict, markTopicDeleted:
		i := x.Numbers[1]
		if i < 0 || i >= int64(len(r.Appends)) {
			return &UnknownError{errVerdict}
		}
		a := r.Appends[i]
		if x.Code == markTopicDeleted {
			return &TopicDeletedError{Part: a.Part, Topic: a.Topic}
		}
		return &EndConflictError{Part: a.Part, Topic: a.Topic, Partition: a.shares[0].batch.key.partition, End: format.Offset(x.Numbers[0]), Want: a.IfEnd}
	case markStateFull:
		use, _ := strconv.Atoi(x.Part)
		return e.stateFull(state.Use(use), x.Numbers[0], x.Numbers[1])
	case markKeysFull:
		return &KeysFullError{e.opts.IdempotencyKeys}
	case markKeyReused:
		return ErrKeyReused
	case markWaited:
		return ErrWaitedTooLong
	case markCaller:
		return e.callerRefusal(r)
	}
	return &UnknownError{errVerdict}
}

// callerRefusal returns why the callers of a request may no longer make it, as another broker says. It returns errAgain if a
// caller may who has joined the request after it was handed over.
func (e *Engine) callerRefusal(r *Request) error {
	refusal := errAgain // if a caller has joined that needs no permission
	for _, c := range e.batcher.callers(r) {
		_, _, until := c.Who()
		now := e.StoreNow()
		if now.Before(until) {
			now = until // the other broker had a later time
		}
		if refusal = c.May(e.live.State, now); refusal == nil {
			return errAgain
		}
	}
	return refusal
}
