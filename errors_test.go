package seb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/engine"
)

func TestErrorsInTheWordsForCallers(t *testing.T) {
	damage := errors.New("damage")
	own := refused(CodeInvalidRequest, "no")
	for _, x := range []struct {
		name    string
		err     error
		code    Code
		outcome Outcome
	}{
		{"the outermost counts", &engine.StoreError{Doing: "read", Err: &engine.StoppedError{Err: damage}}, CodeStoreUnavailable, ""},
		{"behind text", fmt.Errorf("seek: %w", &engine.DataLostError{Err: damage}), CodeDataLost, ""},
		{"what may be committed", &engine.UnknownError{Err: &engine.StoppedError{Err: damage}}, CodeBrokerStopped, Unknown},
		{"a late one that may be committed", &engine.UnknownError{Err: &engine.LateError{Within: time.Second}}, CodeStoreUnavailable, Unknown},
		{"a caller that left", &engine.UnknownError{Err: context.Canceled}, CodeCanceled, Unknown},
		{"a refusal of its own", fmt.Errorf("part: %w", own), CodeInvalidRequest, ""},
		{"memory", &budget.FullError{Limit: 1}, CodeOverMemoryBudget, ""},
		{"joined", errors.Join(&engine.StoppedError{Err: errors.New("x")}, damage), CodeBrokerStopped, ""},
		{"no error of ours", damage, "", ""},
	} {
		got := public(x.err)
		e, _ := errors.AsType[*Error](got)
		if CodeOf(got) != x.code || e != nil && e.Outcome != x.outcome {
			t.Errorf("%s: %v, want %s with outcome %q", x.name, got, x.code, x.outcome)
		}
		if errors.Is(x.err, damage) && !errors.Is(got, damage) {
			t.Errorf("%s: %v has lost its cause", x.name, got)
		}
	}
	if public(nil) != nil {
		t.Error("nil became an error")
	}
	if got := public(fmt.Errorf("part: %w", own)); got.Error() != "part: "+own.Error() {
		t.Errorf("an error around one for callers became %v", got)
	}
}
