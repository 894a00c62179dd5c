package seb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/dispatch"
)

// Extend makes the leases of the tokens end after the given time from now; 0 means the lease of the
// queue's config. A worker that needs more time calls Extend before its lease ends. Only the
// queue's owner can extend leases: on other brokers Extend fails as [Queue.Receive] does. A new
// owner does not know of extensions: it gives every worker the lease of the queue's config. If some
// tokens are refused, the error is a [*TokensError].
func (q *Queue) Extend(ctx context.Context, lease time.Duration, tokens ...string) (until time.Time, err error) {
	defer reads(&err)
	if err := cmp.Or(q.check(), checkTokens(tokens), checkLease(lease), q.b.current(ctx)); err != nil {
		return time.Time{}, err
	}
	answers, err := parseAnswers(tokens, clusterTag(q.b.engine))
	if err != nil {
		return time.Time{}, err
	}
	if _, err := q.dispatcher(ctx, 0); err != nil {
		return time.Time{}, err
	}
	if _, err := q.syncUnlessLast(ctx, answers); err != nil {
		return time.Time{}, err
	}
	if err := q.b.engine.SyncToAct(ctx); err != nil { // don't extend leases of a queue that may have a new owner
		return time.Time{}, err
	}
	named := make([]dispatch.Token, len(answers))
	for i, a := range answers {
		named[i] = dispatch.Token{Queue: a.Queue, Delivery: a.Delivery}
	}
	for {
		d, err := q.dispatcher(ctx, 0) // the owner may have changed meanwhile
		if err != nil {
			return time.Time{}, err
		}
		until, out := d.Extend(named, lease)
		if out == nil {
			continue // the dispatcher d has ended
		}
		errs := make([]error, len(answers))
		for i, a := range answers {
			switch {
			case a.Queue != d.Queue():
				errs[i] = change.TokenElsewhere(a.Token)
			case !out[i]:
				errs[i] = change.LeaseLost(a.Token, "belongs to a delivery that is no longer leased")
			}
		}
		return until.UTC(), tokensError(errs)
	}
}

// TokensError is the error of a call that refused some of its tokens, and accepted the others.
type TokensError struct {
	// Errors has an entry for each token, in the order of the call; nil for an accepted token.
	Errors []error
}

// Error returns the first error, and how many tokens were refused.
func (e *TokensError) Error() string {
	n, first := 0, error(nil)
	for _, err := range e.Errors {
		if err == nil {
			continue
		}
		if n++; n == 1 {
			first = err
		}
	}
	if n == 1 && len(e.Errors) == 1 {
		return first.Error()
	}
	return fmt.Sprintf("%d of %d tokens were refused; the first error: %v", n, len(e.Errors), first)
}

// Unwrap returns the errors that are not nil.
func (e *TokensError) Unwrap() (errs []error) {
	for _, err := range e.Errors {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// tokensError returns errs as a [TokensError], or nil if all of them are nil.
func tokensError(errs []error) error {
	if errors.Join(errs...) == nil {
		return nil
	}
	return &TokensError{Errors: errs}
}

// parseToken parses the token of a delivery.
func parseToken(s string) (dispatch.Token, error) {
	t, ok := dispatch.ParseToken(s)
	if !ok || len(t.Cluster) != clusterDigits {
		e := refused(CodeInvalidRequest, "invalid token %.100q", s)
		e.Hint = "use the token that came with the record, unchanged"
		return dispatch.Token{}, e
	}
	return t, nil
}
