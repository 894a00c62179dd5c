package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

var testServer = &url.URL{Scheme: "http", Host: "127.0.0.1:51313"}

// For any error response of any server: a write that is not in the log for sure is repeated only then, and the
// pause before that is bounded.
func FuzzResponse(f *testing.F) {
	f.Add(429, "1", []byte(`{"code":"over_memory_budget","outcome":"not_committed","status":200}`))
	f.Add(503, "9223372036854775807", []byte(`{"outcome":"unknown","hint":"wait"}`))
	f.Add(503, "-1", []byte(`{"code":"store_unavailable","outcome":"surely not"}`))
	f.Add(502, "", []byte("<html>Bad Gateway</html>"))
	f.Fuzz(func(t *testing.T, status int, retryAfter string, body []byte) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}}
		err := errorOf(testServer, res, body, true)
		if errors.As(err, new(*seb.TokensError)) {
			return
		}
		e, ok := errors.AsType[*seb.Error](err)
		if !ok || e.Code == "" || e.Error() == "" || e.RetryAfter < 0 || e.RetryAfter > retryAfterMax {
			t.Fatalf("%d %q became %+v", status, body, e)
		}
		if e.Outcome != seb.NotCommitted && e.Outcome != seb.Unknown {
			t.Fatalf("%d %q has the outcome %q", status, body, e.Outcome)
		}
		said := bytes.Contains(body, []byte("not_committed")) || bytes.Contains(body, []byte(`\u`)) || bytes.Contains(body, []byte("HTTPS"))
		if e.Outcome == seb.NotCommitted && !said && status >= 500 {
			t.Fatalf("%d %q is taken for not committed", status, body)
		}
	})
}

// A write that may be in the log never gets the outcome NotCommitted.
func TestOutcomesOfWritesAreKeptApart(t *testing.T) {
	answered := func(status int, body string) error {
		return errorOf(testServer, &http.Response{StatusCode: status, Header: http.Header{}}, []byte(body), true)
	}
	for _, test := range []struct {
		err     error
		retry   bool
		outcome seb.Outcome
	}{
		{unanswered(context.Background(), testServer, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true), true, seb.NotCommitted},
		{unanswered(context.Background(), testServer, io.EOF, true), true, seb.Unknown},
		{answered(429, ""), true, seb.NotCommitted},
		{answered(503, `{"code":"store_unavailable","outcome":"not_committed"}`), true, seb.NotCommitted},
		{answered(503, `{"code":"store_unavailable","outcome":"unknown"}`), true, seb.Unknown},
		{answered(503, `{"code":"store_unavailable"}`), true, seb.Unknown},
		{answered(503, ""), true, seb.Unknown},
		{answered(502, ""), true, seb.Unknown},
		{answered(504, ""), true, seb.Unknown},
		{answered(500, ""), false, seb.Unknown},
		{answered(413, ""), false, seb.NotCommitted},
		{answered(404, ""), false, seb.NotCommitted},
	} {
		e, ok := errors.AsType[*seb.Error](test.err)
		if !ok || e.Outcome != test.outcome || e.RetryAfter > 0 != test.retry {
			t.Errorf("%v: retry after %v, %s; want %v, %s", test.err, e.RetryAfter, e.Outcome, test.retry, test.outcome)
		}
	}
}

func TestRetryAfterIsBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": retryPauseMin, "7": 7 * time.Second, "9223372036854775807": retryAfterMax, "-1": retryPauseMin, "soon": retryPauseMin} {
		res := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {text}}}
		if got := retryAfter(res); got != want {
			t.Errorf("%q means %v, not %v", text, got, want)
		}
	}
}

func TestOnlyALineOfTextIsShown(t *testing.T) {
	for body, want := range map[string]string{
		"no healthy upstream\n": "no healthy upstream", "": "", "<p>no</p>": "", "a\nb": "", "\x1b[2J": "",
		strings.Repeat("a", plainLineMax+1): "",
	} {
		if got := plainLine([]byte(body)); got != want {
			t.Errorf("%.20q is shown as %q", body, got)
		}
	}
}
