package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// releaseGo stands for the go command: it "builds" a text that depends on the environment and the source, and on what
// the test adds as BUILD.
const releaseGo = `#!/usr/bin/env bash
set -e
case $1 in
version) printf '%s: go1.26\n\tpath\tx\n\tmod\tgithub.com/simple-event-broker/seb\t%s\t\n' "$3" "$VERSION" ;;
build)
	while [[ $# -gt 0 ]]; do
		case $1 in -C) dir=$2 ;; -o) out=$2 ;; esac
		shift
	done
	mkdir -p "$(dirname "$out")"
	echo "$GOOS/$GOARCH cgo=$CGO_ENABLED $(cat "$dir/main.go") $(eval "$BUILD")" >"$out"
	;;
esac
`

// scripts/release fails unless two builds are equal and have a version from git. It builds what is committed.
func TestReleaseIsBuiltTwiceAndCompared(t *testing.T) {
	tests := map[string]struct {
		build, version, fails string
	}{
		"equal":                        {version: "v0.1.0"},
		"dependent on the directory":   {build: `echo "$dir"`, version: "v0.1.0", fails: "differ"},
		"dependent on the build cache": {build: `echo "$GOCACHE"`, version: "v0.1.0", fails: "differ"},
		"without a version":            {version: "(devel)", fails: "not one from git"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := releaseTree(t)
			cmd := exec.CommandContext(t.Context(), "bash", "scripts/release", "linux/arm64", "windows/amd64")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "fake")+string(os.PathListSeparator)+os.Getenv("PATH"),
				"BUILD="+test.build, "VERSION="+test.version, "CGO_ENABLED=1", "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if (err != nil) != (test.fails != "") || !strings.Contains(string(out), test.fails) {
				t.Fatalf("the script ended with %v, want the failure %q:\n%s", err, test.fails, out)
			}
			for file, text := range map[string]string{
				"seb-v0.1.0-linux-arm64":       "linux/arm64 cgo=0 committed \n",
				"seb-v0.1.0-windows-amd64.exe": "windows/amd64 cgo=0 committed \n",
			} {
				got, err := os.ReadFile(filepath.Join(dir, "bin/release/v0.1.0", file))
				if test.fails == "" && (err != nil || string(got) != text) {
					t.Errorf("%s has %q, %v, want %q", file, got, err, text)
				}
				if test.fails != "" && err == nil {
					t.Errorf("%s was written", file)
				}
			}
			if test.fails != "" {
				return
			}
			check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
			check.Dir = filepath.Join(dir, "bin/release/v0.1.0")
			if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 2 {
				t.Errorf("the checksums are wrong: %v\n%s", err, out)
			}
		})
	}
}

// releaseTree returns a git repository with the script, a source file that differs from the committed one, and a
// go command that builds texts.
func releaseTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile("../../scripts/release")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("scripts/release", string(script))
	write("mise.toml", "[tools]\ngo = \"1.26.8\"\n")
	write("main.go", "committed")
	git := exec.CommandContext(t.Context(), "bash", "-c",
		"git init -q && git add . && git -c user.name=a -c user.email=a@example.com commit -q --no-gpg-sign -m a")
	git.Dir = dir
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
	write("main.go", "changed since")
	write("fake/go", releaseGo)
	return dir
}
