package seb

import (
	"encoding/base64"
	"testing"
	"time"
)

// What a caller shows is anyone's bytes: it is read exactly or not at all.
func FuzzCredential(f *testing.F) {
	s := secret{id: 7, bits: [32]byte{1, 2, 3}}
	f.Add(s.text())
	t, err := SignRead(s.text(), "orders", time.Unix(1_790_000_000, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(t)
	f.Add("seb_18446744073709551616_00")
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := parseSecret(text); ok && s.text() != text {
			t.Fatalf("%q was read as %q", text, s.text())
		}
		if x, ok := parseToken(text); ok {
			b := append(append([]byte(nil), x.fixed...), x.signature...)
			if base64.RawURLEncoding.EncodeToString(b) != text {
				t.Fatalf("%q was read as %x", text, b)
			}
			x.signedBy(s.public(), "orders")
		}
	})
}
