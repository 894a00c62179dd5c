package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// forged returns an entry with r and b whose checksums are right, but not its MAC.
func forged(r Range, b []byte) []byte {
	return append(entryHeader(testKey, cluster, r, b), b...)
}

// A user who can write files with right checksums must not control what Get returns.
func TestForgedEntriesAreMisses(t *testing.T) {
	dir := t.TempDir()
	c, _ := openOnDisk(t, dir, 1<<20)
	addBatches(c, 0, 2, 100)
	closeCache(t, c)
	r, b := batch(7, 100)
	damage(t, volumeFiles(t, dir)[0], func(p []byte) []byte { return append(p, forged(r, b)...) })
	c, log := openOnDisk(t, dir, 1<<20)
	if got := c.Get(r); got != nil {
		t.Error("a forged entry is served")
	}
	if s := c.Stats(); s.DiskCorrupt != 1 || !strings.Contains(log.lines()[0], "MAC") {
		t.Errorf("%+v, log %v", s, log.lines())
	}
	if hits := countHits(t, c, 0, 2, 100); hits != 2 {
		t.Errorf("%d hits of 2 that the cache wrote", hits)
	}
	if c.AddFetched(r, b); c.Get(r) == nil {
		t.Error("the batch is not found after it was fetched")
	}
}

func TestKeyIsKeptAndPrivate(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, keyName)
	c, _ := openOnDisk(t, dir, 1<<20)
	addBatches(c, 0, 2, 100)
	first := c.disk.key.secret
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != int64(len(first)) || first == [32]byte{} {
		t.Fatalf("key file: %v, %v", info, err)
	}
	closeCache(t, c)
	c, _ = openOnDisk(t, dir, 1<<20)
	if c.disk.key.secret != first {
		t.Error("the next process has another key")
	}
	closeCache(t, c)
	if err := os.Truncate(file, 5); err != nil {
		t.Fatal(err)
	}
	c, _ = openOnDisk(t, dir, 1<<20)
	if hits := countHits(t, c, 0, 2, 100); hits != 0 {
		t.Errorf("%d hits under a new key", hits)
	}
	addBatches(c, 0, 2, 100)
	if hits := countHits(t, c, 0, 2, 100); hits != 2 {
		t.Errorf("%d hits of 2", hits)
	}
}

func TestUnsafeDirectoryIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"group may write":     func(dir string) error { return os.Chmod(dir, 0o770) },
		"others may write":    func(dir string) error { return os.Chmod(dir, 0o707) },
		"sticky, all write":   func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) },
		"key that others see": func(dir string) error { return os.WriteFile(filepath.Join(dir, keyName), make([]byte, 32), 0o644) },
		"key that is a link": func(dir string) error {
			file := filepath.Join(t.TempDir(), "key")
			return errors.Join(os.WriteFile(file, make([]byte, 32), 0o600), os.Symlink(file, filepath.Join(dir, keyName)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Open(Options{Cluster: cluster, Dir: dir, DiskBytes: 1 << 20})
			if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Open = %v", err)
			}
		})
	}
	t.Run("another user's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("needs root, who may give a directory away")
		}
		dir := t.TempDir()
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Cluster: cluster, Dir: dir, DiskBytes: 1 << 20}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "another user") {
			t.Errorf("Open = %v", err)
		}
	})
}
