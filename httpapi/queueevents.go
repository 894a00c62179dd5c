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
	// queueStreamPause is the least time between two tries to reach the owner of a queue.
	queueStreamPause = time.Second
	// partingQuiet is how long the owner must be silent before a relayed stream gives way, so
	// that a record under way is not leased to a worker that is gone.
	partingQuiet = 50 * time.Millisecond
)

// queueStream is an answer that hands a queue's records to one worker, for as long as the
// worker stays. It outlives the queue's owner: the broker that the worker has chosen relays
// the owner's stream, and when that ends, the next owner's, or hands out itself.
type queueStream struct {
	eventWriter
	r         *http.Request
	queue     *seb.Queue
	spec      receiveSpec
	forwarded bool         // another broker relays it
	passed    eventsPassed // of the owner's stream
	told      error        // what the relayed stream ended with, if that was not the owner's end
	over      bool         // there is nothing more to say
	buf       *buffer      // to relay the owner's stream; nil if this broker is the owner
}

// receiveEvents answers with a stream of server-sent events, an event per record that is
// handed out.
func (h *Handler) receiveEvents(w *response, r *http.Request) error {
	spec, err := parseReceiveEvents(r)
	if err != nil {
		return err
	}
	if !namesEvents(r.Header.Values("Accept")) {
		return &seb.Error{
			Code: codeNotAcceptable, Detail: "a GET hands out records only with Accept: " + typeEvents,
			Hint: "send Accept: " + typeEvents + ", or POST for an answer that ends",
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

// namesEvents tells whether an Accept header asks for event streams by name. What asks
// for anything may be a browser that shows a link, or looks what is behind it.
func namesEvents(accept []string) bool {
	quality, at := qualityOf(strings.Join(accept, ","), typeEvents)
	return quality > 0 && at.specificity == 2
}

func parseReceiveEvents(r *http.Request) (s receiveSpec, err error) {
	if err := refuseHeaders(r.Header, forwardedHeader); err != nil {
		return s, err
	}
	q, err := parseParameters(r, "max_in_flight", "lease")
	if err != nil {
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

// run serves the stream until there is a reason to end. An error that it returns behind
// the begin of the answer is about a connection, and cuts the worker's: it comes back.
func (s *queueStream) run(ctx context.Context) error {
	defer s.freeBuffer()
	call := ownerCall{
		queue: s.queue, waits: true, body: func() []byte { return nil },
		here: func() error { return s.hereOrReady(ctx) }, back: s.relay,
	}
	for {
		tried := time.Now()
		err := s.h.reachOwner(s.w, s.r, call, s.forwarded)
		s.freeBuffer()
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

// ended ends the stream where it can't go on.
func (s *queueStream) ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case s.over:
		return s.end()
	case s.passed.within: // what follows would seem to be of the same event
		return errors.Join(errors.New("the owner's stream broke off within an event"), err)
	case s.w.status == 0 && s.w.clientContext.Err() != nil:
		return err
	case seb.CodeOf(cause) == seb.CodeUnauthorized:
		return s.fail(cause) // the key was revoked, or its time is up
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.end()
}

// goOn waits for as long as err asks for before the stream goes on, or ends it.
func (s *queueStream) goOn(ctx context.Context, err error, took time.Duration) error {
	var e *seb.Error
	wait := queueStreamPause - took
	switch {
	case err == nil: // the owner's stream has ended
	case !errors.As(err, &e):
		return err
	case e.Code == seb.CodeQueueElsewhere || e.Code == seb.CodeBrokerClosed:
		s.over = true // another broker serves a worker that comes back
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

// start begins the answer, unless it has begun.
func (s *queueStream) start() error {
	if s.w.status != 0 {
		return nil
	}
	s.begin(s.r)
	return s.send([]byte(retryLine() + "\n"))
}

// hereOrReady is here, and makes ready to pass the owner's stream on if that is another
// broker: what it hands out to a broker without memory for it would be leased to nobody.
func (s *queueStream) hereOrReady(ctx context.Context) error {
	s.freeBuffer() // the owner may have been asked in vain
	err := s.here(ctx)
	if seb.CodeOf(err) != seb.CodeQueueElsewhere || s.forwarded {
		return err
	}
	buf, none := newBuffer(ctx, s.h.reserveFor(s.w), classBytesMin)
	if none != nil {
		return none
	}
	s.buf = buf
	return err
}

func (s *queueStream) freeBuffer() {
	if s.buf != nil {
		s.buf.free()
		s.buf = nil
	}
}

// here hands out records as their owner.
func (s *queueStream) here(ctx context.Context) error {
	for {
		wait := time.Duration(0) // until it is known that this broker can answer
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

// hand sends messages. Those of which nothing was written go back at once; the others
// may have been seen, and are the worker's until their leases end.
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

// relay copies the owner's stream until it ends. Its end is not an error, and no reason to
// take the queue over: the owner is asked again.
func (s *queueStream) relay(resp *http.Response, silence *time.Timer) {
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != typeEvents {
		s.told = s.relayProblem(resp, silence)
		return
	}
	if s.w.status == 0 {
		s.begin(s.r)
	}
	s.passed = eventsPassed{}
	for {
		quiet := bodySignMax
		parting := !s.passed.within && s.placeWanted(s.w.clientContext)
		if parting {
			quiet = partingQuiet
		}
		silence.Reset(quiet)
		n, err := resp.Body.Read(s.buf.bytes)
		s.passed.note(s.buf.bytes[:n])
		if n > 0 {
			if s.told = s.send(s.buf.bytes[:n]); s.told != nil {
				return
			}
		}
		if err != nil {
			s.over = parting && !s.passed.within || s.passed.failed()
			return
		}
	}
}

// relayProblem answers with the owner's refusal of a stream, or returns it if the answer has
// begun.
func (s *queueStream) relayProblem(resp *http.Response, silence *time.Timer) error {
	if s.w.status == 0 {
		err := returnResponse(s.w, resp, silence)
		s.over = err == nil
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, reasonBytesMax))
	if err != nil {
		return nil //nolint:nilerr // as if its stream had ended
	}
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read the owner's refusal: %w", err)
	}
	e := &seb.Error{Code: p.Code, Detail: p.Detail, Hint: p.Hint}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil { // else it is for good
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// eventsPassed is how far a stream of events has come.
type eventsPassed struct {
	within bool   // the last event is not complete
	head   []byte // how that, or the last one, begins
	last   byte
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
