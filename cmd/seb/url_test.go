package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSignedURLReadsItsTopicUntilItsKeyIsRevoked(t *testing.T) {
	b := serve(t, nil, "--log-level", "debug")
	t.Setenv("SEB_SERVER", b.url)
	create := func(args ...string) string {
		t.Helper()
		r := runSeb(t, nil, append([]string{"key", "create"}, args...)...)
		r.want(t, exitOK)
		return strings.TrimSpace(r.out)
	}
	ops := create("ops", "--scope", "admin")
	t.Setenv("SEB_KEY", ops)
	page := create("page", "--scope", "read", "--topic", "orders")
	runSeb(t, strings.NewReader("one\ntwo\n"), "produce", "orders").want(t, exitOK)

	signed := runSeb(t, nil, "url", "--topic", "orders", "--from", "-1", "--partition", "0", "--ttl", "1m", "--api-key", page)
	signed.want(t, exitOK, "valid until")
	url := strings.TrimSpace(signed.out)
	wantGet(t, url, http.StatusOK, `"value":"two"`)
	asJSON := runSeb(t, nil, "url", "--topic", "orders", "--api-key", page, "--output", "json")
	asJSON.want(t, exitOK)
	var answer struct {
		URL     string
		Expires time.Time
	}
	if err := json.Unmarshal([]byte(asJSON.out), &answer); err != nil || time.Until(answer.Expires) < 59*time.Minute {
		t.Errorf("%s: %v", asJSON.out, err)
	}
	wantGet(t, answer.URL, http.StatusOK, "")
	timed := runSeb(t, nil, "url", "--topic", "orders", "--from", "2020-01-31T13:00:00+01:00", "--partition", "0", "--api-key", page)
	timed.want(t, exitOK)
	wantGet(t, strings.TrimSpace(timed.out), http.StatusOK, `"value":"one"`)
	for from, want := range map[string]string{"1h": `"value":"one"`, "2020-01-31": `"value":"one"`, "1ns": ""} { // 1ns ago is now
		r := runSeb(t, nil, "url", "--topic", "orders", "--from", from, "--partition", "0", "--api-key", page)
		r.want(t, exitOK)
		res := wantGet(t, strings.TrimSpace(r.out), http.StatusOK, want)
		if want == "" && res != "" {
			t.Errorf("from %s on there is %s", from, res)
		}
	}
	runSeb(t, nil, "url", "--topic", "orders", "--from", "soon", "--api-key", page).want(t, exitUsage, "soon", "1h for an hour ago")
	wantGet(t, strings.Replace(url, "orders", "other", 1), http.StatusUnauthorized, "signature")
	wantGet(t, strings.Replace(url, "/records", "", 1), http.StatusUnauthorized, "")
	runSeb(t, nil, "key", "revoke", "page").want(t, exitOK)
	if body := wantGet(t, url, http.StatusUnauthorized, "the API key that signed this URL was revoked or is unknown"); !strings.Contains(body, `"hint":"get a new URL"`) {
		t.Errorf("the hint is not for the reader of the URL: %s", body)
	}

	if code, err := b.stop(); code != exitOK || err != nil {
		t.Fatalf("it ended with %d, %v", code, err)
	}
	_, token, _ := strings.Cut(url, "token=")
	told := b.stderr.String() + b.stdout.String()
	if !strings.Contains(told, "/v1/topics/orders/records") {
		t.Fatalf("requests are not in the log:\n%s", told)
	}
	for _, secret := range []string{token[:40], token[40:80], ops[6:], page[6:]} {
		if strings.Contains(told, secret) {
			t.Errorf("the broker told a secret:\n%s", told)
		}
	}
}

func wantGet(t *testing.T, url string, status int, text string) (body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || !strings.Contains(string(b), text) {
		t.Errorf("%d %s, %v; want %d with %q", res.StatusCode, b, err, status, text)
	}
	return string(b)
}
