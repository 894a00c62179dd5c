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

// cors decides what pages of other origins may do in a browser. It does not restrict
// programs, which can claim any origin or none.
//
// A page that is not allowed can't read answers: the browser keeps them from it.
// It could still send simple requests, to a broker on its user's own machine say,
// so those that change something are refused.
type cors struct {
	all     bool
	allowed []string
	own     string // the host and port under which other brokers reach this one; "" if there is none
	guard   *http.CrossOriginProtection
}

// newCORS returns the rules for a list of origins such as https://example.com,
// or "*" for all, and the broker's own host.
func newCORS(allowed []string, own string) *cors {
	return &cors{all: slices.Contains(allowed, "*"), allowed: allowed, own: own, guard: http.NewCrossOriginProtection()}
}

// CheckOrigin returns why a text is no origin as browsers send it, nil if it is
// one, or "*".
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

const preflightSeconds = "7200" // for which browsers keep an answer; the longest that all of them do

// check sets what the browser has to know, and refuses requests of pages that
// may not send them. done is true if the answer is complete.
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

// checkEffect refuses a GET that does what others need a POST for to those pages whose
// POST check refuses.
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
	return errCrossOrigin("allow its origin with --allow-origin, or send the request from a page of the broker's origin",
		"a page of %q may not send this", origin)
}

// checkName refuses a request, where no key is needed, under a name that may be a
// stranger's: see [OwnHost].
func (o *cors) checkName(r *http.Request) error {
	_, tcp := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	switch {
	case !tcp: // a page reaches no other listener
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

// preflight says that the request which the browser asks for may be sent. Whether
// it is any good is told when it comes.
func (o *cors) preflight(w *response, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		w.Header().Set("Access-Control-Allow-Headers", asked)
	}
	w.Header().Set("Access-Control-Max-Age", preflightSeconds)
	w.Header().Add("Vary", "Access-Control-Request-Headers")
	w.WriteHeader(http.StatusNoContent)
}
