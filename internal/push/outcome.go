package push

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Outcome is how a request to a target ended.
type Outcome string

// The outcomes of a request. Only Delivered is a success. After Slowed, Unreachable and Forbidden, the pusher
// pauses; after Gone, it ends.
const (
	Delivered   Outcome = "delivered"   // 2xx
	Slowed      Outcome = "slowed"      // 429, 502, 503, 504: the target asks to slow down
	Unreachable Outcome = "unreachable" // name resolution, the connection or TLS failed
	Forbidden   Outcome = "forbidden"   // an address that is not allowed: nothing was sent
	Gone        Outcome = "gone"        // 410: the target wants no more requests
	Redirected  Outcome = "redirected"  // 3xx
	Refused     Outcome = "refused"     // any other 4xx
	Failed      Outcome = "failed"      // any other status
	TimedOut    Outcome = "timed_out"   // connected, but no answer in time
	Broken      Outcome = "broken"      // connected, but no valid answer
	Abandoned   Outcome = "abandoned"   // ended by a shutdown
)

var outcomes = []Outcome{Delivered, Slowed, Unreachable, Forbidden, Gone, Redirected, Refused, Failed, TimedOut, Broken, Abandoned}

const (
	// ReasonBytesMax is the maximum size of a Nack's reason.
	ReasonBytesMax = 512
	locationMax    = 200         // maximum bytes of a Location header in a reason
	bodyBytesMax   = 4 << 10     // maximum bytes of a response's body that a reason is made from
	bodyWait       = time.Second // longest time for reading the body
)

// answer is the result of a request.
type answer struct {
	outcome Outcome
	reason  string        // for people; "" if the outcome is Delivered
	after   time.Duration // the Retry-After if the outcome is Slowed; else 0
	err     error         // set if there was no response; only the log shows it
}

// judge returns the result of a request that got the response r. body is the beginning of r's body.
func judge(r *http.Response, body []byte, now time.Time) answer {
	a := answer{outcome: Failed}
	switch code := r.StatusCode; {
	case code >= 200 && code < 300:
		return answer{outcome: Delivered}
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		a.outcome = Slowed
		a.after = retryAfter(r.Header, now)
	case code == http.StatusGone:
		a.outcome = Gone
	case code >= 300 && code < 400:
		a.outcome = Redirected
	case code >= 400 && code < 500:
		a.outcome = Refused
	}
	a.reason = fmt.Sprintf("HTTP %d", r.StatusCode)
	if text := http.StatusText(r.StatusCode); text != "" {
		a.reason += " " + text
	}
	if location := r.Header.Get("Location"); a.outcome == Redirected && location != "" {
		a.reason += ", which is not followed, to " + clean(location, locationMax)
	}
	if text := clean(string(body), bodyBytesMax); text != "" {
		a.reason += ": " + text
	}
	a.reason = cut(a.reason, ReasonBytesMax)
	return a
}

// unanswered returns the result of a request that got no response. The reason leaves out details of the
// broker's own network, which only the log shows.
func unanswered(err error, connected, late bool, limit time.Duration) answer {
	a := answer{outcome: Broken, err: err}
	var forbidden *forbiddenError
	switch {
	case errors.As(err, &forbidden):
		a.outcome, a.reason = Forbidden, "the URL's host has an address that "+forbidden.why+": "+forbidden.hint
	case late && connected:
		a.outcome, a.reason = TimedOut, fmt.Sprintf("no response within %v", limit)
	case late:
		a.outcome, a.reason = Unreachable, fmt.Sprintf("no connection within %v", limit)
	case connected:
		a.reason = "no complete response: " + clean(cause(err), ReasonBytesMax)
	default:
		a.outcome, a.reason = Unreachable, "no connection: "+clean(cause(err), ReasonBytesMax)
	}
	a.reason = cut(a.reason, ReasonBytesMax)
	return a
}

// cause describes a network error. It leaves out the addresses of this machine, the proxy and the name
// server.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "proxyconnect" { // net/http uses this name for every failed connection to a proxy
		return "the broker's proxy can't be reached"
	}
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		switch {
		case lookup.IsNotFound:
			return "there is no host " + lookup.Name
		default:
			return "the name servers could not resolve " + lookup.Name
		}
	}
	if op != nil {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// clean returns at most limit bytes of text, on one line, that are safe to show on a terminal and in a
// page; "" if text is not valid UTF-8.
func clean(text string, limit int) string {
	text = whole(text)
	if !utf8.ValidString(text) {
		return ""
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		case !unicode.IsPrint(r): // also removes marks that change the direction of the text
			return -1
		}
		return r
	}, text)
	return cut(strings.Join(strings.Fields(text), " "), limit)
}

// cut returns at most limit bytes of text. If text is longer, the result ends with "...".
func cut(text string, limit int) string {
	const more = "..."
	if len(text) <= limit {
		return text
	}
	return whole(text[:limit-len(more)]) + more
}

// whole returns text without the last character if that character is incomplete.
func whole(text string) string {
	for i := 1; i <= utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
