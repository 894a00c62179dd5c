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

// ownHeaders are the headers that a target can't set, with the reason.
var ownHeaders = map[string]string{
	"Connection":          "it is about one connection, which is Seb's",
	"Keep-Alive":          "it is about one connection, which is Seb's",
	"Proxy-Connection":    "it is about one connection, which is Seb's",
	"Proxy-Authenticate":  "it is about a proxy",
	"Proxy-Authorization": "it is about a proxy",
	"Te":                  "it is about one connection, which is Seb's",
	"Trailer":             "it is about the form of the request, which is Seb's",
	"Transfer-Encoding":   "it is about the form of the request, which is Seb's",
	"Upgrade":             "it is about one connection, which is Seb's",
	"Http2-Settings":      "it is about one connection, which is Seb's",
	"Content-Length":      "it is about the form of the request, which is Seb's",
	"Expect":              "it is about the form of the request, which is Seb's",
	"Host":                "it is that of the URL",
	"Idempotency-Key":     "all messages would have the same one, and be taken for one: webhook-id tells them apart",
	"X-Idempotency-Key":   "all messages would have the same one, and be taken for one: webhook-id tells them apart",
}

// checkHeaders checks a target's headers, and returns them in the form in which they are sent.
func checkHeaders(given map[string]string) (http.Header, error) {
	const field = "headers"
	if len(given) > HeadersMax {
		return nil, invalid(field, fmt.Sprintf("use at most %d", HeadersMax), "there are %d headers", len(given))
	}
	headers, size := http.Header{}, 0
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value, canonical := given[name], textproto.CanonicalMIMEHeaderKey(name)
		size += len(name) + len(value)
		reason := ownHeaders[canonical]
		if strings.HasPrefix(canonical, "Seb-") || strings.HasPrefix(canonical, "Webhook-") {
			reason = "Seb says by it what the message is"
		}
		switch {
		case !httprecord.IsToken(name):
			return nil, invalid(field, "use letters, digits and -", "%q can't be the name of a header", name)
		case reason != "":
			return nil, invalid(field, "take it out", "the header %s can't be set, %s", name, reason)
		case headers[canonical] != nil:
			return nil, invalid(field, "give it once", "the header %s is given twice", canonical)
		case !httprecord.Fits(value):
			return nil, invalid(field, "use text without control characters and without spaces at its ends", "the header %s has a value that can't be sent", name)
		}
		headers[canonical] = []string{value}
	}
	if size > HeaderBytesMax {
		return nil, invalid(field, fmt.Sprintf("use at most %d", HeaderBytesMax), "the headers have %d bytes", size)
	}
	return headers, nil
}
