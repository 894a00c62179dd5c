package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/simple-event-broker/seb"
)

// cors decides what web pages of other origins may do in a browser. It does not restrict
// other programs: they can send any Origin header.
//
// If the origin of a page is not allowed, the browser does not let the page read answers. But the page can
// still send simple requests, for example to a broker on the machine of the page's visitor. So the broker
// refuses requests from such a page that change something.
type cors struct {
	all     bool
	allowed []string
	own     string // the host and port at which other brokers reach this broker; "" if not known
	guard   *http.CrossOriginProtection
}

// newCORS returns the rules for a list of allowed origins such as https://example.com,
// or "*" for all, and for the broker's own host and port.
func newCORS(allowed []string, own string) *cors {
	return &cors{all: slices.Contains(allowed, "*"), allowed: allowed, own: own, guard: http.NewCrossOriginProtection()}
}

// CheckOrigin returns an error unless origin is "*" or has the form in which browsers send
// an origin.
func CheckOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || origin != strings.ToLower(u.Scheme+"://"+u.Host) {
		return invalid("write scheme and host alone, such as https://example.com or http://localhost:3000", "invalid origin %q", origin)
	}
	return nil
}

const preflightSeconds = "7200" // how long a browser may cache the answer to a preflight; some browsers cache it for a shorter time

// check sets the headers that tell the browser what the page may do, and refuses a request
// that the page may not send. done is true if the answer is complete, and if there is an error.
func (o *cors) check(w *response, r *http.Request) (done bool, err error) {
	origin := r.Header.Get("Origin")
	if len(o.allowed) > 0 {
		w.Header().Add("Vary", "Origin")
	}
	if origin != "" && (o.all || slices.Contains(o.allowed, origin)) {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			o.preflight(w, r)
			return true, nil
		}
		return false, nil
	}
	if o.all || o.guard.Check(r) == nil {
		return false, nil
	}
	return true, o.refuse(origin)
}

// checkEffect is for a GET that changes something, as a POST does. It refuses the GET if check would refuse
// a POST from the same page.
func (o *cors) checkEffect(r *http.Request) error {
	asPost := r.WithContext(r.Context())
	asPost.Method = http.MethodPost
	origin := r.Header.Get("Origin")
	if o.all || slices.Contains(o.allowed, origin) || o.guard.Check(asPost) == nil {
		return nil
	}
	return o.refuse(origin)
}

func (o *cors) refuse(origin string) error {
	return errCrossOrigin("start the broker with --allow-origin and the page's origin, or send the request from a page of the broker's origin",
		"a page of %q may not send this request", origin)
}

// checkName is called only if the log has no API keys. It refuses a request to a host name that a stranger
// may control: see [OwnHost].
func (o *cors) checkName(r *http.Request) error {
	_, tcp := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	switch {
	case !tcp: // web pages can only reach TCP listeners
	case OwnHost(r.Host), r.Host == o.own:
	case o.all || slices.Contains(o.allowed, "http://"+r.Host) || slices.Contains(o.allowed, "https://"+r.Host):
	default:
		return errCrossOrigin("use localhost or an IP address, allow the name's origin with --allow-origin, or create an API key",
			"a broker without API keys does not answer to the host name %.300q, which others may control", r.Host)
	}
	return nil
}

func errCrossOrigin(hint, format string, args ...any) error {
	return &seb.Error{Code: codeCrossOrigin, Outcome: seb.NotCommitted, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// preflight tells the browser that the page may send the request that the browser asks about. The broker checks
// that request later, when the browser sends it.
func (o *cors) preflight(w *response, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		w.Header().Set("Access-Control-Allow-Headers", asked)
	}
	w.Header().Set("Access-Control-Max-Age", preflightSeconds)
	w.Header().Add("Vary", "Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}
