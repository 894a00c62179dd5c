package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

func (w wire) queuePath(o *op, verb string) string { return "/queues/" + o.queue + verb }

// post sends a POST request about a queue, with a JSON body that has the given fields. It decodes the answer
// into to, and reports whether that succeeded.
func (w wire) post(ctx context.Context, o *op, verb string, fields map[string]any, to any) bool {
	body, err := json.Marshal(fields)
	if err != nil {
		panic(err) // can't happen: the fields are strings and numbers
	}
	answer := w.do(ctx, o, http.MethodPost, w.queuePath(o, verb), "application/json", body)
	if answer == nil {
		return false
	}
	if err := json.Unmarshal(answer.body, to); err != nil {
		o.lose(err)
		return false
	}
	return true
}

func (w wire) receive(ctx context.Context, o *op, opts seb.ReceiveOptions) {
	fields := map[string]any{"max": opts.Max, "wait": opts.Wait.String(), "max_bytes": opts.MaxBytes}
	if o.lease > 0 {
		fields["lease"] = o.lease.String()
	}
	var a struct {
		Messages []struct {
			Token       string
			Attempt     int
			LeasedUntil time.Time `json:"leased_until"`
			Value       string
		}
	}
	if !w.post(ctx, o, "/receive", fields, &a) {
		return
	}
	for _, m := range a.Messages {
		o.receive(w.history, message{token: m.Token, toldAttempt: m.Attempt, until: w.history.since(m.LeasedUntil)}, m.Value)
	}
}

// tokenAnswer is what an answer says about a token.
type tokenAnswer struct {
	Token       string
	OK          bool
	LeasedUntil time.Time `json:"leased_until"`
	Code        seb.Code
}

// judged notes what an answer says about each token.
func (o *op) judged(h *history, results []tokenAnswer) {
	if len(results) != len(o.tokens) {
		h.violate("QueueAsAsked", "%d results for %d tokens: %v", len(results), len(o.tokens), o)
		return
	}
	o.verdicts = make([]seb.Code, len(o.tokens))
	for i, r := range results {
		o.verdicts[i] = r.Code
		if r.Token != o.tokens[i].token || r.OK != (r.Code == "") {
			h.violate("QueueAsAsked", "a result of another token, or one that contradicts itself: %+v, %v", r, o)
		}
		if r.OK && !r.LeasedUntil.IsZero() {
			o.until = h.since(r.LeasedUntil)
		}
	}
}

// answerFor sends a worker's answer about the tokens of an operation.
func (w wire) answerFor(ctx context.Context, o *op, verb string, fields map[string]any) {
	fields["tokens"] = o.rawTokens()
	var a struct{ Results []tokenAnswer }
	if w.post(ctx, o, verb, fields, &a) {
		o.judged(w.history, a.Results)
	}
}

func (w wire) ack(ctx context.Context, o *op) { w.answerFor(ctx, o, "/ack", map[string]any{}) }

func (w wire) nack(ctx context.Context, o *op) {
	fields := map[string]any{"reason": o.reason}
	if o.delay != nil {
		fields["delay"] = o.delay.String()
	}
	w.answerFor(ctx, o, "/nack", fields)
}

func (w wire) extend(ctx context.Context, o *op) {
	fields := map[string]any{}
	if o.lease > 0 {
		fields["lease"] = o.lease.String()
	}
	w.answerFor(ctx, o, "/extend", fields)
}

func (w wire) open(ctx context.Context, o *op, p *plan) {
	q := &p.queue
	from := "earliest"
	if o.to == "latest" {
		from = o.to
	}
	config := fmt.Appendf(nil, `{"from":%q,"lease":%q,"max_attempts":%d,"backoff":"%v..%v","order":%q,"dead_letter_topic":%q}`,
		from, q.Lease.String(), q.MaxAttempts, q.BackoffMin, q.BackoffMax, q.Order, q.DeadLetterTopic)
	if answer := w.do(ctx, o, http.MethodPut, w.queuePath(o, ""), "application/json", config); answer != nil {
		o.created = answer.status == http.StatusCreated
	}
}

func (w wire) pause(ctx context.Context, o *op) {
	var a struct{}
	w.post(ctx, o, "/"+string(o.kind), map[string]any{}, &a)
}

func (w wire) redrive(ctx context.Context, o *op) {
	var a struct{ Redriven int64 }
	if w.post(ctx, o, "/dead/redrive", map[string]any{}, &a) {
		o.touched = a.Redriven
	}
}

func (w wire) purge(ctx context.Context, o *op) {
	var a struct{ Purged int64 }
	if w.post(ctx, o, "/purge", map[string]any{}, &a) {
		o.touched = a.Purged
	}
}

func (w wire) dissolve(ctx context.Context, o *op) {
	w.do(ctx, o, http.MethodDelete, w.queuePath(o, ""), "", nil)
}
