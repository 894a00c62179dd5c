package s3store_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/s3store"
)

const date = "Wed, 21 Oct 2015 07:28:00 GMT"

var dateTime = time.Date(2015, 10, 21, 7, 28, 0, 0, time.UTC)

// serve opens a store on a server that answers every request with handler. It also
// returns the count of requests that the server has received.
func serve(t *testing.T, handler http.HandlerFunc) (*s3store.Store, *atomic.Int64) {
	t.Helper()
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		w.Header().Set("Date", date)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return s3test.Open(t, "s3://bucket?endpoint="+server.URL), &count
}

func answer(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		if code != "" {
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as told</Message></Error>", code)
		}
	}
}

// requests has a function for each verb that sends one request.
var requests = map[objstore.Verb]func(ctx context.Context, s *s3store.Store) (time.Time, error){
	objstore.VerbCreate: func(ctx context.Context, s *s3store.Store) (time.Time, error) {
		return s.Create(ctx, "log/1", []byte("body"))
	},
	objstore.VerbGet: func(ctx context.Context, s *s3store.Store) (time.Time, error) {
		object, err := s.Get(ctx, "log/1", 0, -1)
		return object.Time, err
	},
	objstore.VerbList: func(ctx context.Context, s *s3store.Store) (time.Time, error) {
		page, err := s.List(ctx, "log/", "", 0)
		return page.Time, err
	},
	objstore.VerbDelete: func(ctx context.Context, s *s3store.Store) (time.Time, error) { return s.Delete(ctx, "log/1") },
}

func TestErrorAnswers(t *testing.T) {
	unknown := errors.New("any error that decides nothing")
	tests := []struct {
		status int
		code   string
		verb   objstore.Verb
		want   error
	}{
		{412, "PreconditionFailed", objstore.VerbCreate, objstore.ErrExists},
		{409, "ConditionalRequestConflict", objstore.VerbCreate, unknown},
		{409, "OperationAborted", objstore.VerbCreate, unknown},
		{404, "NoSuchKey", objstore.VerbCreate, unknown},
		{404, "NoSuchBucket", objstore.VerbCreate, unknown},
		{429, "TooManyRequests", objstore.VerbCreate, unknown},
		{403, "AccessDenied", objstore.VerbCreate, unknown},
		{500, "InternalError", objstore.VerbCreate, unknown},
		{503, "SlowDown", objstore.VerbCreate, unknown},
		{502, "", objstore.VerbCreate, unknown},
		{404, "NoSuchKey", objstore.VerbGet, objstore.ErrNotFound},
		{404, "NoSuchBucket", objstore.VerbGet, unknown},
		{404, "", objstore.VerbGet, unknown}, // from a proxy
		{404, "NotFound", objstore.VerbGet, unknown},
		{412, "PreconditionFailed", objstore.VerbGet, unknown},
		{403, "AccessDenied", objstore.VerbGet, unknown},
		{503, "SlowDown", objstore.VerbGet, unknown},
		{500, "NoSuchKey", objstore.VerbGet, unknown},
		{404, "NoSuchBucket", objstore.VerbList, unknown},
		{503, "SlowDown", objstore.VerbList, unknown},
		{404, "NoSuchKey", objstore.VerbDelete, nil},
		{404, "NoSuchBucket", objstore.VerbDelete, unknown},
		{503, "SlowDown", objstore.VerbDelete, unknown},
	}
	t.Setenv("AWS_MAX_ATTEMPTS", "5") // must not turn retries on
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s-%d-%s", test.verb, test.status, test.code), func(t *testing.T) {
			store, count := serve(t, answer(test.status, test.code))
			at, err := requests[test.verb](t.Context(), store)
			definite := err == nil || errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrNotFound)
			switch {
			case errors.Is(test.want, unknown):
				if definite {
					t.Errorf("got %v, want an error that decides nothing", err)
				}
			case !errors.Is(err, test.want):
				t.Errorf("got %v, want %v", err, test.want)
			case !at.Equal(dateTime):
				t.Errorf("store time %v, want %v", at, dateTime)
			}
			if count.Load() != 1 {
				t.Errorf("%d requests were sent, want 1", count.Load())
			}
		})
	}
}

func TestLostConnectionIsNotRetried(t *testing.T) {
	for verb, request := range requests {
		if verb == objstore.VerbGet || verb == objstore.VerbList {
			continue // the transport may repeat these if an idle connection was closed
		}
		t.Run(string(verb), func(t *testing.T) {
			var kill atomic.Bool
			store, count := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				if kill.Load() {
					panic(http.ErrAbortHandler) // the request may be executed, but gets no answer
				}
			})
			if _, err := request(t.Context(), store); err != nil { // so that the next request reuses the connection
				t.Fatal(err)
			}
			kill.Store(true)
			if _, err := request(t.Context(), store); err == nil || errors.Is(err, objstore.ErrExists) {
				t.Errorf("got %v, want an unknown outcome", err)
			}
			if count.Load() != 2 {
				t.Errorf("%d requests were sent, want 2", count.Load())
			}
		})
	}
}

func TestAnswerWithoutDateHasNoTime(t *testing.T) {
	for verb, request := range requests {
		store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = nil
			if verb == objstore.VerbList {
				_, _ = fmt.Fprint(w, "<ListBucketResult></ListBucketResult>")
			}
		})
		if at, err := request(t.Context(), store); err != nil || !at.IsZero() {
			t.Errorf("%s = %v, %v; want success without a time", verb, at, err)
		}
	}
}

func TestGetRefusesWrongAnswers(t *testing.T) {
	type object struct{ contentRange, length, body string }
	tests := []struct {
		name   string
		off, n int64
		object object
	}{
		{"short body", 0, -1, object{"", "10", "01234"}},
		{"short range", 2, 4, object{"bytes 2-5/10", "4", "234"}},
		{"range ignored", 2, 4, object{"", "10", "0123456789"}},
		{"range ignored at 0", 0, 4, object{"", "10", "0123456789"}},
		{"wrong start", 2, 4, object{"bytes 1-4/10", "4", "1234"}},
		{"wrong end", 2, 4, object{"bytes 2-4/10", "3", "234"}},
		{"too long", 2, 4, object{"bytes 2-6/10", "5", "23456"}},
		{"length and range differ", 2, 4, object{"bytes 2-5/10", "3", "234"}},
		{"length fits, range doesn't", 2, 4, object{"bytes 2-9/10", "4", "2345"}},
		{"size beneath range", 2, 4, object{"bytes 2-5/1", "4", "2345"}},
		{"range is not one", 2, 4, object{"bytes all", "4", "2345"}},
		{"size unknown", 2, 4, object{"bytes 2-5/*", "4", "2345"}},
		{"no length", 0, -1, object{"", "", strings.Repeat("x", 10_000)}},
		{"absurd length", 0, -1, object{"", "9000000000000000000", "x"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if test.object.contentRange != "" {
					w.Header().Set("Content-Range", test.object.contentRange)
				}
				if test.object.length != "" {
					w.Header().Set("Content-Length", test.object.length)
				}
				if test.object.contentRange != "" {
					w.WriteHeader(http.StatusPartialContent)
				}
				// The write may fail, because the client may hang up before it has read the whole body.
				_, _ = io.WriteString(w, test.object.body)
				if f, ok := w.(http.Flusher); ok {
					f.Flush()
				}
			})
			object, err := store.Get(t.Context(), "log/1", test.off, test.n)
			if err == nil || errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("Get = %q, %v; want an error", object.Body, err)
			}
		})
	}
}

func TestGetBeyondEndAsksForTheSize(t *testing.T) {
	store, count := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "10")
			return
		}
		answer(http.StatusRequestedRangeNotSatisfiable, "InvalidRange")(w, r)
	})
	object, err := store.Get(t.Context(), "log/1", 10, 5)
	if err != nil || len(object.Body) != 0 || object.Size != 10 || !object.Time.Equal(dateTime) || count.Load() != 2 {
		t.Errorf("Get = %+v, %v after %d requests", object, err, count.Load())
	}
	if _, err := store.Get(t.Context(), "log/1", 9, 5); err == nil {
		t.Error("a range within the object that the store refuses passed for empty")
	}

	store, _ = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer(http.StatusRequestedRangeNotSatisfiable, "InvalidRange")(w, r)
	})
	if _, err := store.Get(t.Context(), "log/1", 10, 5); err == nil || errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Get = %v; a 404 without a body must not decide", err)
	}
}

func TestListRefusesOtherOrders(t *testing.T) {
	tests := []struct {
		name, after string
		keys        []string
	}{
		{"descending", "", []string{"log/2", "log/1"}},
		{"twice", "", []string{"log/1", "log/1"}},
		{"not after", "log/1", []string{"log/1", "log/2"}},
		{"other prefix", "", []string{"data/1"}},
	}
	for _, test := range tests {
		store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, listPage(false, "", test.keys...))
		})
		if page, err := store.List(t.Context(), "log/", test.after, 0); err == nil {
			t.Errorf("%s: List = %q, want an error", test.name, page.Keys)
		}
	}
}

func TestListGoesOnAfterEmptyPages(t *testing.T) {
	store, count := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("continuation-token") {
		case "":
			_, _ = fmt.Fprint(w, listPage(true, "a"))
		case "a":
			_, _ = fmt.Fprint(w, listPage(true, "b", "log/1", "log/2"))
		}
	})
	page, err := store.List(t.Context(), "log/", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{"log/1", "log/2"}) || !page.More || count.Load() != 2 {
		t.Errorf("List = %+v, %v after %d requests", page, err, count.Load())
	}
	store, _ = serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, listPage(true, "")) })
	if page, err := store.List(t.Context(), "log/", "", 0); err == nil {
		t.Errorf("List without a way on = %+v, want an error", page)
	}
}

// A bucket with any object must not look empty: two systems might then share it.
func TestListReportsForeignNamesButNotTheFolderItself(t *testing.T) {
	store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, listPage(false, "", "", ".hidden", "a b", "z"))
	})
	page, err := store.List(t.Context(), "", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{".hidden", "a b", "z"}) {
		t.Errorf("List = %+v, %v", page, err)
	}
}

func listPage(more bool, token string, keys ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<ListBucketResult><IsTruncated>%v</IsTruncated>", more)
	if token != "" {
		fmt.Fprintf(&b, "<NextContinuationToken>%s</NextContinuationToken>", token)
	}
	for _, key := range keys {
		fmt.Fprintf(&b, "<Contents><Key>%s</Key></Contents>", key)
	}
	b.WriteString("</ListBucketResult>")
	return b.String()
}

// When the caller gives up a request, the transport's goroutine may still be sending. net/http and the SDK
// make that goroutine end before Create returns. With -race, this test fails if they no longer do that.
func TestPartsAreNotReadAfterCreate(t *testing.T) {
	var giveUp atomic.Pointer[context.CancelFunc]
	store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
		(*giveUp.Load())()
		_, _ = io.Copy(io.Discard, r.Body) // ends when the client hangs up
	})
	part := make([]byte, 8<<20)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		giveUp.Store(&cancel)
		if _, err := store.Create(ctx, "log/1", part); !errors.Is(err, context.Canceled) {
			t.Fatalf("Create = %v, want context.Canceled", err)
		}
		clear(part)
	}
}

func TestDeadlineEndsRequests(t *testing.T) {
	release := make(chan struct{})
	store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client hangs up
		<-release
	})
	defer close(release)
	for verb, request := range requests {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := request(ctx, store); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s = %v, want context.DeadlineExceeded", verb, err)
		}
		cancel()
	}
}

func TestRequestHeaders(t *testing.T) {
	var header http.Header
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		_, _ = io.Copy(io.Discard, r.Body)
	})
	body := bytes.Repeat([]byte("x"), 3<<20) // from this size on the SDK would send Expect
	create := func(server *httptest.Server) {
		t.Cleanup(server.Close)
		store := s3test.Open(t, "s3://bucket?endpoint="+server.URL)
		if _, err := store.Create(t.Context(), "log/1", body[:1], body[1:]); err != nil {
			t.Fatal(err)
		}
	}

	create(httptest.NewServer(handler))
	if got := header.Get("X-Amz-Content-Sha256"); len(got) != 64 {
		t.Errorf("over HTTP the body's hash is %q, want it to be signed", got)
	}
	if got := header.Get("If-None-Match"); got != "*" {
		t.Errorf("If-None-Match is %q", got)
	}
	for name := range header {
		if name == "Expect" || strings.Contains(name, "Checksum") || name == "X-Amz-Trailer" {
			t.Errorf("Create sent %s: %s", name, header.Get(name))
		}
	}

	server := httptest.NewTLSServer(handler)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(bundle, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	create(server)
	if got := header.Get("X-Amz-Content-Sha256"); got != "UNSIGNED-PAYLOAD" {
		t.Errorf("over HTTPS the body's hash is %q, want it not to be computed", got)
	}
}

func TestPrefixesAreSeparateStores(t *testing.T) {
	storeURL := s3test.Fake(t)
	outer := s3test.Open(t, storeURL)
	inner := s3test.Open(t, strings.Replace(storeURL, "/store", "/store/inner", 1))
	for _, store := range []*s3store.Store{outer, inner} {
		if _, err := store.Create(t.Context(), "log/1", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	page, err := outer.List(t.Context(), "log/", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{"log/1"}) {
		t.Errorf("List = %q, %v", page.Keys, err)
	}
	if _, err := outer.Delete(t.Context(), "log/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := inner.Get(t.Context(), "log/1", 0, -1); err != nil {
		t.Errorf("deleting the one's object took the other's: %v", err)
	}
}

func TestOutageOfARealServer(t *testing.T) {
	server := s3test.Start(t)
	store := s3test.Open(t, server.URL)
	if _, err := store.Create(t.Context(), "log/1", []byte("before")); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for verb, request := range requests {
		if _, err := request(t.Context(), store); err == nil || errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%s during an outage = %v, want an error that decides nothing", verb, err)
		}
	}
	server.Restart()
	if object, err := store.Get(t.Context(), "log/1", 0, -1); err != nil || string(object.Body) != "before" {
		t.Errorf("Get after the outage = %q, %v", object.Body, err)
	}
	if _, err := store.Create(t.Context(), "log/1", []byte("again")); !errors.Is(err, objstore.ErrExists) {
		t.Errorf("Create after the outage = %v, want ErrExists", err)
	}
}
