package objstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDirFindsTheFirstMissingObject(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	for _, key := range []string{"log/1", "log/2", "log/4"} {
		mustCreate(t, d, key)
	}
	if err := os.Mkdir(filepath.Join(root, "log/3"), dirMode); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		keys []string
		want int
	}{
		{nil, 0},
		{[]string{"log/1", "log/2"}, 2},
		{[]string{"log/1", "log/5", "log/2"}, 1},
		{[]string{"log/3"}, 0}, // a directory
		{[]string{"none/1"}, 0},
	} {
		if got, err := d.FirstMissing(t.Context(), test.keys); err != nil || got != test.want {
			t.Errorf("FirstMissing(%q) = %d, %v, want %d", test.keys, got, err, test.want)
		}
	}
	if _, err := d.FirstMissing(t.Context(), []string{"log/1/1"}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("FirstMissing below an object = %v", err)
	}
	if _, err := d.FirstMissing(t.Context(), []string{"../x"}); err == nil {
		t.Error("a key that leaves the directory is looked for")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.FirstMissing(canceled, []string{"log/1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("FirstMissing under a context that has ended = %v", err)
	}
	if err := os.Rename(root, root+"-moved"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Rename(root+"-moved", root) }()
	if _, err := d.FirstMissing(t.Context(), []string{"log/1"}); !errors.Is(err, ErrStopped) {
		t.Errorf("FirstMissing in a directory that was moved = %v", err)
	}
}
