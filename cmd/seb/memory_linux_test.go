package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// BenchmarkIdleMemory measures the resident memory of a broker that has just started and is idle.
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

// residentKiB returns the resident memory of a process in KiB.
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
