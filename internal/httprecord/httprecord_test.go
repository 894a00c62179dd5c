package httprecord

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func headers(pairs ...string) Headers {
	return func(yield func(string, []byte) bool) {
		for pair := range slices.Chunk(pairs, 2) {
			if !yield(pair[0], []byte(pair[1])) {
				return
			}
		}
	}
}

func TestHeadersCarryWhatTheyCan(t *testing.T) {
	at := time.Date(2026, 1, 31, 13, 0, 0, 250_999_000, time.FixedZone("", 3600))
	const stamp, logStamp = "2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.251000Z"
	tests := map[string]struct {
		key     []byte
		headers Headers
		want    http.Header
	}{
		"nothing":   {nil, headers(), http.Header{}},
		"empty key": {[]byte{}, headers(), http.Header{KeyHeader: {""}}},
		"text":      {[]byte("bücher 1"), headers(), http.Header{KeyHeader: {"bücher 1"}}},
		"bytes":     {[]byte{0, 0xff}, headers(), http.Header{KeyBase64Header: {"AP8="}}},
		"newline":   {[]byte("a\r\nHost: b"), headers(), http.Header{KeyBase64Header: {"YQ0KSG9zdDogYg=="}}},
		"repeated": {nil, headers("source", "a", "Source", "b"),
			http.Header{"Seb-Header-Source": {"a", "b"}}},
		"omitted": {nil, headers("a b", "1", "", "2", "c", " 3", "d", "4\n", "e", "5"),
			http.Header{"Seb-Header-E": {"5"}, OmittedHeader: {"4"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := http.Header{}
			Describe(got, test.key, at, at.Add(time.Microsecond), test.headers)
			test.want.Set(TimestampHeader, stamp)
			test.want.Set(LogTimeHeader, logStamp)
			if !maps.EqualFunc(got, test.want, slices.Equal) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestMediaTypeIsTheRecordsOwn(t *testing.T) {
	tests := map[string]struct {
		headers Headers
		want    string
	}{
		"none":       {headers("a", "b"), "x/y"},
		"said":       {headers("Content-Type", "text/plain; charset=utf-8"), "text/plain; charset=utf-8"},
		"no type":    {headers("content-type", "a/b/c"), "x/y"},
		"no header":  {headers("content-type", "text/plain\r\nHost: a"), "x/y"},
		"second one": {headers("content-type", "", "content-type", "a/b"), "a/b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := MediaType(test.headers, "x/y"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// If Fits returns true for a value, an HTTP header carries the value unchanged.
func FuzzFits(f *testing.F) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Seb-Key") }))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, value string) {
		if !Fits(value) || len(value) > 1024 {
			return
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(KeyHeader, value)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatalf("send %q: %v", value, err)
		}
		answer.Body.Close()
		if came := <-got; came != value {
			t.Fatalf("%q came as %q", value, came)
		}
	})
}

func TestTokens(t *testing.T) {
	for _, good := range []string{"a", "X-1", "!#$%&'*+-.^_`|~"} {
		if !IsToken(good) {
			t.Errorf("%q is a token", good)
		}
	}
	for _, bad := range []string{"", "a b", "a:", "ü", "a\x00", strings.Repeat("a", 9) + "\n"} {
		if IsToken(bad) {
			t.Errorf("%q is no token", bad)
		}
	}
}
