package s3store

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/simple-event-broker/seb/objstore"
)

// The configuration of an accepted URL stays the same when it is written as a URL and parsed again. Errors
// never quote a URL that has a secret.
func FuzzParseURL(f *testing.F) {
	f.Add("s3://bucket/some/prefix?endpoint=https://s3.example.com&region=eu-1&path_style=true")
	f.Add("s3://bucket//a//?path_style=0")
	f.Add("s3://bucket?endpoint=http://user:pass@host")
	f.Add("s3://b%2fc/%2e%2e/x#y")
	f.Fuzz(func(t *testing.T, text string) {
		const secret = "wJalrXUtnFEMI"
		_, err := ParseURL("s3://key:" + secret + "@" + strings.TrimPrefix(text, "s3://"))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Fatalf("a URL with a secret: %v", err)
		}
		c, err := ParseURL(text)
		if err != nil {
			return
		}
		if c.Bucket == "" || c.Prefix != "" && objstore.CheckKey(c.Prefix) != nil || c.AccessKeyID+c.SecretAccessKey+c.SessionToken != "" {
			t.Fatalf("%q is taken as %+v", text, c)
		}
		again, err := ParseURL(urlOf(c))
		if err != nil || !cmp.Equal(again, c) {
			t.Fatalf("%q is %+v; written as %q that is %+v, %v", text, c, urlOf(c), again, err)
		}
	})
}

func urlOf(c Config) string {
	q := url.Values{}
	if c.Endpoint != "" {
		q.Set("endpoint", c.Endpoint)
	}
	if c.Region != "" {
		q.Set("region", c.Region)
	}
	if c.PathStyle != nil {
		q.Set("path_style", strconv.FormatBool(*c.PathStyle))
	}
	u := url.URL{Scheme: "s3", Host: c.Bucket, Path: "/" + c.Prefix, RawQuery: q.Encode()}
	return u.String()
}

// An answer is accepted only if it is exactly the requested range.
func FuzzContentRange(f *testing.F) {
	f.Add(int64(2), int64(4), "bytes 2-5/10", int64(4))
	f.Add(int64(2), int64(4), "bytes 1-4/10", int64(4))
	f.Add(int64(0), int64(-1), "", int64(10))
	f.Add(int64(0), int64(4), "bytes 0-9223372036854775807/9223372036854775807", int64(-9223372036854775808))
	f.Add(int64(9223372036854775807), int64(1), "bytes 9223372036854775807--9223372036854775808/5", int64(2))
	f.Fuzz(func(t *testing.T, off, n int64, contentRange string, length int64) {
		if off < 0 {
			return // Get refuses these ranges
		}
		out := &s3.GetObjectOutput{ContentLength: &length}
		if contentRange != "" {
			out.ContentRange = &contentRange
		}
		size, err := (byteRange{off, n}).check(out)
		if err != nil {
			if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrExists) {
				t.Fatalf("a bad answer decides: %v", err)
			}
			return
		}
		var from int64
		if _, err := fmt.Sscanf(contentRange, "bytes %d-", &from); contentRange != "" && (err != nil || from != off) {
			t.Fatalf("bytes from %d: an answer of %q passes", off, contentRange)
		}
		whole := n < 0 || length < n // then the range must reach the object's end
		if length < 0 || length > objectBytesMax || n >= 0 && length > n || off > size || length > size-off || whole && off+length != size {
			t.Fatalf("%d bytes at %d: an answer of %d bytes, %q, passes for an object of %d", n, off, length, contentRange, size)
		}
	})
}
