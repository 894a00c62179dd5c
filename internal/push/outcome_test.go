package push

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestWhatTheTargetAnswersDecides(t *testing.T) {
	elsewhere := serve(t, "HTTP/1.1", answerStatus(http.StatusOK))
	say := func(status int, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		reason string // "" if the message is acknowledged
		after  time.Duration
	}{
		"200":                 {say(200, "taken"), "", 0},
		"201":                 {say(201, ""), "", 0},
		"204":                 {say(204, ""), "", 0},
		"299":                 {say(299, ""), "", 0},
		"304":                 {say(304, ""), "HTTP 304 Not Modified", 0},
		"302":                 {say(302, "", "Location", elsewhere.url+"?a=\u202eb"), "HTTP 302 Found, which is not followed, to " + elsewhere.url + "?a=b", 0},
		"307":                 {say(307, "moved", "Location", elsewhere.url), "HTTP 307 Temporary Redirect, which is not followed, to " + elsewhere.url + ": moved", 0},
		"308 without a place": {say(308, ""), "HTTP 308 Permanent Redirect", 0},
		"400":                 {say(400, "no such\r\n\tfield \x1b[31m\x00<b>\n"), "HTTP 400 Bad Request: no such field [31m <b>", 0},
		"401":                 {say(401, ""), "HTTP 401 Unauthorized", 0},
		"408":                 {say(408, "", "Retry-After", "9"), "HTTP 408 Request Timeout", 0},
		"499":                 {say(499, "x"), "HTTP 499: x", 0},
		"500":                 {say(500, strings.Repeat("é", 4000)), "HTTP 500 Internal Server Error: " + strings.Repeat("é", (ReasonBytesMax-32-3)/2) + "...", 0},
		"500 that is binary":  {say(500, "\x1f\x8b\x08\xff"), "HTTP 500 Internal Server Error", 0},
		"599":                 {say(599, ""), "HTTP 599", 0},
		"999":                 {say(999, ""), "HTTP 999", 0},
		"429":                 {say(429, "slow", "Retry-After", "3"), "HTTP 429 Too Many Requests: slow", 3 * time.Second},
		"502":                 {say(502, ""), "HTTP 502 Bad Gateway", 0},
		"503":                 {say(503, "", "Retry-After", "86400"), "HTTP 503 Service Unavailable", retryAfterMax},
		"504":                 {say(504, "", "Retry-After", "soon"), "HTTP 504 Gateway Timeout", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			q, to := newQueue(), serve(t, "HTTP/1.1", test.answer)
			run(t, to.pusher(t, q, nil))
			q.add("v")
			want := outcomeOf{token: "0", acked: test.reason == "", atLeast: test.after, reason: test.reason}
			if got := q.next(t); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
	if len(elsewhere.came) > 0 {
		t.Error("a redirect was followed")
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	endless := func(head, each string) func(net.Conn) {
		return func(c net.Conn) {
			afterRequest(head)(c)
			for {
				if _, err := io.WriteString(c, each); err != nil {
					return
				}
			}
		}
	}
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	tests := map[string]struct {
		each   func(net.Conn)
		reason string // the beginning of the reason; "" if the message is acknowledged
		short  bool   // the timeout is short
	}{
		"closes at once":       {func(net.Conn) {}, "no complete response: ", false},
		"closes after it":      {afterRequest(""), "no complete response: ", false},
		"half a status line":   {afterRequest("HTTP/1.1 2"), "no complete response: ", false},
		"another protocol":     {afterRequest("SSH-2.0-x\r\n\r\n"), "no complete response: ", false},
		"no status":            {afterRequest("HTTP/1.1 abc OK\r\n\r\n"), "no complete response: ", false},
		"hangs":                {hang, "no response within 1s", true},
		"hangs within headers": {func(c net.Conn) { afterRequest("HTTP/1.1 200 OK\r\nA: b\r\n")(c); hang(c) }, "no response within 1s", true},
		"endless headers":      {endless("HTTP/1.1 200 OK\r\n", "A: "+strings.Repeat("b", 1000)+"\r\n"), "no complete response: ", false},
		"endless header":       {endless("HTTP/1.1 200 OK\r\nA: ", strings.Repeat("b", 1000)), "no complete response: ", false},
		"endless interim":      {endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), "no ", true},
		"interim":              {afterRequest("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ok), "", false},
		"switches protocols":   {afterRequest("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), "HTTP 101 Switching Protocols", false},
		"switches and hangs": {func(c net.Conn) {
			afterRequest("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")(c)
			hang(c)
		}, "HTTP 101 Switching Protocols", false},
		"endless body":      {endless("HTTP/1.1 200 OK\r\n\r\n", "taken"), "", false},
		"endless reason":    {endless("HTTP/1.1 500 No\r\n\r\n", "ab "), "HTTP 500 Internal Server Error: ab ab ab", false},
		"body that hangs":   {func(c net.Conn) { afterRequest("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntaken")(c); hang(c) }, "", false},
		"reason that hangs": {func(c net.Conn) { afterRequest("HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\nnone")(c); hang(c) }, "HTTP 404 Not Found: none", false},
		"body cut off":      {afterRequest("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntaken"), "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the tests wait
			q, to := newQueue(), raw(t, test.each)
			run(t, to.pusher(t, q, func(tg *Target, _ *Options) {
				if test.short {
					tg.Timeout = time.Second
				}
			}))
			q.add("v")
			got := q.next(t)
			if got.acked != (test.reason == "") || !strings.HasPrefix(got.reason, test.reason) {
				t.Errorf("got %+v", got)
			}
			if strings.Contains(got.reason, "->") {
				t.Errorf("%q tells of this machine's addresses", got.reason)
			}
		})
	}
}

// Over HTTP/2, too, a body that nobody reads must not fill the memory.
func TestEndlessBodyOverHTTP2(t *testing.T) {
	ended := make(chan struct{})
	q, to := newQueue(), serve(t, "HTTP/2.0", func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	})
	run(t, to.pusher(t, q, nil))
	q.add("v")
	if o := q.next(t); !o.acked {
		t.Errorf("the queue was told %+v", o)
	}
	<-ended
}

func TestNobodyThere(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	tls := serve(t, "HTTP/2.0", answerStatus(200))
	tests := map[string]struct {
		to     target
		reason string
	}{
		"nobody listens": {target{url: closed.URL}, "no connection: dial: connect: connection refused"},
		"unknown issuer": {target{url: tls.url}, "no connection: tls: failed to verify certificate: x509: "},
		"no TLS":         {target{url: "https" + strings.TrimPrefix(serve(t, "HTTP/1.1", answerStatus(200)).url, "http")}, "no connection: tls: first record does not look like a TLS handshake"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			q := newQueue()
			run(t, test.to.pusher(t, q, nil))
			q.add("v")
			if got := q.next(t); got.acked || !strings.HasPrefix(got.reason, test.reason) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if len(tls.came) > 0 {
		t.Error("a request came to a target whose certificate nobody knows")
	}
}

func FuzzClean(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, limit uint8) {
		got := clean(text, 3+int(limit))
		if len(got) > 3+int(limit) || !utf8.ValidString(got) || got != strings.TrimSpace(got) {
			t.Fatalf("%q became %q", text, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q became %q", text, got)
			}
		}
		if again := clean(got, 3+int(limit)); again != got {
			t.Fatalf("%q became %q, and that %q", text, got, again)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		wait := retryAfter(http.Header{"Retry-After": {text}}, now)
		if wait < 0 || wait > retryAfterMax {
			t.Fatalf("%q is %v", text, wait)
		}
		var seconds uint16
		if n, err := fmt.Sscanf(text+"\n", "%d\n", &seconds); n == 1 && err == nil && fmt.Sprint(seconds) == text &&
			wait != min(time.Duration(seconds)*time.Second, retryAfterMax) {
			t.Fatalf("%q is %v", text, wait)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tests := map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"007":                           7 * time.Second,
		"3600":                          time.Hour,
		"3601":                          time.Hour,
		"99999999999999999999":          time.Hour,
		"-1":                            0,
		"+1":                            0,
		"1.5":                           0,
		"1s":                            0,
		"Sat, 31 Jan 2026 12:00:05 GMT": 5 * time.Second,
		"Sat, 31 Jan 2026 11:59:59 GMT": 0,
		"Sat Jan 31 12:01:00 2026":      time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT": time.Hour,
		"2026-01-31T12:00:05Z":          0,
	}
	for text, want := range tests {
		if wait := retryAfter(http.Header{"Retry-After": {text}}, now); wait != want {
			t.Errorf("%q is %v, want %v", text, wait, want)
		}
	}
}
