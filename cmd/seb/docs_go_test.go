package main

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docImports are the packages that Go in the pages may use without an import.
var docImports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "json": "encoding/json", "log": "log", "net": "net",
	"os": "os", "testing": "testing", "signal": "os/signal", "slog": "log/slog", "time": "time", "strconv": "strconv",
	"prometheus": "github.com/prometheus/client_golang/prometheus",
	"seb":        "github.com/simple-event-broker/seb",
	"client":     "github.com/simple-event-broker/seb/client",
	"httpapi":    "github.com/simple-event-broker/seb/httpapi",
	"objstore":   "github.com/simple-event-broker/seb/objstore",
	"s3store":    "github.com/simple-event-broker/seb/objstore/s3store",
	"sebprom":    "github.com/simple-event-broker/seb/sebprom",
	"storetest":  "github.com/simple-event-broker/seb/objstore/storetest",
}

// The Go code in the pages is formatted and compiles. A block is a whole file, declarations, or the body of
// a function that has ctx, broker and store and returns an error.
func TestDocGoCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("the compiler takes most of it")
	}
	dir := t.TempDir()
	var fragments []string
	for _, page := range docPages(t) {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range goBlocks(string(text)) {
			// The formatter ends a whole file with a newline, which the block has before its fence.
			if formatted, err := format.Source([]byte(block)); err == nil && strings.TrimSuffix(string(formatted), "\n") != block {
				t.Errorf("%s: not formatted:\n%s\nshould be\n%s", page, block, formatted)
			}
			name := filepath.Join(dir, fmt.Sprintf("%s_%d.go", strings.NewReplacer("/", "_", ".", "_").Replace(page), i))
			if err := os.WriteFile(name, []byte(goFile(block)), 0o600); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(block, "package ") {
				vetDocs(t, name)
				continue
			}
			fragments = append(fragments, name)
		}
	}
	if len(fragments) == 0 {
		t.Fatal("no Go found: have the pages moved?")
	}
	vetDocs(t, fragments...)
}

// goBlocks returns the Go blocks of a page.
func goBlocks(page string) []string {
	var blocks []string
	for {
		_, rest, found := strings.Cut(page, "\n```go\n")
		if !found {
			return blocks
		}
		var block string
		block, page, _ = strings.Cut(rest, "\n```")
		blocks = append(blocks, block)
	}
}

var goComment = regexp.MustCompile(`(?m)(^|\s)//.*$`)

// goFile completes a block to a Go file.
func goFile(block string) string {
	if strings.HasPrefix(block, "package ") {
		return block
	}
	body := block
	if !strings.HasPrefix(block, "func ") && !strings.HasPrefix(block, "type ") && !strings.HasPrefix(block, "//") {
		end := "\n}\nreturn nil\n}"
		if last := block[strings.LastIndex(block, "\n")+1:]; strings.HasPrefix(last, "return ") {
			end = "\n}\n}"
		}
		body = "func _(ctx context.Context, broker *seb.Broker, store objstore.Store) error {\n{\n" + block + end
	}
	var file strings.Builder
	file.WriteString("package docs\n")
	code := goComment.ReplaceAllString(body, "")
	for name, path := range docImports {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(code) {
			fmt.Fprintf(&file, "import %q\n", path)
		}
	}
	file.WriteString(body + "\n")
	return file.String()
}

func vetDocs(t *testing.T, files ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"vet"}, files...)...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
