package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/peer"
)

const (
	requestIDHeader   = "Seb-Request-Id"
	requestIDBytesMax = 64

	// statusClientGone is the status in metrics and log if no answer was possible. No client ever
	// gets this status.
	statusClientGone = 499

	// writePieceBytes is how many bytes of an answer are written before the deadline is set again.
	writePieceBytes = 256 << 10
)

// response is the [http.ResponseWriter] of every action. It sets a deadline for each piece
// of the answer, and keeps what the log and the metrics need to know of the request.
type response struct {
	http.ResponseWriter
	conn      *http.ResponseController
	slowLimit slowLimit
	sent      progress
	held      heldAnswer
	// request is the request without the token of a signed URL.
	request *http.Request
	// clientContext ends when the client has left. It also ends when the client has shut down its
	// sending side, although the client still waits for the response: the broker can't tell the two
	// cases apart. So only long waits, and work that only this client needs, end with clientContext.
	// All other work goes on for 2 s (goneFor).
	clientContext context.Context //nolint:containedctx // a request with this context would be a copy, which would stay in memory while the request waits
	access        seb.Access      // the access of the caller; zero if anyone may call the action
	proven        bool            // another broker of this log has forwarded the request
	keyID         uint64          // id of the API key with which the forwarding broker has authenticated the caller; 0 if the log has no keys, or no broker has forwarded the request
	unwatch       func()          // stops the watch that ends clientContext when the caller's access ends; nil if there is no watch
	token         string          // the token of a signed URL, "" if the request has none
	did           string          // what an admin did, for the audit log

	came     time.Time     // when the request's headers were read
	bodyWait time.Duration // how long the broker waited for the client to send its body

	trailer *http.Header // where net/http puts the trailers that follow the body; no action reads them
	release func()       // frees memory that is reserved until the answer is written

	id       string // the request's id, also in the answer's Seb-Request-Id
	head     bool   // the request is a HEAD: the body is not sent
	reads    bool   // the request commits nothing, even if its method is not GET
	original bool   // the path is in originalPaths, so errors are plain text
	bodyRead bool   // the whole body was read, or the request has no body
	status   int    // 0 until the answer has begun
	bytesIn  int64  // bytes of the body, before decoding
	bytesOut int64
	// bytesDecoded is how many bytes were decoded from the body. If it was decoded several times, it is the sum.
	bytesDecoded int64
	err          error // the error that the answer reports, for the log
}

// clientRequest returns the request with clientContext.
func (w *response) clientRequest() *http.Request { return w.request.WithContext(w.clientContext) }

// arrived returns the time at which the timeout of a request that writes to the log begins. That is the time when the
// request came, plus the time that the broker waited for the client to send the body.
func (w *response) arrived() time.Time { return w.came.Add(w.bodyWait) }

// Unwrap lets [http.ResponseController] find the wrapped writer.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the answer.
func (w *response) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	w.extendDeadline()
	w.ResponseWriter.WriteHeader(status)
}

// Write sends p in pieces, each with a new deadline, so that a slow client has time for a large answer.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.head {
		return len(p), nil
	}
	var n int
	for {
		piece := p[n:min(len(p), n+writePieceBytes)]
		w.extendDeadline()
		w.held.sent(0)
		m, err := w.ResponseWriter.Write(piece)
		w.held.sent(m)
		n += m
		w.sent.bytes += int64(m)
		w.bytesOut += int64(m)
		if err != nil {
			w.held.broken()
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// extendDeadline sets the connection's write deadline. It ignores errors: a connection that
// supports no deadlines (a recorder in a test) can't stall, and the next Write
// returns any other error.
func (w *response) extendDeadline() {
	w.held.mu.Lock()
	defer w.held.mu.Unlock()
	if w.held.revoked {
		return // so that the write fails at once
	}
	_ = w.conn.SetWriteDeadline(w.sent.deadline(w.slowLimit, time.Now()))
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
	r.Trailer = nil // frees the names of trailers that the client announced: they may fill a whole header
	w := &response{
		ResponseWriter: rw,
		conn:           http.NewResponseController(rw),
		slowLimit:      h.slowLimit,
		id:             requestID(r),
		head:           r.Method == http.MethodHead,
		original:       slices.Contains(originalPaths, r.URL.Path),
		bodyRead:       r.ContentLength == 0,
		request:        r,
		clientContext:  r.Context(),
		trailer:        &r.Trailer,
		came:           start,
		release:        func() {},
	}
	// Remove the write deadline of the previous answer on this connection. If that deadline has passed,
	// the write of "100 Continue" would fail.
	_ = w.conn.SetWriteDeadline(time.Time{})
	if !w.bodyRead {
		// If no action reads the body, net/http reads a part of it. That read needs a deadline, too.
		_ = w.conn.SetReadDeadline(start.Add(h.slowLimit.stallMax))
	}
	w.Header().Set(requestIDHeader, w.id)
	if h.leaving.Load() && r.Header.Get("Upgrade") == "" {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h.metrics.inFlight.Inc()
	defer func() {
		abort := h.recovered(w, r, recover())
		if w.status == 0 && abort {
			w.status = statusClientGone
		}
		w.release()
		if w.unwatch != nil {
			w.unwatch()
		}
		h.metrics.inFlight.Dec()
		h.observe(w, r, time.Since(start))
		if abort {
			panic(http.ErrAbortHandler) // makes net/http close the connection without an answer
		}
	}()
	if r.Method == http.MethodOptions && r.URL.Path == "*" { // the request only asks whether the server is alive
		w.WriteHeader(http.StatusOK)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		h.fail(w, r, errNoRoute(r)) // a path such as "*" or an authority; the mux would answer such a request without an error of this API
		return
	}
	if err := h.checkPeer(w, r); err != nil {
		h.fail(w, r, err)
		return
	}
	done, err := h.cors.check(w, r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case done:
	case r.URL.Path == peer.Path && peer.Asks(r) && peerOf(r) == nil: // not on a connection between brokers: nested connections could take unlimited memory
		h.acceptPeer(w, r)
	case r.URL.Path == meshPath && peerOf(r) != nil && h.meshes:
		h.acceptMesh(w, r)
	case !isClean(r.URL) && !slices.Contains(originalPaths, path.Clean(r.URL.Path)):
		h.fail(w, r, errNoRoute(r)) // the mux would redirect the client, perhaps to another topic
	default:
		h.mux.ServeHTTP(w, r)
	}
}

// isClean returns false if an element of u's path is empty, "." or "..". An element is empty if a name
// was left out, as in /v1/topics//records.
func isClean(u *url.URL) bool {
	p := u.EscapedPath()
	return !strings.Contains(p, "//") && (p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/"))
}

// recovered logs the panic of an action, whose value is fault. If the answer has not begun, recovered answers
// with an error. If the answer has begun, abort is true: the caller must then cut the connection, so that the
// client doesn't take a part of the answer for the whole.
func (h *Handler) recovered(w *response, r *http.Request, fault any) (abort bool) {
	if err, ok := fault.(error); fault == nil || ok && errors.Is(err, http.ErrAbortHandler) {
		return fault != nil
	}
	h.log.LogAttrs(r.Context(), slog.LevelError, "panic while serving a request",
		slog.String("request_id", w.id), slog.String("route", routeOf(r)),
		slog.String("panic", WithoutSecrets(fmt.Sprint(fault))), slog.String("stack", string(debug.Stack())))
	if w.status != 0 {
		return true
	}
	h.answer(w, problemOf(fmt.Errorf("panic: %v", fault)))
	return false
}

// observe counts and logs a request that is over.
func (h *Handler) observe(w *response, r *http.Request, took time.Duration) {
	if w.status == 0 {
		w.status = http.StatusOK // the status that net/http sends if an action wrote nothing
	}
	if w.err == nil {
		w.err = w.held.ended()
	}
	h.metrics.observe(w, r, took)
	level := slog.LevelDebug
	switch {
	case r.URL.Path == "/readyz": // load balancers ask every second, and what fails has log lines of its own
	case w.status >= 500:
		level = slog.LevelWarn
	case seb.CodeOf(w.err) == seb.CodePushNotFound && r.Method == http.MethodGet: // the answer "no" to whether a queue is pushed
	case w.status >= 400:
		level = slog.LevelInfo
	}
	if !h.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", w.id), slog.String("method", r.Method), slog.String("path", WithoutSecrets(r.URL.Path)),
		slog.Int("status", w.status), slog.Duration("duration", took),
		slog.Int64("bytes_in", w.bytesIn), slog.Int64("bytes_out", w.bytesOut), slog.String("remote", r.RemoteAddr),
	}
	if id := traceID(r.Header.Get("Traceparent")); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if w.access.Key.ID != 0 {
		attrs = append(attrs, slog.String("key", WithoutSecrets(w.access.Key.Name)))
	}
	if w.err != nil {
		attrs = append(attrs, slog.String("error", WithoutSecrets(w.err.Error())))
	}
	h.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID returns the id that the caller gave the request. If the caller gave no id, or an id that may not be
// logged unchanged, requestID returns a new id.
func requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if id == "" || len(id) > requestIDBytesMax || WithoutSecrets(id) != id {
		return rand.Text()
	}
	for i := range len(id) {
		if !isRequestIDByte(id[i]) {
			return rand.Text()
		}
	}
	return id
}

func isRequestIDByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '_' || c == '-'
}

// traceID returns the trace id of a W3C Trace Context traceparent, such as
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, or "" if the traceparent is invalid.
func traceID(parent string) string {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return ""
	}
	// Version ff is forbidden. Version 00 has 55 characters, later versions may have more.
	if parent[:2] == "ff" || len(parent) > 55 && (parent[:2] == "00" || parent[55] != '-') {
		return ""
	}
	if !isLowerHex(parent[:2]) || !isLowerHex(parent[3:35]) || !isLowerHex(parent[36:52]) || !isLowerHex(parent[53:55]) {
		return ""
	}
	id := parent[3:35]
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
