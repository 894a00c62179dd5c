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
		kib := residentKiB(b, p.cmd.Process.Pid)
		p.kill()
		b.ReportMetric(float64(kib)/1024, "MiB-resident")
	}
}

// residentKiB returns how much of the machine's memory a process has.
func residentKiB(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmRSS:\s*(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
