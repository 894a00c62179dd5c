package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// queueBodyBytesMax bounds the bodies of receives, acks, nacks and extensions. A thousand tokens fit
	// in such a body.
	queueBodyBytesMax = 256 << 10
	// messageBytes is the memory of a message in addition to its record.
	messageBytes = 256
)

// receiveSpec is what a worker asks for in a receive.
type receiveSpec struct {
	done     []string // tokens of earlier messages, to be acknowledged first
	max      int
	maxBytes int64
	wait     time.Duration
	lease    time.Duration // 0: the queue's default
	inFlight *seb.InFlight // nil: no limit
	// jsonValues says that values which are JSON are answered as JSON.
	jsonValues bool
}

func parseReceive(body []byte) (receiveSpec, error) {
	var (
		most, maxBytes *int
		wait, lease    *time.Duration
	)
	s := receiveSpec{max: 1, maxBytes: defaultReadBytes}
	err := parseFields(body, "a receive", fields{
		{"max", countInto(&most, receiveMax)},
		{"max_bytes", countInto(&maxBytes, math.MaxInt64)},
		{"wait", durationInto(&wait)},
		{"lease", durationInto(&lease)},
		{"ack", tokensInto(&s.done)},
	})
	if err != nil {
		return s, err
	}
	if most != nil {
		s.max = *most
	}
	if maxBytes != nil {
		s.maxBytes = int64(min(*maxBytes, readBytesMax))
	}
	if wait != nil {
		if s.wait = *wait; s.wait < 0 || s.wait > readWaitMax {
			return s, invalid(fmt.Sprintf("use 0s to %v", readWaitMax), "wait is %v; it must be 0s to %v", s.wait, readWaitMax)
		}
	}
	if lease != nil {
		if s.lease = *lease; s.lease < leaseMin || s.lease > leaseMax {
			return s, errLease(s.lease)
		}
	}
	return s, nil
}

const (
	// receiveMax is the most records that one request can receive.
	receiveMax = 1000

	leaseMin = time.Second
	leaseMax = 12 * time.Hour
)

func errLease(lease time.Duration) error {
	return invalid("use 1s to 12h, or leave it out to use the queue's lease", "lease is %v; it must be 1s to 12h", lease)
}

// body returns s as the body of a request to another broker. The parameter left is how long that broker may
// wait for records. The body has no tokens: this broker has already acknowledged them.
func (s receiveSpec) body(left time.Duration) []byte {
	b := fmt.Appendf(nil, `{"max":%d,"max_bytes":%d,"wait":%q`, s.max, s.maxBytes, max(0, left))
	if s.lease != 0 {
		b = fmt.Appendf(b, `,"lease":%q`, s.lease)
	}
	return append(b, '}')
}

// receive hands records to a worker.
func (h *Handler) receive(w *response, r *http.Request) error {
	if err := refuseHeaders(r.Header, forwardedHeader); err != nil {
		return err
	}
	q, err := parseParameters(r, valuesParameter)
	if err != nil {
		return err
	}
	jsonValues, err := q.jsonValues()
	if err != nil {
		return err
	}
	body, err := h.readSpec(w, r, queueBodyBytesMax, specHint)
	if err != nil {
		return err
	}
	spec, err := parseReceive(body.data)
	body.free()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(spec.wait)
	if len(spec.done) > 0 {
		w.reads = false // acks commit something, so errors have an outcome
		if err := h.ackFirst(w, r, spec.done); err != nil {
			return writeResults(w, spec.done, time.Time{}, err)
		}
		w.reads = true
		spec.done = nil // frees the memory of the tokens, since the receive may wait for long
	}
	signs := r.Header.Get(forwardedHeader) != ""
	return h.forwardToOwner(w, r, ownerCall{
		queue: h.queue(r),
		waits: spec.wait > 0,
		body: func() []byte {
			if h.drained() {
				return spec.body(0)
			}
			return spec.body(time.Until(deadline))
		},
		here: func() error {
			messages, release, err := h.take(w, r, spec, deadline, signs)
			if err != nil {
				return err
			}
			defer release()
			return writeMessages(w, messages, jsonValues)
		},
	})
}

// ackFirst acknowledges the tokens that come with a receive. If a token is refused, the memory for the
// results of all tokens is reserved until the answer is written.
func (h *Handler) ackFirst(w *response, r *http.Request, tokens []string) error {
	release, err := h.broker.ReserveMore(r.Context(), int64(len(tokens))*answerBytes)
	if err != nil {
		return err
	}
	if err = h.queue(r).Ack(seb.WithArrival(r.Context(), w.arrived), tokens...); err != nil {
		w.release = release
		return err
	}
	release()
	return nil
}

func writeMessages(w *response, messages []seb.Message, jsonValues bool) error {
	w.Header().Set("Content-Type", typeJSON)
	out := newChunks(w)
	defer out.free()
	out.jsonValues = jsonValues
	out.text(`{"messages":[`)
	for i := range messages {
		if i > 0 {
			out.text(",")
		}
		out.message(&messages[i])
	}
	out.text("]}\n")
	return out.flush()
}

// take receives messages. Their memory is reserved until release is called. While take waits for messages, no
// memory is reserved, and the wait ends when the client's access ends. If signs is true, take tells the
// forwarding broker from time to time that this broker still works on the request.
func (h *Handler) take(w *response, r *http.Request, spec receiveSpec, deadline time.Time, signs bool) (messages []seb.Message, release func(), err error) {
	messages, release, err = h.takeWithin(r.Context(), w, h.queue(r), spec, 0)
	for {
		wait := time.Until(deadline)
		if err != nil || len(messages) > 0 || wait <= 0 || h.drained() {
			break
		}
		h.watch(w)
		if signs {
			w.sign()
			wait = min(wait, signInterval)
		}
		err = h.untilDrained(w.clientContext, func(ctx context.Context) error {
			messages, release, err = h.takeWithin(ctx, w, h.queue(r), spec, wait)
			return err
		})
		if len(messages) > 0 && w.clientContext.Err() != nil { // the client has left: nobody will see the messages
			release()
			if err := h.queue(r).Return(messages); err != nil {
				return nil, nil, err
			}
			return nil, nil, context.Cause(w.clientContext)
		}
	}
	return messages, release, err
}

// takeWithin receives messages. If no messages are ready, it waits for at most the given duration. release is
// never nil.
func (h *Handler) takeWithin(ctx context.Context, w *response, q *seb.Queue, spec receiveSpec, wait time.Duration) (_ []seb.Message, release func(), _ error) {
	const messageHolds = recordStructBytes + messageBytes
	m := h.newAnswerMemory(w)
	spec.maxBytes = m.atMost(spec.maxBytes, spec.max, int64(messageHolds))
	share, patience := seb.ShareAnswers, answerWait
	receive := func() ([]seb.Message, error) {
		reserved := spec.maxBytes + int64(spec.max)*int64(messageHolds)
		if reserved <= smallBytes {
			share, patience = seb.ShareSmall, time.Hour
		}
		return q.Receive(ctx, seb.ReceiveOptions{
			Max: spec.max, MaxBytes: spec.maxBytes, Wait: wait, Lease: spec.lease, InFlight: spec.inFlight,
			Reserve: func(ctx context.Context) (func(), error) {
				return m.free, m.take(ctx, share, reserved, patience)
			},
		})
	}
	messages, err := receive()
	if share == seb.ShareAnswers && seb.CodeOf(err) == seb.CodeOverMemoryBudget {
		// There is no memory for a large answer, but there may be for a small one. The next request
		// receives the other records.
		spec.max, spec.maxBytes = min(spec.max, smallBytes/2/messageHolds), min(spec.maxBytes, smallBytes/2)
		messages, err = receive()
	}
	for err == nil && len(messages) > 0 {
		held := int64(len(messages)) * messageBytes
		for i := range messages {
			held += heldBy(&messages[i].Record)
		}
		if m.settle(held) {
			return messages, m.free, nil
		}
		// A record is larger than the memory that was reserved. It goes back to the queue, and is received again when
		// there is memory for it.
		if err := q.Return(messages); err != nil {
			return nil, func() {}, err
		}
		messages, err = q.Receive(ctx, seb.ReceiveOptions{
			Max: len(messages), MaxBytes: held, Lease: spec.lease, InFlight: spec.inFlight,
			Reserve: func(ctx context.Context) (func(), error) { return m.free, m.takeWhole(ctx, held) },
		})
	}
	return nil, func() {}, err
}

// message writes m as a JSON object with the token, the data of the delivery, and the record.
func (c *chunks) message(m *seb.Message) {
	c.buf = append(c.buf, `{"token":`...)
	c.buf = strconv.AppendQuote(c.buf, m.Token)
	c.buf = append(c.buf, `,"attempt":`...)
	c.integer(int64(m.Attempt))
	c.buf = append(c.buf, `,"leased_until":"`...)
	c.buf = m.LeasedUntil.AppendFormat(c.buf, timestampLayout)
	c.buf = append(c.buf, `",`...)
	c.fields(&m.Record)
	c.buf = append(c.buf, '}')
}
