package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// Codes of errors that only the HTTP API returns.
const (
	codeRouteNotFound        seb.Code = "route_not_found"
	codeMethodNotAllowed     seb.Code = "method_not_allowed"
	codeNotAcceptable        seb.Code = "not_acceptable"
	codeUnsupportedMediaType seb.Code = "unsupported_media_type"
	codeUnsupportedEncoding  seb.Code = "unsupported_encoding"
	codeRequestTimeout       seb.Code = "request_timeout"
	codeTooManyAttempts      seb.Code = "too_many_attempts"
	codeTooMuchRefused       seb.Code = "too_much_refused"
	codeCrossOrigin          seb.Code = "cross_origin"
	codeBrokerUnknown        seb.Code = "broker_unknown"
	codeInternal             seb.Code = "internal"
)

// Codes of errors of triggers: those of package trigger, which this package does not import.
const (
	codeTriggerNotFound    seb.Code = "trigger_not_found"
	codeInvalidTrigger     seb.Code = "invalid_trigger"
	codeInvalidTriggerName seb.Code = "invalid_trigger_name"
)

// statuses maps every code to its HTTP status.
var statuses = map[seb.Code]int{
	seb.CodeInvalidRequest:       http.StatusBadRequest,
	seb.CodeInvalidTopicName:     http.StatusBadRequest,
	seb.CodeTopicNotFound:        http.StatusNotFound,
	seb.CodeTopicExists:          http.StatusConflict,
	seb.CodePartitionNotFound:    http.StatusNotFound,
	seb.CodeTopicRecreated:       http.StatusGone,
	seb.CodeOffsetOutOfRange:     http.StatusRequestedRangeNotSatisfiable,
	seb.CodeOffsetConflict:       http.StatusPreconditionFailed,
	seb.CodeRecordTooLarge:       http.StatusRequestEntityTooLarge,
	seb.CodeRequestTooLarge:      http.StatusRequestEntityTooLarge,
	seb.CodeTooManyHeaders:       http.StatusBadRequest,
	seb.CodeTooManyTopics:        http.StatusConflict,
	seb.CodeTooManyPartitions:    http.StatusBadRequest,
	seb.CodeConsumerNotFound:     http.StatusNotFound,
	seb.CodePositionConflict:     http.StatusPreconditionFailed,
	seb.CodeEndsConflict:         http.StatusPreconditionFailed,
	seb.CodeTooEarly:             http.StatusPreconditionFailed,
	seb.CodeTooManyConsumers:     http.StatusConflict,
	seb.CodeQueueNotFound:        http.StatusNotFound,
	seb.CodeQueueExists:          http.StatusConflict,
	seb.CodeTooManyQueues:        http.StatusConflict,
	seb.CodePushNotFound:         http.StatusNotFound,
	seb.CodeLeaseLost:            http.StatusConflict,
	seb.CodeQueueElsewhere:       http.StatusServiceUnavailable,
	seb.CodeTooManyDelayed:       http.StatusTooManyRequests,
	seb.CodeUnauthorized:         http.StatusUnauthorized,
	seb.CodeForbidden:            http.StatusForbidden,
	seb.CodeKeyNotFound:          http.StatusNotFound,
	seb.CodeKeyExists:            http.StatusConflict,
	seb.CodeTooManyKeys:          http.StatusConflict,
	seb.CodeOverMemoryBudget:     http.StatusTooManyRequests,
	seb.CodeOverStateBudget:      http.StatusTooManyRequests,
	seb.CodeIdempotencyKeyReused: http.StatusUnprocessableEntity,
	seb.CodeIdempotencyKeysFull:  http.StatusTooManyRequests,
	seb.CodeStoreUnavailable:     http.StatusServiceUnavailable,
	seb.CodeStoreUnusable:        http.StatusServiceUnavailable,
	seb.CodeCanceled:             http.StatusServiceUnavailable,
	seb.CodeDataLost:             http.StatusInternalServerError,
	seb.CodeBrokerStopped:        http.StatusServiceUnavailable,
	seb.CodeBrokerClosed:         http.StatusServiceUnavailable,

	codeTriggerNotFound:    http.StatusNotFound,
	codeInvalidTrigger:     http.StatusBadRequest,
	codeInvalidTriggerName: http.StatusBadRequest,

	codeRouteNotFound:        http.StatusNotFound,
	codeMethodNotAllowed:     http.StatusMethodNotAllowed,
	codeNotAcceptable:        http.StatusNotAcceptable,
	codeChooseMediaType:      http.StatusMultipleChoices,
	codeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	codeUnsupportedEncoding:  http.StatusUnsupportedMediaType,
	codeRequestTimeout:       http.StatusRequestTimeout,
	codeTooManyAttempts:      http.StatusTooManyRequests,
	codeTooMuchRefused:       http.StatusTooManyRequests,
	codeCrossOrigin:          http.StatusForbidden,
	codeBrokerUnknown:        http.StatusForbidden,
	codeInternal:             http.StatusInternalServerError,
}

// hints tell the caller what to do next if the error itself has no hint. A test demands a hint
// for every code.
var hints = map[seb.Code]string{
	seb.CodeInvalidRequest:       "GET /openapi.yaml describes each request",
	seb.CodeInvalidTopicName:     "use 1 to 249 of a-z, A-Z, 0-9, ., _ and -, but not . or ..",
	seb.CodeTopicNotFound:        "PUT /v1/topics/TOPIC creates the topic; GET /v1/topics lists all topics",
	seb.CodeTopicExists:          "use it as it is, change it with PATCH or `seb topic update`, or choose another name",
	seb.CodePartitionNotFound:    "GET /v1/topics/TOPIC or `seb topic show` lists the partitions; PATCH or `seb topic update` adds partitions",
	seb.CodeTopicRecreated:       "start over, at earliest or latest",
	seb.CodeOffsetOutOfRange:     "use earliest, latest, or an offset from start_offset to end_offset",
	seb.CodeOffsetConflict:       "another append came first, or the offset is wrong: read the end of the partition, then decide again",
	seb.CodeRecordTooLarge:       "store large values elsewhere and append a reference, or ask the operator to raise --record-bytes-max of seb serve",
	seb.CodeRequestTooLarge:      "send the records in several requests, or ask the operator to raise --request-bytes-max of seb serve",
	seb.CodeTooManyHeaders:       "send fewer headers with a record, or ask the operator to raise --headers-max of seb serve",
	seb.CodeTooManyTopics:        "delete a topic that nobody needs, or ask the operator to raise --topics-max of seb serve",
	seb.CodeTooManyPartitions:    "use fewer partitions, or ask the operator to raise --partitions-max of seb serve",
	seb.CodeConsumerNotFound:     "PUT /v1/topics/TOPIC/consumers/NAME creates the consumer, and so does GET /v1/topics/TOPIC/consumers/NAME/records; GET /v1/topics/TOPIC/consumers lists all consumers",
	seb.CodePositionConflict:     "read the consumer's position again; another reader may use the same consumer",
	seb.CodeEndsConflict:         "the log has changed since you read it: take another cut, read up to it, then decide again",
	seb.CodeTooEarly:             "wait, then send the commit again",
	seb.CodeTooManyConsumers:     "delete consumers that nobody needs, or ask the operator to raise --consumers-max of seb serve",
	seb.CodeQueueNotFound:        "PUT /v1/topics/TOPIC/queues/NAME creates the queue; GET /v1/topics/TOPIC/queues lists all queues",
	seb.CodeQueueExists:          "use it as it is, change it with PATCH or `seb queue update`, or choose another name",
	seb.CodeTooManyQueues:        "delete queues that nobody needs, or ask the operator to raise --queues-max of seb serve",
	seb.CodePushNotFound:         "PUT /v1/topics/TOPIC/queues/NAME/push sets the URL",
	seb.CodeLeaseLost:            "stop the work on this record: it may be with another worker, done, deleted, or a dead letter",
	seb.CodeQueueElsewhere:       "try again after Retry-After seconds, or send the request to the address in owner; if this persists, set addresses where the brokers reach each other with seb serve --advertise",
	seb.CodeTooManyDelayed:       "append once the records are due, or ask the operator to raise --delayed-max of seb serve",
	seb.CodeUnauthorized:         "send a valid API key, as Authorization: Bearer KEY",
	seb.CodeForbidden:            "use a key with that scope for that topic",
	seb.CodeKeyNotFound:          "GET /v1/keys lists all keys",
	seb.CodeKeyExists:            "choose another name, or revoke that key first",
	seb.CodeTooManyKeys:          "revoke keys that nobody uses, or ask the operator to raise --keys-max of seb serve",
	seb.CodeOverMemoryBudget:     "try again after Retry-After seconds, with smaller or fewer requests at a time",
	seb.CodeOverStateBudget:      "delete topics that nobody needs, or ask the operator to raise --state-memory of seb serve",
	seb.CodeIdempotencyKeyReused: "use a new idempotency key for each append or commit; to repeat a request, send the same records, partition, if_offset and delay with the same key",
	seb.CodeIdempotencyKeysFull:  "wait, since the log forgets each key after 25 hours; put more records into each append, or ask the operator to raise --idempotency-keys-max of seb serve",
	seb.CodeStoreUnavailable:     "try again after Retry-After seconds; if the error persists, see the broker's log for the store's errors",
	seb.CodeStoreUnusable:        "seb doctor says what is wrong with the store",
	seb.CodeDataLost:             "tell the operator: the broker's log names the object, and seb fsck finds all damaged objects",
	seb.CodeBrokerStopped:        "tell the operator: the broker's log says why, and docs/trouble.md what to do",
	seb.CodeBrokerClosed:         "send the request to another broker, or to this broker once it has started again",
	seb.CodeCanceled:             "send the request again, and wait for the response",

	codeTriggerNotFound:    "PUT /v1/triggers/NAME creates the trigger; GET /v1/triggers lists all triggers",
	codeInvalidTrigger:     "POST /v1/driplang/check checks and explains an expression; docs/driplang.md describes the language",
	codeInvalidTriggerName: "use 1 to 100 letters, digits, and . _ -, with a letter or digit first",

	codeRouteNotFound:        "GET /openapi.yaml lists all paths",
	codeMethodNotAllowed:     "use a method that the Allow header names",
	codeNotAcceptable:        "leave the Accept header out, or name a type that this path serves",
	codeChooseMediaType:      "leave the Accept header out, or name the type that this path serves",
	codeUnsupportedMediaType: "GET /openapi.yaml describes each request",
	codeUnsupportedEncoding:  "send the body as it is, or as gzip or zstd",
	codeRequestTimeout:       "send the body without pauses, or a smaller one",
	codeTooManyAttempts:      "wait, or send a valid API key",
	codeTooMuchRefused:       "correct the requests that got 400, 403, 404, 413 or 415, or, with a Content-Encoding, 409, 412 or 422; requests with small bodies are accepted at once",
	codeCrossOrigin:          "seb serve --allow-origin names the origins whose pages may use the API",
	codeBrokerUnknown:        "the requesting broker runs on another bucket, or on a copy of this one",
	codeInternal:             "tell the operator: the broker's log has the error under the id in " + requestIDHeader,
}

// problem is the body of every error: the fields of RFC 9457, and fields of this API.
type problem struct {
	Type        string      `json:"type"` // always about:blank: clients use Code
	Title       string      `json:"title"`
	Status      int         `json:"status"`
	Detail      string      `json:"detail"`
	Code        seb.Code    `json:"code"`
	Hint        string      `json:"hint"`
	Part        string      `json:"part,omitempty"`
	Outcome     seb.Outcome `json:"outcome,omitempty"`
	Limit       int64       `json:"limit,omitempty"`
	StartOffset *seb.Offset `json:"start_offset,omitempty"`
	EndOffset   *seb.Offset `json:"end_offset,omitempty"`
	Owner       string      `json:"owner,omitempty"` // the address of the queue's owner; Epoch is the epoch of that owner
	Epoch       uint64      `json:"epoch,omitempty"`
	// Results has the outcome of each token of the request.
	Results []tokenResult `json:"results,omitempty"`

	retryAfter time.Duration
	cause      error
}

// problemOf returns the problem that callers see for err. It leaves out the errors that caused err, which
// may name hosts and files of the operator.
func problemOf(err error) problem {
	var e *seb.Error
	if !errors.As(err, &e) {
		e = &seb.Error{Code: codeInternal, Detail: "internal error of the broker"}
	}
	status, known := statuses[e.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	if errors.As(err, new(notReady)) {
		status = http.StatusServiceUnavailable
	}
	p := problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Code: e.Code, Detail: e.Detail, Hint: cmp.Or(e.Hint, hints[e.Code]), Part: e.Part, Outcome: e.Outcome, Limit: e.Limit,
		retryAfter: e.RetryAfter, cause: err,
	}
	if e.Code == seb.CodeOffsetOutOfRange {
		p.StartOffset = &e.Start
	}
	if e.Code == seb.CodeOffsetOutOfRange || e.Code == seb.CodeOffsetConflict {
		p.EndOffset = &e.End
	}
	if e.Code == seb.CodeQueueElsewhere {
		p.Owner, p.Epoch = e.Address, uint64(e.Epoch)
	}
	var refused *tokensRefused
	if errors.As(err, &refused) {
		p.Results, p.Outcome = refused.results, "" // each result has its own outcome
		if n := len(refused.Unwrap()); len(refused.results) > 1 {
			others := ", the others were accepted"
			if n == len(refused.results) {
				others = ""
			}
			p.Detail = fmt.Sprintf("%d of %d tokens were refused%s: %s", n, len(refused.results), others, p.Detail)
		}
	}
	return p
}

// fail answers r with err. If the answer has already begun, fail cuts the connection instead, so that
// the client doesn't take a part of an answer for success. It also cuts the connection if
// the client seems to have left, unless err says whether a write was committed.
func (h *Handler) fail(w *response, r *http.Request, err error) {
	err = ended(w.clientContext, err)
	p := problemOf(err)
	gone := w.clientContext.Err() != nil && errors.Is(err, context.Canceled)
	if w.status != 0 || gone && p.Outcome == "" {
		w.err = err
		panic(http.ErrAbortHandler)
	}
	if w.reads || r.Method == http.MethodGet || r.Method == http.MethodHead {
		p.Outcome, p.cause = "", withoutOutcome(err) // the request commits nothing
	}
	h.countRefused(w, p)
	if p.Code == codeTooMuchRefused {
		h.delayRefusal(w)
	}
	h.answer(w, p)
}

// withoutOutcome returns err without the outcome of a write, for the log.
func withoutOutcome(err error) error {
	e, ok := errors.AsType[*seb.Error](err)
	if !ok || e.Outcome == "" {
		return err
	}
	c := *e
	c.Outcome = ""
	return &c
}

func (h *Handler) answer(w *response, p problem) {
	w.err = p.cause
	p.Detail, p.Hint = WithoutSecrets(p.Detail), WithoutSecrets(p.Hint)
	body, err := marshal(p)
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	contentType, body := "application/problem+json", append(body, '\n')
	if w.original {
		contentType, body = "text/plain; charset=utf-8", []byte(originalText(p))
		p.Status = originalStatus(p)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		seconds := max(1, math.Ceil(p.retryAfter.Seconds()))
		w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="seb"`)
	}
	if !w.bodyRead || p.Code == codeTooManyAttempts {
		w.Header().Set("Connection", "close") // without this header net/http would first wait for the rest of the body
	}
	w.WriteHeader(p.Status)
	if _, err := w.Write(body); err != nil {
		w.err = errors.Join(p.cause, fmt.Errorf("write the response: %w", err))
	}
}

// invalid returns an error with status 400; hint says what would be valid. The error's outcome is
// [seb.NotCommitted]: this package refuses an invalid request before the request reaches the broker.
func invalid(hint, format string, args ...any) error {
	return &seb.Error{Code: seb.CodeInvalidRequest, Outcome: seb.NotCommitted, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func errNoRoute(r *http.Request) error {
	hint := placeHint(r.URL) + "; GET /openapi.yaml lists all paths"
	switch {
	case !isClean(r.URL):
		hint = "a segment of the path is empty, . or ..: is a name missing? " + hint
	case strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "/":
		hint = "leave out the slash at the end; " + hint
	}
	return &seb.Error{Code: codeRouteNotFound, Detail: fmt.Sprintf("there is nothing at %.200q", r.URL.Path), Hint: hint}
}

// placeHint returns a hint that names routes: those of queues or consumers if u is below one, else those of topics.
func placeHint(u *url.URL) string {
	parts := strings.Split(u.EscapedPath(), "/") // "", v1, topics, TOPIC, queues, NAME, ...
	if len(parts) > 5 && parts[1] == "v1" && parts[2] == "topics" {
		switch parts[4] {
		case "consumers":
			return "a consumer is at /v1/topics/TOPIC/consumers/NAME, and below it are records and commit; GET /v1/topics/TOPIC/consumers lists all"
		case "queues":
			return "a queue is at /v1/topics/TOPIC/queues/NAME, and below it are receive, ack, nack, extend, dead, dead/redrive, pause, resume, purge, push and push/resume; " +
				"GET /v1/topics/TOPIC/queues lists all"
		}
	}
	return "topics are under /v1/topics, a topic's records under /v1/topics/TOPIC/records"
}

// methodHints has, for each route, the hint for a request with a method that the route does not have.
var methodHints = map[string]string{
	"/v1/topics":                                      "; PUT /v1/topics/TOPIC creates a topic",
	"/v1/topics/{topic}":                              "; POST /v1/topics/TOPIC/records appends to it",
	"/v1/topics/{topic}/records":                      "; POST appends",
	"/v1/topics/{topic}/consumers":                    "; PUT /v1/topics/TOPIC/consumers/NAME creates a consumer",
	"/v1/topics/{topic}/consumers/{consumer}":         "; POST /v1/topics/TOPIC/consumers/NAME/commit moves the consumer",
	"/v1/topics/{topic}/consumers/{consumer}/records": "; POST /v1/topics/TOPIC/consumers/NAME/commit commits",
	"/v1/topics/{topic}/consumers/{consumer}/commit":  "; GET /v1/topics/TOPIC/consumers/NAME tells where the consumer is",
	"/v1/topics/{topic}/queues":                       "; PUT /v1/topics/TOPIC/queues/NAME creates a queue",
	"/v1/topics/{topic}/queues/{queue}":               "; POST /v1/topics/TOPIC/queues/NAME/receive hands out records",
	"/v1/commits":                                     "; POST commits several things at once",
	"/v1/keys":                                        "; POST creates a key",
	"/v1/keys/{id}":                                   "; GET /v1/keys lists the keys",
}

func errMethod(r *http.Request, allow string) error {
	return &seb.Error{
		Code:   codeMethodNotAllowed,
		Detail: fmt.Sprintf("%s is not possible at %.200q", r.Method, r.URL.Path),
		Hint:   "the path allows " + allow + methodHints[r.Pattern],
	}
}
