package seb

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TokensError is the error of a call of which some tokens were refused. The others were
// accepted.
type TokensError struct {
	// Errors has an entry for each token, in their order; nil for those that were accepted.
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
	return fmt.Sprintf("%d of %d tokens were refused: %v", n, len(e.Errors), first)
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

// deliveryToken identifies a delivery: a worker answers with its text.
type deliveryToken struct {
	cluster   string
	queue     uint64
	partition int32
	offset    int64
	attempt   uint32
}

func (t deliveryToken) String() string {
	b := make([]byte, 0, tokenBytesMax)
	b = strconv.AppendUint(append(append(b, t.cluster...), '.'), t.queue, 10)
	b = strconv.AppendInt(append(b, '/'), int64(t.partition), 10)
	b = strconv.AppendInt(append(b, ':'), t.offset, 10)
	b = strconv.AppendUint(append(b, '.'), uint64(t.attempt), 10)
	return string(b)
}

const tokenBytesMax = 100

// parseToken parses what deliveryToken.String returns.
func parseToken(s string) (deliveryToken, error) {
	cluster, rest, _ := strings.Cut(s, ".")
	queue, rest, _ := strings.Cut(rest, "/")
	partition, rest, _ := strings.Cut(rest, ":")
	offset, attempt, _ := strings.Cut(rest, ".")
	q, err1 := strconv.ParseUint(queue, 10, 64)
	p, err2 := strconv.ParseUint(partition, 10, 31)
	o, err3 := strconv.ParseUint(offset, 10, 63)
	n, err4 := strconv.ParseUint(attempt, 10, 32)
	t := deliveryToken{cluster: cluster, queue: q, partition: int32(p), offset: int64(o), attempt: uint32(n)}
	if len(s) > tokenBytesMax || errors.Join(err1, err2, err3, err4) != nil || len(cluster) != clusterDigits || n == 0 || t.String() != s {
		e := refused(CodeInvalidRequest, "invalid token %.100q", s)
		e.Hint = "use the token that came with the record, unchanged"
		return deliveryToken{}, e
	}
	return t, nil
}
