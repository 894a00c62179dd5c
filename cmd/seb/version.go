package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{ outputFlag }

// Help shows examples.
func (versionCmd) Help() string {
	return `Examples:

    seb version
    seb version --output json`
}

// Run prints one line, or its words as JSON.
func (c versionCmd) Run(std streams) error {
	if c.json() {
		return printJSON(std.out, map[string]string{
			"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintln(std.out, versionLine())
	return err
}

// versionLine is what people see, also from seb --version.
func versionLine() string {
	return fmt.Sprintf("seb %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// gitVersion is what git describe says about the source. The Makefile sets it with the linker's flag -X: in
// a worktree of git, the Go toolchain does not find the commit by itself.
var gitVersion string

// version is the version that the Go toolchain stamped into the binary, which is that of the module or of the
// commit; else gitVersion.
func version() string {
	stamped := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		stamped = info.Main.Version
	}
	return versionOf(stamped, gitVersion)
}

func versionOf(stamped, git string) string {
	if stamped == "(devel)" { // the toolchain knows no version
		stamped = ""
	}
	return cmp.Or(stamped, git, "unknown")
}
