package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A large file that is not an object is refused by its first bytes, without reading it into memory.
func TestLargeFilesAreJudgedByTheirFirstBytes(t *testing.T) {
	root := newObstructedLog(t)
	const most = 64 << 20 // bytes
	name := slotAfter(keysIn(t, root, "log"))[len("log/"):]
	zeros := filepath.Join(root, "checkpoint", name)
	if err := os.WriteFile(zeros, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(zeros, 1<<30); err != nil {
		t.Skip(err) // the file system has no room for a hole of that size
	}
	within := func(what string, run func()) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s took %d bytes of memory", what, took)
		}
	}
	slots := keysIn(t, root, "log")
	large := slots[len(slots)-1]
	if err := os.Truncate(filepath.Join(root, large), 1<<30); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"dump", zeros}, {"dump", "--store", root, "checkpoint/" + name}, {"dump", filepath.Join(root, large)}, {"dump", "--store", root, large}, {"fsck", "--store", root},
	} {
		within(args[0], func() {
			if r := runSeb(t, nil, args...); r.code != exitDamage {
				t.Errorf("%v: %+v", args, r)
			}
		})
	}
	within("a start", func() {
		store, err := objstore.OpenDir(root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = seb.Open(t.Context(), store, seb.Options{Batching: seb.Immediate(), Memory: 16 << 20}); seb.CodeOf(err) != seb.CodeBrokerStopped {
			t.Errorf("a start: %v", err)
		}
	})
}
