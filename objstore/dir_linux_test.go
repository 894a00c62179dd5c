package objstore

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// A file size limit stands in for a full disk: both fail a write.
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
