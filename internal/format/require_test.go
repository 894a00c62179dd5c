package format

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func requireIs(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, not one that wraps %q", err, want)
	}
}

func requireEqual(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
}
