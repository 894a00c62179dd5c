package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clientGenerator is a generator of clients that docs/clients/README.md names.
type clientGenerator struct {
	language string
	needs    []string // the test is skipped if one of these programs is missing
	program  string   // in the directory of the generators
	shown    string   // the command of the page
	pinned   string   // the file below tools/generators that says which version the tests have
	release  string   // the generator and its version, as the page has them
	pin      string   // and as that file has them
	silence  *regexp.Regexp
	has      func(operation string) string // what the generated code has for an operation
	try      func(t *testing.T, generators, dir string)
}

var clientGenerators = []clientGenerator{
	{
		language: "python", program: "python/bin/openapi-python-client",
		shown:  "openapi-python-client generate --path openapi.yaml --config python.yaml --meta none --output-path seb_api",
		pinned: "python/requirements.txt", release: "openapi-python-client 0.29.1", pin: "openapi-python-client==0.29.1\n",
		silence: regexp.MustCompile(`^Generating seb_api$`),
		has:     func(operation string) string { return "/" + snakeCase(operation) + ".py\n" },
		try:     tryPython,
	},
	{
		language: "typescript", needs: []string{"node", "npm"}, program: "typescript/node_modules/.bin/openapi-typescript",
		shown:  "openapi-typescript openapi.yaml --output seb.d.ts",
		pinned: "typescript/package.json", release: "openapi-typescript 7.13.0", pin: `"openapi-typescript": "7.13.0"`,
		silence: regexp.MustCompile(`^(✨ openapi-typescript [0-9.]+|🚀 openapi.yaml → seb.d.ts \[.*\])$`),
		has:     func(operation string) string { return "\n    " + operation + ": {\n" },
		try:     tryTypeScript,
	},
	{
		language: "go", program: "go/oapi-codegen",
		shown:  "oapi-codegen -generate types,client -package sebapi -o sebapi.go openapi.yaml",
		pinned: "go/go.mod", release: "oapi-codegen 2.8.2", pin: "oapi-codegen/oapi-codegen/v2 v2.8.2 ",
		silence: regexp.MustCompile(`^$`),
		has: func(operation string) string {
			return "\nfunc Parse" + strings.ToUpper(operation[:1]) + operation[1:] + "Response("
		},
		try: tryGo,
	},
	{
		language: "java", needs: []string{"java", "javac", "mvn"},
		shown:  "openapi-generator-cli generate -g java -i openapi.yaml -o seb-java --additional-properties=disallowAdditionalPropertiesIfNotPresent=false",
		pinned: "java/pom.xml", release: "openapi-generator 7.25.0", pin: "<artifactId>openapi-generator-cli</artifactId>\n      <version>7.25.0</version>",
		// It warns of every document that is OpenAPI 3.1, has a schema that is not just a reference, or has an example of a body.
		silence: regexp.MustCompile(`^(\[main\] INFO .*|\[main\] WARN .* - (OpenAPI 3\.1 support is still in beta\..*|Failed to get the schema name: null|Ignoring complex example on request body)|#.*)$`),
		has:     func(operation string) string { return " " + operation + "Call(" },
		try:     tryJava,
	},
}

var operationID = regexp.MustCompile(`(?m)^ +operationId: (\w+)$`)

// Generators take openapi.yaml whole: they report no problem, leave out no operation, and the generated code
// compiles. The client in Python appends and reads.
func TestGeneratedClients(t *testing.T) {
	if testing.Short() {
		t.Skip("the programs run outside of the race detector")
	}
	document, err := os.ReadFile("../../httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations := operationID.FindAllStringSubmatch(string(document), -1)
	if len(operations) < 40 {
		t.Fatalf("the document has %d operations", len(operations))
	}
	page, err := os.ReadFile("../../docs/clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range clientGenerators {
		t.Run(g.language, func(t *testing.T) {
			t.Parallel()
			g.wantDocumented(t, string(page))
			generators := g.find(t)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "openapi.yaml"), string(document))
			for _, f := range docFile.FindAllStringSubmatch(string(page), -1) {
				writeFile(t, filepath.Join(dir, f[1]), f[2])
			}
			for line := range strings.Lines(g.generate(t, generators, dir)) {
				if !g.silence.MatchString(strings.TrimSpace(line)) && strings.TrimSpace(line) != "" {
					t.Errorf("the generator reports: %s", line)
				}
			}
			code := generated(t, dir)
			for _, operation := range operations {
				if !strings.Contains(code, g.has(operation[1])) {
					t.Errorf("the client has no %s", operation[1])
				}
			}
			if !t.Failed() {
				g.try(t, generators, dir)
			}
		})
	}
}

// wantDocumented checks that the page names the generator's version and command, as the test has them.
func (g clientGenerator) wantDocumented(t *testing.T, page string) {
	t.Helper()
	pins, err := os.ReadFile(filepath.Join("../../tools/generators", g.pinned))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pins), g.pin) {
		t.Errorf("%s does not have %s", g.pinned, g.pin)
	}
	for _, want := range []string{g.release, g.shown + "\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

// find returns the directory of the generators. If it or a program is missing, the test is skipped. If only the
// generator is missing, and SEB_TEST_REQUIRE is 1, the test fails.
func (g clientGenerator) find(t *testing.T) string {
	t.Helper()
	for _, program := range g.needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is missing")
		}
	}
	dir := os.Getenv("SEB_TEST_GENERATORS")
	_, err := os.Stat(filepath.Join(dir, g.language, "whole"))
	if dir != "" && err == nil {
		return dir
	}
	const missing = "the generators are missing: run SEB_TEST_GENERATORS=$(make --silent generators) go test ./cmd/seb"
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// generate runs the command of the page in dir, and returns what it prints.
func (g clientGenerator) generate(t *testing.T, generators, dir string) string {
	t.Helper()
	command := append([]string{filepath.Join(generators, g.program)}, strings.Fields(g.shown)[1:]...)
	if g.language == "java" {
		command = slices.Concat([]string{
			"java", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(generators, "java", "*"), "org.openapitools.codegen.OpenAPIGenerator",
		}, command[1:], []string{"--global-property=apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"})
	}
	return runIn(t, dir, nil, command...)
}

// generated returns the names of the files in dir, and what those that are not in Python contain.
func generated(t *testing.T, dir string) string {
	t.Helper()
	var code bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		code.WriteString(filepath.ToSlash(path) + "\n")
		if !slices.Contains([]string{".go", ".ts", ".java"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}

// runIn runs a command in dir, and returns what it prints. The test fails if the command does.
func runIn(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

func tryPython(t *testing.T, generators, dir string) {
	broker := serve(t, nil, "--store", "dir:"+t.TempDir())
	key := runSeb(t, nil, "key", "create", "generated", "--scope", "admin", "--server", broker.url)
	key.want(t, exitOK)
	env := []string{"SEB_SERVER=" + broker.url, "SEB_API_KEY=" + strings.TrimSpace(key.out), "PYTHONPATH=" + dir}
	python := filepath.Join(generators, "python/bin/python")
	if got, want := runIn(t, dir, env, python, "generated.py"), "0 42 ordered\n1 42 paid\n"; got != want {
		t.Errorf("generated.py printed %q, want %q", got, want)
	}
	check, err := filepath.Abs("testdata/generated/check.py")
	if err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, env, python, check)
}

func tryTypeScript(t *testing.T, generators, dir string) {
	use, err := os.ReadFile("testdata/generated/use.ts")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "use.ts"), string(use))
	runIn(t, dir, nil, filepath.Join(generators, "typescript/node_modules/.bin/tsc"), "--noEmit", "--strict", "use.ts", "seb.d.ts")
}

func tryGo(t *testing.T, _, dir string) {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("../../tools/generators/go", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	runIn(t, dir, []string{"GOFLAGS=-trimpath", "GOWORK=off"}, "go", "vet", ".")
}

func tryJava(t *testing.T, generators, dir string) {
	sources, err := filepath.Glob(filepath.Join(dir, "seb-java/src/main/java/org/openapitools/client/*.java"))
	deeper, err2 := filepath.Glob(filepath.Join(dir, "seb-java/src/main/java/org/openapitools/client/*/*.java"))
	if err := errors.Join(err, err2); err != nil || len(sources) == 0 || len(deeper) == 0 {
		t.Fatalf("there are %d and %d sources, %v", len(sources), len(deeper), err)
	}
	command := []string{"javac", "-J-XX:TieredStopAtLevel=1", "-proc:none", "-nowarn", "-d", dir, "-cp", filepath.Join(generators, "java", "*")}
	runIn(t, dir, nil, slices.Concat(command, sources, deeper)...)
}

var upper = regexp.MustCompile(`[A-Z]`)

// snakeCase returns readRecords as read_records.
func snakeCase(name string) string {
	return upper.ReplaceAllStringFunc(name, func(letter string) string { return "_" + strings.ToLower(letter) })
}
