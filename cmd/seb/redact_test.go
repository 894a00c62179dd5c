package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// What the broker logs of names and errors may hold a key that somebody pasted as one.
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
