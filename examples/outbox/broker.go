package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	requestTimeout = 30 * time.Second
	answerBytesMax = 1 << 20
)

// broker appends batches over HTTP.
type broker struct {
	base *url.URL
	key  string // an API key, or ""
	http *http.Client
}

func newBroker(server, key string) (*broker, error) {
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("-server: %q is not an http:// or https:// URL", server)
	}
	return &broker{base: base, key: key, http: &http.Client{
		// Don't follow redirects: net/http would follow the redirect of a POST with a GET, which
		// appends nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// failure is an append that did not succeed.
type failure struct {
	err        error
	certain    bool // the records are certainly not in the topic
	refused    bool // no retry helps until somebody changes the request, the topic or the broker
	retryAfter time.Duration
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// append appends records with an idempotency key. replayed is true if the broker had
// appended them already, with this key. Errors are of type *failure.
func (b *broker) append(ctx context.Context, topic, key string, records []record) (replayed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"records": records})
	if err != nil {
		return false, &failure{err: err, certain: true, refused: true}
	}
	address := b.base.JoinPath("v1", "topics", topic, "records").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return false, &failure{err: err, certain: true, refused: true}
	}
	// With GetBody, net/http may send a request with an idempotency key again by itself. Suppose that
	// the answer to the first request is lost, and that there is no connection for the second one. The
	// error would be about the second request, and wrongly say that nothing was appended.
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/vnd.seb.records+json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("User-Agent", "seb-outbox")
	if b.key != "" {
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	res, err := b.http.Do(req)
	if err != nil {
		return false, unanswered(b.base, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerBytesMax))
	if err != nil {
		return false, unanswered(b.base, err)
	}
	if res.StatusCode != http.StatusCreated {
		return false, refusal(res, answer)
	}
	var appended struct{ Count int }
	if err := json.Unmarshal(answer, &appended); err != nil || appended.Count != len(records) {
		return false, &failure{err: fmt.Errorf("%s answered 201, but does not say that it appended %d records: is it a broker?", b.base, len(records))}
	}
	return res.Header.Get("Idempotency-Replayed") == "true", nil
}

// unanswered returns the failure of a request without an answer. The broker may have
// appended the records, unless no connection could be opened.
func unanswered(base *url.URL, err error) *failure {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the cause, without the method and the URL
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &failure{err: fmt.Errorf("no broker answers at %s: %w", base, err), certain: true}
	}
	return &failure{err: fmt.Errorf("no response from %s: %w", base, err)}
}

// refusal returns the failure for an answer other than 201. The answer may come from the
// broker, or from a proxy in front of the broker.
func refusal(res *http.Response, answer []byte) *failure {
	var problem struct{ Code, Detail, Hint, Outcome string }
	if json.Unmarshal(answer, &problem) != nil {
		problem.Code, problem.Detail, problem.Hint, problem.Outcome = "", "", "", ""
	}
	text := []string{res.Status}
	for _, s := range []string{problem.Code, problem.Detail, problem.Hint} {
		if s != "" {
			text = append(text, s)
		}
	}
	f := &failure{err: errors.New(strings.Join(text, ": "))}
	switch status := res.StatusCode; {
	case problem.Outcome != "":
		f.certain = problem.Outcome == "not_committed"
	case status == http.StatusTooManyRequests, problem.Code != "" && status < 500:
		f.certain = true
	}
	switch res.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
	default:
		f.refused = res.StatusCode < 500
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		f.retryAfter = min(time.Duration(seconds)*time.Second, pauseMax)
	}
	return f
}
