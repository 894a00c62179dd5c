package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	batchType = "application/vnd.seb.batch"

	// Longer than the broker's own time-out for appends (30 s). So the broker answers first, unless the
	// connection is dead.
	requestTimeout = 90 * time.Second
	// A broker keeps idle connections longer than this, so that the client closes them first: if the broker
	// closes a connection while a request is on its way, the outcome of the request is unknown.
	idleConnTimeout = 5 * time.Second
	idleConnsMax    = 1000
	// The largest answer that is read into memory, such as a list of many topics or a proxy's error page.
	answerBytesMax = 64 << 20

	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// The longest Retry-After that a command obeys.
	retryAfterMax = time.Minute
	// How many bytes of an error text are shown if the server is not a broker.
	plainLineMax = 200
)

// serverFlag has the flags for the broker's URL and the API key, for every command that talks to a broker.
type serverFlag struct {
	Server         string `group:"broker" default:"http://127.0.0.1:51313" placeholder:"URL" help:"The broker's URL (default ${default})."`
	Key            string `group:"broker" name:"key" placeholder:"KEY" help:"API key; better in the environment, as SEB_KEY, where other users don't see it (default: none)."`
	KeyFile        string `group:"broker" name:"key-file" type:"existingfile" placeholder:"FILE" help:"Read the API key from FILE; on the command line it takes precedence over SEB_KEY (default: none)."`
	clientTLSFlags `group:"broker"`
}

// apiKey returns the API key to send, "" if none was given.
func (f serverFlag) apiKey() (string, error) {
	key := f.Key
	if key == "" && f.KeyFile != "" {
		b, err := os.ReadFile(f.KeyFile)
		if err != nil {
			return "", fmt.Errorf("read the API key: %w", err)
		}
		if key = strings.TrimSpace(string(b)); key == "" {
			return "", usage(fmt.Errorf("--key-file: %s is empty", f.KeyFile))
		}
	}
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usage(errors.New("the API key has characters that no API key can have; is it the right file?"))
	}
	return key, nil
}

// client sends requests to one broker.
type client struct {
	base *url.URL
	http *http.Client
	key  string
}

// client checks the flags and returns a client, which connects when it sends its first request.
func (f serverFlag) client() (*client, error) {
	base, err := url.Parse(f.Server)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, usage(fmt.Errorf("invalid --server %q: it must be an http:// or https:// URL", f.Server))
	}
	key, err := f.apiKey()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.IdleConnTimeout = idleConnTimeout
	// consume --follow has a request for each partition under way at the same time. The transport keeps up to
	// idleConnsMax idle connections, so that the next requests can use them again.
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idleConnsMax, idleConnsMax
	if transport.TLSClientConfig, err = f.config(); err != nil {
		return nil, err
	}
	return &client{base: base, key: key, http: &http.Client{
		Transport: transport,
		// Redirects are not followed: after most redirects of a POST, Go's client sends a GET, and an append
		// would become a read.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// url returns the URL of a path below /v1, and escapes the segments of the path.
func (c *client) url(query url.Values, segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	u := strings.TrimRight(c.base.String(), "/") + "/v1/" + strings.Join(segments, "/")
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// outside returns the URL of a path that is not below /v1, such as metrics.
func (c *client) outside(name string) string {
	return strings.TrimRight(c.base.String(), "/") + "/" + name
}

// do sends req and returns the answer if its status is 2xx; the caller closes the body. Errors wrap an
// *apiError if the server refused, and a transportError if no answer came.
func (c *client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "seb/"+version())
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unanswered(c.base, err)
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, c.refusal(readProblem(res))
	}
	return res, nil
}

// call sends body as JSON, and decodes the JSON of the response into answer; both may be nil. It returns the
// status.
func (c *client) call(ctx context.Context, method, u string, body, answer any) (int, error) {
	status, _, err := c.exchange(ctx, method, u, body, answer)
	return status, err
}

// exchange does the same as call, and also returns the headers of the response.
func (c *client) exchange(ctx context.Context, method, u string, body, answer any) (int, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, content)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.do(req)
	if err != nil {
		return 0, nil, c.unsure(method, u, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax))
	if err != nil {
		return 0, nil, c.unsure(method, u, unanswered(c.base, err))
	}
	if answer == nil {
		return res.StatusCode, res.Header, nil
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return 0, nil, fmt.Errorf("%s: the response is not what a broker sends: %w", c.base, err)
	}
	return res.StatusCode, res.Header, nil
}

// unsure returns err, the error of a request. If the request may have changed something despite the error,
// unsure adds the exit code for an unknown outcome, and a hint how to check.
func (c *client) unsure(method, u string, err error) error {
	if _, outcome := retryable(err); method == http.MethodGet || outcome != seb.Unknown {
		return err
	}
	check := "check with `seb topic list` or `seb topic show` before you try again"
	switch {
	case strings.Contains(u, "/consumers/"):
		check = "check with `seb consumer show` before you try again"
	case strings.Contains(u, "/queues/"):
		check = "check with `seb queue show` before you try again"
	case strings.HasPrefix(u, c.url(nil, "keys")):
		check = "check with `seb key list` (with --store if you have no other key), and revoke a key that was created but never shown"
	}
	return codedError{hinted(err, "the request may have been carried out: "+check), exitUnknown}
}

// transportError is the error of a request that got no answer. If unsent is true, the request did not reach a
// broker. If unsent is false, a broker may have carried out the request.
type transportError struct {
	error
	unsent bool
}

func (e transportError) Unwrap() error { return e.error }

func unanswered(base *url.URL, err error) error {
	// Leave out the request's URL: the messages below name the broker.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		err = hinted(fmt.Errorf("no broker answers at %s: %w", base, err),
			"start one with `seb serve`, or give its URL with --server or SEB_SERVER")
		return transportError{err, true}
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return transportError{hinted(fmt.Errorf("%s does not speak HTTPS: %w", base, err), "write http:// in --server or SEB_SERVER"), true}
	}
	if isUntrusted(err) {
		return transportError{hinted(fmt.Errorf("%s can't be trusted: %w", base, err), "name the authority that signed its certificate with --ca or SEB_CA"), true}
	}
	return transportError{fmt.Errorf("no response from %s: %w", base, err), false}
}

// isUntrusted tells whether a request failed because the server's certificate is not trusted. Such a request
// was not sent.
func isUntrusted(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// refusal returns err, the error of an answer, with one exception: a Go HTTP server that expects HTTPS
// answers a plain HTTP request with a line of text. refusal turns that answer into a transportError that
// names the problem.
func (c *client) refusal(err error) error {
	var e *apiError
	if c.base.Scheme == "http" && errors.As(err, &e) && e.Code == "" && strings.HasSuffix(e.Detail, "to an HTTPS server.") {
		return transportError{hinted(fmt.Errorf("%s speaks HTTPS only: %w", c.base, http.ErrSchemeMismatch),
			"write https:// in --server or SEB_SERVER"), true}
	}
	return err
}

// apiError is a broker's refusal: an application/problem+json answer.
type apiError struct {
	Status  int         `json:"status"`
	Title   string      `json:"title"`
	Code    seb.Code    `json:"code"`
	Detail  string      `json:"detail"`
	Hint    string      `json:"hint"`
	Outcome seb.Outcome `json:"outcome"`

	retryAfter time.Duration
}

func (e *apiError) Error() string {
	switch {
	case e.Code != "" && e.Detail != "":
		return fmt.Sprintf("%s: %s", e.Code, e.Detail)
	case e.Detail != "":
		return fmt.Sprintf("status %d: %s", e.Status, e.Detail)
	default:
		return fmt.Sprintf("status %d %s", e.Status, http.StatusText(e.Status))
	}
}

// readProblem turns an error answer into an *apiError. The answer may also come from a proxy, and be HTML.
func readProblem(res *http.Response) error {
	e := &apiError{}
	b, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax))
	if err != nil || json.Unmarshal(b, e) != nil {
		// The answer is not a broker's error: callers have to judge it by its status alone.
		*e = apiError{Detail: plainLine(b)}
	}
	e.Status = res.StatusCode
	if to := res.Header.Get("Location"); to != "" && e.Detail == "" {
		e.Detail = "the server redirects to " + to
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.retryAfter = time.Duration(min(s, int(retryAfterMax/time.Second))) * time.Second
	}
	if e.Outcome != "" && e.Outcome != seb.NotCommitted {
		e.Outcome = seb.Unknown // also for an outcome that this version of seb does not know
	}
	if e.Hint = shellHint(e.Code, e.Hint); e.Hint != "" {
		return hinted(e, e.Hint)
	}
	return e
}

// plainLine returns body if it is a line of text, as servers that are not brokers often send, else "".
func plainLine(body []byte) string {
	s := string(bytes.TrimSpace(body))
	if len(s) > plainLineMax || strings.HasPrefix(s, "<") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// retryable tells whether a retry may help, and the outcome of the request. If the answer names no outcome,
// its status decides: the server may have carried out a request that got a 5xx.
func retryable(err error) (retry bool, outcome seb.Outcome) {
	var t transportError
	if errors.As(err, &t) {
		if t.unsent {
			return !isUntrusted(err) && !errors.Is(err, http.ErrSchemeMismatch), seb.NotCommitted
		}
		return true, seb.Unknown
	}
	var e *apiError
	if !errors.As(err, &e) {
		return false, seb.Unknown
	}
	outcome = e.Outcome
	switch e.Status {
	case http.StatusTooManyRequests:
		retry = true
		if outcome == "" {
			outcome = seb.NotCommitted
		}
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		retry = true
		if outcome == "" {
			outcome = seb.Unknown
		}
	default:
		if outcome == "" && e.Status < 500 {
			outcome = seb.NotCommitted
		} else if outcome == "" {
			outcome = seb.Unknown
		}
	}
	return retry, outcome
}

// backoff makes the pauses between retries. Each pause is twice as long as the previous pause, up to
// backoffMax. If the broker asks for a longer pause, the pause is as long as the broker asks for.
type backoff struct{ last time.Duration }

// wait pauses after err, and returns false once ctx ends.
func (b *backoff) wait(ctx context.Context, err error) bool {
	b.last = min(max(2*b.last, backoffMin), backoffMax)
	pause := b.last
	var e *apiError
	if errors.As(err, &e) {
		pause = max(pause, e.retryAfter)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tellWaitMin is the shortest wait that is reported to the user.
const tellWaitMin = 5 * time.Second

// waitNotes tell the user why a command waits if the broker asks for a long wait. Each error code is
// reported once.
type waitNotes struct {
	w        io.Writer
	progress *progress // cleared before a note
	doing    string
	most     time.Duration // how long the command retries in all
	told     map[seb.Code]bool
}

func newWaitNotes(w io.Writer, p *progress, doing string, most time.Duration) *waitNotes {
	return &waitNotes{w, p, doing, most, map[seb.Code]bool{}}
}

// tell reports err with its hint, before the command waits and tries again. It reports nothing if the broker
// asked for a short wait, or if it has reported the same code before.
func (n *waitNotes) tell(err error) {
	var e *apiError
	if !errors.As(err, &e) || e.retryAfter < tellWaitMin || n.told[e.Code] {
		return
	}
	n.told[e.Code] = true
	n.progress.clear()
	err = fmt.Errorf("%s: %w; trying again for up to %v", n.doing, e, n.most)
	if e.Hint != "" {
		err = hinted(err, e.Hint)
	}
	report(n.w, err)
}
