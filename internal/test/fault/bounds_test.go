package fault_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// Anybody may put an object of any size into the bucket. A Get without a bound would fill the memory.
func TestEveryGetHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		faulty.On(objstore.VerbGet, "", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			if r.N < 0 {
				t.Errorf("Get %s has no bound", r.Key)
			}
			return next(ctx, r)
		})
		opts := immediate()
		opts.CheckpointCommits = 2
		b := openOnly(t, faulty, opts)
		faulty.On(objstore.VerbCreate, format.DataPrefix, storetest.Times(1, storetest.LoseReply))
		mustAppend(t, b, "t", "small", strings.Repeat("large", 1<<20))
		mustAppend(t, b, "t", "more")
		synctest.Wait()
		kill(t, b)
		b = openOnly(t, faulty, opts)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newDirectoryLog makes a log of a few commits, with a checkpoint, in a directory.
func newDirectoryLog(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := openDirStore(t, root)
	b, err := seb.Open(t.Context(), dir, immediate())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, b, "t", "one", "two")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return root
}

func openDirStore(t *testing.T, root string) objstore.Store {
	t.Helper()
	dir, err := objstore.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestHugeObjectsAreRefused(t *testing.T) {
	for _, pattern := range []string{format.ClusterKey, format.CheckpointPrefix + "*"} {
		t.Run(pattern, func(t *testing.T) {
			root := newDirectoryLog(t)
			file := soleFile(t, root, pattern)
			if err := os.Truncate(file, 100<<30); err != nil {
				t.Skip(err) // the file system does not support a sparse file of that size
			}
			_, err := seb.Open(t.Context(), openDirStore(t, root), immediate())
			wantText(t, err, filepath.Base(file), "107374182400 bytes")
			if !errors.Is(err, objstore.ErrTooLarge) {
				t.Errorf("Open = %v", err)
			}
		})
	}
}

// soleFile returns the only file of a store that matches pattern.
func soleFile(t *testing.T, root, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s is %v, %v", pattern, files, err)
	}
	return files[0]
}
