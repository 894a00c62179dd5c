package objstore

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A limit on the size of files stands in for a full disk: both make a write fail.
func TestDirGoesOnAfterWriteErrors(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4 << 20, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	body := bytes.Repeat([]byte("x"), 3<<20)
	_, err := d.Create(t.Context(), "log/1", body, body)
	if !errors.Is(err, syscall.EFBIG) || errors.Is(err, ErrExists) || errors.Is(err, ErrStopped) {
		t.Errorf("Create on a full disk = %v, want the plain error", err)
	}
	if left := tempFiles(t, root); len(left) != 0 {
		t.Errorf("temporary files left behind: %q", left)
	}
	mustCreate(t, d, "log/1")
	mustGet(t, d, "log/1")
}

// Objects hold records and secrets, such as those that sign pushed records. So only the owner may access the
// files.
func TestDirFilesAreTheOwnersWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	root := filepath.Join(t.TempDir(), "above", "store")
	d := openTestDir(t, root, (*os.File).Sync)
	mustCreate(t, d, "log/1")
	for name, want := range map[string]os.FileMode{
		"..": 0o700, ".": 0o700, ".tmp": 0o700, "log": 0o700, "log/1": 0o600,
	} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want mode %o", name, info.Mode(), err, want)
		}
	}
}
