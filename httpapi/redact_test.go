package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	pastedKey  = "seb_7_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	pastedPush = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMDEyMzQ1Njc="
)

// escaped returns a text with all bytes percent-encoded.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
	}
	return b.String()
}

func TestSecretsAreTakenOutOfTexts(t *testing.T) {
	for _, secret := range []string{pastedKey, pastedPush} {
		for name, text := range map[string]string{
			"as it is":             secret,
			"in upper case":        strings.ToUpper(secret),
			"in lower case":        strings.ToLower(secret),
			"with an escape":       strings.ReplaceAll(secret, "_", "%5F"),
			"with a lower one":     strings.ReplaceAll(secret, "_", "%5f"),
			"with escapes escaped": strings.ReplaceAll(secret, "_", "%25255F"),
			"escaped":              escaped(secret),
			"escaped for a query":  url.QueryEscape(secret),
			"cut off":              secret[:len(secret)-20],
		} {
			for _, around := range [][2]string{{}, {"/v1/keys/", ""}, {`no key "`, `"`}, {"Bearer ", " end"}, {"/v1/topics?x=", "&y=1"}} {
				if got := WithoutSecrets(around[0] + text + around[1]); got != around[0]+"[secret]"+around[1] {
					t.Errorf("%s: %q", name, got)
				}
			}
		}
	}
	for _, plain := range []string{"", "/v1/topics/seb_orders/records", "seb_push_in_flight", "whsec_", "seb_1_0123", "100% whsec of seb_7", "%73%65%62"} {
		if got := WithoutSecrets(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

// A damaged key is useless, but what is left of it is still a secret.
func TestDamagedSecretsAreTakenOutOfTexts(t *testing.T) {
	hex := strings.TrimPrefix(pastedKey, "seb_7_")
	body := strings.TrimPrefix(pastedPush, "whsec_")
	damaged := map[string]string{
		"other prefix":      "seb-2-" + hex,
		"other version":     "seb2_7_" + hex,
		"no id":             "seb_" + hex,
		"spaces":            "seb 7 " + hex,
		"two separators":    "seb__7_" + hex,
		"other push prefix": "whsec-" + body,
		"push with a space": "whsec " + body,
		"push without _":    "whsec" + body,
	}
	for name, sep := range map[string]string{"line feed": "\n", "CR LF": "\r\n", "quoted line feed": `\n`, "no ASCII": "\u200b", "escaped line feed": "%0A", "escaped twice": "%250A", "space": " ", "escaped space": "%20", "plus": "+", "dash": "-", "underscore": "_"} {
		for _, at := range []int{1, 20, 60} {
			damaged[name+" in a key"] = pastedKey[:6] + hex[:at] + sep + hex[at:]
			damaged[name+" in a secret"] = pastedPush[:6+at/2] + sep + pastedPush[6+at/2:]
		}
	}
	for name, text := range damaged {
		for _, around := range [][2]string{{}, {"/v1/keys/", ""}, {`no key "`, `"`}, {"Bearer ", " end"}, {"/v1/topics?x=", "&y=1"}} {
			if got := WithoutSecrets(around[0] + text + around[1]); got != around[0]+"[secret]"+around[1] {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	for _, bare := range []string{hex, strings.ToUpper(hex), hex[:30] + "\n" + hex[30:], hex[:30] + "-" + hex[30:], hex[:30] + "/" + hex[30:], hex[:30] + `\n` + hex[30:], hex[4:], body} {
		if got := WithoutSecrets("/v1/keys/" + bare + "?"); got != "/v1/keys/"+bare[:8]+"[...]?" {
			t.Errorf("%q became %q", bare, got)
		}
	}
	if got, want := WithoutSecrets("/v1/keys/"+escaped(hex)), "/v1/keys/"+escaped(hex[:8])+"[...]"; got != want {
		t.Errorf("escaped: %q", got)
	}
	for _, plain := range []string{
		"/v1/topics/orders-550e8400-e29b-41d4-a716-446655440000/records", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"data/00000000000000000004-75f94df6c28038a5 and log/00000000000000000005", "seb-1-2026-01-31-12-00-00", "seb_backup_2026",
		"/v1/topics/" + strings.Repeat("orders_of_the_Warehouse_2_", 9), strings.Repeat("orders", 40), "whsec is the prefix",
		"cluster 0123456789abcdef0123456789abcdef", "2026-01-31T12:00:00.000000Z to 2026-02-01T12:00:00.000000Z",
	} {
		if got := WithoutSecrets(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

// Messages quote values before secrets are replaced, so what stands within a secret may be an escape of Go or JSON.
func TestSecretsWithInvisibleCharactersAreTakenOutOfTexts(t *testing.T) {
	hex, body := strings.TrimPrefix(pastedKey, "seb_7_"), strings.TrimPrefix(pastedPush, "whsec_")
	for _, between := range []string{
		"\f", "\v", "\x00", "\x1b", "\x7f", "\u00a0", "\u0085", "\u00ad", "\u200b", "\u2028", "\ufeff", "\U000e0001", "\"", "\\", "\r\n", "\n    ",
		"\t\t\t\t\t", "\n" + strings.Repeat(" ", 80), strings.Repeat("\u200b", 20), "\x80", "\f\"\\ ", "\\\\",
	} {
		for name, text := range map[string]string{
			"once in a key":           pastedKey[:6] + hex[:32] + between + hex[32:],
			"near the end of a key":   pastedKey[:6] + hex[:63] + between + hex[63:],
			"in the prefix of a key":  "s" + between + "eb_7_" + hex,
			"before the id":           "seb_" + between + "7_" + hex,
			"everywhere in a key":     "seb_7_" + strings.Join(strings.Split(hex, ""), between),
			"once in a secret":        pastedPush[:30] + between + pastedPush[30:],
			"near the end of one":     pastedPush[:len(pastedPush)-3] + between + pastedPush[len(pastedPush)-3:],
			"in the prefix of one":    "wh" + between + "sec_" + body,
			"everywhere in a secret":  "whsec_" + strings.Join(strings.Split(body, ""), between),
			"first in a secret":       "whsec_" + between + body,
			"at two places in a key":  "seb_7_" + hex[:20] + between + hex[20:30] + between + hex[30:],
			"at two places of secret": pastedPush[:9] + between + pastedPush[9:12] + between + pastedPush[12:],
		} {
			quoted := fmt.Sprintf("%q", text)
			inJSON, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range []string{quoted, fmt.Sprintf("%q", quoted[1:len(quoted)-1]), string(inJSON), `"` + text + `"`, `"` + url.PathEscape(text) + `"`} {
				for _, around := range [][2]string{{}, {"no key ", " is known"}} {
					if got := WithoutSecrets(around[0] + in + around[1]); got != around[0]+`"[secret]"`+around[1] {
						t.Errorf("%q %s: %s became %s", between, name, around[0]+in+around[1], got)
					}
				}
			}
		}
	}
}

// Long texts take a time in proportion to their length.
func TestLongTextsAreCheckedForSecretsInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	const size = 64 << 10
	for _, unit := range []string{"seb_1 ", "seb_1_a ", "a ", "a\u200b", "s\f", "whsec_ ", "whsec_a\n", "abcdefg ", `\`, `\u`, `\x1`, `"a`, "%25", "ab\n", "A0b+", " ", "sebsebseb", "wh\x1b"} {
		text := strings.Repeat(unit, size/len(unit))
		for _, text := range []string{text, "seb_1_" + text, "whsec_" + text} {
			began := time.Now()
			WithoutSecrets(text)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%q takes %v", unit, took)
			}
		}
	}
}

// Wherever in a request a secret is pasted, the log and the answer don't repeat it.
func TestPastedSecretsAreNeitherLoggedNorAnswered(t *testing.T) {
	for _, secret := range []string{pastedKey, strings.ToUpper(pastedKey), pastedPush, strings.ToLower(pastedPush)} {
		lines := &logLines{}
		s := newServer(t, seb.Options{}, Options{Logger: lines.logger()})
		s.append("orders", "a")
		in, twice := url.PathEscape(secret), url.PathEscape(url.PathEscape(secret))
		put := func(path, body string) answer {
			return s.do("PUT", path, strings.NewReader(body), "Content-Type", "application/json")
		}
		queue := ordersPath[:len(ordersPath)-len("/records")] + "/queues/q"
		put(queue, `{}`).want(t, http.StatusCreated)
		answers := []answer{
			s.get("/v1/keys/" + in), s.do("DELETE", "/v1/keys/"+in, nil), s.get("/v1/topics/" + in), s.get("/v1/topics/" + twice + "/records"), s.get("/" + escaped(secret)),
			s.get(ordersPath + "?offset=" + url.QueryEscape(secret)), s.get(ordersPath + "?" + url.QueryEscape(secret) + "=1"), s.get(ordersPath + "?limit=" + escaped(secret)),
			s.get(ordersPath, "Accept", secret), s.get(ordersPath, requestIDHeader, secret[:60%len(secret)]), s.post(ordersPath, "x", "Seb-If-Offset", secret),
			s.post(ordersPath, "x", "Content-Encoding", secret), s.post(ordersPath, "x", "Authorization", secret),
			put(queue+"/push", `{"url":"`+secret+`"}`), put(queue+"/push", `{"url":"https://example.com/`+secret+`#"}`), put(queue+"/push", `{"`+secret+`":1}`),
			s.post(queue+"/ack", `{"tokens":["`+secret+`"]}`), put("/v1/topics/t", `{"`+secret+`":1}`), put("/v1/topics/t", secret),
		}
		for _, part := range []string{secret[10:30], strings.ReplaceAll(in, "_", "%5F")[12:30], escaped(secret)[30:60]} {
			if strings.Contains(lines.String(), part) {
				for line := range strings.Lines(lines.String()) {
					if strings.Contains(line, part) {
						t.Errorf("the log has %q: %s", part, line)
					}
				}
			}
			for _, a := range answers {
				if strings.Contains(a.body, part) || strings.Contains(a.Header.Get(requestIDHeader), part) {
					t.Errorf("%s %s: the answer has %q: %s", a.Request.Method, a.Request.URL, part, a.body)
				}
			}
		}
	}
}

// The answer quotes the value as the client sent it: in lower case, it would not look like a secret.
func TestContentEncodingThatIsASecretIsNotAnswered(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	body := strings.TrimPrefix(pastedPush, "whsec_")
	a := s.post(ordersPath, "x", "Content-Encoding", body)
	if a.want(t, http.StatusUnsupportedMediaType); strings.Contains(strings.ToLower(a.body), strings.ToLower(body[10:])) {
		t.Error(a.body)
	}
}
