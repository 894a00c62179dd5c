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
	// forwardedHeader marks a request that another broker has forwarded. The header's value is
	// the log's tag and the epoch of the intended owner, such as 1f0c6a3e.7: see epochTag. A marked request is
	// never forwarded again.
	forwardedHeader = "Seb-Forwarded"
	// ownerTries is how often a request tries to reach the owner of its queue.
	ownerTries = 4

	// signInterval is how often an owner says that it still works on a forwarded request.
	signInterval = 5 * time.Second
	// bodySignMax is the longest silence of an owner within its answer. An event stream sends
	// comments more often than that.
	bodySignMax = 3 * commentInterval
	// ownerIdle is how long an idle connection to an owner is kept. The owner keeps its end of the
	// connection longer.
	ownerIdle = 5 * time.Second
	// reasonBytesMax is how many bytes of an owner's refusal are read at most.
	reasonBytesMax = 64 << 10
)

// patience is how long a broker waits for an owner before it takes the owner for lost. Its two fields bound:
//   - patience.first: the time until a TCP connection reaches the owner;
//   - patience.later: the handshakes on a new connection;
//   - patience.first, again: the time from the request until the owner first says that it works on the request;
//   - patience.later, again: the time until the owner says so once more, or answers.
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
	here  func() error  // answers the request if this broker is the owner; otherwise it returns an error that names the owner
	body  func() []byte // returns the body to forward; called for each try
	waits bool          // the request may wait long, and ends when this broker shuts down
	// back passes the owner's response on to the client. It returns no error, even if the response breaks
	// off: the client's stream may go on with another call. If back is nil, the response is passed on
	// unchanged.
	back func(resp *http.Response, silence *time.Timer)
}

// ends returns the context at whose end the call is given up. A call that may wait long ends when its client
// leaves. Any other call goes on for 2 s (goneFor) after its client has left.
func (c ownerCall) ends(w *response, r *http.Request) context.Context {
	if c.waits {
		return w.clientContext
	}
	return r.Context()
}

// forwardToOwner lets the queue's owner answer a call. If the owner is another broker, this broker forwards
// the request to the owner. If the owner is gone, or if the owner can't reach the store but this broker
// can, this broker takes the queue over.
func (h *Handler) forwardToOwner(w *response, r *http.Request, c ownerCall) error {
	forwarded, err := h.takeForwarded(w, r, c.queue)
	if err != nil {
		return err
	}
	return h.reachOwner(w, r, c, forwarded)
}

// reachOwner is forwardToOwner for a request from which takeForwarded has already removed
// forwardedHeader.
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
		if c.back != nil && h.drained() { // if the call were forwarded, the owner would hand out records to a stream that is about to end
			return last
		}
		epoch, err := h.forward(w, r, e, c)
		switch {
		case err == nil:
			return nil
		case begun() || c.ends(w, r).Err() != nil || errors.Is(err, errUnnamed):
			return err
		case errors.Is(err, errDrained):
		case epoch > e.Epoch: // the broker that was asked has lost the queue to a later owner
			_, _, err = c.queue.Owner(r.Context())
		case errors.Is(err, errCutOff) && !reached:
			_, _, err = c.queue.Owner(r.Context())
			reached = true
		default:
			h.warnOf(e, err)
			deaf := err
			if err = c.queue.TakeOver(r.Context(), e.Epoch); err == nil {
				h.log.LogAttrs(r.Context(), slog.LevelWarn, "the owner of a queue did not answer: the queue has a new owner",
					slog.String("request_id", w.id), slog.String("path", WithoutSecrets(r.URL.Path)), slog.String("owner", e.Address), slog.String("error", WithoutSecrets(deaf.Error())),
					slog.String("hint", "if the previous owner is running, restart it with seb serve --advertise and an address that this broker can reach"))
			}
		}
		if err != nil && !errors.Is(err, errDrained) {
			return err
		}
	}
	return last
}

// warnOf logs a warning with a hint if err says that another broker answers at the address in e. It logs
// this warning only once.
func (h *Handler) warnOf(e *seb.Error, err error) {
	if errors.Is(err, peer.ErrOtherSession) {
		h.warnOfPeer.Do(func() {
			h.log.Warn("another broker answers at the address of a queue's owner: let each broker advertise an address of its own (seb serve --advertise)", "address", e.Address)
		})
	}
}

// takeForwarded tells whether another broker has forwarded r, and removes forwardedHeader from r. If
// the forwarding broker knows a later owner of the queue than this broker does, this broker syncs. All
// requests that wait for such a sync share it.
//
// If the sender has not proved that it is a broker, the request is not forwarded again, but the header gives
// the sender no rights. Brokers of older versions prove nothing, and need no rights.
func (h *Handler) takeForwarded(w *response, r *http.Request, q *seb.Queue) (bool, error) {
	mark := r.Header.Get(forwardedHeader)
	if mark == "" {
		return false, nil
	}
	r.Header.Del(forwardedHeader)
	cluster, text, _ := strings.Cut(mark, ".")
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return true, invalid("leave it out: only brokers send it, to each other", "invalid header %s: %.100q", forwardedHeader, mark)
	}
	if !strings.HasPrefix(h.epochTag(seb.Epoch(epoch)), cluster+".") {
		return true, &seb.Error{Code: seb.CodeQueueElsewhere, Detail: "the request is for a broker of another bucket: its header " + forwardedHeader + " names another log",
			Hint: "leave that header out: only brokers send it; if a broker of an older version sent the request, correct its --advertise"}
	}
	if !w.proven {
		return true, nil
	}
	return true, q.KnowOwner(r.Context(), seb.Epoch(epoch))
}

// epochTag names this log and an epoch of a queue, such as 1f0c6a3e.7. The part that names the log
// is the same as in [seb.Broker.TopicTag].
func (h *Handler) epochTag(epoch seb.Epoch) string {
	cluster, _, _ := strings.Cut(h.broker.TopicTag(0), ".")
	return cluster + "." + strconv.FormatUint(uint64(epoch), 10)
}

// sign sends an informational response (RFC 9110, section 15.2). It tells the forwarding broker that this
// broker still works on the request.
func (w *response) sign() {
	if w.request.ProtoAtLeast(1, 1) {
		w.sent = progress{}
		w.extendDeadline()
		w.ResponseWriter.WriteHeader(http.StatusProcessing)
		_ = w.conn.SetWriteDeadline(time.Time{}) // the error is ignored: a connection that is closed, or in memory, does not stall
	}
}

// forward sends r to the owner that e names, and passes the answer on to the client. If the broker that was
// asked refuses, forward returns an error and the epoch of the owner which that broker names. The epoch is 0
// if the broker names no owner, or did not answer.
func (h *Handler) forward(w *response, r *http.Request, e *seb.Error, c ownerCall) (epoch seb.Epoch, err error) {
	if c.waits {
		h.watch(w)
	}
	ctx, cancel := context.WithCancelCause(c.ends(w, r))
	defer cancel(nil)
	if c.waits && (c.back != nil || !h.drained()) { // a long poll that comes while this broker shuts down needs no cancel: its c.body asks the owner not to wait
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

// passedHeaders are the headers of a request that are forwarded to the owner. Credentials are not forwarded.
var passedHeaders = []string{"Accept", "Content-Type", "User-Agent", "Traceparent", "Tracestate"}

// ask sends a request to an owner, and returns the response. It returns an error if the owner is
// silent for longer than h.patience allows.
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
		if !connected.Load() { // if connected is true, the request already uses another connection, which became free first
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
	req.Header.Set(forwardedHeader, h.epochTag(e.Epoch))
	req.Header.Set(callerHeader, callerOf(w.access))
	req.Header["Idempotency-Key"] = []string{} // an empty list is not sent, but it tells the transport to retry on a new connection if an idle one was closed
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

// refusesToAnswer returns an error if the other broker answers that it isn't the owner, is shutting down,
// has stopped, can't reach the store, or does not know this broker. epoch is the epoch of the owner
// that the other broker names, or 0 if it names no owner.
func refusesToAnswer(resp *http.Response) (epoch seb.Epoch, _ error) {
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
		return seb.Epoch(p.Epoch), fmt.Errorf("forward the request: %s: %s", p.Code, p.Detail)
	case seb.CodeStoreUnavailable:
		return 0, fmt.Errorf("forward the request: %w: %s", errCutOff, p.Detail)
	default: // the owner has answered the request, with an error
		return 0, nil
	}
}

// returnResponse passes the owner's response on to the client.
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
