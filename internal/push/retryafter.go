package push

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfterMax bounds how long a target may ask the pusher to wait. Without this bound, a target
// with a wrong clock might get no requests for days.
const retryAfterMax = time.Hour

// retryAfter returns the wait that a Retry-After header asks for, at most retryAfterMax. The header has a number of seconds, or a
// date (RFC 9110, 10.2.3). The result is 0 if the header is missing or invalid, or if the date has passed.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(retryAfterMax/time.Second) {
			return retryAfterMax
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), retryAfterMax)
}
