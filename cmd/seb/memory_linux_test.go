package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// BenchmarkIdleMemory measures what a broker that has just started, and has
// nothing to do, takes of the machine's memory.
func BenchmarkIdleMemory(b *testing.B) {
	for range b.N {
		p, err := startServe(b.Context(), b.TempDir(), os.Environ())
		if err != nil {
			b.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		p.kill()
		if err != nil {
			b.Fatal(err)
		}
		found := regexp.MustCompile(`VmRSS:\s*(\d+) kB`).FindSubmatch(status)
		if found == nil {
			b.Fatalf("no VmRSS in %s", status)
		}
		kib, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(kib/1024, "MiB-resident")
	}
}
