package hygiene

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	root       = "../../.."
	modulePath = "github.com/simple-event-broker/seb"
)

// source is one Go file of the tree.
type source struct {
	path   string // slash-separated, relative to the module's root
	pkg    string // the package's directory, "." for the root
	test   bool
	text   []byte
	syntax *ast.File
}

// tree is all Go files of a module, whatever their build constraints. It leaves out nested modules,
// testdata, and directories that the go command ignores.
type tree struct {
	files   *token.FileSet
	sources []source
}

func loadTree(t *testing.T, fsys fs.FS) *tree {
	t.Helper()
	tr := &tree{files: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && ignored(fsys, name):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return tr.add(fsys, name)
	})
	if err != nil {
		t.Fatalf("load the source tree: %v", err)
	}
	return tr
}

func ignored(fsys fs.FS, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

func (tr *tree) add(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(tr.files, name, text, parser.ParseComments)
	if err != nil {
		return err
	}
	tr.sources = append(tr.sources, source{
		path:   name,
		pkg:    path.Dir(name),
		test:   strings.HasSuffix(name, "_test.go"),
		text:   text,
		syntax: syntax,
	})
	return nil
}

// packages returns the directories that hold Go files, sorted.
func (tr *tree) packages() []string {
	var pkgs []string
	for _, src := range tr.sources {
		pkgs = append(pkgs, src.pkg)
	}
	slices.Sort(pkgs)
	return slices.Compact(pkgs)
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// imports maps the path of each import to the name that the file uses for it: the one that the file
// declares, else the last element of the path.
func (src *source) imports() map[string]string {
	names := make(map[string]string)
	for _, spec := range src.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // can't happen: the parser accepts only valid string literals
		}
		names[imported] = path.Base(majorVersion.ReplaceAllString(imported, ""))
		if spec.Name != nil {
			names[imported] = spec.Name.Name
		}
	}
	return names
}

// projectImport returns the directory of a package of this module.
func projectImport(imported string) (pkg string, ok bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

// realTree is the tree that this package is part of.
func realTree(t *testing.T) *tree {
	t.Helper()
	return loadTree(t, os.DirFS(root))
}

// fakeTree makes a tree of files, given as alternating paths and contents.
func fakeTree(t *testing.T, files ...string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		fsys[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return loadTree(t, fsys)
}

// report fails the test once for each finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, finding := range findings {
		t.Error(finding)
	}
}

// want fails the test unless there is exactly one finding for each of parts, in the same order, and
// each finding contains its part.
func want(t *testing.T, findings []string, parts ...string) {
	t.Helper()
	if len(findings) != len(parts) {
		t.Fatalf("got %d findings %q, want %d", len(findings), findings, len(parts))
	}
	for i, part := range parts {
		if !strings.Contains(findings[i], part) {
			t.Errorf("finding %q does not contain %q", findings[i], part)
		}
	}
}

func TestTreeLeavesOutWhatIsNotOfTheModule(t *testing.T) {
	tr := fakeTree(t,
		"seb.go", "package seb",
		"objstore/testdata/broken.go", "not Go",
		"tools/lint/go.mod", "module lint",
		"tools/lint/lint.go", "package lint",
		".cache/x.go", "package x",
		"_old/x.go", "package x",
	)
	if got := tr.packages(); !slices.Equal(got, []string{"."}) {
		t.Errorf("packages: %q, want only the root", got)
	}
}

func TestTreeIsTheWholeModule(t *testing.T) {
	text, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(text, []byte("module "+modulePath+"\n")) {
		t.Fatalf("%s is not the root of module %s", root, modulePath)
	}
	pkgs := realTree(t).packages()
	for _, pkg := range []string{".", "objstore", "internal/test/hygiene"} {
		if !slices.Contains(pkgs, pkg) {
			t.Errorf("package %s was not loaded; got %q", pkg, pkgs)
		}
	}
}
