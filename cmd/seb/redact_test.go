package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Names and errors in the log may hold a key that a user pasted by mistake.
func TestLogOfServeHasNoSecrets(t *testing.T) {
	const bits = "0123456789abcdef0123456789abcdef"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := (&serveCmd{LogFormat: format}).logger(streams{err: &out})
		log.With("topic", "seb_1_"+bits).Error("lost SEB_2_"+strings.ToUpper(bits), "err", errors.New("no whsec_"+bits), slog.Group("of", "queue", "seb%5F1_"+bits), "count", 7)
		if text := out.String(); strings.Count(text, "[secret]") != 4 || strings.Contains(strings.ToLower(text), bits[:16]) || !strings.Contains(text, "7") {
			t.Errorf("%s: %s", format, text)
		}
	}
}

// The command's own text must not show a key either, not only the broker's answer.
func TestErrorsOfCommandsHaveNoSecrets(t *testing.T) {
	broker := serve(t, nil, "--store", "memory:")
	const bits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, args := range [][]string{
		{"topic", "show", "seb_1_" + bits},
		{"key", "revoke", "seb_1_" + bits},
		{"consume", "seb_1_" + bits},
		{"consume", "t", "--from", "seb_1_" + bits},
		{"queue", "show", "t", "whsec_" + bits},
		{"topic", "show", "seb_1_ " + bits},
		{"topic", "list", "seb_1_\n" + bits},
		{"topic", "list", "seb _1_" + bits},
		{"topic", "list", "seb_1_" + bits[:32] + "\n" + bits[32:]},
		{"topic", "list", "whsec_ " + bits},
		{"queue", "show", "t", "whsec_" + bits[:32] + "\n" + bits[32:]},
	} {
		r := runSeb(t, nil, append(args, "--server", broker.url)...)
		if r.code == exitOK || strings.Contains(r.err+r.out, bits[:16]) || !strings.Contains(r.err, "[secret]") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	const whole = "/tmp/TestNameThatIsAsLongAsThose0123456789 and the hash " + bits
	var out bytes.Buffer
	if report(&out, errors.New(whole)); out.String() != "seb: "+whole+"\n" {
		t.Errorf("what is no secret is said as %q", out.String())
	}
	broker.stopped(t)
}

// In JSON, durations are seconds, and say so.
func TestDurationsInJSONHaveAUnit(t *testing.T) {
	broker := serve(t, nil, "--log-format", "json", "--log-level", "debug")
	if a := <-begin(t, http.MethodGet, broker.url+"/livez", ""); a.err != nil {
		t.Fatal(a.err)
	}
	broker.stopped(t)
	for _, want := range []string{`"msg":"recovered"`, `"took_seconds":0`, `"msg":"request"`, `"duration_seconds":0.`} {
		if !strings.Contains(broker.stderr.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, broker.stderr)
		}
	}
}
