package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/simple-event-broker/seb"
)

// answerWait is how long a worker waits for an answer in addition to the wait that it asks the broker for.
// Without a limit, a broker that hangs would block the worker.
const answerWait = 15 * time.Second

// retryPause is the shortest pause before a worker repeats a request that may succeed later.
const retryPause = 100 * time.Millisecond

// queueSource gives a [seb.Worker] the records of a queue over HTTP. It turns a broker's refusals into
// *seb.Error, so that the worker treats them like those of a broker in its own process.
type queueSource struct {
	broker       *client
	topic, queue string
}

var _ seb.WorkSource = (*queueSource)(nil)

// call posts a request about the queue; what is the last part of the path, such as "ack". It returns an error
// if the broker does not answer in time.
func (s *queueSource) call(ctx context.Context, within time.Duration, what string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	u := s.broker.url(nil, "topics", s.topic, "queues", s.queue, what)
	_, err := s.broker.call(ctx, http.MethodPost, u, body, answer)
	return brokerError(err)
}

// brokerError turns a broker's refusal into a *seb.Error. It returns other errors as they are: then no
// broker answered.
func brokerError(err error) error {
	var refusal *apiError
	if !errors.As(err, &refusal) {
		return err
	}
	retry, outcome := retryable(err)
	e := &seb.Error{Code: refusal.Code, Detail: refusal.Detail, Hint: refusal.Hint, Outcome: outcome}
	if e.Code == "" { // the error of a proxy
		e.Code, e.Detail = seb.CodeInvalidRequest, refusal.Error()
	}
	if retry {
		e.RetryAfter = max(refusal.retryAfter, retryPause)
	}
	return e
}

// asked removes the outcome from err, the error of a request that commits nothing.
func asked(err error) error {
	var e *seb.Error
	if errors.As(err, &e) {
		e.Outcome = ""
	}
	return err
}

// Receive asks for records.
func (s *queueSource) Receive(ctx context.Context, o seb.ReceiveOptions) ([]seb.Message, error) {
	body := map[string]any{"max": o.Max, "wait": o.Wait.String()}
	if o.Lease > 0 {
		body["lease"] = o.Lease.String()
	}
	var answer struct {
		Messages []messageJSON `json:"messages"`
	}
	if err := s.call(ctx, o.Wait+answerWait, "receive", body, &answer); err != nil {
		return nil, fmt.Errorf("receive from queue %s of %s: %w", s.queue, s.topic, asked(err))
	}
	messages := make([]seb.Message, len(answer.Messages))
	for i, m := range answer.Messages {
		messages[i] = m.message()
	}
	return messages, nil
}

// Ack says that work is done.
func (s *queueSource) Ack(ctx context.Context, tokens ...string) error {
	return s.call(ctx, requestTimeout, "ack", map[string]any{"tokens": tokens}, nil)
}

// Nack says that work failed.
func (s *queueSource) Nack(ctx context.Context, o seb.NackOptions, tokens ...string) error {
	body := map[string]any{"tokens": tokens, "reason": o.Reason}
	if o.Delay != nil {
		body["delay"] = o.Delay.String()
	}
	return s.call(ctx, requestTimeout, "nack", body, nil)
}

// Extend asks for a longer lease. It waits for at most a third of the lease, so that the worker can ask again
// before the lease ends.
func (s *queueSource) Extend(ctx context.Context, lease time.Duration, tokens ...string) (time.Time, error) {
	var answer struct {
		Results []struct {
			LeasedUntil time.Time `json:"leased_until"`
		} `json:"results"`
	}
	body := map[string]any{"tokens": tokens, "lease": lease.String()}
	if err := s.call(ctx, min(answerWait, lease/3), "extend", body, &answer); err != nil {
		return time.Time{}, asked(err)
	}
	if len(answer.Results) == 0 {
		return time.Time{}, fmt.Errorf("%s: the response is not what a broker sends: it has no results", s.broker.base)
	}
	return answer.Results[0].LeasedUntil, nil
}

// messageJSON is a record that is handed out, as the API describes it. Bytes that are not UTF-8
// come in base64.
type messageJSON struct {
	Token       string    `json:"token"`
	Attempt     int       `json:"attempt"`
	LeasedUntil time.Time `json:"leased_until"`
	Partition   int32     `json:"partition"`
	Offset      int64     `json:"offset"`
	Timestamp   time.Time `json:"timestamp"`
	keyedRecord
	Headers       map[string]values[string] `json:"headers"`
	HeadersBase64 map[string]values[[]byte] `json:"headers_base64"`
}

// values are the values of a header: in JSON one value, or a list if the header repeats.
type values[T any] []T

// UnmarshalJSON reads one value or a list.
func (v *values[T]) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]T)(v))
	}
	var one T
	err := json.Unmarshal(b, &one)
	*v = values[T]{one}
	return err
}

func (m messageJSON) message() seb.Message {
	r := seb.Record{
		Partition: m.Partition, Offset: seb.Offset(m.Offset), Timestamp: m.Timestamp,
		Key: oneOf(m.Key, m.KeyBase64), Value: oneOf(m.Value, m.ValueBase64),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		for _, value := range m.Headers[name] {
			r.Headers = append(r.Headers, seb.Header{Name: name, Value: []byte(value)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.HeadersBase64)) {
		for _, value := range m.HeadersBase64[name] {
			r.Headers = append(r.Headers, seb.Header{Name: name, Value: value})
		}
	}
	return seb.Message{Record: r, Token: m.Token, Attempt: m.Attempt, LeasedUntil: m.LeasedUntil}
}
