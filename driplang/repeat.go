package driplang

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Repeat says how often a trigger fires for an entity. The zero value is [Once].
type Repeat struct {
	every bool
	most  int
	per   time.Duration
}

// Once lets an entity fire once, and never again. Every lets it fire each time.
var (
	Once  = Repeat{}
	Every = Repeat{every: true}
)

// AtMost lets an entity fire at most n times in a duration of whole seconds.
func AtMost(n int, per time.Duration) Repeat { return Repeat{most: n, per: per} }

// ParseRepeat reads "once", "every", or "at most 3 per 1d".
func ParseRepeat(s string) (Repeat, error) {
	switch s = strings.TrimSpace(s); s {
	case "once":
		return Once, nil
	case "every":
		return Every, nil
	}
	number, per, ok := strings.Cut(strings.TrimPrefix(s, "at most "), " per ")
	most, err := strconv.Atoi(strings.TrimSpace(number))
	if !strings.HasPrefix(s, "at most ") || !ok || err != nil {
		return Repeat{}, fmt.Errorf(`expected once, every, or for example "at most 3 per 1d", not %q`, s)
	}
	if most < 1 || most > MaxTimes {
		return Repeat{}, fmt.Errorf("a repeat is at most 1 to %d times, not %d", MaxTimes, most)
	}
	d, err := ParseDuration(per)
	if err != nil {
		return Repeat{}, fmt.Errorf("the repeat %q: %w", s, err)
	}
	return AtMost(most, d), nil
}

// Limit returns how many times an entity can fire in a duration. The duration is 0 if that is for good, and most is 0 if there is no
// limit.
func (r Repeat) Limit() (most int, per time.Duration) {
	switch {
	case r.every:
		return 0, 0
	case r.most > 0:
		return r.most, r.per
	default:
		return 1, 0
	}
}

// String returns the repeat as [ParseRepeat] reads it.
func (r Repeat) String() string {
	switch {
	case r.every:
		return "every"
	case r.most > 0:
		return fmt.Sprintf("at most %d per %s", r.most, FormatDuration(r.per))
	default:
		return "once"
	}
}

// MarshalText implements encoding.TextMarshaler.
func (r Repeat) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Repeat) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRepeat(string(text))
	return err
}
