package kit

import (
	"errors"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// WantCode fails unless err is a broker's error with the given code.
func WantCode(t testing.TB, err error, code seb.Code) {
	t.Helper()
	_ = WantError(t, err, code)
}

// WantError fails unless err is a broker's error with the given code. It returns that error.
func WantError(t testing.TB, err error, code seb.Code) *seb.Error {
	t.Helper()
	var e *seb.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	return e
}

// WantOutcome fails unless err has the given outcome.
func WantOutcome(t testing.TB, err error, o seb.Outcome) {
	t.Helper()
	if got := seb.OutcomeOf(err); got != o {
		t.Fatalf("outcome of %v is %q, want %q", err, got, o)
	}
}

// WantText fails unless the text of err has all parts.
func WantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

// WantConflict fails unless err is an offset conflict which names end as the end of the partition, and whose
// outcome is that nothing is committed.
func WantConflict(t testing.TB, err error, end seb.Offset) {
	t.Helper()
	if e := WantError(t, err, seb.CodeOffsetConflict); e.End != end || e.Outcome != seb.NotCommitted {
		t.Fatalf("the conflict is %+v, want one with end %d", e, end)
	}
}

// WantPart fails unless err has the given code, names part as the refused part of a commit, and has the
// outcome that nothing is committed.
func WantPart(t testing.TB, err error, code seb.Code, part string) {
	t.Helper()
	if e := WantError(t, err, code); e.Part != part || e.Outcome != seb.NotCommitted {
		t.Fatalf("the error names part %q with outcome %s, want part %q and not committed: %v", e.Part, e.Outcome, part, e)
	}
}
