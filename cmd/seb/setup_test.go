package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/simple-event-broker/seb/internal/test/s3test"
)

// sdkWords are in the texts of the SDK for S3, and of the package that repeats requests.
var sdkWords = []string{"operation error", "StatusCode", "RequestID", "HostID", "api error", "request send failed", "attempts"}

// useStore sets the variables for a store of package s3test.
func useStore(t *testing.T) {
	t.Helper()
	for _, variable := range s3test.Env() {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// A wrong setup of the store is named once, in one sentence with a hint, and has the exit code of wrong usage.
func TestWrongSetupOfTheStoreIsNamedOnce(t *testing.T) {
	server := s3test.Start(t)
	useStore(t)
	for _, test := range []struct{ name, variable, value, old, replacement, cause, hint string }{
		{"access key ID", "AWS_ACCESS_KEY_ID", "somebody", "", "", "does not know the access key ID", "check AWS_ACCESS_KEY_ID"},
		{"secret", "AWS_SECRET_ACCESS_KEY", "guessed", "", "", "secret access key does not belong", "AWS_SECRET_ACCESS_KEY"},
		{"bucket", "", "", "://" + server.Bucket + "/", "://no-such-bucket/", "the bucket no-such-bucket does not exist", "create the bucket"},
		{"region", "", "", "region=us-east-1", "region=eu-west-9", "is in the region us-east-1, not in eu-west-9", "region=us-east-1"},
		{"TLS", "", "", "http%3A", "https%3A", "does not serve HTTPS", "http://"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.variable != "" {
				t.Setenv(test.variable, test.value)
			}
			store := strings.Replace(server.URL, test.old, test.replacement, 1)
			for _, command := range []string{
				"serve --http 127.0.0.1:0", "doctor", "fsck", "dump seb.json", "key create ops --scope admin --new-log", "key list",
			} {
				r := runSeb(t, nil, append(strings.Fields(command), "--store", store)...)
				r.want(t, exitUsage, test.hint)
				said := r.out + r.err
				if strings.Count(said, test.cause) != 1 || strings.Count(r.err, "\n") != 2 {
					t.Errorf("seb %s says\n%s", command, said)
				}
				for _, word := range sdkWords {
					if strings.Contains(said, word) {
						t.Errorf("seb %s says %q:\n%s", command, word, said)
					}
				}
			}
		})
	}
}

// With the level debug, the log has the words of the SDK too.
func TestDebugLogHasTheWordsOfTheSDK(t *testing.T) {
	server := s3test.Start(t)
	useStore(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "somebody")
	r := runSeb(t, nil, "serve", "--http", "127.0.0.1:0", "--store", server.URL, "--log-level", "debug")
	r.want(t, exitUsage, "level=DEBUG", "a store request failed", "verb=get key=seb.json", "api error XAdminUserNotFound")
}

// A request that the setup can't make succeed is not repeated.
func TestWrongSetupIsNotTriedAgain(t *testing.T) {
	useStore(t)
	for _, denied := range []string{http.MethodGet, http.MethodPut} {
		var count atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code, status := "AccessDenied", http.StatusForbidden
			switch {
			case r.Method == denied:
				count.Add(1)
			case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
				_, _ = fmt.Fprint(w, "<ListBucketResult></ListBucketResult>")
				return
			default:
				code, status = "NoSuchKey", http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		}))
		r := runSeb(t, nil, "serve", "--http", "127.0.0.1:0", "--store", "s3://bucket?endpoint="+server.URL)
		server.Close()
		r.want(t, exitUsage, "do not have the permission s3:", "s3:ListBucket on the bucket")
		if count.Load() != 1 {
			t.Errorf("%s: %d requests, want 1:\n%s", denied, count.Load(), r.err)
		}
	}
}
