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

	// statusClientGone is what metrics and log say where no answer could be
	// given; it is never sent.
	statusClientGone = 499

	// writePieceBytes is how much is handed to the connection under one deadline.
	writePieceBytes = 256 << 10
)

// response is the writer that every action gets: it remembers what became of
// the answer and gives each piece of it a deadline.
type response struct {
	http.ResponseWriter
	conn      *http.ResponseController
	slowLimit slowLimit
	sent      progress
	// request is as it came, but for the token of a signed URL.
	request *http.Request
	// clientContext ends when the client has left, or has shut down its sending side, which
	// looks the same though it still waits for the response. So only long waits, and work
	// for a client alone, end with it; everything else goes on for a moment.
	clientContext context.Context //nolint:containedctx // a copy of the request for each context would be kept by all that wait
	access        seb.Access      // what the sender may do; zero where anyone may
	proven        bool            // another broker of this log has forwarded the request
	keyID         uint64          // which it has authenticated the sender by; 0 for none
	unwatch       func()          // ends the watch on access; nil if there is none
	token         string          // of a signed URL
	did           string          // what an admin did, for the audit log

	release func() // gives back memory that is reserved until the answer is written

	id       string // of the request, also in its header
	head     bool   // the request is a HEAD: what is written counts for nothing
	reads    bool   // nothing is to be committed, though the request is no GET
	original bool   // the request used a path of the original Seb: its errors are plain text
	bodyRead bool   // completely; true if there is none
	status   int    // 0 until the answer has begun
	bytesIn  int64  // of the body as it came
	bytesOut int64
	err      error // what the answer tells of
}

// clientRequest returns the request with clientContext.
func (w *response) clientRequest() *http.Request { return w.request.WithContext(w.clientContext) }

// Unwrap is for [http.ResponseController].
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

// Write sends p, cut so that a slow client gets a new deadline per piece.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.head {
		return len(p), nil
	}
	var n int
	for {
		piece := p[n:min(len(p), n+writePieceBytes)]
		w.extendDeadline()
		m, err := w.ResponseWriter.Write(piece)
		n += m
		w.sent.bytes += int64(m)
		w.bytesOut += int64(m)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// extendDeadline sets the connection's write deadline. Where the connection has
// none (a recorder in a test) writes can't stall; any other fault is the next
// Write's to report.
func (w *response) extendDeadline() {
	_ = w.conn.SetWriteDeadline(w.sent.deadline(w.slowLimit, time.Now()))
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	start := time.Now()
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
		release:        func() {},
	}
	// The deadline of the answer before this one on the same connection would
	// otherwise hit "100 Continue".
	_ = w.conn.SetWriteDeadline(time.Time{})
	if !w.bodyRead {
		// net/http reads some of a body that no action wants.
		_ = w.conn.SetReadDeadline(start.Add(h.slowLimit.stallMax))
	}
	w.Header().Set(requestIDHeader, w.id)
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
			panic(http.ErrAbortHandler) // net/http's way to close the connection without a word
		}
	}()
	if r.Method == http.MethodOptions && r.URL.Path == "*" { // it asks whether the server is there
		w.WriteHeader(http.StatusOK)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		h.fail(w, r, errNoRoute(r)) // of these ("*", or an authority) the mux would make answers of its own
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
	case r.URL.Path == peer.Path && peer.Asks(r) && peerOf(r) == nil: // one within another would be a way to take memory without end
		h.acceptPeer(w, r)
	case !isClean(r.URL) && !slices.Contains(originalPaths, path.Clean(r.URL.Path)):
		h.fail(w, r, errNoRoute(r)) // the mux would redirect to what may be another topic
	default:
		h.mux.ServeHTTP(w, r)
	}
}

// isClean tells whether no part of u's path is empty, "." or "..", as one is where
// a name is left out: /v1/topics//records.
func isClean(u *url.URL) bool {
	p := u.EscapedPath()
	return !strings.Contains(p, "//") && (p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/"))
}

// recovered logs fault, an action's panic, and answers if nothing was answered
// yet. It returns whether the connection has to be cut because the client would
// otherwise take what it has for an answer.
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
		w.status = http.StatusOK // net/http's answer where an action wrote none
	}
	h.metrics.observe(w, r, took)
	level := slog.LevelDebug
	switch {
	case w.status >= 500:
		level = slog.LevelWarn
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

// requestID returns the caller's own id if it is one that can stand in a log
// line as it is, else a new one.
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
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, or "" if it is invalid.
func traceID(parent string) string {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return ""
	}
	// Version ff is forbidden; version 00 ends here, later ones may go on.
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
