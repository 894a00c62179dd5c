package hygiene

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// forTests are the packages that docs/architecture.md names but does not draw, since no program links
// them.
var forTests = []string{
	"internal/growth", "internal/test/dripmodel", "internal/test/explore", "internal/test/hygiene", "internal/test/kit", "internal/test/loglines", "internal/test/meshtest", "internal/test/cputime", "internal/test/s3test", "internal/test/sim",
	"internal/test/access", "internal/test/bucket", "internal/test/commit", "internal/test/consumers", "internal/test/fault", "internal/test/idempotency", "internal/test/push", "internal/test/queue", "internal/test/reading", "internal/test/remote", "internal/test/year",
}

var (
	drawnArrow = regexp.MustCompile(`(?m)^\s*(\S+) -->(?:\|[^|]*\|)? (.+)$`)
	drawnNode  = regexp.MustCompile(`^(\w+)(?:\["([^"]+)"\])?$`)
)

// drawnImports returns the packages that a page draws, and what each imports there. It reads the lines
// of a Mermaid flowchart, such as `a["one"] --> b["two"] & c`. The id of a node without a label is its
// label.
func drawnImports(page string) map[string][]string {
	_, drawing, _ := strings.Cut(page, "```mermaid\n")
	drawing, _, _ = strings.Cut(drawing, "```")
	labels, arrows := map[string]string{}, map[string][]string{}
	node := func(text string) string {
		match := drawnNode.FindStringSubmatch(strings.TrimSpace(text))
		if match == nil {
			return text
		}
		if match[2] != "" {
			labels[match[1]] = match[2]
		}
		return match[1]
	}
	for _, arrow := range drawnArrow.FindAllStringSubmatch(drawing, -1) {
		from := node(arrow[1])
		for to := range strings.SplitSeq(arrow[2], " & ") {
			to = node(to)
			arrows[from] = append(arrows[from], to)
			if _, ok := arrows[to]; !ok {
				arrows[to] = nil // the package is drawn, and may import nothing
			}
		}
	}
	pkg := func(id string) string {
		if labels[id] != "" {
			id = labels[id]
		}
		if id == "seb" {
			return "."
		}
		return id
	}
	drawn := map[string][]string{}
	for from, to := range arrows {
		drawn[pkg(from)] = []string{}
		for _, id := range to {
			drawn[pkg(from)] = append(drawn[pkg(from)], pkg(id))
		}
		slices.Sort(drawn[pkg(from)])
	}
	return drawn
}

// codeImports returns which packages of the tree each package imports, tests left out.
func (tr *tree) codeImports() map[string][]string {
	found := map[string][]string{}
	for _, pkg := range tr.packages() {
		found[pkg] = []string{}
	}
	for _, src := range tr.sources {
		for imported := range src.imports() {
			if pkg, ok := projectImport(imported); ok && !src.test && !slices.Contains(found[src.pkg], pkg) {
				found[src.pkg] = append(found[src.pkg], pkg)
			}
		}
	}
	for pkg := range found {
		slices.Sort(found[pkg])
	}
	return found
}

// checkArchitecture compares a page with a tree: the page must name every package, and draw all
// imports between packages.
func checkArchitecture(tr *tree, page string) []string {
	var findings []string
	drawn, real := drawnImports(page), tr.codeImports()
	for _, pkg := range slices.Sorted(maps.Keys(real)) {
		name := pkg
		if pkg == "." {
			name = "seb"
		}
		if !strings.Contains(page, "`"+name+"`") {
			findings = append(findings, fmt.Sprintf("package %s is not named", pkg))
		}
		arrows, ok := drawn[pkg]
		switch {
		case slices.Contains(forTests, pkg):
		case !ok:
			findings = append(findings, fmt.Sprintf("package %s is not drawn", pkg))
		case !slices.Equal(arrows, real[pkg]):
			findings = append(findings, fmt.Sprintf("package %s imports %v, and is drawn to import %v", pkg, real[pkg], arrows))
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(drawn)) {
		if _, ok := real[pkg]; !ok {
			findings = append(findings, fmt.Sprintf("package %s is drawn, and does not exist", pkg))
		}
	}
	return findings
}

func TestArchitectureDrawsThePackages(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range checkArchitecture(realTree(t), string(page)) {
		t.Errorf("docs/architecture.md: %s", finding)
	}
}

func TestArchitectureCheckFinds(t *testing.T) {
	const page = "```mermaid\nflowchart TD\n  cmd[\"cmd/seb\"] --> seb & objstore\n  cmd -->|tools only| fsck[\"internal/fsck\"]\n" +
		"  seb --> objstore\n  fsck --> objstore\n```\n`cmd/seb` `seb` `objstore` `internal/fsck` `internal/test/sim`\n"
	const mod = modulePath
	files := func(seb string) []string {
		return []string{
			"a.go", "package seb\n" + seb,
			"a_test.go", fmt.Sprintf("package seb\nimport _ %q", mod+"/internal/fsck"),
			"cmd/seb/main.go", fmt.Sprintf("package main\nimport (_ %q; _ %q; _ %q)", mod, mod+"/objstore", mod+"/internal/fsck"),
			"internal/fsck/a.go", fmt.Sprintf("package fsck\nimport _ %q", mod+"/objstore"),
			"internal/test/sim/a.go", fmt.Sprintf("package sim\nimport _ %q", mod),
			"objstore/a.go", "package objstore",
		}
	}
	uses := fmt.Sprintf("import _ %q", mod+"/objstore")
	want(t, checkArchitecture(fakeTree(t, files(uses)...), page))
	want(t, checkArchitecture(fakeTree(t, files("")...), page), "package . imports [], and is drawn to import [objstore]")
	want(t, checkArchitecture(fakeTree(t, append(files(uses), "internal/new/a.go", "package new")...), page),
		"internal/new is not named", "internal/new is not drawn")
	want(t, checkArchitecture(fakeTree(t, files(uses)...), strings.Replace(page, "  fsck -->", "  gone --> objstore\n  fsck -->", 1)),
		"gone is drawn, and does not exist")
}
