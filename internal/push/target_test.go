package push

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/httprecord"
)

func TestTargetIsChecked(t *testing.T) {
	many := map[string]string{}
	for i := range HeadersMax + 1 {
		many["X-"+strconv.Itoa(i)] = "v"
	}
	secretOf := func(size int) string { return "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, size)) }
	header := func(name, value string) Target { return Target{Headers: map[string]string{name: value}} }
	tests := map[string]struct {
		t     Target
		field string // "" if the target is valid
		says  string
	}{
		"defaults":            {Target{}, "", ""},
		"all of it":           {Target{URL: "http://[2606:4700::1]:8080/a%20b?c=d", Headers: map[string]string{"Authorization": "Bearer ü", "X": ""}, MaxInFlight: InFlightMax, Timeout: TimeoutMax}, "", ""},
		"relative URL":        {Target{URL: "/hooks"}, "url", "https or http"},
		"no scheme":           {Target{URL: "example.com/hooks"}, "url", "https or http"},
		"another scheme":      {Target{URL: "ftp://example.com/"}, "url", "https or http"},
		"opaque":              {Target{URL: "http:example.com"}, "url", "https or http"},
		"no host":             {Target{URL: "http:///hooks"}, "url", "has no host name"},
		"only a port":         {Target{URL: "http://:80/"}, "url", "has no host name"},
		"zone":                {Target{URL: "http://[fe80::1%25eth0]/"}, "url", "has no host name"},
		"user":                {Target{URL: "https://a:secret@example.com/"}, "url", "holds a user"},
		"empty user":          {Target{URL: "https://@example.com/"}, "url", "holds a user"},
		"fragment":            {Target{URL: "https://example.com/#a"}, "url", "fragment"},
		"empty fragment":      {Target{URL: "https://example.com/#"}, "url", "fragment"},
		"port 0":              {Target{URL: "https://example.com:0/"}, "url", `port "0"`},
		"port 65536":          {Target{URL: "https://example.com:65536/"}, "url", `port "65536"`},
		"empty port":          {Target{URL: "https://example.com:/"}, "url", `port ""`},
		"line break":          {Target{URL: "https://example.com/\r\nHost: b"}, "url", "characters"},
		"other script":        {Target{URL: "https://bücher.example/"}, "url", "xn--"},
		"bad escape":          {Target{URL: "https://example.com/%zz"}, "url", "is not a URL"},
		"long URL":            {Target{URL: "https://example.com/" + strings.Repeat("a", URLBytesMax)}, "url", "2048 bytes"},
		"no secret":           {Target{Secret: " "}, "secret", "there is no secret"},
		"bare secret":         {Target{Secret: strings.TrimPrefix(testSecret, "whsec_")}, "secret", "begin with whsec_"},
		"asymmetric secret":   {Target{Secret: "whsk_" + testSecret}, "secret", "begin with whsec_"},
		"not base64":          {Target{Secret: "whsec_%%%%"}, "secret", "base64"},
		"base64 for URLs":     {Target{Secret: "whsec_" + strings.Repeat("-_", 20)}, "secret", "base64"},
		"two spellings":       {Target{Secret: "whsec_" + strings.Repeat("A", 33) + "B=="}, "secret", "base64"},
		"no padding":          {Target{Secret: strings.TrimRight(testSecret, "=")}, "secret", "base64"},
		"23 bytes":            {Target{Secret: secretOf(23)}, "secret", "23 bytes"},
		"24 bytes":            {Target{Secret: secretOf(24)}, "", ""},
		"64 bytes":            {Target{Secret: secretOf(64)}, "", ""},
		"65 bytes":            {Target{Secret: secretOf(65)}, "secret", "65 bytes"},
		"4 secrets":           {Target{Secret: strings.Repeat(testSecret+" ", 4)}, "", ""},
		"5 secrets":           {Target{Secret: strings.Repeat(testSecret+" ", 5)}, "secret", "5 secrets"},
		"long secret":         {Target{Secret: testSecret + strings.Repeat(" ", SecretBytesMax)}, "secret", "bytes"},
		"one of two is bad":   {Target{Secret: testSecret + " x"}, "secret", "begin with whsec_"},
		"host header":         {header("host", "example.com"), "headers", "host can't be set: Seb takes it from the URL"},
		"length":              {header("Content-Length", "1"), "headers", "can't be set"},
		"connection":          {header("connection", "close"), "headers", "can't be set"},
		"te":                  {header("TE", "trailers"), "headers", "can't be set"},
		"transfer-encoding":   {header("Transfer-Encoding", "chunked"), "headers", "can't be set"},
		"upgrade":             {header("Upgrade", "h2c"), "headers", "can't be set"},
		"HTTP2-Settings":      {header("HTTP2-Settings", "x"), "headers", "can't be set"},
		"proxy-authorization": {header("Proxy-Authorization", "x"), "headers", "can't be set"},
		"seb":                 {header("seb-attempt", "1"), "headers", "can't be set"},
		"webhook":             {header("WEBHOOK-ID", "1"), "headers", "can't be set"},
		"idempotency":         {header("Idempotency-Key", "1"), "headers", "webhook-id identifies each message"},
		"header twice":        {Target{Headers: map[string]string{"x-a": "1", "X-A": "2"}}, "headers", "given twice"},
		"header's name":       {header("a b", "1"), "headers", "name of a header"},
		"pseudo header":       {header(":path", "1"), "headers", "name of a header"},
		"no name":             {header("", "1"), "headers", "name of a header"},
		"value with a break":  {header("X", "a\r\nHost: b"), "headers", "can't be sent"},
		"value with a space":  {header("X", "a "), "headers", "can't be sent"},
		"value with a zero":   {header("X", "a\x00b"), "headers", "can't be sent"},
		"many headers":        {Target{Headers: many}, "headers", "33 headers"},
		"long header":         {header("X", strings.Repeat("a", HeaderBytesMax)), "headers", "8193 bytes"},
		"no request at all":   {Target{MaxInFlight: -1}, "max_in_flight", "is -1"},
		"too many":            {Target{MaxInFlight: InFlightMax + 1}, "max_in_flight", "1 to 1024"},
		"short timeout":       {Target{Timeout: time.Millisecond}, "timeout", "1s to 5m"},
		"long timeout":        {Target{Timeout: time.Hour}, "timeout", "1s to 5m"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.t.URL == "" {
				test.t.URL = "https://example.com/hooks"
			}
			if test.t.Secret == "" {
				test.t.Secret = testSecret
			}
			err := test.t.Check()
			var invalid *InvalidError
			switch {
			case test.field == "" && err != nil:
				t.Error(err)
			case test.field == "":
			case !errors.As(err, &invalid) || invalid.Field != test.field || !strings.Contains(err.Error(), test.says) || invalid.Hint == "":
				t.Errorf("got %#v", err)
			case test.field == "secret" && strings.Contains(err.Error(), "MfKQ") || strings.Contains(err.Error(), "secret@"):
				t.Errorf("%v tells the secret", err)
			}
		})
	}
}

// New refuses the targets that Check refuses.
func TestNewChecks(t *testing.T) {
	good := Options{Topic: "t", TopicID: "1", Queue: "q"}
	if _, err := New(Target{URL: "x"}, newQueue(), good); err == nil {
		t.Error("a bad target is taken")
	}
	if _, err := New(Target{URL: "http://a", Secret: testSecret}, newQueue(), Options{Topic: "t\n", TopicID: "1", Queue: "q"}); err == nil {
		t.Error("a bad name is taken")
	}
	if _, err := New(Target{URL: "http://a", Secret: testSecret}, newQueue(), good); err != nil {
		t.Error(err)
	}
}

func TestNewSecretIsGood(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if s, err := parseSecret(a + " " + b); err != nil || len(s) != 2 || a == b {
		t.Errorf("%q, %q: %v", a, b, err)
	}
}

func FuzzSecret(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSecret(text)
		if err != nil {
			for one := range strings.FieldsSeq(text) {
				if key, ok := strings.CutPrefix(one, "whsec_"); ok && len(key) > 24 && strings.Contains(err.Error(), key) {
					t.Fatalf("%v tells the secret", err)
				}
			}
			return
		}
		var again []string
		for _, key := range s {
			again = append(again, "whsec_"+base64.StdEncoding.EncodeToString(key))
		}
		// The base64 decoder skips line breaks. Here, line breaks are separators, so no secret
		// contains one.
		if got := strings.Join(again, " "); got != strings.Join(strings.Fields(text), " ") {
			t.Fatalf("%q was read as %q", text, got)
		}
	})
}

func FuzzTarget(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, name, value string) {
		tg := Target{URL: text, Headers: map[string]string{name: value}, Secret: testSecret}
		if tg.Check() != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.User != nil || u.Hostname() == "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
			t.Fatalf("%q is taken for a target", text)
		}
		if !httprecord.IsToken(name) || strings.ContainsAny(value, "\r\n\x00") || strings.HasPrefix(strings.ToLower(name), "webhook-") {
			t.Fatalf("%q: %q is taken for a header", name, value)
		}
		c, err := newClient(tg, Options{Topic: "t", TopicID: "1f0c6a3e.7", Queue: "q"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.request(t.Context(), &Message{Value: []byte("v")}, time.Unix(1_700_000_000, 0))
		if err != nil {
			t.Fatalf("%q makes no request: %v", text, err)
		}
		if err := r.Write(new(strings.Builder)); err != nil {
			t.Fatalf("%q, %q: %q can't be sent: %v", text, name, value, err)
		}
	})
}
