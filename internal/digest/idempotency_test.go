package digest

import (
	"crypto/sha256"
	"testing"
)

// Keys that a log has remembered must be found again.
func TestHashesOfIdempotencyKeysNeverChange(t *testing.T) {
	for want, got := range map[string][16]byte{
		"\x01\x02k":     Key(-1, "k", 0),
		"\x0e\x02k":     Key(7, "k", 0),
		"\x03\x02k\x04": Key(-2, "k", 2),
	} {
		if sum := sha256.Sum256([]byte(want)); [16]byte(sum[:16]) != got {
			t.Errorf("%q is hashed to %x", want, got)
		}
	}
}
