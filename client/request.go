package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// tryTimeout bounds one try of a request. A broker answers within its own timeout for appends, 30 s by
	// default, so a longer silence means that the connection is dead.
	tryTimeout = 90 * time.Second
	// tryMin is the shortest time limit of a try that Options.RetryFor can cause.
	tryMin = 10 * time.Second
	// bodyBytesMax bounds a response. A response with a single record may be large.
	bodyBytesMax = 1 << 30

	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second

	// requestIDHeader is in every response of a broker.
	requestIDHeader = "Seb-Request-Id"
	// warningHeader is a response header that warns of an effect which the caller may not expect.
	warningHeader = "Seb-Warning"
)

// request is a request to any of the brokers.
type request struct {
	method string
	path   []string // the segments of the path below /v1
	query  url.Values
	header http.Header // may be nil
	body   []byte      // nil: no body
	// writes says that the request changes the log: its errors have an outcome.
	writes bool
	// repeatable says that the request can be sent again after an unknown outcome.
	repeatable bool
	// final is an error code after which the request is not sent again, although a retry may help; may be empty.
	final seb.Code
	// wait is how long the broker may wait before it answers, in addition to the usual time.
	wait time.Duration
	// within, unless it is 0, bounds one try instead of tryTimeout and wait.
	within time.Duration
	// into is memory for the body of the response; may be nil.
	into []byte
	// outside says that path is not below /v1.
	outside bool
	// bare says that a broker answers with 204, without a body. To all other requests, it answers with a body.
	bare bool
}

// response is a broker's response with status 2xx.
type response struct {
	server *url.URL
	status int
	header http.Header
	body   []byte
	writes bool
}

// decode reads the JSON of the response into v. check then returns an error if a field is missing that brokers
// always send, or does not fit the request: {} and null are JSON, too, but no broker's answer.
func (r *response) decode(v any, check func() error) error {
	err := json.Unmarshal(r.body, v)
	if err == nil {
		err = check()
	}
	if err != nil {
		return unexpected(r.server, err, r.writes)
	}
	return nil
}

// names returns an error unless a field of an answer has the value that the request asks for.
func names(field, got, want string) error {
	if got != want {
		return fmt.Errorf("its %s is %.80q, not %.80q", field, got, want)
	}
	return nil
}

// lists returns an error if a list of an answer is missing, which a broker sends even if it is empty.
func lists[T any](field string, list []T) error {
	if list == nil {
		return fmt.Errorf("it has no %s", field)
	}
	return nil
}

// jsonBody returns the JSON of v, which consists of strings, numbers, lists and maps.
func jsonBody(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// send sends r until a broker has answered for good, and returns the response if its status is 2xx.
func (c *Client) send(ctx context.Context, r *request) (*response, error) {
	var res *response
	err := c.retry(ctx, r, func(ctx context.Context, server *url.URL, within time.Duration) (err error) {
		res, err = c.try(ctx, server, r, within)
		return err
	})
	return res, err
}

// retry calls try with one server after the other, until try succeeds, or fails for good. It tells try how long it
// may take. If the outcome of one try is unknown, so is that of the request: a later refusal does not say what became
// of the earlier try. When the client is closed, a try of a write goes on, since its outcome would be unknown, and
// everything else ends.
func (c *Client) retry(ctx context.Context, r *request, try func(ctx context.Context, server *url.URL, within time.Duration) error) error {
	if c.life.Err() != nil {
		e := errClosed()
		if r.writes {
			e.Outcome = seb.NotCommitted
		}
		return e
	}
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	if !r.writes {
		ctx = living
	}
	began, pause, unknown := time.Now(), time.Duration(0), false
	for {
		server, tried := c.servers[c.current.Load()], time.Now()
		err := try(ctx, server, c.within(r, tried.Sub(began)))
		if err != nil && !r.writes && c.life.Err() != nil {
			return errClosed()
		}
		e, single := err.(*seb.Error) //nolint:errorlint // a *seb.TokensError has an error for each token, and is final
		if !single {
			return err
		}
		unknown = unknown || e.Outcome == seb.Unknown
		if unknown {
			e.Outcome = seb.Unknown
		}
		if elsewhere(e) {
			c.leave(server)
		}
		if !r.mayRepeat(e) {
			return err
		}
		began = began.Add(min(time.Since(tried), r.wait)) // the caller's wait takes nothing of RetryFor
		pause = min(max(2*pause, backoffMin), backoffMax)
		wait := max(pause, e.RetryAfter)
		if c.opts.RetryFor < 0 || time.Since(began)+wait > c.opts.RetryFor {
			return err
		}
		if c.opts.OnRetry != nil {
			c.opts.OnRetry(e, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-living.Done():
			timer.Stop()
			if c.life.Err() != nil {
				closed := errClosed()
				closed.Outcome, closed.Err = e.Outcome, err
				return closed
			}
			return &seb.Error{Code: seb.CodeCanceled, Detail: canceledDetail, Outcome: e.Outcome, Err: errors.Join(context.Cause(ctx), err)}
		}
	}
}

// within returns how long a try of r may take that begins elapsed after the first one.
func (c *Client) within(r *request, elapsed time.Duration) time.Duration {
	within := r.within
	if within == 0 {
		within = tryTimeout + r.wait
	}
	if c.opts.RetryFor > 0 {
		within = min(within, max(tryMin, c.opts.RetryFor-elapsed)+r.wait)
	}
	return within
}

// mayRepeat tells whether the request may succeed if it is sent again after e, without the risk that it is done twice.
func (r *request) mayRepeat(e *seb.Error) bool {
	if e.Code == r.final && e.Outcome == seb.NotCommitted {
		return false
	}
	return e.RetryAfter > 0 && (!r.writes || r.repeatable || e.Outcome == seb.NotCommitted)
}

// elsewhere tells whether another broker may answer a request that got the error e.
func elsewhere(e *seb.Error) bool {
	switch e.Code {
	case CodeUnreachable, CodeUnexpectedResponse, seb.CodeBrokerClosed, seb.CodeBrokerStopped, seb.CodeStoreUnavailable, seb.CodeOverMemoryBudget:
		return true
	default:
		return false
	}
}

// try sends r once, and reads the whole response.
func (c *Client) try(ctx context.Context, server *url.URL, r *request, within time.Duration) (*response, error) {
	tryCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tryCtx, giveUp := context.WithCancelCause(tryCtx)
	defer giveUp(nil)
	defer c.watch(tryCtx, server, r.wait, timeLeft(ctx, within), giveUp)()
	res, err := c.open(tryCtx, ctx, server, r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := readBody(res, r.into)
	if err != nil {
		return nil, unanswered(ctx, server, err, r.writes)
	}
	return &response{server, res.StatusCode, res.Header, body, r.writes}, nil
}

// timeLeft returns how long a try may take that ends with ctx, or after within.
func timeLeft(ctx context.Context, within time.Duration) time.Duration {
	if end, bounded := ctx.Deadline(); bounded {
		within = min(within, time.Until(end))
	}
	return within
}

// open sends r once, and returns the response if its status is 2xx; the caller closes the body. The request
// ends with ctx. caller is the context of the whole call: once it has ended, a failed request counts as canceled.
func (c *Client) open(ctx, caller context.Context, server *url.URL, r *request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, urlOf(server, r), body)
	if err != nil {
		return nil, invalid(err.Error(), "")
	}
	// Without GetBody, net/http can't repeat the request by itself. It would do so if the connection breaks and
	// the request has an idempotency key, and the client would not learn that a try has an unknown outcome.
	req.GetBody = nil
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", c.opts.UserAgent)
	if c.opts.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.APIKey)
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	var res *http.Response
	if err = ctx.Err(); err == nil { // else package http may take a connection although it sends nothing
		res, err = c.http.Do(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	}
	if err != nil {
		e := unanswered(caller, server, err, r.writes)
		if r.writes && !connected.Load() {
			e.Outcome = seb.NotCommitted // without a connection, nothing was sent
		}
		return nil, e
	}
	c.silences.hear(server)
	if c.opts.OnWarning != nil {
		for _, warning := range res.Header.Values(warningHeader) {
			c.opts.OnWarning(warning)
		}
	}
	if res.StatusCode/100 == 2 {
		if err := fromBroker(res, r); err != nil {
			res.Body.Close()
			return nil, unexpected(server, err, r.writes)
		}
		return res, nil
	}
	defer res.Body.Close()
	text, err := readBody(res, nil)
	if err != nil {
		return nil, unanswered(caller, server, err, r.writes)
	}
	return nil, errorOf(server, res, text, r.writes)
}

// fromBroker returns an error if a response with status 2xx is not a broker's: a login page of a network, or another
// server, may answer every request with 200.
func fromBroker(res *http.Response, r *request) error {
	switch {
	case res.Header.Get(requestIDHeader) == "":
		return errors.New("it has no header " + requestIDHeader)
	case r.bare != (res.StatusCode == http.StatusNoContent):
		return fmt.Errorf("its status is %s", res.Status)
	}
	form, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if want := r.header.Get("Accept"); want != "" && strings.TrimSpace(form) != want {
		return fmt.Errorf("its Content-Type is %.80q, not %q", form, want)
	}
	return nil
}

// urlOf returns the URL of r at a broker.
func urlOf(server *url.URL, r *request) string {
	var b strings.Builder
	b.WriteString(server.String())
	if !r.outside {
		b.WriteString("/v1")
	}
	for _, s := range r.path {
		b.WriteByte('/')
		b.WriteString(escape(s))
	}
	if len(r.query) > 0 {
		b.WriteByte('?')
		b.WriteString(r.query.Encode())
	}
	return b.String()
}

// escape returns a name as a segment of a path. The names . and .., which no broker accepts, are escaped too:
// a server would leave out such segments, and the request would mean something else.
func escape(s string) string {
	switch s {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(s)
}

// readBody reads the whole body into the memory of buf, as far as it fits.
func readBody(res *http.Response, buf []byte) ([]byte, error) {
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, 512)
		}
		n, err := res.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > bodyBytesMax:
			return nil, errors.New("the response has more than 1 GiB")
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
