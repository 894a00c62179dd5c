package auth

import (
	"encoding/base64"
	"testing"
	"time"
)

// A credential may be any bytes. A parser accepts a text only if it writes the parsed credential as the same text.
func FuzzCredential(f *testing.F) {
	s := Secret{ID: 7, bits: [32]byte{1, 2, 3}}
	f.Add(s.Text())
	f.Add(s.Sign("orders", time.Unix(1_790_000_000, 0)))
	f.Add("seb_18446744073709551616_00")
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := ParseSecret(text); ok && s.Text() != text {
			t.Fatalf("%q was read as %q", text, s.Text())
		}
		if x, ok := ParseToken(text); ok {
			b := append(append([]byte(nil), x.fixed...), x.signature...)
			if base64.RawURLEncoding.EncodeToString(b) != text {
				t.Fatalf("%q was read as %x", text, b)
			}
			x.SignedBy(s.Public(), "orders")
		}
	})
}
