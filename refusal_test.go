package seb

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/change"
)

// codesIn returns the values of the constants of a file whose names begin with Code.
func codesIn(t *testing.T, file string) (codes []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(node ast.Node) bool {
		if spec, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			codes = append(codes, spec.Names[0].Name+" "+spec.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	return codes
}

func TestCodesOfRefusalsArePublic(t *testing.T) {
	public, refusals := codesIn(t, "errors.go"), codesIn(t, "internal/change/refusal.go")
	if len(refusals) == 0 {
		t.Fatal("no codes of refusals were found")
	}
	for _, code := range refusals {
		if !slices.Contains(public, code) {
			t.Errorf("%s is no code of an Error", code)
		}
	}
}

func TestRefusalBecomesAnError(t *testing.T) {
	r := &change.Refusal{Code: change.CodeOffsetOutOfRange, Detail: "d", Hint: "h", Part: "positions/1", Limit: 2, Start: 3, End: 4}
	got := public(r)
	want := Error{Code: CodeOffsetOutOfRange, Detail: "d", Hint: "h", Part: "positions/1", Limit: 2, Start: 3, End: 4}
	if e, ok := got.(*Error); !ok || *e != want { //nolint:errorlint // fails if the error is wrapped
		t.Errorf("%#v", got)
	}
	if r.Error() != got.Error() {
		t.Errorf("the refusal says %q, the error %q", r, got)
	}
	e, ok := notCommitted(&TokensError{Errors: []error{nil, r}}).(*TokensError) //nolint:errorlint // fails if the error is wrapped
	if !ok || e.Errors[0] != nil || CodeOf(e.Errors[1]) != CodeOffsetOutOfRange || OutcomeOf(e.Errors[1]) != NotCommitted {
		t.Errorf("%#v", e)
	}
}
