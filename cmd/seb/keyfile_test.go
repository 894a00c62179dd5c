package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A key file that others may read is used, but not without a warning.
func TestKeyFileOfOthersIsWarnedOf(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes of files")
	}
	broker := serve(t, nil, "--store", "memory:")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, warnings := range map[os.FileMode]int{0o600: 0, 0o640: 0, 0o604: 1, 0o666: 1, 0o602: 1} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		r := runSeb(t, nil, "topic", "list", "--server", broker.url, "--key-file", file)
		if got := strings.Count(r.err, "warning: the mode of the key file"); got != warnings {
			t.Errorf("mode %#o: %d warnings: %q", mode, got, r.err)
		}
	}
	t.Setenv("SEB_KEY_FILE", file)
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if r := runSeb(t, nil, "topic", "list", "--server", broker.url, "--api-key", "another"); strings.Contains(r.err, "the mode of the key file") {
		t.Errorf("the key file is not read, but there is a warning: %q", r.err)
	}
	broker.stopped(t)
}
