package hygiene

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// outcomesElsewhere are exported functions of the root package that do not decide the outcome of their
// error, with the reason for each.
var outcomesElsewhere = map[string]string{
	"Bookmark.AppendText": "it never returns an error",
	"Collect":             "its error is that of the list",
	"Consumer.Follow":     "as Consumer.Follower",
	"Consumer.Follower":   "it may create the consumer, and then has the outcome of that",
	"Error.Unwrap":        "what it returns is a cause",
	"RetryIn.Unwrap":      "what it returns is a cause",
	"Worker.Run":          "its error is that of the source, which need not be a Queue",
}

// checkOutcomes reports exported functions of the root package that return an error without deciding
// its outcome. It also reports code outside of errors.go that marks an error as not committed.
func checkOutcomes(tr *tree, exceptions map[string]string) []string {
	var findings []string
	unused := maps.Clone(exceptions)
	for _, src := range tr.sources {
		if src.pkg != "." || src.test {
			continue
		}
		for _, decl := range src.syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !isPublic(f) || decidesOutcome(f) {
				continue
			}
			name := publicName(f)
			if _, ok := unused[name]; ok {
				delete(unused, name)
				continue
			}
			findings = append(findings, fmt.Sprintf("%s: %s returns an error without defer reads(&err), defer writes(&err) or return reading(...): its outcome is undecided", src.path, name))
		}
		ast.Inspect(src.syntax, func(node ast.Node) bool {
			if x, ok := node.(*ast.Ident); ok && x.Name == "NotCommitted" && src.path != "errors.go" {
				findings = append(findings, src.path+" uses NotCommitted: errors are made without it, and writes adds it where a public method returns")
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		findings = append(findings, name+" needs no exception: there is no such function, or it decides the outcome of its error")
	}
	return findings
}

// isPublic tells whether users of the package can call a function.
func isPublic(f *ast.FuncDecl) bool {
	return f.Name.IsExported() && (f.Recv == nil || ast.IsExported(receiver(f)))
}

func receiver(f *ast.FuncDecl) string {
	return strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
}

func publicName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return receiver(f) + "." + f.Name.Name
}

// decidesOutcome tells whether a function returns no error, or decides the outcome of its error in one
// of the allowed ways.
func decidesOutcome(f *ast.FuncDecl) bool {
	if f.Type.Results == nil {
		return true
	}
	results := f.Type.Results.List
	last := results[len(results)-1]
	switch kind := types.ExprString(last.Type); {
	case kind == "error":
		return len(last.Names) == 1 && last.Names[0].Name == "err" && len(f.Body.List) > 0 && defersOutcome(f.Body.List[0])
	case strings.HasPrefix(kind, "iter.Seq2[") && strings.HasSuffix(kind, ", error]"):
		return returnsReading(f.Body)
	default:
		return true
	}
}

func defersOutcome(first ast.Stmt) bool {
	d, ok := first.(*ast.DeferStmt)
	if !ok {
		return false
	}
	call := types.ExprString(d.Call)
	return call == "reads(&err)" || call == "writes(&err)"
}

// returnsReading tells whether every return statement of a function returns a call of reading.
// Function literals within it don't count.
func returnsReading(body *ast.BlockStmt) bool {
	found, all := false, true
	ast.Inspect(body, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			call, ok := x.Results[0].(*ast.CallExpr)
			ok = ok && types.ExprString(call.Fun) == "reading"
			found, all = found || ok, all && ok
		}
		return true
	})
	return found && all
}

func TestPublicMethodsDecideOutcomes(t *testing.T) {
	report(t, checkOutcomes(realTree(t), outcomesElsewhere))
}

func TestOutcomeCheckFinds(t *testing.T) {
	const none = "undecided"
	tests := map[string]struct{ path, text, finding string }{
		"plain":                    {"a.go", "func (b *Broker) M() error { return nil }", none},
		"of a value":               {"a.go", "func (b Broker) M() (int, error) { return 0, nil }", none},
		"function":                 {"a.go", "func F() error { return nil }", none},
		"unexported":               {"a.go", "func f() error { return nil }", ""},
		"method of the unexported": {"a.go", "func (b *broker) M() error { return nil }", ""},
		"no error":                 {"a.go", "func (b *Broker) M() int { return 0 }", ""},
		"test":                     {"a_test.go", "func F() error { return nil }", ""},
		"other package":            {"httpapi/a.go", "func F() error { return nil }", ""},
		"reads":                    {"a.go", "func F() (_ int, err error) { defer reads(&err); return f() }", ""},
		"writes":                   {"a.go", "func F() (err error) { defer writes(&err); return f() }", ""},
		"not first":                {"a.go", "func F() (err error) { if g() { return f() }; defer writes(&err); return f() }", none},
		"not deferred":             {"a.go", "func F() (err error) { writes(&err); return f() }", none},
		"of another error":         {"a.go", "func F() (_ error) { var err error; defer reads(&err); return f() }", none},
		"list":                     {"a.go", "func F() iter.Seq2[int, error] { return func(yield func(int, error) bool) {} }", none},
		"list that reads":          {"a.go", "func F() iter.Seq2[int, error] { return reading(func(yield func(int, error) bool) { return }) }", ""},
		"list of two that reads":   {"a.go", "func F() iter.Seq2[int, error] { if g() { return h() }; return reading(h()) }", none},
		"list without errors":      {"a.go", "func F() iter.Seq2[int, int] { return nil }", ""},
		"exception":                {"a.go", "func Other() error { return nil }", ""},
		"made with an outcome":     {"a.go", "var _ = Error{Outcome: NotCommitted}", "uses NotCommitted"},
		"decided with an outcome":  {"errors.go", "var _ = Error{Outcome: NotCommitted}", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			exceptions := map[string]string{}
			if name == "exception" {
				exceptions["Other"] = "why"
			}
			findings := checkOutcomes(fakeTree(t, test.path, "package seb\n"+test.text), exceptions)
			if test.finding == "" {
				want(t, findings)
				return
			}
			want(t, findings, test.finding)
		})
	}
	want(t, checkOutcomes(fakeTree(t, "a.go", "package seb"), map[string]string{"Gone": "why"}), "Gone needs no exception")
}
