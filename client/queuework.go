package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	receiveWaitMax = 5 * time.Minute // a broker allows no longer wait
	// answerWait is how long a worker waits for an answer in addition to the wait that it asks the broker for.
	// Without a limit, a broker that hangs would block the worker.
	answerWait = 15 * time.Second
)

// messageJSON is a message as brokers write it.
type messageJSON struct {
	recordJSON
	Token       string    `json:"token"`
	Attempt     int       `json:"attempt"`
	LeasedUntil time.Time `json:"leased_until"`
}

// Receive does what [seb.Queue.Receive] does.
func (q *remoteQueue) Receive(ctx context.Context, o seb.ReceiveOptions) ([]seb.Message, error) {
	if o.InFlight != nil || o.Reserve != nil {
		return nil, invalid("Receive of a client takes neither InFlight nor Reserve", "use the concurrency of a Worker")
	}
	if o.Wait < 0 {
		return nil, invalid(fmt.Sprintf("wait is %v; it can't be negative", o.Wait), "")
	}
	until := time.Now().Add(o.Wait)
	for {
		ms, err := q.receive(ctx, o, min(max(0, time.Until(until)), receiveWaitMax))
		if err != nil || len(ms) > 0 || time.Until(until) <= 0 {
			return ms, err
		}
	}
}

// receive sends one request for messages.
func (q *remoteQueue) receive(ctx context.Context, o seb.ReceiveOptions, wait time.Duration) ([]seb.Message, error) {
	body := map[string]any{"wait": wait.String()}
	if o.Max != 0 {
		body["max"] = o.Max
	}
	if o.MaxBytes != 0 {
		body["max_bytes"] = o.MaxBytes
	}
	if o.Lease != 0 {
		body["lease"] = o.Lease.String()
	}
	var answer struct {
		Messages []messageJSON `json:"messages"`
	}
	r := &request{method: http.MethodPost, path: q.path("receive"), body: jsonBody(body), wait: wait, within: wait + answerWait}
	_, err := q.call(ctx, r, &answer, func() error {
		for _, m := range answer.Messages {
			if m.Token == "" || m.Attempt < 1 || m.LeasedUntil.IsZero() {
				return errors.New("a message lacks its token, its attempt, or the end of its lease")
			}
		}
		return lists("messages", answer.Messages)
	})
	if err != nil {
		return nil, err
	}
	ms := make([]seb.Message, len(answer.Messages))
	for i, m := range answer.Messages {
		ms[i] = seb.Message{Record: m.record(), Token: m.Token, Attempt: m.Attempt, LeasedUntil: m.LeasedUntil}
	}
	return ms, nil
}

// Ack does what [seb.Queue.Ack] does.
func (q *remoteQueue) Ack(ctx context.Context, tokens ...string) error {
	return q.answer(ctx, "ack", tokens, map[string]any{"tokens": tokens})
}

// Nack does what [seb.Queue.Nack] does.
func (q *remoteQueue) Nack(ctx context.Context, o seb.NackOptions, tokens ...string) error {
	body := map[string]any{"tokens": tokens, "reason": o.Reason}
	if o.Delay != nil {
		body["delay"] = o.Delay.String()
	}
	return q.answer(ctx, "nack", tokens, body)
}

// answer sends a worker's answer. An answer that is sent twice gets the same response.
func (q *remoteQueue) answer(ctx context.Context, what string, tokens []string, body any) error {
	var a tokenResults
	r := &request{method: http.MethodPost, path: q.path(what), body: jsonBody(body), writes: true, repeatable: true}
	_, err := q.call(ctx, r, &a, func() error { return a.accept(tokens) })
	return err
}

// tokenResults is the answer to an ack, a nack or an extension.
type tokenResults struct {
	Results []tokenResult `json:"results"`
}

// accept returns an error unless the broker accepted all tokens.
func (a *tokenResults) accept(tokens []string) error {
	if len(a.Results) != len(tokens) {
		return fmt.Errorf("it has %d results for %d tokens", len(a.Results), len(tokens))
	}
	for i, r := range a.Results {
		if !r.OK || r.Token != tokens[i] {
			return fmt.Errorf("its result %d is for the token %.80q, and ok is %t; the token is %.80q", i, r.Token, r.OK, tokens[i])
		}
	}
	return nil
}

// Extend does what [seb.Queue.Extend] does. It waits for at most a third of the lease, so that the worker can
// ask again before the lease ends. That is time enough to learn that a broker does not live, and to ask another one,
// if the lease has at least 15 s.
func (q *remoteQueue) Extend(ctx context.Context, lease time.Duration, tokens ...string) (until time.Time, _ error) {
	body := map[string]any{"tokens": tokens}
	within := answerWait
	if lease != 0 {
		body["lease"] = lease.String()
		within = min(within, lease/3)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var a tokenResults
	_, err := q.call(ctx, &request{method: http.MethodPost, path: q.path("extend"), body: jsonBody(body)}, &a, func() error {
		if len(a.Results) == 0 || a.Results[0].LeasedUntil.IsZero() {
			return errors.New("it does not say when the leases end")
		}
		return a.accept(tokens)
	})
	if err != nil {
		return until, err
	}
	return a.Results[0].LeasedUntil, nil
}
