package auth

import (
	"context"
	"errors"
	"testing"
)

func TestWatchesEndTheWorkOfAKey(t *testing.T) {
	var w Watches[int]
	revoked := errors.New("revoked")
	first, endFirst := context.WithCancelCause(t.Context())
	done, endDone := context.WithCancelCause(t.Context())
	other, endOther := context.WithCancelCause(t.Context())
	removeFirst := w.Add(1, endFirst)
	w.Add(1, endDone)()
	w.Add(2, endOther)
	w.End(func(key int) error {
		if key == 1 {
			return revoked
		}
		return nil
	})
	if !errors.Is(context.Cause(first), revoked) || done.Err() != nil || other.Err() != nil {
		t.Errorf("the key's work ended with %v, work that was done with %v, another key's work with %v", context.Cause(first), done.Err(), other.Err())
	}
	removeFirst()
	if len(w.m) != 1 {
		t.Errorf("%d keys are kept, want the one that has work", len(w.m))
	}
}
