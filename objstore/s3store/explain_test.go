package s3store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

// sdkWords are in the texts of the SDK, and must not be in those for operators.
var sdkWords = []string{"operation error", "StatusCode", "RequestID", "HostID", "api error", "request send failed", "https response error"}

// wantFailure fails unless err is a failure with the given words in its text and its hint. No hint means that
// a retry may help.
func wantFailure(t *testing.T, err error, detail, hint string) {
	t.Helper()
	f := objstore.FailureOf(err)
	if f == nil || !strings.Contains(err.Error(), detail) || !strings.Contains(f.Hint, hint) || f.Setup != (hint != "") {
		t.Errorf("got %v (%+v), want %q with the hint %q", err, f, detail, hint)
		return
	}
	for _, word := range sdkWords {
		if strings.Contains(err.Error(), word) {
			t.Errorf("%q is of the SDK, in %q", word, err)
		}
	}
	if f.Err == nil {
		t.Errorf("%v has no cause: a log of level debug could not show it", err)
	}
}

// list sends a request with the given credentials to the store at storeURL.
func list(t *testing.T, storeURL, id, secret string) error {
	t.Helper()
	config, err := s3store.ParseURL(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	config.AccessKeyID, config.SecretAccessKey = id, secret
	store, err := s3store.OpenConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.List(t.Context(), "log/", "", 0)
	return err
}

func TestARealServerRefusesAWrongSetup(t *testing.T) {
	server := s3test.Start(t)
	at := func(old, replacement string) string { return strings.Replace(server.URL, old, replacement, 1) }
	wantFailure(t, list(t, server.URL, "somebody", s3test.SecretKey), "does not know the access key ID", "AWS_ACCESS_KEY_ID")
	wantFailure(t, list(t, server.URL, s3test.AccessKey, "guessed"), "secret access key does not belong", "AWS_SECRET_ACCESS_KEY")
	wantFailure(t, list(t, at("://"+server.Bucket+"/", "://no-such-bucket/"), s3test.AccessKey, s3test.SecretKey), "bucket no-such-bucket does not exist", "create the bucket")
	wantFailure(t, list(t, at("us-east-1", "eu-west-9"), s3test.AccessKey, s3test.SecretKey), "is in the region us-east-1, not in eu-west-9", "region=us-east-1")
	wantFailure(t, list(t, at("http%3A", "https%3A"), s3test.AccessKey, s3test.SecretKey), "does not serve HTTPS", "http://")
	if err := list(t, server.URL, s3test.AccessKey, s3test.SecretKey); err != nil {
		t.Errorf("the right setup: %v", err)
	}
}

func TestAnswersAreExplained(t *testing.T) {
	redirect := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		answer(http.StatusMovedPermanently, "PermanentRedirect")(w, r)
	}
	malformed := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `<Error><Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-central-1'</Message><Region>eu-central-1</Region></Error>`)
	}
	for _, test := range []struct {
		name         string
		verb         objstore.Verb
		handler      http.HandlerFunc
		detail, hint string
	}{
		{"redirect", objstore.VerbGet, redirect, "is in the region eu-central-1, not in us-east-1", "region=eu-central-1"},
		{"redirect of a server that is no S3 store", objstore.VerbGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMovedPermanently) }, "the store answered 301 Moved Permanently", ""},
		{"malformed", objstore.VerbCreate, malformed, "is in the region eu-central-1, not in us-east-1", "AWS_REGION"},
		{"newer region", objstore.VerbList, answer(400, "IllegalLocationConstraintException"), "is in another region than us-east-1", "region=NAME"},
		{"header", objstore.VerbList, answer(400, "AuthorizationHeaderMalformed"), "the store answered 400 AuthorizationHeaderMalformed: as told", ""},
		{"expired", objstore.VerbList, answer(400, "ExpiredToken"), "token of the credentials has expired", "AWS_SESSION_TOKEN"},
		{"get", objstore.VerbGet, answer(403, "AccessDenied"), "do not have the permission s3:GetObject", "s3:ListBucket"},
		{"create", objstore.VerbCreate, answer(403, "AccessDenied"), "do not have the permission s3:PutObject", "s3:PutObject"},
		{"list", objstore.VerbList, answer(403, "AccessDenied"), "do not have the permission s3:ListBucket", "s3:ListBucket"},
		{"delete", objstore.VerbDelete, answer(403, "AccessDenied"), "do not have the permission s3:DeleteObject", "s3:DeleteObject on those under probe/, log/, data/ and checkpoint/"},
		{"busy", objstore.VerbCreate, answer(503, "SlowDown"), "the store answered 503 SlowDown: as told", ""},
		{"proxy", objstore.VerbList, answer(502, ""), "the store answered 502 Bad Gateway", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, count := serve(t, test.handler)
			_, err := requests[test.verb](t.Context(), store)
			wantFailure(t, err, test.detail, test.hint)
			if count.Load() != 1 {
				t.Errorf("%d requests were sent, want 1", count.Load())
			}
		})
	}
}

// A quota is checked before anything is written, so a refusal is definite. A store without room may have written a
// part of the object.
func TestOnlyAQuotaIsADefiniteRefusal(t *testing.T) {
	for _, test := range []struct {
		status   int
		code     string
		definite bool
	}{{403, "QuotaExceeded", true}, {400, "XMinioAdminBucketQuotaExceeded", true}, {507, "XMinioStorageFull", false}, {507, "", false}} {
		store, _ := serve(t, answer(test.status, test.code))
		_, err := requests[objstore.VerbCreate](t.Context(), store)
		f := objstore.FailureOf(err)
		if f == nil || !f.Full || f.Setup || !strings.Contains(err.Error(), "the store is full: ") || !strings.Contains(f.Hint, "make room") || errors.Is(err, objstore.ErrFull) != test.definite {
			t.Errorf("%d %s: %v, %+v", test.status, test.code, err, f)
		}
	}
}

// strictClock answers as S3 does: it refuses requests whose date differs from its clock by over 15 minutes.
func strictClock(ahead time.Duration, dated bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().Add(ahead)
		w.Header()["Date"] = nil
		if dated {
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		}
		sent, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || now.Sub(sent).Abs() > 15*time.Minute {
			answer(http.StatusForbidden, "RequestTimeTooSkewed")(w, r)
		}
	}
}

// A machine whose clock is wrong can use the store: the second request has the time of the store.
func TestWrongClockOfThisMachineIsMadeUpFor(t *testing.T) {
	for verb, request := range requests {
		if verb == objstore.VerbList {
			continue // the server of this test does not answer with a list
		}
		store, count := serve(t, strictClock(time.Hour, true))
		for range 2 {
			if _, err := request(t.Context(), store); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
		if count.Load() != 3 {
			t.Errorf("%s: %d requests were sent, want one that was refused and two that were not", verb, count.Load())
		}
	}
}

// A clock may jump between the store's answer and the next request.
func TestClockThatJumpsDuringARequestIsMadeUpFor(t *testing.T) {
	for verb, request := range requests {
		if verb == objstore.VerbList {
			continue // the server of this test does not answer with a list
		}
		var answers atomic.Int32
		store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			ahead := time.Hour
			if answers.Add(1) > 1 {
				ahead = -time.Hour
			}
			strictClock(ahead, true)(w, r)
		})
		if _, err := request(t.Context(), store); err != nil || answers.Load() != 3 {
			t.Errorf("%s: %v after %d requests", verb, err, answers.Load())
		}
	}
}

func TestWrongClockIsExplained(t *testing.T) {
	store, count := serve(t, strictClock(time.Hour, false))
	_, err := store.Create(t.Context(), "log/1", []byte("x"))
	wantFailure(t, err, "this machine's clock and the store's clock differ too much", "set this machine's clock")
	if count.Load() != 3 {
		t.Errorf("%d requests were sent, want 3", count.Load())
	}
	store, _ = serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		answer(http.StatusForbidden, "RequestTimeTooSkewed")(w, r)
	})
	_, err = store.Create(t.Context(), "log/1", []byte("x"))
	wantFailure(t, err, "behind the store's clock", "set this machine's clock")
}

func TestWrongSchemeIsExplained(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.StartTLS()
	defer secure.Close()
	host := strings.TrimPrefix(secure.URL, "https://")
	wantFailure(t, list(t, "s3://bucket?endpoint=http://"+host, "a", "b"), "may serve HTTPS only", "https://")
	wantFailure(t, list(t, "s3://bucket?endpoint="+secure.URL, "a", "b"), "certificate of "+secure.URL+" can't be trusted", "AWS_CA_BUNDLE")

	// Other servers send an alert of TLS, or an answer without a record of TLS.
	for first, test := range map[string]struct{ scheme, detail, hint string }{
		"\x15\x03\x01\x00\x02\x02\x46": {"http", "serves HTTPS only", "https://"},
		"SSH-2.0-OpenSSH_9.2\r\n":      {"https", "does not serve HTTPS", "http://"},
	} {
		address := greeter(t, first)
		wantFailure(t, list(t, "s3://bucket?endpoint="+test.scheme+"://"+address, "a", "b"), test.detail, test.hint)
	}
}

// greeter starts a server that answers the first bytes of each connection with the same bytes, and returns
// its address.
func greeter(t *testing.T, bytes string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // ends the loop below
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // a client may open a connection without using it
				_, _ = io.ReadFull(conn, make([]byte, 16))
				_, _ = io.WriteString(conn, bytes)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn) // until the client closes: a reset could overtake the bytes
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// Without an answer the text says so, and names the server; a retry may help.
func TestNoAnswerIsExplained(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test closes it too
	address := l.Addr().String()
	store := s3test.Open(t, "s3://bucket?endpoint=http://"+address)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = store.List(ctx, "log/", "", 0)
	wantFailure(t, err, fmt.Sprintf("no answer from http://%s in time", address), "")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = store.List(t.Context(), "log/", "", 0)
	wantFailure(t, err, fmt.Sprintf("no answer from http://%s: ", address), "")
	if !strings.Contains(err.Error(), "connection refused") && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "EOF") {
		t.Errorf("%v does not say what happened", err)
	}
}

func TestMissingCredentialsAreExplained(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	open := func(query url.Values) error {
		_, err := s3store.Open(t.Context(), "s3://bucket?"+query.Encode())
		return err
	}
	wantFailure(t, open(url.Values{"region": {"eu-west-1"}}), "no credentials", "AWS_ACCESS_KEY_ID")
	t.Setenv("AWS_PROFILE", "nobody")
	wantFailure(t, open(url.Values{"region": {"eu-west-1"}}), `no profile "nobody"`, "AWS_PROFILE")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	err := open(nil)
	if f := objstore.SetupFailureOf(err); f == nil || !strings.Contains(f.Hint, "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
}
