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
		kib := statusKiB(b, p.cmd.Process.Pid, "VmRSS")
		p.kill()
		b.ReportMetric(float64(kib)/1024, "MiB-resident")
	}
}

// statusKiB returns what the system says about a process's memory, such as VmRSS, in KiB.
func statusKiB(t testing.TB, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(name + `:\s*(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no %s in %s", name, status)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
