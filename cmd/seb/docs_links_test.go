package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Links between the pages lead to existing pages and headings.
func TestDocLinks(t *testing.T) {
	pages := docPages(t)
	headings := map[string]map[string]bool{}
	texts := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(text)
		headings[page] = map[string]bool{}
		for _, h := range docHeading.FindAllStringSubmatch(string(text), -1) {
			slug := notInSlug.ReplaceAllLiteralString(strings.ToLower(h[1]), "")
			headings[page][strings.ReplaceAll(slug, " ", "-")] = true
		}
	}
	for _, page := range pages {
		for _, link := range docLink.FindAllStringSubmatch(texts[page], -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, link[1])
			} else if known := headings[file]; anchor != "" && known != nil && !known[anchor] {
				t.Errorf("%s: %s has no such heading", page, link[1])
			}
		}
	}
}

// The index of docs/ leads to every page.
func TestDocsAreReachedFromTheirIndex(t *testing.T) {
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{"README.md": true, "docs/README.md": true}
	for _, link := range docLink.FindAllStringSubmatch(string(index), -1) {
		target, _, _ := strings.Cut(link[1], "#")
		linked[path.Join("docs", target)] = true
	}
	for _, page := range docPages(t) {
		if !linked[page] {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
}

// docs/flags.md has every flag of seb serve.
func TestDocsHaveEveryFlagOfServe(t *testing.T) {
	page, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range slices.Concat(leaves(t)["serve"].AllFlags(true)...) {
		if flag.Name != "help" && !strings.Contains(string(page), "`--"+flag.Name+"`") {
			t.Errorf("docs/flags.md lacks --%s", flag.Name)
		}
	}
}
