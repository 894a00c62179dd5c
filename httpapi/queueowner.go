package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
)

const (
	// forwardedHeader marks a request that another broker has passed on, with the bucket's
	// tag and the owner that is meant: such a request is never passed on again.
	forwardedHeader = "Seb-Forwarded"
	// ownerTries is how often a request looks for the owner of its queue.
	ownerTries = 4

	// signInterval is how often an owner says that it still works on a request that was
	// passed on to it.
	signInterval = 5 * time.Second
	// Once its answer has begun, it sends something as often as this: event streams do.
	bodySignMax = 3 * commentInterval
	// ownerIdle is shorter than what any broker keeps idle connections for.
	ownerIdle = 5 * time.Second
	// An owner's reason not to answer is no longer.
	reasonBytesMax = 64 << 10
)

// patience is how long an owner may be silent before it is taken for lost: first until it is
// reached, and until it first says something to a request that it has; later until it takes a
// connection up on which it is reached, and from then on.
type patience struct{ first, later time.Duration }

// Why an owner did not answer a request that was passed on to it.
var (
	errDeaf    = errors.New("the owner gives no sign")
	errDrained = errors.New("the handler drains")
	errCutOff  = errors.New("the owner can't reach the store")
	errUnnamed = errors.New("the log does not name this broker's session, so the owner would not believe it")
)

// ownerCall is a request that only the owner of its queue can answer.
type ownerCall struct {
	queue *seb.Queue
	here  func() error  // answers it, if this broker is the owner
	body  func() []byte // as it is to be passed on now
	waits bool          // it may take long, and ends with a drain
	// back passes the owner's answer back, and keeps what goes wrong to itself; an answer
	// that has begun may go on then. nil passes it back as it is.
	back func(resp *http.Response, silence *time.Timer)
}

// ends is what a call ends with: if it waits with its client, or what seems to be the end of
// that; else it goes on for a moment.
func (c ownerCall) ends(w *response, r *http.Request) context.Context {
	if c.waits {
		return w.presence
	}
	return r.Context()
}

// atOwner has a call answered by the owner of its queue: this broker, or the one that it
// passes the request on to. If that one is gone this broker takes its place; and if it still
// can't reach the store when this one just has.
func (h *Handler) atOwner(w *response, r *http.Request, c ownerCall) error {
	forwarded, err := h.takeForwarded(w, r, c.queue)
	if err != nil {
		return err
	}
	return h.reachOwner(w, r, c, forwarded)
}

// reachOwner is atOwner of a request of which it is known whether it was passed on.
func (h *Handler) reachOwner(w *response, r *http.Request, c ownerCall, forwarded bool) error {
	begun := func() bool { return w.status != 0 && c.back == nil }
	var last error
	reached := false
	for range ownerTries {
		last = c.here()
		var e *seb.Error
		if forwarded || begun() || !errors.As(last, &e) || e.Code != seb.CodeQueueElsewhere || e.Address == "" {
			return last
		}
		if c.back != nil && h.drained() { // the owner would hand records to a stream that ends
			return last
		}
		epoch, err := h.passOn(w, r, e, c)
		switch {
		case err == nil:
			return nil
		case begun() || c.ends(w, r).Err() != nil || errors.Is(err, errUnnamed):
			return err
		case errors.Is(err, errDrained):
		case epoch > e.Epoch: // it had to give the queue away
			_, _, err = c.queue.Owner(r.Context())
		case errors.Is(err, errCutOff) && !reached:
			_, _, err = c.queue.Owner(r.Context())
			reached = true
		default:
			h.warnOf(e, err)
			h.log.LogAttrs(r.Context(), slog.LevelWarn, "the broker that hands out a queue's records does not answer: taking its place",
				slog.String("request_id", w.id), slog.String("path", WithoutSecrets(r.URL.Path)), slog.String("owner", e.Address), slog.String("error", WithoutSecrets(err.Error())),
				slog.String("hint", "if that broker runs, name an address of it that this one reaches, with its seb serve --advertise"))
			err = c.queue.TakeOver(r.Context(), e.Epoch)
		}
		if err != nil && !errors.Is(err, errDrained) {
			return err
		}
	}
	return last
}

// warnOf says once what to set if somebody else answers at a broker's address.
func (h *Handler) warnOf(e *seb.Error, err error) {
	if errors.Is(err, peer.ErrOtherSession) {
		h.warnOfPeer.Do(func() {
			h.log.Warn("at the address that a broker advertises another one answers: give each an address of its own, which leads to no other (seb serve --advertise)", "address", e.Address)
		})
	}
}

// takeForwarded tells whether another broker has passed r on, and takes the mark off it.
// If it knows of a later owner of the queue, this one syncs: all such requests share a sync.
//
// Whoever else sends the mark has the request answered here or not at all, and no more: a
// broker of an older version, which does not prove what it is, needs no more either.
func (h *Handler) takeForwarded(w *response, r *http.Request, q *seb.Queue) (bool, error) {
	mark := r.Header.Get(forwardedHeader)
	if mark == "" {
		return false, nil
	}
	r.Header.Del(forwardedHeader)
	cluster, text, _ := strings.Cut(mark, ".")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return true, invalid("leave it out; brokers send it to each other", "%s is %.100q", forwardedHeader, mark)
	}
	if !strings.HasPrefix(h.broker.TopicTag(epoch), cluster+".") {
		return true, &seb.Error{Code: seb.CodeQueueElsewhere, Detail: "the request is for a broker of another bucket", RetryAfter: time.Second}
	}
	if !w.proven {
		return true, nil
	}
	return true, q.KnowOwner(r.Context(), epoch)
}

// sign tells the broker that has passed a request on that it is being worked on: as
// information ahead of the answer (RFC 9110, section 15.2).
func (w *response) sign() {
	if w.request.ProtoAtLeast(1, 1) {
		w.sent = progress{}
		w.extendDeadline()
		w.ResponseWriter.WriteHeader(http.StatusProcessing)
		_ = w.conn.SetWriteDeadline(time.Time{}) // as with writes, where there is none nothing can stall
	}
}

// passOn has the owner that e names answer r. If it returns an error and nothing is
// answered yet, epoch is of the owner that the other broker knows of, if any.
func (h *Handler) passOn(w *response, r *http.Request, e *seb.Error, c ownerCall) (epoch uint64, err error) {
	if c.waits {
		h.watch(w)
	}
	ctx, cancel := context.WithCancelCause(c.ends(w, r))
	defer cancel(nil)
	if c.waits && (c.back != nil || !h.drained()) { // a drained long poll is answered at once, a stream never
		defer context.AfterFunc(h.draining, func() { cancel(errDrained) })()
	}
	if err := h.broker.NameSession(ctx); err != nil {
		return 0, fmt.Errorf("pass the request on: %w: %w", errUnnamed, err)
	}
	silence := time.AfterFunc(h.patience.first, func() { cancel(errDeaf) })
	defer silence.Stop()
	resp, err := h.ask(ctx, silence, w, r, e, c.body())
	if err != nil {
		h.metrics.passedOn.WithLabelValues(passedDeaf).Inc()
		return 0, err
	}
	defer resp.Body.Close()
	if epoch, err := refusesToAnswer(resp); err != nil {
		h.metrics.passedOn.WithLabelValues(passedRefused).Inc()
		return epoch, err
	}
	h.metrics.passedOn.WithLabelValues(passedAnswered).Inc()
	if c.back != nil {
		c.back(resp, silence)
		return 0, nil
	}
	return 0, passBack(w, resp, silence)
}

// passedHeaders are those of a request that its owner has to see. What its sender proved to
// be it by is not among them.
var passedHeaders = []string{"Accept", "Content-Type", "User-Agent", "Traceparent", "Tracestate"}

// ask sends a request to an owner, and returns its answer, unless the owner gives no sign
// of working on it.
func (h *Handler) ask(ctx context.Context, silence *time.Timer, w *response, r *http.Request, e *seb.Error, body []byte) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			connected.Store(true)
			silence.Reset(h.patience.first)
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			silence.Reset(h.patience.later)
			return nil
		},
	}
	reached := func() {
		if !connected.Load() { // else another connection was free sooner
			silence.Reset(h.patience.later)
		}
	}
	asking, to := urlOf(context.WithValue(httptrace.WithClientTrace(ctx, trace), reachedKey{}, reached), e, r.URL.RequestURI())
	req, err := http.NewRequestWithContext(asking, r.Method, to, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("pass the request on: %w", err)
	}
	for _, name := range passedHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			req.Header[name] = values
		}
	}
	req.Header.Set(requestIDHeader, w.id)
	req.Header.Set(forwardedHeader, h.broker.TopicTag(e.Epoch))
	req.Header.Set(callerHeader, callerOf(w.access))
	req.Header["Idempotency-Key"] = []string{} // is not sent: a connection that was closed meanwhile is no sign that the owner is gone
	resp, err := h.peers.http.RoundTrip(req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, fmt.Errorf("pass the request on: %w", err)
	}
	if resp.Header.Get(requestIDHeader) != w.id || resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("pass the request on: what answers there with %d is no broker", resp.StatusCode)
	}
	return resp, nil
}

// refusesToAnswer returns an error if the answer is that the broker isn't the owner, is
// going, can't reach the store, or is on another log; with it which owner it knows of.
func refusesToAnswer(resp *http.Response) (epoch uint64, _ error) {
	if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusForbidden {
		return 0, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, reasonBytesMax))
	if err != nil {
		return 0, fmt.Errorf("read why the owner does not answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return 0, fmt.Errorf("read why the owner does not answer: %w", err)
	}
	switch p.Code {
	case seb.CodeQueueElsewhere, seb.CodeBrokerClosed, seb.CodeBrokerStopped, codeBrokerUnknown:
		return p.Epoch, fmt.Errorf("pass the request on: %s: %s", p.Code, p.Detail)
	case seb.CodeStoreUnavailable:
		return 0, fmt.Errorf("pass the request on: %w: %s", errCutOff, p.Detail)
	default: // the answer
		return 0, nil
	}
}

// passBack answers with what the owner has answered.
func passBack(w *response, resp *http.Response, silence *time.Timer) error {
	for _, name := range []string{"Content-Type", "Content-Length", "Retry-After", "Www-Authenticate", "Vary", topicIDHeader} {
		for _, value := range resp.Header.Values(name) {
			w.Header().Add(name, value)
		}
	}
	w.WriteHeader(resp.StatusCode)
	c := newChunks(w)
	defer c.free()
	buf := c.buf[:cap(c.buf)]
	for {
		silence.Reset(bodySignMax)
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("pass the answer back: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pass the answer back: %w", err)
		}
	}
}
