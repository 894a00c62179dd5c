package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	inFlightDefault = 10
	// queueStreamPause is the shortest time between two tries to reach the owner of a queue.
	queueStreamPause = time.Second
	// A relayed stream that should end because a client waits for a connection ends only when the owner
	// was silent for partingQuiet. If the stream ended while the owner sends a record, no worker would
	// get that record before the record's lease ends.
	partingQuiet = 50 * time.Millisecond
	// relayBytes is the size of the buffer of a relayed stream. It is part of what the connection takes, outside of
	// the memory budget: a stream that waits for records needs the buffer for as long as it waits.
	relayBytes = 4 << 10
)

// queueStream is an answer that hands a queue's records to one worker, until the worker leaves. If
// the broker that serves the worker owns the queue, that broker hands out the records itself. Otherwise it
// relays the stream of the queue's owner: it copies the owner's answer to the worker. When the owner's stream
// ends, the broker asks the owner again, or hands out the records itself if it has become the owner.
type queueStream struct {
	eventWriter
	r         *http.Request
	queue     *seb.Queue
	spec      receiveSpec
	forwarded bool         // another broker relays this stream
	passed    eventsPassed // the last event of the owner's stream that was relayed
	told      error        // why the last attempt to relay failed: the owner refused the request, or the worker could not be written to; nil if the owner's stream just ended
	over      bool         // the stream must end
}

// receiveEvents answers with a stream of server-sent events, one for each record that it hands out.
func (h *Handler) receiveEvents(w *response, r *http.Request) error {
	spec, err := parseReceiveEvents(r)
	if err != nil {
		return err
	}
	if !namesEvents(r.Header.Values("Accept")) {
		return &seb.Error{
			Code: codeNotAcceptable, Detail: "a GET hands out records only with Accept: " + typeEvents,
			Hint: "send Accept: " + typeEvents + ", or POST for a response that ends",
		}
	}
	if err := h.cors.checkEffect(r); err != nil {
		return err
	}
	s := &queueStream{eventWriter: eventWriter{h: h, w: w, began: time.Now()}, r: r, queue: h.queue(r), spec: spec}
	if w.head {
		if _, err := s.queue.Describe(r.Context()); err != nil {
			return err
		}
		s.begin(r)
		return nil
	}
	if s.forwarded, err = h.takeForwarded(w, r, s.queue); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(w.clientContext)
	defer cancel()
	defer context.AfterFunc(h.draining, cancel)()
	h.metrics.streams.Inc()
	defer h.metrics.streams.Dec()
	return s.run(ctx)
}

// namesEvents tells whether an Accept header names the media type of event streams. A browser
// that opens or prefetches a link sends */*, and must not receive records.
func namesEvents(accept []string) bool {
	quality, at := qualityOf(strings.Join(accept, ","), typeEvents)
	return quality > 0 && at.specificity == 2
}

func parseReceiveEvents(r *http.Request) (s receiveSpec, err error) {
	if err := refuseHeaders(r.Header, forwardedHeader); err != nil {
		return s, err
	}
	q, err := parseParameters(r, "max_in_flight", "lease", valuesParameter)
	if err != nil {
		return s, err
	}
	if s.jsonValues, err = q.jsonValues(); err != nil {
		return s, err
	}
	most, err := q.count("max_in_flight", 1, receiveMax, inFlightDefault)
	if err != nil {
		return s, err
	}
	if s.lease, err = q.duration("lease", leaseMax); err != nil {
		return s, err
	}
	if _, given := q["lease"]; given && s.lease < leaseMin {
		return s, errLease(s.lease)
	}
	s.max, s.maxBytes = min(int(most), burstBytesMin/burstRecordBytes), burstBytesMin
	s.inFlight, err = seb.NewInFlight(int(most))
	return s, err
}

// run serves the stream until the stream has to end. If run returns an error after the answer has begun,
// the worker's connection is cut, and the worker has to reconnect.
func (s *queueStream) run(ctx context.Context) error {
	call := ownerCall{
		queue: s.queue, waits: true, body: func() []byte { return nil },
		here: func() error { return s.here(ctx) }, back: s.relay,
	}
	for {
		tried := time.Now()
		err := s.h.reachOwner(s.w, s.r, call, s.forwarded)
		if err == nil {
			err, s.told = s.told, nil
		}
		if s.over || s.passed.within || ctx.Err() != nil || s.h.drained() {
			return s.ended(ctx, err)
		}
		if s.w.status == 0 && err != nil {
			return err
		}
		if err := s.goOn(ctx, err, time.Since(tried)); err != nil || s.over {
			return err
		}
	}
}

// ended ends the stream for good. err is the error of the last try.
func (s *queueStream) ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case s.over:
		return s.end()
	case s.passed.within: // the last event is cut off: the worker would take further bytes for a part of that event
		return errors.Join(errors.New("the owner's stream broke off within an event"), err)
	case s.w.status == 0 && s.w.clientContext.Err() != nil:
		return err
	case seb.CodeOf(cause) == seb.CodeUnauthorized:
		return s.fail(cause) // the key was revoked or has expired
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.end()
}

// goOn waits before the next try. err is the error of the last try, which may say how long to wait. If err
// allows no other try, goOn ends the stream. took is how long the last try took.
func (s *queueStream) goOn(ctx context.Context, err error, took time.Duration) error {
	var e *seb.Error
	wait := queueStreamPause - took
	switch {
	case err == nil: // the owner's stream has ended
	case !errors.As(err, &e):
		return err
	case e.Code == seb.CodeQueueElsewhere || e.Code == seb.CodeBrokerClosed:
		s.over = true // when the worker reconnects, another broker serves it
		return s.end()
	case e.RetryAfter == 0:
		s.over = true
		return s.fail(err)
	default:
		wait = max(wait, e.RetryAfter)
	}
	pause(ctx, wait)
	return s.remark()
}

// start begins the answer if it has not begun yet.
func (s *queueStream) start() error {
	if s.w.status != 0 {
		return nil
	}
	s.begin(s.r)
	return s.send([]byte(retryLine() + "\n"))
}

// here hands out records if this broker owns the queue.
func (s *queueStream) here(ctx context.Context) error {
	for {
		wait := time.Duration(0) // the first try does not wait: if it fails before the stream has begun, the error can be the answer
		if s.w.status != 0 {
			wait = max(0, time.Until(s.comment))
		}
		messages, release, err := s.h.takeWithin(ctx, s.w, s.queue, s.spec, wait)
		if err != nil {
			return err
		}
		err = s.hand(ctx, messages)
		release()
		if s.over = err == nil && s.placeWanted(ctx); s.over || err != nil {
			return err
		}
	}
}

// hand sends messages to the worker. If a write fails, the messages of which no byte was written return to
// the queue at once. The worker may have the other messages, so their leases go on.
func (s *queueStream) hand(ctx context.Context, messages []seb.Message) error {
	err := context.Cause(ctx)
	if err == nil {
		err = s.start()
	}
	if err == nil && len(messages) == 0 {
		return s.remark()
	}
	s.w.sent = progress{}
	out := newChunks(s.w)
	defer out.free()
	out.jsonValues = s.spec.jsonValues
	for i := range messages {
		if err != nil {
			return errors.Join(err, s.queue.Return(messages[i:]))
		}
		out.text("id: ")
		out.text(messages[i].Token)
		out.text("\ndata: ")
		out.message(&messages[i])
		out.text("\n\n")
		err = out.flush()
	}
	if err != nil {
		return err
	}
	s.h.metrics.events.Add(float64(len(messages)))
	return s.flushed()
}

// relay copies the owner's stream to the worker until the owner's stream ends, or a write to the worker fails. The
// end is no reason to take the queue over: run asks the owner again, unless the stream broke off within an event.
// If the owner refuses the stream, relay calls relayProblem.
func (s *queueStream) relay(resp *http.Response, silence *time.Timer) {
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != typeEvents {
		s.told = s.relayProblem(resp, silence)
		return
	}
	if s.w.status == 0 {
		s.begin(s.r)
	}
	s.passed = eventsPassed{}
	buf := make([]byte, relayBytes)
	for {
		quiet := bodySignMax
		parting := !s.passed.within && s.placeWanted(s.w.clientContext)
		if parting {
			quiet = partingQuiet
		}
		silence.Reset(quiet)
		n, err := resp.Body.Read(buf)
		s.passed.note(buf[:n])
		if n > 0 {
			if s.told = s.send(buf[:n]); s.told != nil {
				return
			}
		}
		if err != nil {
			s.over = parting && !s.passed.within || s.passed.failed()
			return
		}
	}
}

// relayProblem is called if the owner refuses the stream. It answers with the owner's refusal. If the answer
// has already begun, it returns the refusal as an error.
func (s *queueStream) relayProblem(resp *http.Response, silence *time.Timer) error {
	if s.w.status == 0 {
		err := returnResponse(s.w, resp, silence)
		s.over = err == nil
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, reasonBytesMax))
	if err != nil {
		return nil //nolint:nilerr // treated as the end of the owner's stream
	}
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read the owner's refusal: %w", err)
	}
	e := &seb.Error{Code: p.Code, Detail: p.Detail, Hint: p.Hint}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil { // without Retry-After the refusal is final
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// eventsPassed has the beginning of the last event that was relayed, and says whether the event is complete.
type eventsPassed struct {
	within bool   // the last event is not complete yet
	head   []byte // the first bytes of the last event
	last   byte   // the last byte that was relayed
}

const errorEvent = "event: error\n"

func (p *eventsPassed) note(b []byte) {
	for _, c := range b {
		if !p.within {
			p.within, p.head, p.last = true, p.head[:0], 0
		}
		if len(p.head) < len(errorEvent) {
			p.head = append(p.head, c)
		}
		p.within = c != '\n' || p.last != '\n'
		p.last = c
	}
}

// failed tells whether the last event says that the stream has ended for good.
func (p *eventsPassed) failed() bool {
	return !p.within && bytes.Equal(p.head, []byte(errorEvent))
}
