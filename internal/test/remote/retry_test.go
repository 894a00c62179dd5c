package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
)

// closedURL returns the URL of a port where nothing listens.
func closedURL(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + l.Addr().String()
}

// losing serves the broker's API, but cuts the connection instead of sending the responses to the first n
// POSTs: the broker has carried them out by then.
func losing(t testing.TB, b *seb.Broker, n int32) (url string, posts *atomic.Int32) {
	t.Helper()
	posts = new(atomic.Int32)
	h := httpapi.New(b, httpapi.Options{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || posts.Add(1) > n {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	t.Cleanup(ts.Close)
	return ts.URL, posts
}

func TestRequestGoesToTheNextBrokerIfOneIsGone(t *testing.T) {
	b := open(t)
	var retries []seb.Code
	c := newClient(t, client.Options{
		Servers: []string{closedURL(t), strings.TrimPrefix(serve(t, b), "http://")}, NoIdempotencyKeys: true,
		OnRetry: func(err *seb.Error, _ time.Duration) { retries = append(retries, err.Code) },
	})
	for range 3 {
		if _, err := c.Append(t.Context(), "orders", kit.Values("v")); err != nil {
			t.Fatal(err)
		}
	}
	kit.WantValues(t, b, "orders", "v", "v", "v")
	if fmt.Sprint(retries) != "[unreachable]" {
		t.Errorf("retries: %v", retries)
	}
}

func TestAppendWhoseResponseIsLostIsInTheLogOnce(t *testing.T) {
	b := open(t)
	url, posts := losing(t, b, 2)
	c := newClient(t, client.Options{Servers: []string{url}})
	a, err := c.Append(t.Context(), "orders", kit.Values("v"))
	if err != nil || !a.Replayed || posts.Load() != 3 {
		t.Errorf("%+v, %v after %d requests", a, err, posts.Load())
	}
	kit.WantValues(t, b, "orders", "v")
}

func TestCommitWhoseResponseIsLostIsDoneOnce(t *testing.T) {
	b := open(t)
	url, _ := losing(t, b, 1)
	c := newClient(t, client.Options{Servers: []string{url}})
	done, err := c.Commit(t.Context(), seb.Commit{Appends: []seb.CommitAppend{kit.Appends("orders", "v")}})
	if err != nil || !done.Replayed {
		t.Errorf("%+v, %v", done, err)
	}
	kit.WantValues(t, b, "orders", "v")
}

func TestAppendWithoutAKeyIsNotRepeatedAfterAnUnknownOutcome(t *testing.T) {
	b := open(t)
	url, posts := losing(t, b, 1)
	c := newClient(t, client.Options{Servers: []string{url}, NoIdempotencyKeys: true})
	_, err := c.Append(t.Context(), "orders", kit.Values("v"))
	kit.WantCode(t, err, client.CodeUnreachable)
	kit.WantOutcome(t, err, seb.Unknown)
	if n := posts.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	kit.WantValues(t, b, "orders", "v")
}

// A later try is refused or not sent, but an earlier try may be in the log.
func TestOutcomeOfAnEarlierTryCounts(t *testing.T) {
	opts := kit.Immediate()
	opts.Limits.IdempotencyKeys = 1
	b := kit.Open(t, objstore.NewMemory(), opts)
	kit.MustAppend(t, b, "orders", "first")
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"code":"idempotency_keys_full","detail":"d","outcome":"not_committed"}`)
	}))
	t.Cleanup(refusing.Close)
	for _, second := range []string{refusing.URL, closedURL(t)} {
		first, posts := losing(t, b, 1)
		c := newClient(t, client.Options{Servers: []string{first, second}, RetryFor: 200 * time.Millisecond})
		_, err := c.Append(t.Context(), "orders", kit.Values("v"))
		kit.WantOutcome(t, err, seb.Unknown)
		if n := posts.Load(); n != 1 {
			t.Errorf("%s: %d requests reached the broker", seb.CodeOf(err), n)
		}
	}
}

func TestAcknowledgementWhoseResponseIsLostIsRepeated(t *testing.T) {
	b, q := kit.OpenQueue(t, 1, seb.QueueUpdate{})
	ms := kit.MustReceive(t, q, 1, time.Minute)
	url, posts := losing(t, b, 1)
	c := newClient(t, client.Options{Servers: []string{url}})
	if err := c.Queue("t", "work").Ack(t.Context(), ms[0].Token); err != nil || posts.Load() != 2 {
		t.Errorf("%v after %d requests", err, posts.Load())
	}
	kit.WantLeft(t, q, 0)
}

// If the log remembers as many idempotency keys as it may, the client appends without one.
func TestAppendsGoOnWhenTheLogHasNoRoomForKeys(t *testing.T) {
	opts := kit.Immediate()
	opts.Limits.IdempotencyKeys = 1
	b := kit.Open(t, objstore.NewMemory(), opts)
	waited := func(err *seb.Error, wait time.Duration) { t.Fatalf("the client waits %v after %v", wait, err) }
	url := serve(t, b)
	c := newClient(t, client.Options{Servers: []string{url}, RetryFor: 5 * time.Minute, OnRetry: waited})
	for range 3 {
		if _, err := c.Append(t.Context(), "orders", kit.Values("v")); err != nil {
			t.Fatal(err)
		}
	}
	c = newClient(t, client.Options{Servers: []string{url}})
	_, err := c.Append(t.Context(), "orders", kit.Values("w"), seb.IdempotencyKey("mine"))
	kit.WantCode(t, err, seb.CodeIdempotencyKeysFull)
	kit.WantValues(t, b, "orders", "v", "v", "v")
}

func TestFollowerContinuesWhereItsStreamBrokeOff(t *testing.T) {
	b := open(t)
	h := httpapi.New(b, httpapi.Options{})
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	c := newClient(t, client.Options{Servers: []string{ts.URL}})
	kit.MustAppend(t, b, "orders", "a", "b")
	f, err := c.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Earliest)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	next := func(limit int) {
		t.Helper()
		rs, err := f.Next(t.Context(), seb.FetchOptions{Limit: limit, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			got = append(got, string(r.Value))
		}
	}
	next(1)
	ts.CloseClientConnections()
	next(1)
	kit.MustAppend(t, b, "orders", "c")
	ts.CloseClientConnections()
	next(9)
	if fmt.Sprint(got) != "[a b c]" {
		t.Errorf("got %v", got)
	}
}

func TestFollowerReportsWhyItsStreamEnds(t *testing.T) {
	b := open(t)
	c := newClient(t, client.Options{Servers: []string{serve(t, b)}})
	kit.MustAppend(t, b, "orders", "a")
	f, err := c.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Latest)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	_, err = f.Next(t.Context(), seb.FetchOptions{Wait: time.Minute})
	kit.WantCode(t, err, seb.CodeTopicNotFound)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	kit.MustAppend(t, b, "orders", "a")
	if f, err = c.NewFollower(t.Context(), "orders", seb.AllPartitions, seb.Latest); err != nil {
		t.Fatal(err)
	}
	_, err = f.Next(ctx, seb.FetchOptions{Wait: time.Minute})
	kit.WantCode(t, err, seb.CodeCanceled)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Servers that are not brokers answer: a proxy, a web server, a server that expects HTTPS.
func TestErrorsNameServersThatAreNotBrokers(t *testing.T) {
	answer := func(status int, body string, header ...string) string {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(ts.Close)
		return ts.URL
	}
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	for _, test := range []struct {
		name, url string
		code      seb.Code
		outcome   seb.Outcome
		text      string
	}{
		{"nobody", closedURL(t), client.CodeUnreachable, seb.NotCommitted, "no broker answers at http://127.0.0.1:"},
		{"proxy", answer(502, "<html>Bad Gateway</html>"), client.CodeUnexpectedResponse, seb.Unknown, "answers in a form that is not a broker's: 502 Bad Gateway"},
		{"text", answer(404, "404 page not found\n"), client.CodeUnexpectedResponse, seb.NotCommitted, `answers "404 page not found": 404 Not Found`},
		{"redirect", answer(301, "", "Location", "https://elsewhere/"), client.CodeUnexpectedResponse, seb.NotCommitted, "redirects to https://elsewhere/"},
		{"web page", answer(200, "<html>"), client.CodeUnexpectedResponse, seb.Unknown, "is not what a broker sends"},
		{"plain HTTP to HTTPS", "http" + strings.TrimPrefix(tls.URL, "https"), client.CodeUnreachable, seb.NotCommitted, "speaks HTTPS only"},
		{"HTTPS to plain HTTP", "https" + strings.TrimPrefix(serve(t, open(t)), "http"), client.CodeUnreachable, seb.NotCommitted, "does not speak HTTPS"},
		{"unknown authority", tls.URL, client.CodeUnreachable, seb.NotCommitted, "is not trusted"},
		{"unknown outcome", answer(503, `{"code":"store_unavailable","detail":"d","outcome":"perhaps"}`), seb.CodeStoreUnavailable, seb.Unknown, "d"},
	} {
		c := newClient(t, client.Options{Servers: []string{test.url}, RetryFor: -1})
		_, err := c.Append(t.Context(), "orders", kit.Values("v"))
		if seb.CodeOf(err) != test.code || seb.OutcomeOf(err) != test.outcome || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestClientsWithBadOptionsAreRefused(t *testing.T) {
	for _, o := range []client.Options{
		{Servers: []string{"ftp://a"}}, {Servers: []string{""}}, {Servers: []string{"http://"}}, {Servers: []string{"http://u:secret@a"}},
		{Servers: []string{"http://a?token=secret"}}, {APIKey: "secret\n"}, {UserAgent: "a\r\nb"},
	} {
		_, err := client.New(o)
		kit.WantCode(t, err, seb.CodeInvalidRequest)
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

func TestCallerThatGivesUpGetsAnOutcome(t *testing.T) {
	release := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(ts.Close)
	t.Cleanup(func() { close(release) })
	c := newClient(t, client.Options{Servers: []string{ts.URL}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Append(ctx, "orders", kit.Values("v"))
	kit.WantCode(t, err, seb.CodeCanceled)
	kit.WantOutcome(t, err, seb.Unknown)
}
