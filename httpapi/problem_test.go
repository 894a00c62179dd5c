package httpapi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
)

// The table of statuses must have every code of the library.
func TestEveryCodeHasAStatus(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found int
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if _, known := statuses[seb.Code(code)]; !known {
			t.Errorf("%s has no HTTP status", code)
		}
		return true
	})
	for code := range statuses {
		if !regexp.MustCompile("^[a-z]+(_[a-z]+)*$").MatchString(string(code)) {
			t.Errorf("%s is not in snake_case", code)
		}
	}
	if found < 10 {
		t.Errorf("only %d codes found: has the source moved?", found)
	}
}

// Every error says what to do next, on one line.
func TestEveryCodeHasAHint(t *testing.T) {
	for code := range statuses {
		p := problemOf(&seb.Error{Code: code, Detail: "no"})
		if p.Hint == "" || strings.Contains(p.Hint, "\n") {
			t.Errorf("%s: the hint is %q", code, p.Hint)
		}
	}
	for code := range hints {
		if statuses[code] == 0 {
			t.Errorf("%s has a hint and no status", code)
		}
	}
	if p := problemOf(errors.New("a bug")); p.Code != codeInternal || !strings.Contains(p.Hint, requestIDHeader) {
		t.Errorf("an error of its own is told as %+v", p)
	}
	if p := problemOf(&seb.Error{Code: seb.CodeTopicNotFound, Hint: "its own"}); p.Hint != "its own" {
		t.Errorf("the hint is %q", p.Hint)
	}
}

func TestNotReadyIs503WhateverTheReason(t *testing.T) {
	p := problemOf(notReady{&seb.Error{Code: seb.CodeDataLost, Detail: "log/7 is missing"}})
	if p.Status != http.StatusServiceUnavailable || p.Code != seb.CodeDataLost || p.Detail != "log/7 is missing" {
		t.Errorf("problem is %+v", p)
	}
}

func TestProblemCarriesWhatTheErrorSays(t *testing.T) {
	h := &Handler{}
	rec := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
	w := &response{ResponseWriter: rec, conn: http.NewResponseController(rec), slowLimit: slowLimit{time.Second, 1}, request: r, clientContext: r.Context()}
	h.fail(w, r, fmt.Errorf("append: %w", &seb.Error{
		Code: seb.CodeStoreUnavailable, Detail: "the store is away", Hint: "wait", Outcome: seb.Unknown,
		RetryAfter: 1500 * time.Millisecond, Limit: 7, Err: errors.New("dial tcp 10.1.2.3: refused"),
	}))
	p := answer{rec.Result(), rec.Body.String()}
	p.Request = r
	got := p.wantProblem(t, http.StatusServiceUnavailable, seb.CodeStoreUnavailable)
	if got.Detail != "the store is away" || got.Hint != "wait" || got.Outcome != "unknown" || got.Limit != 7 {
		t.Errorf("problem is %+v", got)
	}
	p.wantHeader(t, "Retry-After", "2")
	if strings.Contains(p.body, "10.1.2.3") {
		t.Errorf("the cause leaks: %s", p.body)
	}
}

// People read raw answers, so errors quote what was sent without escapes.
func TestProblemsQuoteWhatWasSent(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	if r := s.get(ordersPath + "?a%26b%3Cc%3E=1"); !strings.Contains(r.body, "a&b<c>") {
		t.Errorf("it answers %s", r.body)
	}
}
