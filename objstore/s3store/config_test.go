package s3store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/objstore/s3store"
)

func TestParseURL(t *testing.T) {
	yes, no := true, false
	tests := []struct {
		url  string
		want s3store.Config
	}{
		{"s3://bucket", s3store.Config{Bucket: "bucket"}},
		{"s3://bucket/", s3store.Config{Bucket: "bucket"}},
		{"s3://BUCKET_UP", s3store.Config{Bucket: "BUCKET_UP"}}, // as old buckets may be named
		{"s3://my.bucket/a/b-c/", s3store.Config{Bucket: "my.bucket", Prefix: "a/b-c"}},
		{"s3://bkt?region=eu-west-1&path_style=false", s3store.Config{Bucket: "bkt", Region: "eu-west-1", PathStyle: &no}},
		{"s3://bkt/p?endpoint=https://s3.example.com&path_style=true",
			s3store.Config{Bucket: "bkt", Prefix: "p", Endpoint: "https://s3.example.com", PathStyle: &yes}},
		{"s3://bkt?endpoint=http%3A%2F%2F127.0.0.1%3A9000", s3store.Config{Bucket: "bkt", Endpoint: "http://127.0.0.1:9000"}},
	}
	for _, test := range tests {
		got, err := s3store.ParseURL(test.url)
		if err != nil {
			t.Errorf("ParseURL(%s): %v", test.url, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ParseURL(%s) (-want +got):\n%s", test.url, diff)
		}
	}
}

func TestParseURLErrors(t *testing.T) {
	tests := []struct{ url, want string }{
		{"", "scheme"},
		{"./seb-data", "scheme"},
		{"http://bucket/x", "scheme"},
		{"s3://", "no bucket"},
		{"s3:///prefix", "no bucket"},
		{"s3://bucket?regoin=x", `unknown parameter "regoin"`},
		{"s3://bucket?access_key=x", `unknown parameter "access_key"`},
		{"s3://bucket?region=", "region must be given once"},
		{"s3://bucket?region=a&region=b", "region must be given once"},
		{"s3://bucket?path_style=maybe", "it must be true or false"},
		{"s3://bucket?endpoint=localhost:9000", "endpoint must look like"},
		{"s3://bucket?endpoint=https://key:sesame@host", "endpoint must look like"},
		{"s3://bucket/a/../b", "prefix"},
		{"s3://bucket/a//b", "prefix"},
		{"s3://bucket/a%20b", "prefix"},
		{"s3://bucket#x", "fragment"},
		{"s3://key:sesame@bucket", "AWS_ACCESS_KEY_ID"},
		{"s3://key:sesame@bucket:x/%zz", "malformed"},
		{"s3://bucket?region=%zz", "malformed"},
		{"s3://bucket:99/x", `"bucket:99"`},
		{"s3://bk", `"bk"`},
		{"s3://bucket!", `"bucket!"`},
		{"s3://bucket?region=eu%20west", `"eu west"`},
		{"s3://bucket?endpoint=http://127.0.0.1:99999", "port 99999"},
		{"s3://bucket?endpoint=http://127.0.0.1:0", "port 0"},
		{"s3://bucket?endpoint=http://127.0.0.1:9000%3Fq", "endpoint has a query"},
	}
	for _, test := range tests {
		_, err := s3store.ParseURL(test.url)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseURL(%s) = %v, want an error about %q", test.url, err, test.want)
		} else if strings.Contains(err.Error(), "sesame") {
			t.Errorf("ParseURL(%s) gives a secret away: %v", test.url, err)
		}
	}
}

// isolate hides the AWS configuration of the environment from the test.
func isolate(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestOpenUsesTheAWSVariables(t *testing.T) {
	isolate(t)
	open := func(url string) error {
		_, err := s3store.Open(t.Context(), url)
		return err
	}
	if err := open("s3://bucket?region=eu-west-1"); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("Open without credentials = %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if err := open("s3://bucket"); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("Open without a region = %v", err)
	}
	for _, url := range []string{"s3://bucket?region=eu-west-1", "s3://bucket?endpoint=http://127.0.0.1:1"} {
		if err := open(url); err != nil {
			t.Errorf("Open(%s): %v", url, err)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	if err := open("s3://bucket"); err != nil {
		t.Errorf("Open with AWS_ENDPOINT_URL_S3: %v", err)
	}
}

// The SDK takes the ARN of an access point as a bucket. A URL can't hold an ARN, but a Config can.
func TestOpenTakesAnAccessPoint(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	c := s3store.Config{Bucket: "arn:aws:s3:eu-west-1:123456789012:accesspoint/orders", Region: "eu-west-1"}
	if _, err := s3store.OpenConfig(t.Context(), c); err != nil {
		t.Error(err)
	}
}
