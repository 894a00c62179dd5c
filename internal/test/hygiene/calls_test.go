package hygiene

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"testing"
)

// use names things of an imported package that some files may not use.
type use struct {
	imported string
	names    []string // if there are none, the whole package
	in       func(source) bool
	why      string
}

// pure returns true for code that decides or translates, and so takes times and random numbers as
// arguments. Such code can be stepped through, replayed and explored exhaustively. In the commit log,
// that is all but the files that drive the protocol.
func pure(src source) bool {
	switch src.pkg {
	case "internal/record", "internal/state", "internal/format":
		return code(src)
	case "internal/commitlog":
		return code(src) && !slices.Contains([]string{"claim.go", "cluster.go", "log.go", "requests.go", "watch.go"}, path.Base(src.path))
	}
	return false
}

// clocks are the functions that read the machine's clock or wait for it.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}

var uses = []use{
	{"time", clocks, pure,
		"pure code takes time as an argument"},
	{"math/rand/v2", nil, pure,
		"pure code takes random bytes as an argument"},
	{"crypto/rand", nil, pure,
		"pure code takes random bytes as an argument"},
	{"os", nil, pure,
		"pure code does no I/O"},
	{"net/http", nil, all(code, outside("client", "cmd/seb", "httpapi", "internal/httpconn", "internal/httprecord", "internal/peer", "internal/push", "objstore/s3store", "objstore/storetest", "triggerapi", "internal/test/kit", "internal/test/s3test", "internal/test/sim", "internal/growth")),
		"HTTP is for adapters, clients, stores and deliveries, and between brokers"},
	{"net/http", nil, commandWithoutServer,
		"commands call brokers through package client"},
	{"net/http", []string{"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "NewRequest", "NewRequestWithContext", "Post", "PostForm", "Transport"}, server,
		"commands call brokers through package client"},
	{"math/rand", nil, everywhere,
		"math/rand/v2 has the better API and no global seed"},
	{"log", nil, everywhere,
		"logs are structured: use log/slog"},
	{"fmt", []string{"Print", "Printf", "Println"}, all(code, outside("cmd/seb", "internal/growth")),
		"standard output belongs to commands"},
	{"os", []string{"Exit"}, all(code, outside("cmd/seb", "internal/growth")),
		"only a command may end the process"},
	{"time", []string{"Sleep"}, all(code, outside("internal/test/sim")), // the simulator always runs in a bubble
		"it doesn't end with its context: wait on a timer and ctx.Done"},
	{"time", []string{"Sleep"}, all(tests, withoutBubble),
		"a test that sleeps is slow or flaky: use testing/synctest, whose clock it advances, or channels"},
	{"unsafe", []string{"Add", "Pointer", "Slice", "SliceData", "String", "StringData"}, code,
		"no speed is worth a torn record"},
}

func everywhere(source) bool { return true }
func code(src source) bool   { return !src.test }
func tests(src source) bool  { return src.test }

// server returns true for the files of cmd/seb that serve HTTP.
func server(src source) bool {
	return src.pkg == "cmd/seb" && slices.Contains([]string{"debug.go", "serve.go"}, path.Base(src.path))
}

func commandWithoutServer(src source) bool { return code(src) && src.pkg == "cmd/seb" && !server(src) }

// withoutBubble returns true for files that don't use synctest. In a bubble, sleeping is how a test
// moves the clock forward.
func withoutBubble(src source) bool {
	_, ok := src.imports()["testing/synctest"]
	return !ok
}

func outside(pkgs ...string) func(source) bool {
	return func(src source) bool { return !slices.Contains(pkgs, src.pkg) }
}

func all(conditions ...func(source) bool) func(source) bool {
	return func(src source) bool {
		return !slices.ContainsFunc(conditions, func(c func(source) bool) bool { return !c(src) })
	}
}

func checkUses(tr *tree, uses []use) []string {
	var findings []string
	for _, src := range tr.sources {
		for _, u := range uses {
			if !u.in(src) {
				continue
			}
			for _, found := range u.find(src) {
				findings = append(findings, fmt.Sprintf("%s uses %s: %s", src.path, found, u.why))
			}
		}
	}
	return findings
}

// find returns the forbidden names that src uses, sorted and without duplicates.
func (u use) find(src source) []string {
	name, ok := src.imports()[u.imported]
	if !ok {
		return nil
	}
	if u.names == nil {
		return []string{u.imported}
	}
	found := make(map[string]bool)
	ast.Inspect(src.syntax, func(node ast.Node) bool {
		sel, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && slices.Contains(u.names, sel.Sel.Name) {
			found[u.imported+"."+sel.Sel.Name] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

// checkGoroutines reports pure files that start a goroutine.
func checkGoroutines(tr *tree) []string {
	var findings []string
	for _, src := range tr.sources {
		ast.Inspect(src.syntax, func(node ast.Node) bool {
			if _, ok := node.(*ast.GoStmt); ok && pure(src) {
				findings = append(findings, src.path+" starts a goroutine: pure code runs in one order only")
			}
			return true
		})
	}
	return findings
}

// wallReadings are the methods of time.Time that depend on its wall clock.
var wallReadings = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "Round", "Truncate", "Format", "AppendFormat", "String"}

// checkWallClocks reports broker code that reads the wall clock. Decisions depend on the monotonic
// clock or on the store's time. Code that only dates something uses the clock in [seb.Options].
func checkWallClocks(tr *tree) []string {
	var findings []string
	for _, src := range tr.sources {
		name, ok := src.imports()["time"]
		if !ok || src.test || !slices.Contains([]string{".", "internal/budget", "internal/dispatch", "internal/engine", "internal/push", "internal/leases", "internal/commitlog"}, src.pkg) {
			continue
		}
		ast.Inspect(src.syntax, func(node ast.Node) bool {
			sel, ok := node.(*ast.SelectorExpr)
			if !ok || !slices.Contains(wallReadings, sel.Sel.Name) {
				return true
			}
			if call, ok := sel.X.(*ast.CallExpr); ok && isCall(call, name, "Now") {
				findings = append(findings, fmt.Sprintf("%s uses time.Now().%s: wall clocks of brokers decide nothing", src.path, sel.Sel.Name))
			}
			return true
		})
	}
	return findings
}

// isCall reports whether an expression calls a function of a package.
func isCall(call *ast.CallExpr, pkg, function string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != function {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func TestForbiddenUses(t *testing.T) {
	tr := realTree(t)
	report(t, checkUses(tr, uses))
	report(t, checkGoroutines(tr))
	report(t, checkWallClocks(tr))
}

func TestUseCheckFinds(t *testing.T) {
	const (
		now     = "package p\nimport \"time\"\nvar _ = time.Now()"
		renamed = "package p\nimport clock \"time\"\nvar _ = clock.Since"
		wall    = "package p\nimport \"time\"\nvar _ = time.Now().UnixMicro()"
		sleep   = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }"
		bubble  = "package p\nimport (\"testing/synctest\"; \"time\")\nfunc f() { synctest.Wait(); time.Sleep(1) }"
		print   = "package p\nimport \"fmt\"\nfunc f() { fmt.Println() }"
		sprint  = "package p\nimport \"fmt\"\nvar _ = fmt.Sprintln()"
		start   = "package p\nfunc f() { go f() }"
		random  = "package p\nimport \"crypto/rand\"\nvar _ = rand.Text"
		sized   = "package p\nimport \"unsafe\"\nvar _ = unsafe.Sizeof(0)"
		client  = "package p\nimport \"net/http\"\nvar _ http.Client"
		logger  = "package p\nimport \"log\"\nvar _ = log.Default()"
	)
	tests := map[string]struct{ path, text, finding string }{
		"clock in the fold":         {"internal/state/a.go", now, "time.Now: pure"},
		"renamed clock":             {"internal/commitlog/protocol.go", renamed, "time.Since: pure"},
		"clock in the log's driver": {"internal/commitlog/log.go", now, ""},
		"goroutine in the fold":     {"internal/state/a.go", start, "one order"},
		"goroutine in the broker":   {"a.go", start, ""},
		"chance in the fold":        {"internal/state/a.go", random, "random bytes"},
		"size of a type":            {"internal/state/a.go", sized, ""},
		"HTTP in the broker":        {"a.go", client, "adapters, clients, stores and deliveries"},
		"HTTP in an adapter":        {"httpapi/a.go", client, ""},
		"HTTP client in a command":  {"cmd/seb/topic.go", client, "through package client"},
		"HTTP client in a server":   {"cmd/seb/serve.go", client, "http.Client: commands call"},
		"HTTP server in a command":  {"cmd/seb/serve.go", "package p\nimport \"net/http\"\nvar _ http.Server", ""},
		"HTTP in a command's test":  {"cmd/seb/topic_test.go", client, ""},
		"clock in the fold's test":  {"internal/state/a_test.go", now, ""},
		"clock in the broker":       {"a.go", now, ""},
		"wall clock in the broker":  {"a.go", wall, "decide nothing"},
		"wall clock in a test":      {"a_test.go", wall, ""},
		"wall clock in the command": {"cmd/seb/a.go", wall, ""},
		"type of the package":       {"internal/state/a.go", "package p\nimport \"time\"\nvar _ time.Time", ""},
		"sleep in code":             {"a.go", sleep, "ctx.Done"},
		"sleep in a test":           {"a_test.go", sleep, "slow or flaky"},
		"sleep in a bubble":         {"a_test.go", bubble, ""},
		"print in the broker":       {"a.go", print, "belongs to commands"},
		"print in the command":      {"cmd/seb/a.go", print, ""},
		"print in an example":       {"example_test.go", print, ""},
		"format in the broker":      {"a.go", sprint, ""},
		"log in a test":             {"a_test.go", logger, "log/slog"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tr := fakeTree(t, test.path, test.text)
			findings := slices.Concat(checkUses(tr, uses), checkGoroutines(tr), checkWallClocks(tr))
			if test.finding == "" {
				want(t, findings)
				return
			}
			want(t, findings, test.finding)
		})
	}
}
