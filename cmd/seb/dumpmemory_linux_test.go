package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// A large file that begins like a checkpoint is in memory once, however its bytes are damaged.
func TestDumpHoldsALargeFileOnce(t *testing.T) {
	const size = 256 << 20
	name := filepath.Join(t.TempDir(), "checkpoint")
	start := format.EncodeCheckpoint(&format.Checkpoint{Body: make([]byte, size-format.CheckpointBodyStart)})
	if err := os.WriteFile(name, append(start, 1), 0o600); err != nil { // the checksum is that of zeros
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Skip(err) // the file system has no room for a hole of that size
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if r := runSeb(t, nil, "dump", name); r.code != exitDamage {
		t.Errorf("%+v", r)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size+size/2 { // what else the process allocates meanwhile counts, too
		t.Errorf("dump took %d MiB for a file of %d MiB", took>>20, size>>20)
	}
}
