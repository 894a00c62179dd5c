package change

import (
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/state"
)

// The changes that one broker makes for another. The numbers are those of the bytes between brokers.
const (
	sentMove uint16 = iota + 1
	sentCommit
	sentAck
	sentNack
	sentDeadLetter
	sentClaim
	sentConditionalCommit
)

// Sent is a change that came from another broker.
type Sent interface {
	Apply(d *state.Draft) ([]format.Entry, error)
}

// Decode reads a change that another broker has encoded; nil if this version of Seb does not know it. The results of the change
// stay with the other broker's own copy.
func Decode(r *pack.Reader) Sent {
	switch kind := r.U16(); kind {
	case sentMove:
		x := decodeMove(r)
		return &x
	case sentCommit:
		return decodeCommit(r)
	case sentConditionalCommit:
		return decodeConditionalCommit(r)
	case sentAck:
		return AckRecords{QueueName: decodeQueueName(r), Answers: decodeAnswers(r)}
	case sentNack:
		return decodeNack(r)
	case sentDeadLetter:
		return DeadLetter{
			QueueName: decodeQueueName(r), QueueID: format.QueueID(r.U64()), Last: decodeDelivery(r), Reason: r.Text(), Epoch: format.Epoch(r.U64()),
		}
	case sentClaim:
		return dispatch.DecodeClaim(r)
	default:
		r.FailWith(fmt.Errorf("%w: a change of kind %d", pack.ErrUnknown, kind))
		return nil
	}
}

// Encode implements engine.Sendable.
func (x *MoveConsumer) Encode(w *pack.Writer) {
	w.U16(sentMove)
	x.encode(w)
}

func (x *MoveConsumer) encode(w *pack.Writer) {
	w.Text(x.Topic)
	w.Text(x.Consumer)
	w.Text(x.IfVersion)
	encodePositions(w, x.Expect)
	encodePositions(w, x.To)
}

func decodeMove(r *pack.Reader) MoveConsumer {
	return MoveConsumer{
		ConsumerName: ConsumerName{Topic: r.Text(), Consumer: r.Text()}, IfVersion: r.Text(), Expect: decodePositions(r), To: decodePositions(r),
	}
}

// Encode implements engine.Sendable. A commit with conditions has a kind of its own, which brokers of older versions do not
// know: they would ignore the conditions.
func (x *Commit) Encode(w *pack.Writer) {
	if len(x.Ends) > 0 || x.After != 0 {
		w.U16(sentConditionalCommit)
		w.I64(x.After)
		w.Count(len(x.Ends))
		for _, e := range x.Ends {
			w.Text(e.Part)
			w.Text(e.Topic)
			w.U64(uint64(e.ID))
			encodePositions(w, e.Ends)
		}
	} else {
		w.U16(sentCommit)
	}
	w.Count(len(x.Moves))
	for i := range x.Moves {
		w.Text(x.Moves[i].Part)
		x.Moves[i].encode(w)
	}
	w.Count(len(x.Acks))
	for _, a := range x.Acks {
		w.Text(a.Part)
		a.encode(w)
		encodeAnswers(w, a.Answers)
	}
}

func decodeConditionalCommit(r *pack.Reader) *Commit {
	after, ends := r.I64(), []CommitEnds(nil)
	for range r.Count(5 * 4) {
		ends = append(ends, CommitEnds{Part: r.Text(), Topic: r.Text(), ID: format.TopicID(r.U64()), Ends: decodePositions(r)})
	}
	if after == 0 && len(ends) == 0 {
		r.Fail("a commit with conditions has no condition")
	}
	x := decodeCommit(r)
	x.After, x.Ends = after, ends
	return x
}

func decodeCommit(r *pack.Reader) *Commit {
	x := &Commit{}
	for range r.Count(6 * 4) {
		x.Moves = append(x.Moves, CommitMove{Part: r.Text(), MoveConsumer: decodeMove(r)})
	}
	for range r.Count(4 * 4) {
		x.Acks = append(x.Acks, CommitAck{Part: r.Text(), QueueName: decodeQueueName(r), Answers: decodeAnswers(r)})
	}
	return x
}

// Encode implements engine.Sendable.
func (x AckRecords) Encode(w *pack.Writer) {
	w.U16(sentAck)
	x.encode(w)
	encodeAnswers(w, x.Answers)
}

// Encode implements engine.Sendable.
func (x NackRecords) Encode(w *pack.Writer) {
	w.U16(sentNack)
	x.encode(w)
	w.Bool(x.Delay != nil)
	if x.Delay != nil {
		w.I64(int64(*x.Delay))
	}
	w.I64(int64(x.AtLeast))
	w.Text(x.Reason)
	encodeAnswers(w, x.Answers)
}

func decodeNack(r *pack.Reader) NackRecords {
	x := NackRecords{QueueName: decodeQueueName(r)}
	if r.Bool() {
		delay := time.Duration(r.I64())
		x.Delay = &delay
	}
	x.AtLeast, x.Reason = time.Duration(r.I64()), r.Text()
	if len(x.Reason) > state.ReasonBytesMax {
		r.Fail("a reason has %d bytes", len(x.Reason))
	}
	x.Answers = decodeAnswers(r)
	return x
}

// Encode implements engine.Sendable.
func (x DeadLetter) Encode(w *pack.Writer) {
	w.U16(sentDeadLetter)
	x.encode(w)
	w.U64(uint64(x.QueueID))
	encodeDelivery(w, x.Last)
	w.Text(x.Reason)
	w.U64(uint64(x.Epoch))
}

func (q QueueName) encode(w *pack.Writer) {
	w.Text(q.Topic)
	w.Text(q.Queue)
}

func decodeQueueName(r *pack.Reader) QueueName { return QueueName{Topic: r.Text(), Queue: r.Text()} }

func encodePositions(w *pack.Writer, ps []format.Position) {
	w.Count(len(ps))
	for _, p := range ps {
		w.U32(uint32(p.Partition))
		w.I64(int64(p.Offset))
	}
}

func decodePositions(r *pack.Reader) (ps []format.Position) {
	for range r.Count(12) {
		p := format.Position{Partition: format.Partition(r.U32()), Offset: format.Offset(r.I64())}
		if p.Partition < 0 || p.Offset < 0 || len(ps) > 0 && p.Partition <= ps[len(ps)-1].Partition {
			r.Fail("positions are negative or out of order")
		}
		ps = append(ps, p)
	}
	return ps
}

func encodeAnswers(w *pack.Writer, answers []*Answer) {
	w.Count(len(answers))
	for _, a := range answers {
		w.U64(uint64(a.Queue))
		encodeDelivery(w, a.Delivery)
	}
}

func decodeAnswers(r *pack.Reader) (answers []*Answer) {
	for range r.Count(24) {
		answers = append(answers, &Answer{Queue: format.QueueID(r.U64()), Delivery: decodeDelivery(r)})
	}
	return answers
}

func encodeDelivery(w *pack.Writer, x leases.Delivery) {
	w.U32(uint32(x.Partition))
	w.I64(int64(x.Offset))
	w.U32(x.Attempt)
}

func decodeDelivery(r *pack.Reader) leases.Delivery {
	x := leases.Delivery{Place: leases.Place{Partition: format.Partition(r.U32()), Offset: format.Offset(r.I64())}, Attempt: r.U32()}
	if x.Partition < 0 || x.Offset < 0 {
		r.Fail("a delivery has a negative partition or offset")
	}
	return x
}
