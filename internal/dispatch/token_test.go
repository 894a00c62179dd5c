package dispatch_test

import (
	"math"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/leases"
)

func TestTokenIsReadAsItWasWritten(t *testing.T) {
	for text, want := range map[string]dispatch.Token{
		"1f0c6a3e.7/2:41.3": {Cluster: "1f0c6a3e", Queue: 7, Delivery: leases.Delivery{Place: leases.Place{Partition: 2, Offset: 41}, Attempt: 3}},
		"1f0c6a3e.18446744073709551615/2147483647:9223372036854775807.4294967295": {
			Cluster: "1f0c6a3e", Queue: math.MaxUint64,
			Delivery: leases.Delivery{Place: leases.Place{Partition: math.MaxInt32, Offset: math.MaxInt64}, Attempt: math.MaxUint32},
		},
	} {
		if got := want.String(); got != text {
			t.Errorf("%+v is written as %q, want %q", want, got, text)
		}
		if got, ok := dispatch.ParseToken(text); !ok || got != want {
			t.Errorf("%q is read as %+v, %v", text, got, ok)
		}
	}
}

func TestMalformedTokensAreRefused(t *testing.T) {
	for _, s := range []string{
		"", "1f0c6a3e", "1f0c6a3e.7/2:41", "1f0c6a3e.7/2:41.0", "1f0c6a3e.07/2:41.3", "1f0c6a3e.+7/2:41.3", "1f0c6a3e.7/-1:41.3", "1f0c6a3e.7/2:-1.3",
		"1f0c6a3e.7/2:41.3 ", "1f0c6a3e.7/2147483648:41.3", "1f0c6a3e.7/2:9223372036854775808.3", "1f0c6a3e.7/2:41.4294967296",
		"1f0c6a3e.18446744073709551616/2:41.3", strings.Repeat("1", 100) + ".7/2:41.3",
	} {
		if got, ok := dispatch.ParseToken(s); ok {
			t.Errorf("%q is read as %+v", s, got)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("1f0c6a3e.7/2:41.3")
	f.Add("1f0c6a3e.07/2:41.3")
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := dispatch.ParseToken(text); ok && (got.String() != text || got.Attempt == 0 || got.Partition < 0 || got.Offset < 0) {
			t.Errorf("%q is read as %+v", text, got)
		}
	})
}
