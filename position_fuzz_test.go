package seb_test

import (
	"testing"

	"github.com/simple-event-broker/seb"
)

// ParsePosition returns a position whose text is parsed as the same one, or refuses the text with
// CodeInvalidRequest.
func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{"", "earliest", "latest", "41", "-10", "+5", "-0", "9223372036854775807", "-9223372036854775808", "0x10", " 1", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59.9999Z", "0000-01-01T00:00:00+23:59"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := seb.ParsePosition(s)
		if err != nil {
			if seb.CodeOf(err) != seb.CodeInvalidRequest {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if again, err := seb.ParsePosition(p.String()); err != nil || again != p {
			t.Fatalf("%q is %v, and that is %v, %v", s, p, again, err)
		}
	})
}
