// Package s3test gives tests an S3 server on the loopback interface. [Fake] starts a fake one in the test's
// process, which works everywhere. [VersityGW] and [Start] start a real one in a separate process.
//
// All servers accept the credentials [AccessKey] and [SecretKey]. [Open] opens a store in the test's process;
// [Env] returns the environment variables for a child process.
package s3test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/simple-event-broker/seb/objstore/s3store"
)

// The credentials that all servers accept.
const (
	AccessKey = "seb-test"
	SecretKey = "seb-test-secret"
)

const (
	bucket = "seb-test"
	region = "us-east-1"
)

// Env returns the environment variables that a child process needs to use a server, and to look for
// credentials nowhere else.
func Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + SecretKey,
		"AWS_SESSION_TOKEN=",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Open opens the store at the URL of one of the servers.
func Open(t testing.TB, storeURL string) *s3store.Store {
	t.Helper()
	config, err := s3store.ParseURL(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	config.AccessKeyID, config.SecretAccessKey = AccessKey, SecretKey
	store, err := s3store.OpenConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Fake starts an S3 server in this process, which ends with the test. It returns the URL of an empty store in
// a bucket of that server.
func Fake(t testing.TB) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	return storeURL(server.URL, bucket)
}

func storeURL(endpoint, bucket string) string {
	query := url.Values{"endpoint": {endpoint}, "region": {region}}
	return fmt.Sprintf("s3://%s/store?%s", bucket, query.Encode())
}
