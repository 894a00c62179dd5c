package hygiene

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// behaviours are what somebody who knows brokers looks for in the source. The file that has a
// behaviour must have the behaviour's word in its name, so that a reader opens that file first.
var behaviours = []struct {
	what string // the behaviour; contains word
	word string
	file string
	decl string // declaration of the function or type that does it
}{
	{"build a commit: assign offsets", "build", "internal/engine/build.go", "buildBatch"},
	{"apply a commit to the state", "apply", "internal/engine/apply.go", "Apply"},
	{"sync with the end of the log", "sync", "internal/engine/sync.go", "Sync"},
	{"route records to partitions", "route", "route.go", "choosePartitions"},
	{"batch: encode records", "batch", "internal/engine/batch.go", "add"},
	{"batcher: collect requests", "batcher", "internal/engine/batcher.go", "join"},
	{"cursor: read the records of a partition", "cursor", "internal/engine/cursor.go", "Cursor"},
	{"upload data objects", "upload", "internal/engine/upload.go", "put"},
	{"write a checkpoint", "checkpoint", "internal/engine/checkpoint.go", "maybeCheckpoint"},
	{"probe a store for conditional creates", "probe", "internal/engine/probe.go", "probe"},
	{"memory budget", "budget", "internal/budget/budget.go", "Take"},
	{"share memory between slow clients", "share", "internal/budget/share.go", "Grow"},
	{"idempotency keys", "idempotency", "internal/digest/idempotency.go", "Key"},
	{"ownership: take over a queue", "ownership", "internal/dispatch/ownership.go", "commitOwner"},
	{"copy a record to the dead letter topic", "deadletter", "queuedeadletter.go", "copyOf"},
	{"backoff of records that failed", "backoff", "internal/change/backoff.go", "Backoff"},
	{"receive records from a queue", "receive", "internal/dispatch/receive.go", "Receive"},
	{"token of a delivery", "token", "internal/dispatch/token.go", "ParseToken"},
	{"dispatcher of a queue", "dispatcher", "internal/dispatch/dispatcher.go", "Dispatcher"},
	{"scan for records to hand out", "scan", "internal/dispatch/scan.go", "scanLocked"},
	{"move the dispatch limit", "limit", "internal/dispatch/limit.go", "moveLimits"},
	{"hold back an uncertain range", "uncertain", "internal/dispatch/uncertain.go", "holdRangeLocked"},
	{"prefetch records", "prefetch", "internal/dispatch/prefetch.go", "Load"},
	{"count the next attempts of records", "attempts", "internal/dispatch/attempts.go", "claim"},
	{"extend a lease", "extend", "internal/dispatch/extend.go", "Extend"},
	{"release queues at shutdown", "release", "internal/dispatch/release.go", "Release"},
	{"signature of a webhook", "signature", "internal/push/signature.go", "sign"},
	{"gate of a target that fails", "gate", "internal/push/gate.go", "gate"},
	{"supervisor of pushed queues", "supervisor", "internal/push/supervisor.go", "Run"},
	{"hash the secret of an API key", "secret", "internal/auth/secret.go", "Hash"},
	{"claim a slot", "claim", "internal/commitlog/claim.go", "propose"},
	{"entries of a commit as bytes", "entries", "internal/format/entries.go", "Entry"},
	{"CORS", "cors", "httpapi/cors.go", "cors"},
	{"slow client is cut off", "slowclient", "httpapi/slowclient.go", "slowLimit"},
	{"auth throttle: slow down callers with wrong keys", "auththrottle", "httpapi/auththrottle.go", "authThrottle"},
	{"forward a request to the owner of a queue", "forward", "httpapi/forward.go", "forward"},
	{"limit of connections", "limit", "internal/httpconn/limit.go", "Limit"},
}

func TestBehavioursAreFoundByName(t *testing.T) {
	if len(behaviours) < 30 {
		t.Errorf("the list has %d behaviours, want at least 30", len(behaviours))
	}
	for _, b := range behaviours {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.file)))
		if err != nil {
			t.Errorf("%s: %v", b.what, err)
			continue
		}
		declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type )` + regexp.QuoteMeta(b.decl) + `\b`)
		if !declared.Match(source) {
			t.Errorf("%s: %s does not declare %s: say here where it went", b.what, b.file, b.decl)
		}
		spoken := strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(b.what))
		if !strings.Contains(spoken, b.word) || !strings.Contains(path.Base(b.file), b.word) {
			t.Errorf("%s: the word %q is not in it, or not in the name of %s", b.what, b.word, b.file)
		}
	}
}

// Limits of the root package: its files and lines without tests, and the fields and methods of its
// Broker. The root package holds the public API and its wiring. New code goes into other packages
// instead. Lower these limits when code moves out.
const (
	rootFilesMax     = 40
	rootLinesMax     = 7_000
	brokerFieldsMax  = 15
	brokerMethodsMax = 70
)

func TestRootStaysWithinItsBounds(t *testing.T) {
	files, lines, fields, methods := 0, 0, 0, 0
	for _, src := range realTree(t).sources {
		if src.pkg != "." || src.test {
			continue
		}
		files, lines = files+1, lines+bytes.Count(src.text, []byte("\n"))
		for _, d := range src.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && receiver(d) == "Broker" {
					methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if of, ok := spec.(*ast.TypeSpec); ok && of.Name.Name == "Broker" {
						fields = of.Type.(*ast.StructType).Fields.NumFields()
					}
				}
			}
		}
	}
	for _, x := range []struct {
		what      string
		has, most int
	}{
		{"files of the root package", files, rootFilesMax},
		{"lines of the root package", lines, rootLinesMax},
		{"fields of Broker", fields, brokerFieldsMax},
		{"methods of Broker", methods, brokerMethodsMax},
	} {
		if x.has > x.most || x.has == 0 {
			t.Errorf("%d %s, want 1 to %d", x.has, x.what, x.most)
		}
	}
}
