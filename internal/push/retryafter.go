package push

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryAfterMax bounds what a target may ask for, so that one that is wrong about the
// year is asked again on the same day.
const retryAfterMax = time.Hour

// retryAfter reads the header of that name: seconds, or a date (RFC 9110, 10.2.3). What
// is neither, or has passed, is 0.
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
