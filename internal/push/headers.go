package push

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb/internal/httprecord"
)

// ownHeaders are the headers that the configuration of a target can't set, each with the reason.
var ownHeaders = map[string]string{
	"Connection":          "it concerns the connection, which Seb controls",
	"Keep-Alive":          "it concerns the connection, which Seb controls",
	"Proxy-Connection":    "it concerns the connection, which Seb controls",
	"Proxy-Authenticate":  "it is for proxies",
	"Proxy-Authorization": "it is for proxies",
	"Te":                  "it concerns the connection, which Seb controls",
	"Trailer":             "it concerns the form of the request, which Seb controls",
	"Transfer-Encoding":   "it concerns the form of the request, which Seb controls",
	"Upgrade":             "it concerns the connection, which Seb controls",
	"Http2-Settings":      "it concerns the connection, which Seb controls",
	"Content-Length":      "it concerns the form of the request, which Seb controls",
	"Expect":              "it concerns the form of the request, which Seb controls",
	"Host":                "Seb takes it from the URL",
	"Idempotency-Key":     "all messages would have the same value; webhook-id identifies each message",
	"X-Idempotency-Key":   "all messages would have the same value; webhook-id identifies each message",
}

// checkHeaders checks a target's headers, and returns them in the form in which they are sent.
func checkHeaders(given map[string]string) (http.Header, error) {
	const field = "headers"
	if len(given) > HeadersMax {
		return nil, invalid(field, fmt.Sprintf("use at most %d headers", HeadersMax), "there are %d headers", len(given))
	}
	headers, size := http.Header{}, 0
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value, canonical := given[name], textproto.CanonicalMIMEHeaderKey(name)
		size += len(name) + len(value)
		reason := ownHeaders[canonical]
		if strings.HasPrefix(canonical, "Seb-") || strings.HasPrefix(canonical, "Webhook-") {
			reason = "it is one of the headers that Seb sets"
		}
		switch {
		case !httprecord.IsToken(name):
			return nil, invalid(field, "use letters, digits and -", "%q can't be the name of a header", name)
		case reason != "":
			return nil, invalid(field, "remove it", "the header %s can't be set: %s", name, reason)
		case headers[canonical] != nil:
			return nil, invalid(field, "give it once", "the header %s is given twice", canonical)
		case !httprecord.Fits(value):
			return nil, invalid(field, "use text without control characters and without spaces at its ends", "the header %s has a value that can't be sent", name)
		}
		headers[canonical] = []string{value}
	}
	if size > HeaderBytesMax {
		return nil, invalid(field, fmt.Sprintf("use at most %d bytes", HeaderBytesMax), "the names and values of the headers have %d bytes in all", size)
	}
	return headers, nil
}
