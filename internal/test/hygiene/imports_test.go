package hygiene

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// layer is what one package may import of this module. Imports point down: from cmd to the adapters,
// the root package, the parts of the broker, and the store.
type layer struct {
	pkg  string
	may  []string
	why  string // why the package may not import more
	look looksInside
}

// looksInside allows imports for a few files of a package that its other files may not have.
type looksInside struct {
	files []string // patterns of base names
	may   []string
	why   string
}

var layers = []layer{
	{
		pkg: "objstore",
		why: "a store must not know what is kept in it",
	},
	{
		pkg: "objstore/storetest", may: []string{"objstore"},
		why: "whoever writes a store of their own runs this suite, without the broker",
	},
	{
		pkg: "objstore/s3store", may: []string{"objstore"},
		why: "a store must not know what is kept in it",
	},
	{
		pkg: "internal/record", may: []string{"internal/zstdpool"},
		why: "batches are bytes: where they come from and go to is not their business",
	},
	{
		pkg: "internal/format",
		why: "objects are bytes: what their items mean, and who claims which slot, is not its business",
	},
	{
		pkg: "internal/commitlog", may: []string{"internal/format", "internal/wait", "objstore"},
		why: "the log decides the order of commits, not what they mean",
	},
	{
		pkg: "internal/state", may: []string{"internal/format"},
		why: "the fold is pure: it sees commits, never a store or a cache",
	},
	{
		pkg: "internal/cache", may: []string{"internal/record"},
		why: "the cache holds verified batches by name, whatever the log says of them",
	},
	{
		pkg: "internal/fsck", may: []string{"objstore", "internal/record", "internal/format", "internal/commitlog", "internal/segment", "internal/state"},
		why: "it judges what a store holds by the formats and the fold; a broker must not be part of the judgement",
	},
	{
		pkg: "internal/original",
		why: "it reads files of another program: what becomes of their records is not its business",
	},
	{
		pkg: "internal/httprecord",
		why: "it knows HTTP headers and bytes: which record they are of is its callers' business",
	},
	{
		pkg: "internal/httpconn",
		why: "it bounds connections of any HTTP server: what is said on them is not its business",
	},
	{
		pkg: "internal/peer",
		why: "it proves which session speaks: which sessions there are, and what they say, is not its business",
	},
	{
		pkg: "internal/mesh", may: []string{"internal/format", "internal/pack", "internal/wait"}, // for the ids of sessions, slots and hashes
		why: "it carries messages between brokers and decides nothing: what the log makes of them is its callers' business",
	},
	{
		pkg: "internal/test/meshtest",
		why: "a pipe for messages: what they say is not its business",
	},
	{
		pkg: "metric",
		why: "numbers with names: who counts them and who shows them is not its business",
	},
	{
		pkg: "sebprom", may: []string{"metric"},
		why: "it turns numbers into Prometheus's, whatever counts them; only programs that import it link Prometheus",
	},
	{
		pkg: "internal/histogram", may: []string{"metric"},
		why: "it counts observations: of what is its callers' business",
	},
	{
		pkg: "internal/push", may: []string{"internal/budget", "internal/format", "internal/wait", "internal/histogram", "internal/httprecord", "metric"},
		why: "deliveries are requests about messages: which queue hands them out, and who does when a broker is lost, is not its business",
	},
	{
		pkg: "internal/auth",
		why: "it reads what callers show: which keys are in force is its callers' business",
	},
	{
		pkg: "internal/budget",
		why: "it counts bytes: what lies in them is its callers' business",
	},
	{
		pkg: "internal/leases", may: []string{"internal/format"}, // for the types of ids and offsets
		why: "what may be handed out next is decided without the log and without a clock",
	},
	{
		pkg: "internal/handover", may: []string{"internal/format"}, // for slots and hashes
		why: "who commits a bundle is decided without I/O and without a clock: what a bundle holds, and how it travels, is not its business",
	},
	{
		pkg: "internal/pack",
		why: "it knows integers, texts and lists: what brokers say to each other is the business of the packages that say it",
	},
	{
		pkg: "internal/sst", may: []string{"internal/zstdpool"},
		why: "it knows keys and values: what they mean is the business of the packages that write them",
	},
	{
		pkg: "internal/segment", may: []string{"internal/format", "internal/record", "internal/sst"},
		why: "a segment is made of batches: which ones, and what that means for the log, is not its business",
	},
	{
		pkg: "internal/lag", may: []string{"internal/format", "internal/state", "metric"},
		why: "it reads positions in the state: who moves them is not its business",
	},
	{
		pkg: "internal/zstdpool",
		why: "compression is about nothing",
	},
	{
		pkg: "internal/wait",
		why: "waiting is about nothing",
	},
	{
		pkg: "internal/dispatch", may: []string{"internal/format", "internal/leases", "internal/pack", "internal/state", "internal/wait"},
		why: "it decides who gets which record next: committing that and reading records is the broker's business",
	},
	{
		pkg: "internal/change", may: []string{"internal/dispatch", "internal/format", "internal/leases", "internal/pack", "internal/push", "internal/state"},
		why: "a change is data that checks itself against the state: who asks for it and who commits it is the broker's business",
	},
	{
		pkg: "internal/collect", may: []string{"objstore", "internal/format", "internal/state", "internal/wait"},
		why: "it deletes what the state says is dead: it neither commits nor decides",
	},
	{
		pkg: "internal/engine", may: []string{
			"objstore", "internal/record", "internal/format", "internal/commitlog", "internal/state", "internal/budget", "internal/cache",
			"internal/collect", "internal/handover", "internal/histogram", "internal/mesh", "internal/pack", "internal/segment", "internal/sst", "internal/wait", "metric",
		},
		why: "it commits, applies and reads: who asks for that, and what queues and keys are for, is the business of the packages above",
	},
	{
		pkg: ".", may: []string{
			"objstore", "internal/record", "internal/format", "internal/state", "internal/auth", "internal/budget", "internal/change", "internal/digest",
			"internal/dispatch", "internal/engine", "internal/lag", "internal/leases", "internal/mesh", "internal/option", "internal/pack", "internal/push", "internal/wait", "metric",
		},
		why: "the broker must not depend on who speaks to it or on where its objects lie",
	},
	{
		pkg: "internal/offline", may: []string{"internal/commitlog", "internal/format", "internal/state", "internal/wait", "objstore"},
		why: "it reads what brokers have written, and needs no broker",
	},
	{
		pkg: "internal/restore", may: []string{"internal/engine", "internal/format", "internal/offline", "internal/record", "internal/segment", "internal/sst", "internal/state", "objstore"},
		why: "it copies objects: what is live the state says; the engine only tells the brokers of the log that they must not delete it",
	},
	{
		pkg: "internal/gc", may: []string{"internal/collect", "internal/engine", "internal/format", "internal/offline", "internal/state", "objstore"},
		why: "it opens a log to tell what is dead, or to delete it: what may go the state decides, and the engine does it",
		look: looksInside{
			files: []string{"gc_test.go"},
			may:   []string{"internal/record"},
			why:   "the tests append records with an engine of their own",
		},
	},
	{
		pkg: "internal/option", may: []string{"internal/format"},
		why: "it only says what a caller asked for",
	},
	{
		pkg: "internal/digest", may: []string{"internal/format", "internal/option", "internal/record"},
		why: "it hashes what a caller asked for: which requests have been made is the log's business",
	},
	{
		pkg: "client", may: []string{".", "internal/httprecord", "internal/option"},
		why: "a client has the library's types, and reaches brokers over HTTP alone",
		look: looksInside{
			files: []string{"example_test.go"},
			may:   []string{"httpapi"},
			why:   "the example serves the broker that it calls",
		},
	},
	{
		pkg: "price", may: []string{".", "metric"},
		why: "prices are for every embedder: it knows what a broker tells of its use of the store, and nothing else of it",
	},
	{
		pkg: "httpapi", may: []string{".", "price", "internal/httpconn", "internal/httprecord", "internal/peer"},
		why: "an adapter uses only what every embedder can use, so that the library is complete; how HTTP carries a record, brokers' words to each other, and limits of connections are no part of that",
		look: looksInside{
			files: []string{"triggers_test.go", "postevents_test.go"},
			may:   []string{"trigger", "triggerapi"},
			why:   "its tests serve the triggers that programs hand to it",
		},
	},
	{
		pkg: "driplang",
		why: "a language is the same whatever decides where its events come from",
	},
	{
		pkg: "trigger", may: []string{".", "driplang"},
		why: "triggers are a program on the log, which uses what every program can use",
	},
	{
		pkg: "triggerapi", may: []string{".", "driplang", "metric", "trigger"},
		why: "it turns requests into calls of triggers: only programs that import it link CEL, and package httpapi does not",
	},
	{
		pkg: "cmd/seb", may: []string{".", "client", "driplang", "httpapi", "objstore", "objstore/s3store", "price", "sebprom", "trigger", "triggerapi"},
		why: "the command wires adapters, broker and store together and decides nothing",
		look: looksInside{
			files: []string{"dump*.go", "doctor*.go", "probe*.go", "fsck*.go", "gc*.go", "import*.go", "restore*.go"},
			may:   []string{"internal/format", "internal/record", "internal/segment", "internal/sst", "internal/state", "internal/fsck", "internal/gc", "internal/offline", "internal/original", "internal/restore"},
			why:   "tools for a store at rest know its keys and bytes without a broker",
		},
	},
	{
		pkg: "internal/test/s3test", may: []string{"objstore/s3store"},
		why: "an S3 server for tests serves tests of every layer above the store",
	},
	{
		pkg: "internal/test/explore", may: []string{"internal/format", "internal/commitlog", "internal/handover", "internal/state"},
		why: "it proves what the log, the fold and the handing over decide by driving them, without a store or a broker",
	},
	{
		pkg: "internal/test/dripmodel", may: []string{"driplang"},
		why: "it decides triggers by their specification alone: faster evaluators are compared with it",
	},
	{
		pkg: "internal/test/loglines",
		why: "it judges lines: which program has written them is not its business",
	},
	{
		pkg: "internal/test/cputime",
		why: "it asks the system only",
	},
	{
		pkg: "internal/test/kit", may: []string{".", "internal/format", "internal/test/loglines", "objstore", "objstore/storetest"},
		why: "tests of whole brokers ask as users do, and look inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/sim", may: []string{".", "internal/engine", "httpapi", "objstore", "objstore/storetest", "objstore/s3store", "internal/format", "internal/fsck", "internal/record", "internal/state", "internal/test/kit"},
		why: "it runs whole brokers as their users do, and looks inside only at what they leave in the bucket",
	},
	{
		pkg: "internal/test/access", may: []string{".", "internal/format"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/bucket", may: []string{".", "internal/engine", "internal/format", "internal/fsck", "internal/offline", "internal/restore", "internal/state"}, // engine for the bounds of compaction
		why: "it asks a broker as its users do, about a bucket that it finds, or that is a copy",
	},
	{
		pkg: "internal/test/commit", may: []string{".", "internal/format"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/consumers", may: []string{"."},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/fault", may: []string{".", "internal/format", "internal/record"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/idempotency", may: []string{".", "internal/format"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/push", may: []string{".", "internal/push"},
		why: "it asks a broker as its users do, and compares what they may set with the bounds of deliveries",
	},
	{
		pkg: "internal/test/remote", may: []string{".", "client", "httpapi", "trigger", "triggerapi"},
		why: "it asks brokers as programs in other processes do",
	},
	{
		pkg: "internal/test/queue", may: []string{".", "internal/format"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/reading", may: []string{".", "internal/format"},
		why: "it asks a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/test/year", may: []string{".", "internal/engine", "internal/format", "internal/wait"}, // for the bounds of compaction
		why: "it runs a broker as its users do, and looks inside only at what lies in the bucket",
	},
	{
		pkg: "internal/growth",
		why: "it measures the command as its users run it",
	},
	{
		pkg: "internal/test/hygiene",
		why: "it reads the tree, it doesn't run it",
	},
}

// testMay are the packages that tests of any package may import beyond their layer: the stores and
// their faults, the simulator, the kit, the model of triggers, and the metrics packages. A _test package may also import the
// package that it tests.
var testMay = []string{"objstore", "objstore/storetest", "objstore/s3store", "internal/test/s3test", "internal/test/sim", "internal/test/kit", "internal/test/loglines", "internal/test/meshtest", "internal/test/cputime", "internal/test/dripmodel", "metric", "sebprom"}

// home is where code that is no test may import a dependency.
type home struct {
	module string
	pkgs   []string // if there are none, only tests may import the module
	why    string
}

var homes = []home{
	{"github.com/aws/", []string{"objstore/s3store"}, "who keeps objects elsewhere must not link the SDK"},
	{"github.com/alecthomas/kong", []string{"cmd/seb"}, "only the command has flags"},
	{"github.com/prometheus/", []string{"sebprom", "httpapi", "cmd/seb"}, "the broker counts plain numbers, so that who embeds it need not link Prometheus"},
	{"github.com/klauspost/compress", []string{"internal/record", "internal/zstdpool", "httpapi"}, "batches, blocks of tables and HTTP bodies are all that is compressed"},
	{"github.com/pierrec/lz4", []string{"internal/record"}, "batches are all that is compressed"},
	{"github.com/johannesboyne/gofakes3", []string{"internal/test/s3test"}, "a fake S3 is for tests"},
	{"github.com/rogpeppe/go-internal", nil, "testscript is for tests"},
	{"github.com/google/go-cmp", nil, "go-cmp is for tests"},
	{"github.com/anishathalye/porcupine", []string{"internal/test/sim"}, "it checks histories of simulated runs"},
	{"github.com/getkin/kin-openapi", nil, "what is served is the OpenAPI document itself; only its tests read it"},
	{"github.com/oasdiff/yaml", nil, "only the tests of the OpenAPI document read YAML"},
	{"github.com/santhosh-tekuri/jsonschema", nil, "only the tests of the OpenAPI document validate by it"},
	{"github.com/standard-webhooks/", nil, "what is signed is checked by the library that receivers use; signing is HMAC"},
	{"pgregory.net/rapid", nil, "rapid is for tests"},
}

// noAWS are the packages that must not link the AWS SDK, not even through other packages.
var noAWS = []string{".", "objstore", "objstore/storetest", "httpapi"}

func checkImports(tr *tree, layers []layer) []string {
	var findings []string
	for _, src := range tr.sources {
		i := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == src.pkg })
		if i < 0 {
			continue // checkLayers reports the package
		}
		for _, imported := range slices.Sorted(maps.Keys(src.imports())) {
			if pkg, ok := projectImport(imported); ok && !layers[i].allows(src, pkg) {
				findings = append(findings, fmt.Sprintf("%s imports %s: %s", src.path, imported, layers[i].why))
			}
		}
	}
	return findings
}

func (l layer) allows(src source, pkg string) bool {
	if slices.Contains(l.may, pkg) {
		return true
	}
	if src.test && (pkg == src.pkg || slices.Contains(testMay, pkg)) {
		return true
	}
	inside := slices.ContainsFunc(l.look.files, func(pattern string) bool {
		ok, err := path.Match(pattern, path.Base(src.path))
		return ok && err == nil
	})
	return inside && slices.Contains(l.look.may, pkg)
}

// checkLayers reports packages without a row in the table: a new package needs one.
func checkLayers(tr *tree, layers []layer) []string {
	var findings []string
	for _, pkg := range tr.packages() {
		if !slices.ContainsFunc(layers, func(l layer) bool { return l.pkg == pkg }) {
			findings = append(findings, fmt.Sprintf("package %s has no row in the table of layers", pkg))
		}
	}
	return findings
}

// checkUsed reports imports that the table allows but no file needs.
func checkUsed(tr *tree, layers []layer) []string {
	var findings []string
	refused := len(checkImports(tr, layers))
	for i, l := range layers {
		for _, pkg := range slices.Concat(l.may, l.look.may) {
			fewer := slices.Clone(layers)
			fewer[i].may, fewer[i].look.may = allBut(l.may, pkg), allBut(l.look.may, pkg)
			if len(checkImports(tr, fewer)) == refused {
				findings = append(findings, fmt.Sprintf("package %s may import %s, and does not: take it out of the table", l.pkg, pkg))
			}
		}
	}
	return findings
}

func allBut(pkgs []string, pkg string) []string {
	return slices.DeleteFunc(slices.Clone(pkgs), func(x string) bool { return x == pkg })
}

func checkHomes(tr *tree, homes []home) []string {
	var findings []string
	for _, src := range tr.sources {
		if src.test {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(src.imports())) {
			for _, h := range homes {
				if strings.HasPrefix(imported, h.module) && !slices.Contains(h.pkgs, src.pkg) {
					findings = append(findings, fmt.Sprintf("%s imports %s: %s", src.path, imported, h.why))
				}
			}
		}
	}
	return findings
}

func TestImportsPointDown(t *testing.T) {
	tr := realTree(t)
	for _, l := range layers {
		if !slices.Contains(tr.packages(), l.pkg) {
			t.Errorf("the table of layers has a row for package %s, which does not exist", l.pkg)
		}
	}
	report(t, checkLayers(tr, layers))
	report(t, checkImports(tr, layers))
	report(t, checkUsed(tr, layers))
}

func TestDependenciesStayAtHome(t *testing.T) {
	report(t, checkHomes(realTree(t), homes))
}

func TestAWSIsLinkedOnlyByS3Store(t *testing.T) {
	for _, pkg := range noAWS {
		if linksAWS(t, pkg) {
			t.Errorf("package %s links the AWS SDK: only objstore/s3store may", pkg)
		}
	}
	// Without this check the test would pass even if it looked for a wrong name.
	if !linksAWS(t, "objstore/s3store") {
		t.Error("package objstore/s3store links no AWS SDK, so this test can't see it")
	}
}

// linksAWS asks the go command, which also follows the imports of dependencies.
func linksAWS(t *testing.T, pkg string) bool {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+pkg)
	cmd.Dir, cmd.Stderr = root, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list what package %s links: %v\n%s", pkg, err, &stderr)
	}
	return strings.Contains(string(out), "github.com/aws/")
}

// embedded are the modules that a program links if it embeds the broker on a directory, with the
// reason for each. Go's own are left out. A new module is a decision, and there may be six at most.
var embedded = map[string]string{
	"github.com/simple-event-broker/seb": "itself",
	"github.com/klauspost/compress":      "batches may be compressed by zstd, gzip or snappy",
	"github.com/pierrec/lz4/v4":          "or by lz4",
	"golang.org/x/sync":                  "groups of goroutines",
	"golang.org/x/sys":                   "the clock since boot, locks of directories",
}

// linkedForHTTP are the modules that the HTTP API adds to embedded.
var linkedForHTTP = map[string]string{
	"github.com/coder/websocket":          "connections between brokers that stay, for messages both ways",
	"github.com/prometheus/client_golang": "it serves metrics, its own too",
	"github.com/prometheus/client_model":  "of metrics",
	"github.com/prometheus/common":        "of metrics",
	"github.com/prometheus/procfs":        "of metrics",
	"github.com/beorn7/perks":             "of metrics",
	"github.com/cespare/xxhash/v2":        "of metrics",
	"github.com/munnerz/goautoneg":        "of metrics",
	"google.golang.org/protobuf":          "of metrics",
}

func TestEmbedderLinksSixModulesAtMost(t *testing.T) {
	if len(embedded) > 6 {
		t.Errorf("an embedder may link %d modules", len(embedded))
	}
	wantLinked(t, embedded, "./internal/test/hygiene/testdata/embedder")
}

// The library with the HTTP API links no SDK of a cloud, no framework and no command-line library.
func TestHTTPAPILinksLittle(t *testing.T) {
	both := maps.Clone(embedded)
	maps.Copy(both, linkedForHTTP)
	wantLinked(t, both, ".", "./objstore", "./httpapi")
}

// wantLinked compares the modules that packages link, tests left out, with a table.
func wantLinked(t *testing.T, want map[string]string, packages ...string) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, packages...)...)
	cmd.Dir, cmd.Stderr = root, &stderr
	cmd.Env = append(os.Environ(), "GOOS=linux") // on other systems, some modules are left out
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list what %v link: %v\n%s", packages, err, &stderr)
	}
	found := map[string]bool{}
	for module := range strings.FieldsSeq(string(out)) {
		if want[module] == "" && !found[module] {
			t.Errorf("%v link %s: is it worth that to everyone who embeds it?", packages, module)
		}
		found[module] = true
	}
	for module := range want {
		if !found[module] {
			t.Errorf("%v no longer link %s: take it out of the table", packages, module)
		}
	}
}

func TestUnusedImportsAreFound(t *testing.T) {
	tr := fakeTree(t,
		"a/a.go", "package a\nimport _ \""+modulePath+"/b\"",
		"a/a_test.go", "package a\nimport _ \""+modulePath+"/objstore\"",
		"a/tool.go", "package a\nimport _ \""+modulePath+"/c\"",
	)
	want(t, checkUsed(tr, []layer{{pkg: "a", may: []string{"b"}, look: looksInside{files: []string{"tool.go"}, may: []string{"c"}}}}))
	want(t, checkUsed(tr, []layer{{pkg: "a", may: []string{"b", "d"}, look: looksInside{files: []string{"tool.go"}, may: []string{"c"}}}}), "a may import d")
	want(t, checkUsed(tr, []layer{{pkg: "a", may: []string{"b", "c", "objstore"}}}), "a may import objstore")
	want(t, checkUsed(tr, []layer{{pkg: "a", may: []string{"b"}, look: looksInside{files: []string{"tool.go"}, may: []string{"c", "d"}}}}), "a may import d")
}

func TestImportChecksFind(t *testing.T) {
	file := func(pkg, imported string) string {
		return fmt.Sprintf("package %s\nimport %q", pkg, imported)
	}
	const mod = modulePath
	tests := map[string]struct {
		path, text string
		finding    string // "" for an import that is allowed
	}{
		"down":                    {"a.go", file("seb", mod+"/objstore"), ""},
		"up":                      {"objstore/a.go", file("objstore", mod), "must not know"},
		"sideways":                {"httpapi/a.go", file("httpapi", mod+"/kafka"), "library is complete"},
		"past the public API":     {"httpapi/a.go", file("httpapi", mod+"/internal/state"), "library is complete"},
		"store from the fold":     {"internal/state/a.go", file("state", mod+"/objstore"), "the fold is pure"},
		"store from a fold test":  {"internal/state/a_test.go", file("state", mod+"/objstore"), ""},
		"broker from a part test": {"internal/cache/a_test.go", file("cache", mod), "verified batches"},
		"itself from its test":    {"a_test.go", file("seb_test", mod), ""},
		"inside from dump":        {"cmd/seb/dump.go", file("main", mod+"/internal/format"), ""},
		"inside from serve":       {"cmd/seb/serve.go", file("main", mod+"/internal/commitlog"), "decides nothing"},
		"SDK in s3store":          {"objstore/s3store/a.go", file("s3store", "github.com/aws/smithy-go"), ""},
		"SDK in the broker":       {"a.go", file("seb", "github.com/aws/smithy-go"), "must not link"},
		"test library in a test":  {"a_test.go", file("seb", "pgregory.net/rapid"), ""},
		"test library in code":    {"a.go", file("seb", "pgregory.net/rapid"), "for tests"},
		"similar module name":     {"a.go", file("seb", modulePath+"s/x"), ""},
		"package without a layer": {"misc/a.go", "package misc", "no row"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tr := fakeTree(t, test.path, test.text)
			findings := slices.Concat(checkLayers(tr, layers), checkImports(tr, layers), checkHomes(tr, homes))
			if test.finding == "" {
				want(t, findings)
				return
			}
			want(t, findings, test.finding)
		})
	}
}
