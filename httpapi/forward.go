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
	// forwardedHeader marks a request that another broker has forwarded, with the bucket's
	// tag and the epoch of the intended owner: such a request is never forwarded again.
	forwardedHeader = "Seb-Forwarded"
	// ownerTries is how often a request tries to reach the owner of its queue.
	ownerTries = 4

	// signInterval is how often an owner says that it still works on a forwarded request.
	signInterval = 5 * time.Second
	// Once its answer has begun, it sends something as often as this: event streams do.
	bodySignMax = 3 * commentInterval
	// ownerIdle is shorter than what any broker keeps idle connections for.
	ownerIdle = 5 * time.Second
	// An owner's reason not to answer is no longer.
	reasonBytesMax = 64 << 10
)

// patience is how long an owner may be silent before it counts as lost: first until it is
// reached and until its first sign on a request; later until it takes up a connection, and
// from then on.
type patience struct{ first, later time.Duration }

// Why an owner did not answer a forwarded request.
var (
	errDeaf    = errors.New("the owner does not answer")
	errDrained = errors.New("the broker is shutting down")
	errCutOff  = errors.New("the owner can't reach the store")
	errUnnamed = errors.New("the log does not name this broker's session yet")
)

// ownerCall is a request that only the owner of its queue can answer.
type ownerCall struct {
	queue *seb.Queue
	here  func() error  // answers it, if this broker is the owner
	body  func() []byte // to forward now
	waits bool          // it may take long, and ends with a drain
	// back returns the owner's response, and handles its errors itself, so that an answer that
	// has begun may go on. nil returns the response as it is.
	back func(resp *http.Response, silence *time.Timer)
}

// ends is the context that a call ends with: a call that waits ends with its client, any other
// goes on for a moment.
func (c ownerCall) ends(w *response, r *http.Request) context.Context {
	if c.waits {
		return w.clientContext
	}
	return r.Context()
}

// forwardToOwner has the queue's owner answer a call: this broker itself, or the one that it
// forwards the request to. If that owner is gone, this broker takes the queue over; also if
// the owner can't reach the store although this broker just has.
func (h *Handler) forwardToOwner(w *response, r *http.Request, c ownerCall) error {
	forwarded, err := h.takeForwarded(w, r, c.queue)
	if err != nil {
		return err
	}
	return h.reachOwner(w, r, c, forwarded)
}

// reachOwner is forwardToOwner of a request whose forwarded mark was already taken.
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
		epoch, err := h.forward(w, r, e, c)
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
			h.log.LogAttrs(r.Context(), slog.LevelWarn, "the owner of a queue does not answer: taking the queue over",
				slog.String("request_id", w.id), slog.String("path", WithoutSecrets(r.URL.Path)), slog.String("owner", e.Address), slog.String("error", WithoutSecrets(err.Error())),
				slog.String("hint", "if that broker runs, set an address that this broker reaches with its seb serve --advertise"))
			err = c.queue.TakeOver(r.Context(), e.Epoch)
		}
		if err != nil && !errors.Is(err, errDrained) {
			return err
		}
	}
	return last
}

// warnOf says once what to set if another broker answers at a broker's address.
func (h *Handler) warnOf(e *seb.Error, err error) {
	if errors.Is(err, peer.ErrOtherSession) {
		h.warnOfPeer.Do(func() {
			h.log.Warn("another broker answers at the address that a broker advertises: give each an address of its own (seb serve --advertise)", "address", e.Address)
		})
	}
}

// takeForwarded tells whether another broker has forwarded r, and takes the mark off it.
// If it knows of a later owner of the queue, this one syncs: all such requests share a sync.
//
// The mark of a caller that is no proven broker only has the request answered here or not at
// all. Brokers of older versions, which prove nothing, need no more.
func (h *Handler) takeForwarded(w *response, r *http.Request, q *seb.Queue) (bool, error) {
	mark := r.Header.Get(forwardedHeader)
	if mark == "" {
		return false, nil
	}
	r.Header.Del(forwardedHeader)
	cluster, text, _ := strings.Cut(mark, ".")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return true, invalid("leave it out; only brokers send it, to each other", "%s is %.100q", forwardedHeader, mark)
	}
	if !strings.HasPrefix(h.broker.TopicTag(epoch), cluster+".") {
		return true, &seb.Error{Code: seb.CodeQueueElsewhere, Detail: "the request is for a broker of another bucket", RetryAfter: time.Second}
	}
	if !w.proven {
		return true, nil
	}
	return true, q.KnowOwner(r.Context(), epoch)
}

// sign tells the forwarding broker that work on its request goes on, by an informational
// response (RFC 9110, section 15.2).
func (w *response) sign() {
	if w.request.ProtoAtLeast(1, 1) {
		w.sent = progress{}
		w.extendDeadline()
		w.ResponseWriter.WriteHeader(http.StatusProcessing)
		_ = w.conn.SetWriteDeadline(time.Time{}) // as with writes: a connection without deadlines can't stall
	}
}

// forward has the owner that e names answer r. If it returns an error and nothing was
// answered yet, epoch is that of the owner that the other broker names, if any.
func (h *Handler) forward(w *response, r *http.Request, e *seb.Error, c ownerCall) (epoch uint64, err error) {
	if c.waits {
		h.watch(w)
	}
	ctx, cancel := context.WithCancelCause(c.ends(w, r))
	defer cancel(nil)
	if c.waits && (c.back != nil || !h.drained()) { // a drained long poll is answered at once, a stream never
		defer context.AfterFunc(h.draining, func() { cancel(errDrained) })()
	}
	if err := h.broker.NameSession(ctx); err != nil {
		return 0, fmt.Errorf("forward the request: %w: %w", errUnnamed, err)
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
	return 0, returnResponse(w, resp, silence)
}

// passedHeaders are the headers of a request that its owner needs: no credentials.
var passedHeaders = []string{"Accept", "Content-Type", "User-Agent", "Traceparent", "Tracestate"}

// ask sends a request to an owner, and returns the response. It fails if the owner is silent
// for longer than patience.
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
		return nil, fmt.Errorf("forward the request: %w", err)
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
		return nil, fmt.Errorf("forward the request: %w", err)
	}
	if resp.Header.Get(requestIDHeader) != w.id || resp.StatusCode >= 300 && resp.StatusCode < 400 {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("forward the request: status %d is not from a broker", resp.StatusCode)
	}
	return resp, nil
}

// refusesToAnswer returns an error if the broker answers that it isn't the owner, is shutting
// down, can't reach the store, or is on another log; with the epoch of the owner that it names.
func refusesToAnswer(resp *http.Response) (epoch uint64, _ error) {
	if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusForbidden {
		return 0, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, reasonBytesMax))
	if err != nil {
		return 0, fmt.Errorf("read the owner's refusal: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var p problem
	if err := json.Unmarshal(text, &p); err != nil {
		return 0, fmt.Errorf("read the owner's refusal: %w", err)
	}
	switch p.Code {
	case seb.CodeQueueElsewhere, seb.CodeBrokerClosed, seb.CodeBrokerStopped, codeBrokerUnknown:
		return p.Epoch, fmt.Errorf("forward the request: %s: %s", p.Code, p.Detail)
	case seb.CodeStoreUnavailable:
		return 0, fmt.Errorf("forward the request: %w: %s", errCutOff, p.Detail)
	default: // the answer
		return 0, nil
	}
}

// returnResponse answers with the owner's response.
func returnResponse(w *response, resp *http.Response, silence *time.Timer) error {
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
				return fmt.Errorf("return the response: %w", err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("return the response: %w", err)
		}
	}
}
