package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

// Codes of errors that only a [Client] returns.
const (
	// CodeUnreachable says that no broker answered.
	CodeUnreachable seb.Code = "unreachable"
	// CodeUnexpectedResponse says that the response is not what a broker sends: another server, such as a
	// proxy, may have answered.
	CodeUnexpectedResponse seb.Code = "unexpected_response"
)

const canceledDetail = "the caller canceled the request, or the deadline of the request passed"

const (
	plainLineMax  = 200 // how many bytes of an error text are shown if the server is not a broker
	retryAfterMax = time.Minute
	retryPauseMin = 100 * time.Millisecond
)

// StatusError is the cause of an error with [CodeUnexpectedResponse] if the response has an error status.
type StatusError int

// Error returns the status, such as 404 Not Found.
func (e StatusError) Error() string { return fmt.Sprintf("%d %s", int(e), http.StatusText(int(e))) }

// SetupError is the cause of an error with [CodeUnreachable] if client and broker can't talk to each other before somebody
// changes how they are set up: only one of them speaks TLS, or one does not trust the certificate of the other. The
// request did nothing, and a retry can't help.
type SetupError struct{ Err error }

// Error returns the text of the cause.
func (e SetupError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e SetupError) Unwrap() error { return e.Err }

// problem is the body of a broker's error.
type problem struct {
	Status  int           `json:"status"`
	Code    seb.Code      `json:"code"`
	Detail  string        `json:"detail"`
	Hint    string        `json:"hint"`
	Part    string        `json:"part"`
	Outcome seb.Outcome   `json:"outcome"`
	Limit   int64         `json:"limit"`
	Start   seb.Offset    `json:"start_offset"`
	End     seb.Offset    `json:"end_offset"`
	Owner   string        `json:"owner"`
	Epoch   seb.Epoch     `json:"epoch"`
	Results []tokenResult `json:"results"`
}

// tokenResult says what happened to one token.
type tokenResult struct {
	Token       string      `json:"token"`
	OK          bool        `json:"ok"`
	LeasedUntil time.Time   `json:"leased_until"`
	Code        seb.Code    `json:"code"`
	Detail      string      `json:"detail"`
	Hint        string      `json:"hint"`
	Outcome     seb.Outcome `json:"outcome"`
}

// errorOf returns the error of a response with an error status. The response may also come from another
// server than a broker.
func errorOf(server *url.URL, res *http.Response, body []byte, writes bool) error {
	var p problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" {
		return foreign(server, res, body, writes)
	}
	if len(p.Results) > 0 {
		return refusedTokens(p.Results)
	}
	e := &seb.Error{
		Code: p.Code, Detail: p.Detail, Hint: p.Hint, Part: p.Part, Limit: p.Limit,
		Start: p.Start, End: p.End, Address: p.Owner, Epoch: p.Epoch, RetryAfter: retryAfter(res),
	}
	if writes {
		e.Outcome = outcomeOf(p.Outcome, res.StatusCode)
	}
	return e
}

// refusedTokens returns the error of a request of which some tokens, or all, were refused.
func refusedTokens(results []tokenResult) error {
	e := &seb.TokensError{Errors: make([]error, len(results))}
	for i, r := range results {
		if !r.OK {
			e.Errors[i] = &seb.Error{Code: r.Code, Detail: r.Detail, Hint: r.Hint, Outcome: r.Outcome}
		}
	}
	return e
}

// foreign returns the error of a response that is not a broker's.
func foreign(server *url.URL, res *http.Response, body []byte, writes bool) error {
	e := &seb.Error{
		Code: CodeUnexpectedResponse, Hint: "make sure that the URL is a broker's, and see the log of the proxy if there is one",
		RetryAfter: retryAfter(res), Err: StatusError(res.StatusCode),
	}
	line := plainLine(body)
	switch to := res.Header.Get("Location"); {
	case server.Scheme == "http" && strings.HasSuffix(line, "to an HTTPS server."):
		e.Code, e.Detail, e.Hint = CodeUnreachable, fmt.Sprintf("%s speaks HTTPS only", server), "write https:// in the URL of the broker"
		e.RetryAfter, e.Err = 0, SetupError{errors.New("the URL begins with http")}
		if writes {
			e.Outcome = seb.NotCommitted
		}
		return e
	case to != "":
		e.Detail, e.Hint = fmt.Sprintf("%s redirects to %s", server, to), "use that URL if a broker is there"
	case line != "":
		e.Detail = fmt.Sprintf("%s answers %q", server, line)
	default:
		e.Detail = fmt.Sprintf("%s answers in a form that is not a broker's", server)
	}
	if writes {
		e.Outcome = outcomeOf("", res.StatusCode)
	}
	return e
}

// outcomeOf returns the outcome that a response states. If it states none, its status decides: the broker may
// have done a write that got a 5xx. An outcome that this version does not know counts as unknown.
func outcomeOf(said seb.Outcome, status int) seb.Outcome {
	switch {
	case said == seb.NotCommitted, said == "" && status < 500:
		return seb.NotCommitted
	default:
		return seb.Unknown
	}
}

// retryAfter returns how long to wait before the request is sent again, 0 if that can't help.
func retryAfter(res *http.Response) time.Duration {
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return 0
	}
	s, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil {
		return retryPauseMin
	}
	seconds := min(max(0, s), int(retryAfterMax/time.Second))
	return max(retryPauseMin, time.Duration(seconds)*time.Second)
}

// plainLine returns body if it is a line of text, as servers that are not brokers often send, else "".
func plainLine(body []byte) string {
	s := string(bytes.TrimSpace(body))
	if len(s) > plainLineMax || strings.HasPrefix(s, "<") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// unanswered returns the error of a request that got no response. ctx is the caller's.
func unanswered(ctx context.Context, server *url.URL, err error, writes bool) *seb.Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the request's URL: the details below name the broker
	}
	e := &seb.Error{Code: CodeUnreachable, RetryAfter: retryPauseMin, Err: err}
	unsent := true
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		e.Detail, e.Hint = fmt.Sprintf("no broker answers at %s", server), "start a broker there with seb serve, or use another URL"
	default:
		if e.Detail, e.Hint = misfit(server, err); e.Detail != "" {
			e.RetryAfter, e.Err = 0, SetupError{err}
			break
		}
		e.Detail, unsent = fmt.Sprintf("no response from %s", server), false
	}
	if ctx.Err() != nil {
		e.Code, e.Detail, e.Hint, e.RetryAfter, e.Err = seb.CodeCanceled, canceledDetail, "", 0, ctx.Err()
	}
	if writes {
		e.Outcome = seb.Unknown
		if unsent {
			e.Outcome = seb.NotCommitted
		}
	}
	return e
}

// misfit returns why client and broker can't talk to each other, and what to do, if err comes from how they are set up, else
// "". TLS ends the connection before the broker reads the request.
func misfit(server *url.URL, err error) (detail, hint string) {
	var name x509.HostnameError
	var bad x509.CertificateInvalidError
	var first tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &first) && first.Conn != nil: // with Conn, it is about the first record
		return fmt.Sprintf("%s does not speak HTTPS", server), "write http:// in the URL of the broker"
	case server.Scheme == "http" && strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // an alert of TLS
		return fmt.Sprintf("%s speaks HTTPS only", server), "write https:// in the URL of the broker"
	case errors.As(err, &name):
		return fmt.Sprintf("the certificate of %s has another name", server), "write a name that the certificate has in the URL of the broker, or give the broker a certificate with this name"
	case errors.As(err, &bad) && bad.Reason == x509.Expired:
		return fmt.Sprintf("the certificate of %s has expired, or is not valid yet", server), "renew the certificate, or set the clock of this machine"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Sprintf("the certificate of %s is not trusted", server), "name the authority that signed the certificate"
	case errors.As(err, &op) && op.Op == "remote error" && ofHandshake.MatchString(op.Err.Error()):
		return fmt.Sprintf("%s refuses the TLS connection", server), "give the client a certificate that the broker trusts, and make sure that both have a version of TLS in common"
	default:
		return "", ""
	}
}

// ofHandshake matches what package tls says of alerts that end a connection before the server has read a request.
var ofHandshake = regexp.MustCompile(`certificate|protocol version|handshake failure`)

// notSent returns the error of a write that was not sent, because a read before it failed with err.
func notSent(err error) error {
	if e, ok := errors.AsType[*seb.Error](err); ok {
		failed := *e
		failed.Outcome = seb.NotCommitted
		return &failed
	}
	return err
}

// errClosed returns the error of a client that was closed.
func errClosed() *seb.Error {
	return &seb.Error{Code: seb.CodeBrokerClosed, Detail: "the client is closed", Hint: "make another client"}
}

// unexpected returns the error of a response with status 2xx that is not what a broker sends. A write was
// carried out if a broker answered, but nothing proves that.
func unexpected(server *url.URL, err error, writes bool) error {
	e := &seb.Error{
		Code: CodeUnexpectedResponse, Detail: fmt.Sprintf("the response of %s is not what a broker sends", server),
		Hint: "make sure that the URL is a broker's", Err: err,
	}
	if writes {
		e.Outcome = seb.Unknown
	}
	return e
}
