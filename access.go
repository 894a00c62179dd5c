package seb

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
)

// Scopes is the set of permissions of an API key.
type Scopes uint16

// The scopes. ScopeAdmin permits managing topics and keys, and includes the other scopes.
// ScopeMetrics permits reading the metrics that name topics, queues and consumers.
const (
	ScopeRead Scopes = 1 << iota
	ScopeWrite
	ScopeAdmin
	ScopeMetrics

	scopesAll = ScopeRead | ScopeWrite | ScopeAdmin | ScopeMetrics
)

var scopeNames = []string{"read", "write", "admin", "metrics"}

// ParseScopes parses the names of scopes: read, write, admin, metrics. For any other name it
// returns an error with [CodeInvalidRequest].
func ParseScopes(names []string) (s Scopes, err error) {
	defer reads(&err)
	for _, n := range names {
		i := slices.Index(scopeNames, n)
		if i < 0 {
			return 0, &Error{Code: CodeInvalidRequest, Detail: fmt.Sprintf("unknown scope %q", n), Hint: "scopes are " + strings.Join(scopeNames, ", ")}
		}
		s |= 1 << i
	}
	return s, nil
}

// Names returns the names of the scopes.
func (s Scopes) Names() []string {
	names := []string{}
	for i, n := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// String returns the names, separated by commas.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// Access is what a caller may do. [Broker.Authenticate] returns it; the zero
// Access allows nothing.
type Access struct {
	// Key is the caller's API key. It is zero if [Access.Open] returns true, and in the zero Access.
	Key Key
	// Topic is the only topic that a caller with a signed token may read; "" for other callers.
	Topic string
	// Until is when the access expires, by the store's clock; zero means never.
	Until time.Time

	open bool
}

// Open reports whether every caller may do everything without an API key, because the log
// never had one.
func (a Access) Open() bool { return a.open }

// CheckScope returns an error with [CodeForbidden] unless the access has all scopes in s.
func (a Access) CheckScope(s Scopes) (err error) {
	defer writes(&err)
	return a.checkScope(s, "")
}

// admin tells whether the caller may do everything with the topics that its key covers.
func (a Access) admin() bool { return a.open || a.Topic == "" && a.Key.Scopes&ScopeAdmin != 0 }

// checkScope is CheckScope. If it fails, the hint proposes a key for topic, or for all topics if topic is "".
func (a Access) checkScope(s Scopes, topic string) error {
	if auth.Reserved(topic) {
		s = ScopeAdmin
	}
	has := a.Key.Scopes
	if has&ScopeAdmin != 0 {
		has = scopesAll
	}
	if a.Topic != "" {
		has &= ScopeRead // a signed token permits only reads
	}
	if a.open || s != 0 && s&^has == 0 {
		return nil
	}
	if a.Topic != "" {
		return forbidden("use an API key with the scope "+s.String(), "%s can only read its topic, but the request needs the scope %s", a.bearer(), s)
	}
	return forbidden("use a key with that scope; "+auth.NewKey(s.String(), topic), "%s has the scope %s, but the request needs the scope %s", a.bearer(), a.Key.Scopes, s)
}

// CheckTopic returns an error with [CodeForbidden] unless the access has all scopes in s and
// covers the topic. If the topic's name begins with "_seb.", the access needs [ScopeAdmin].
func (a Access) CheckTopic(s Scopes, topic string) (err error) {
	defer writes(&err)
	if err := a.checkScope(s, topic); err != nil || a.MaySee(topic) {
		return err
	}
	return forbidden("use a key for that topic; "+auth.NewKey(s.String(), topic), "%s is not for topic %q", a.bearer(), topic)
}

// CheckAll returns an error with [CodeForbidden] unless the access has all scopes in s and
// covers all topics. To manage keys, a caller needs [ScopeAdmin] for all topics.
func (a Access) CheckAll(s Scopes) (err error) {
	defer writes(&err)
	if err := a.CheckScope(s); err != nil || a.open || slices.Contains(a.Key.Topics, "*") {
		return err
	}
	return forbidden("use a key for all topics; "+auth.NewKey(s.String(), ""), "%s is not for all topics", a.bearer())
}

// MaySee tells whether the access covers the topic. It does not check scopes, except that only callers with
// [ScopeAdmin] may see topics whose names begin with "_seb.".
func (a Access) MaySee(topic string) bool {
	switch {
	case a.open:
		return true
	case a.Topic != "" && a.Topic != topic, auth.Reserved(topic) && !a.admin():
		return false
	}
	return auth.Covers(a.Key.Topics, topic)
}

func (a Access) bearer() string {
	if a.Topic != "" {
		return fmt.Sprintf("the signed URL of API key %q", a.Key.Name)
	}
	return fmt.Sprintf("the API key %q", a.Key.Name)
}

func forbidden(hint, format string, args ...any) error {
	return &Error{Code: CodeForbidden, Detail: fmt.Sprintf(format, args...), Hint: hint}
}
