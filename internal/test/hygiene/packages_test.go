package hygiene

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// emptyNames are package names that don't say what a package is for.
var emptyNames = []string{"util", "utils", "common", "types", "helpers", "misc", "infrastructure"}

// checkPackages reports packages with an empty name, and packages whose doc comment is missing, is in
// two files, or doesn't begin as go doc expects.
func checkPackages(tr *tree) []string {
	var findings []string
	for _, pkg := range tr.packages() {
		var documented []source
		for _, src := range tr.sources {
			if src.pkg == pkg && !src.test && src.syntax.Doc != nil {
				documented = append(documented, src)
			}
		}
		if len(documented) != 1 {
			findings = append(findings, fmt.Sprintf("%d files of package %s have a package comment, want one", len(documented), pkg))
			continue
		}
		doc, name := documented[0].syntax.Doc.Text(), documented[0].syntax.Name.Name
		if name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
			findings = append(findings, fmt.Sprintf("%s: the comment should begin with %q", documented[0].path, "Package "+name))
		}
		if name == "main" && !strings.HasPrefix(strings.ToLower(doc), path.Base(pkg)+" ") && !strings.HasPrefix(doc, "Command ") {
			findings = append(findings, fmt.Sprintf("%s: the comment should begin with the command's name", documented[0].path))
		}
		if slices.Contains(emptyNames, name) {
			findings = append(findings, fmt.Sprintf("package %s: name it for what it provides", pkg))
		}
	}
	return findings
}

func TestEveryPackageIsDocumentedOnce(t *testing.T) {
	report(t, checkPackages(realTree(t)))
}

func TestPackageCheckFinds(t *testing.T) {
	tests := map[string]struct {
		files   []string
		finding string // "" for packages that pass
	}{
		"documented":      {[]string{"seb.go", "// Package seb is a broker.\npackage seb", "a.go", "package seb"}, ""},
		"command":         {[]string{"cmd/seb/main.go", "// Seb serves.\npackage main"}, ""},
		"none":            {[]string{"seb.go", "package seb"}, "0 files"},
		"only in a test":  {[]string{"seb.go", "package seb", "a_test.go", "// Package seb is a broker.\npackage seb"}, "0 files"},
		"detached":        {[]string{"seb.go", "// Package seb is a broker.\n\npackage seb"}, "0 files"},
		"two":             {[]string{"seb.go", "// Package seb is.\npackage seb", "a.go", "// Package seb was.\npackage seb"}, "2 files"},
		"wrong name":      {[]string{"seb.go", "// Package set is a broker.\npackage seb"}, "should begin"},
		"unnamed command": {[]string{"cmd/seb/main.go", "// The program.\npackage main"}, "command's name"},
		"empty name":      {[]string{"util/a.go", "// Package util helps.\npackage util"}, "for what it provides"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			findings := checkPackages(fakeTree(t, test.files...))
			if test.finding == "" {
				want(t, findings)
				return
			}
			want(t, findings, test.finding)
		})
	}
}
