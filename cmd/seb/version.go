package main

import (
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

// version is the module's version as the Go toolchain stamped it into the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
