package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/simple-event-broker/seb"
)

// need is the access that an action requires of its caller. [Handler.route] panics if an action has no
// declared need.
type need struct {
	declared bool
	nobody   bool // anyone may call: no access is checked
	anyKey   bool // any valid key is enough; a broker that knows no keys does not read the log to look for new keys
	scope    seb.Scopes
	topic    func(*http.Request) string // the topic that the caller needs access to; nil: the action names no topic, or checks topics itself
	all      bool                       // the key must have the scope for all topics
	parts    bool                       // the caller needs the scope read or write; the action itself checks the access to each part of the body, with mayDo
	signed   bool                       // the token of a signed URL gives access, too
	admin    bool                       // each call of the action gets a line in the audit log
	reads    bool                       // the action commits nothing for the caller, even if the method is POST
}

var (
	needsNothing = need{declared: true, nobody: true}
	needsAnyKey  = need{declared: true, anyKey: true}
	readsTopics  = need{declared: true, scope: seb.ScopeRead}
	readsTopic   = need{declared: true, scope: seb.ScopeRead, topic: topicOfPath}
	leases       = need{declared: true, scope: seb.ScopeRead, topic: topicOfPath, reads: true}
	readsRecords = need{declared: true, scope: seb.ScopeRead, topic: topicOfPath, signed: true}
	writesTopic  = need{declared: true, scope: seb.ScopeWrite, topic: topicOfPath}
	needsParts   = need{declared: true, parts: true}
	changesTopic = need{declared: true, scope: seb.ScopeAdmin, topic: topicOfPath, admin: true}
	readsPush    = need{declared: true, scope: seb.ScopeAdmin, topic: topicOfPath}
	readsKeys    = need{declared: true, scope: seb.ScopeAdmin, all: true}
	readsPeers   = need{declared: true, scope: seb.ScopeMetrics, all: true}
	changesKeys  = need{declared: true, scope: seb.ScopeAdmin, all: true, admin: true}

	readsTriggers   = need{declared: true, scope: seb.ScopeAdmin, all: true, reads: true}
	changesTriggers = need{declared: true, scope: seb.ScopeAdmin, all: true, admin: true}
	checksLanguage  = need{declared: true, anyKey: true, reads: true}
)

func topicOfPath(r *http.Request) string { return r.PathValue("topic") }

// tokenParameter is the query parameter with the token of a signed URL.
const tokenParameter = "token"

// admit identifies the caller, and returns r as the action should see it: without a token, and with
// a context that ends 2 s (goneFor) after the client has left. The context of a GET or HEAD also ends 2 s after
// the client's access has ended, for example because its key was revoked. The caller of admit calls leave when
// r is served.
func (h *Handler) admit(w *response, r *http.Request, n need) (_ *http.Request, leave func(), err error) {
	if !n.nobody {
		if r, err = h.identify(w, r, n); err != nil {
			return r, nil, err
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			h.watch(w) // not for other methods: if the end of the access cut off a write, the client could not know how much of the write was done
		}
	}
	ctx, leave := linger(w.clientContext)
	return r.WithContext(ctx), leave, nil
}

// identify identifies the caller, and refuses a caller who lacks the access that n requires. It returns r
// without the token of a signed URL.
func (h *Handler) identify(w *response, r *http.Request, n need) (*http.Request, error) {
	if n.signed {
		if token, without := takeToken(r); token != "" {
			w.request, r = without, without
			w.token = token
		}
	}
	access, err := h.authenticate(w, r, n)
	if w.token != "" && !access.Open() {
		// A signed URL alone gives access, so a web page of any origin that knows the URL may use the
		// URL. If the log has no keys, only an error of authenticate is sent with these headers: with them on
		// other answers, any page could read from a broker that runs on the machine of the page's visitor.
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "*")
	}
	if err != nil {
		return r, err
	}
	w.access = access
	// From here on, all work for the caller uses this context, or a context derived from it.
	w.clientContext = seb.WithAccess(w.clientContext, access)
	if access.Open() && !w.proven {
		if err := h.cors.checkName(r); err != nil {
			return r, err
		}
	}
	if err := n.check(access, r); err != nil {
		h.metrics.refusals.WithLabelValues(refusedForbidden).Inc()
		return r, err
	}
	return r, nil
}

// stillAdmitted refuses a caller whose access ended while the request's body was read.
func (h *Handler) stillAdmitted(ctx context.Context, w *response) error {
	err := h.broker.CheckAccess(ctx, w.access)
	if seb.CodeOf(err) == seb.CodeUnauthorized {
		reason := refusedWrong
		if w.access.Open() {
			reason = refusedMissing
		}
		h.metrics.refusals.WithLabelValues(reason).Inc()
	}
	return err
}

// watch makes w.clientContext end when the caller's access ends, too. A second call does nothing.
func (h *Handler) watch(w *response) {
	if w.unwatch == nil {
		w.clientContext, w.unwatch = h.broker.While(w.clientContext, w.access)
	}
}

func (n need) check(a seb.Access, r *http.Request) error {
	switch {
	case n.anyKey:
		return nil
	case n.parts: // checked before the body is read; every part needs one of these scopes
		if a.CheckScope(seb.ScopeRead) == nil {
			return nil
		}
		return a.CheckScope(seb.ScopeWrite)
	case n.topic != nil:
		return a.CheckTopic(n.scope, n.topic(r))
	case n.all:
		return a.CheckAll(n.scope)
	default:
		return a.CheckScope(n.scope)
	}
}

// mayDo checks the access to a topic that a part of the body names. It returns an error if the caller lacks the
// scope for that topic.
func (h *Handler) mayDo(w *response, scope seb.Scopes, topic string) error {
	err := w.access.CheckTopic(scope, topic)
	if err != nil {
		h.metrics.refusals.WithLabelValues(refusedForbidden).Inc()
	}
	return err
}

// authenticate asks the broker who the caller is. If too many attempts from the caller's address
// have failed, the key is still checked, since it may be valid. If the key is wrong, the refusal only tells
// the caller to wait.
func (h *Handler) authenticate(w *response, r *http.Request, n need) (seb.Access, error) {
	c, err := credentialOf(w, r, n)
	shown := !w.proven && (err != nil || c.Secret != "" || c.Token != "")
	from := attemptsOf(r.RemoteAddr)
	throttled := shown && !h.throttle.left(from)
	var a seb.Access
	switch {
	case err != nil:
	case n.anyKey && !h.broker.KeysExist():
		a, err = h.broker.AuthenticateKnown(c)
	default:
		ctx, leave := linger(w.clientContext)
		a, err = h.broker.Authenticate(ctx, c)
		leave()
		if n.anyKey && isOver(err) {
			// A broker that was closed or has stopped can't read the log, but its metrics are still
			// useful. So the keys that the broker already knows decide who may read them.
			a, err = h.broker.AuthenticateKnown(c)
		}
	}
	if seb.CodeOf(err) != seb.CodeUnauthorized {
		if err == nil && shown && a.Open() {
			w.Header().Add(warningHeader, uncheckedWarning)
		}
		return a, err
	}
	reason := refusedMissing
	if shown {
		reason = refusedWrong
		h.throttle.failed(from)
	}
	if throttled {
		reason = refusedThrottled
		err = tooManyAttempts()
	}
	h.metrics.refusals.WithLabelValues(reason).Inc()
	return a, err
}

// uncheckedWarning is for a caller who shows a credential to a log without API keys, and may believe that the
// log is protected.
const uncheckedWarning = "the log has no API keys: the key of this request was not checked, and requests without a key are accepted too"

// isOver tells whether err means that the broker was closed or has stopped.
func isOver(err error) bool {
	code := seb.CodeOf(err)
	return code == seb.CodeBrokerClosed || code == seb.CodeBrokerStopped
}

// credentialOf returns the credential of r. If another broker has forwarded r, the credential is the id of
// the key which that broker has authenticated. Otherwise it is what r has of these: an API key, the token of
// a signed URL, and the names in a client certificate that the server has verified.
func credentialOf(w *response, r *http.Request, n need) (c seb.Credential, err error) {
	if w.proven {
		c.KeyID = seb.KeyID(w.keyID)
		return c, nil
	}
	if n.signed && w.token != "" {
		c.Token, c.Topic = w.token, n.topic(r)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		if leaf.Subject.CommonName != "" {
			c.Names = append(c.Names, leaf.Subject.CommonName)
		}
		c.Names = append(c.Names, leaf.DNSNames...)
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 {
		return c, nil
	}
	scheme, key, _ := strings.Cut(given[0], " ")
	c.Secret = strings.TrimSpace(key)
	detail := ""
	switch {
	case len(given) > 1:
		detail = fmt.Sprintf("the request has %d headers Authorization; it must have at most one", len(given))
	case !strings.EqualFold(scheme, "Bearer"):
		detail = "the header Authorization does not have the scheme Bearer" // without the value, which may be a secret
	case c.Secret == "":
		detail = "the header Authorization has the scheme Bearer, but no API key"
	}
	if detail != "" {
		return c, &seb.Error{
			Code: seb.CodeUnauthorized, Outcome: seb.NotCommitted, Detail: detail,
			Hint: "send one header Authorization: Bearer KEY",
		}
	}
	return c, nil
}

// takeToken returns the token in r's query, or "" if the query has no token. It also returns r without the
// token, so that no later code sees or logs the token.
func takeToken(r *http.Request) (string, *http.Request) {
	if !strings.Contains(r.URL.RawQuery, tokenParameter+"=") {
		return "", r
	}
	token := ""
	var rest []string
	for _, pair := range strings.Split(r.URL.RawQuery, "&") {
		if value, found := strings.CutPrefix(pair, tokenParameter+"="); found {
			token = value // a token has no characters that a URL escapes
			continue
		}
		rest = append(rest, pair)
	}
	u := *r.URL
	u.RawQuery = strings.Join(rest, "&")
	without := r.WithContext(r.Context())
	without.URL, without.RequestURI = &u, u.RequestURI()
	return token, without
}

// ended returns the error that says why the caller's access ended, if the end of the access caused err.
// Otherwise it returns err.
func ended(ctx context.Context, err error) error {
	over := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if cause := context.Cause(ctx); over && seb.CodeOf(cause) == seb.CodeUnauthorized {
		return cause
	}
	return err
}

// audit writes a line to the audit log about what an admin did, or tried to do.
func (h *Handler) audit(w *response, r *http.Request) {
	attrs := []slog.Attr{
		slog.String("request_id", w.id), slog.String("method", r.Method), slog.String("path", WithoutSecrets(r.URL.Path)),
		slog.Int("status", w.status), slog.String("remote", r.RemoteAddr), slog.String("by", WithoutSecrets(whoIs(w.access))),
	}
	if w.did != "" {
		attrs = append(attrs, slog.String("did", WithoutSecrets(w.did)))
	}
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "audit", attrs...)
}

func whoIs(a seb.Access) string {
	if a.Open() {
		return "anyone: there are no keys"
	}
	return keyText(a.Key)
}
