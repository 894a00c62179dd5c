package hygiene

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"testing"
	"testing/fstest"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// checkCorpora reports fuzz targets without a committed corpus. Every plain run of the tests must try
// what fuzzing has found.
func checkCorpora(tr *tree, fsys fs.FS) []string {
	var findings []string
	for _, src := range tr.sources {
		for _, match := range fuzzTarget.FindAllSubmatch(src.text, -1) {
			dir := path.Join(src.pkg, "testdata/fuzz", string(match[1]))
			if entries, err := fs.ReadDir(fsys, dir); err != nil || len(entries) == 0 {
				findings = append(findings, fmt.Sprintf("%s: %s has no inputs in %s", src.path, match[1], dir))
			}
		}
	}
	return findings
}

func TestEveryFuzzTargetHasACorpus(t *testing.T) {
	report(t, checkCorpora(realTree(t), os.DirFS(root)))
}

func TestCorpusCheckFinds(t *testing.T) {
	const text = "package a\n\nfunc Fuzz" + "A(f *testing.F) {}\n\nfunc Fuzz" + "B(f *testing.F) {}\n"
	fsys := fstest.MapFS{"a/testdata/fuzz/FuzzA/one": &fstest.MapFile{}}
	want(t, checkCorpora(fakeTree(t, "a/a_test.go", text), fsys), "a/a_test.go: FuzzB has no inputs in a/testdata/fuzz/FuzzB")
}
