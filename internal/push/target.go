package push

import (
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds on a [Target], and the defaults for its zero fields.
const (
	URLBytesMax     = 2048
	HeadersMax      = 32
	HeaderBytesMax  = 8 << 10 // all names and values together
	SecretsMax      = 4
	SecretBytesMax  = 1 << 10 // all secrets with the spaces between them
	InFlightDefault = 64
	InFlightMax     = 1024
	TimeoutDefault  = 30 * time.Second
	TimeoutMin      = time.Second
	TimeoutMax      = 5 * time.Minute
)

// Target is where a queue's messages are pushed to.
type Target struct {
	// URL gets a POST request for each message. It is an http or https URL without user or fragment.
	URL string
	// Headers, such as Authorization, are sent with each request. A Content-Type in Headers is used only
	// for records that have no content type of their own.
	Headers map[string]string
	// Secret signs the requests: whsec_ and then 24 to 64 bytes in base64, as [NewSecret] makes it.
	// Several secrets are separated by a space. Each request then has a signature for each secret, so that
	// a receiver can change from an old secret to a new one.
	Secret string
	// MaxInFlight is how many requests may be under way at a time; 0 means [InFlightDefault].
	MaxInFlight int
	// Timeout is how long a request may take, from its first packet to the status of its answer; 0
	// means [TimeoutDefault].
	Timeout time.Duration
}

// Equal tells whether two targets are the same.
func (t Target) Equal(o Target) bool {
	return t.URL == o.URL && t.Secret == o.Secret && t.MaxInFlight == o.MaxInFlight && t.Timeout == o.Timeout && maps.Equal(t.Headers, o.Headers)
}

// InvalidError says what is wrong with a [Target], and what to do about it.
type InvalidError struct {
	Field        string // the field's name in JSON: url, headers, secret, max_in_flight, timeout
	Detail, Hint string
}

// Error implements error.
func (e *InvalidError) Error() string { return e.Detail + ": " + e.Hint }

func invalid(field, hint, format string, args ...any) *InvalidError {
	return &InvalidError{Field: field, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// OrDefaults returns t with the zero MaxInFlight and Timeout replaced by the defaults.
func (t Target) OrDefaults() Target {
	if t.MaxInFlight == 0 {
		t.MaxInFlight = InFlightDefault
	}
	if t.Timeout == 0 {
		t.Timeout = TimeoutDefault
	}
	return t
}

// Check returns an [*InvalidError] if t, with its defaults, is invalid. [Networks.CheckTarget] checks whether
// requests may go to the URL's address.
func (t Target) Check() error {
	t = t.OrDefaults()
	if _, err := parseURL(t.URL); err != nil {
		return err
	}
	if _, err := checkHeaders(t.Headers); err != nil {
		return err
	}
	if _, err := parseSecret(t.Secret); err != nil {
		return err
	}
	if t.MaxInFlight < 1 || t.MaxInFlight > InFlightMax {
		return invalid("max_in_flight", fmt.Sprintf("use 1 to %d", InFlightMax), "max_in_flight is %d", t.MaxInFlight)
	}
	if t.Timeout < TimeoutMin || t.Timeout > TimeoutMax {
		return invalid("timeout", fmt.Sprintf("use %v to %v", TimeoutMin, TimeoutMax), "timeout is %v", t.Timeout)
	}
	return nil
}

func parseURL(text string) (*url.URL, error) {
	const field, hint = "url", "use a URL such as https://example.com/hooks"
	if len(text) > URLBytesMax {
		return nil, invalid(field, fmt.Sprintf("use a URL of at most %d bytes", URLBytesMax), "the URL has %d bytes", len(text))
	}
	if strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return nil, invalid(field, "write spaces and characters outside of ASCII as %XX, and a host name that has such characters in its xn-- form", "the URL %q has characters that a URL can't have", text)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, invalid(field, hint, "the URL is missing; the first request for the push of a queue must have it")
	case err != nil:
		return nil, invalid(field, hint, "%q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "":
		return nil, invalid(field, hint, "%q is not an https or http URL", text)
	case u.User != nil:
		return nil, invalid(field, "remove them, and set the header Authorization in headers instead", "the URL holds a user or a password")
	case u.Hostname() == "" || strings.Contains(u.Hostname(), "%"):
		return nil, invalid(field, hint, "the URL %q has no host name, or an address with a zone", text)
	case u.Fragment != "" || strings.Contains(text, "#"):
		return nil, invalid(field, "remove the fragment (the # and what follows): it would not be sent", "the URL %q has a fragment", text)
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, invalid(field, "use a port from 1 to 65535", "the URL has the invalid port %q", port)
		}
	}
	return u, nil
}
