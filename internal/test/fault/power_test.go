package fault_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
)

// zeroed overwrites the bytes of a file with zeros, beginning with the byte from. Some file systems leave
// such a file if the name and size reached the disk before the bytes. If cut is true, these bytes are
// cut off instead.
func zeroed(t *testing.T, path string, from int, cut bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if from >= len(b) {
		t.Fatalf("%s has %d bytes only", path, len(b))
	}
	whole := len(b)
	b = b[:from]
	if !cut {
		b = append(b, make([]byte, whole-from)...)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// pagesValue makes a commit of several pages, with its head in the first page.
var pagesValue = large("pages", 20<<10)

// powerLog makes a log of five slots in a directory: a topic, a small commit, a commit with a data
// object, a commit of several pages, and a small commit.
func powerLog(t *testing.T, checkpoint bool) (dir string) {
	t.Helper()
	dir = t.TempDir()
	b := openOnly(t, openDir(t, dir), immediate())
	mustCreateTopic(t, b, "t", 1)
	for _, v := range []string{"first", large("object", 5<<20), pagesValue, "last"} {
		mustAppend(t, b, "t", v)
	}
	if !checkpoint {
		kill(t, b)
	} else if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A disk that lied about an fsync, or a file system that lost one, can leave a file with the right
// name and size, but without its bytes. Such a file is neither a record nor the end of the log: the
// broker refuses the log, and overwrites nothing.
func TestZeroFilledFileAfterPowerLossIsNotTrusted(t *testing.T) {
	last, middle := format.LogKey(5), format.LogKey(3)
	checkpoint := format.CheckpointKey(5)
	tests := map[string]struct {
		checkpoint bool
		key        string
		from       int
		cut        bool
	}{
		"last commit":                   {false, last, 0, false},
		"last commit after its magic":   {false, last, 4, false},
		"tail of the last commit":       {false, last, 64, false},
		"last commit from its rows on":  {false, last, 100, false},
		"last commit, no bytes":         {false, last, 0, true},
		"last commit, half of its head": {false, last, 64, true},
		"last commit, one page of six":  {false, format.LogKey(4), 4096, true},
		"commit in the middle":          {false, middle, 0, false},
		"commit after a checkpoint":     {true, format.LogKey(6), 0, false},
		"checkpoint":                    {true, checkpoint, 0, false},
		"tail of the checkpoint":        {true, checkpoint, 100, false},
		"checkpoint, no bytes":          {true, checkpoint, 0, true},
		"seb.json":                      {false, format.ClusterKey, 0, false},
		"seb.json, no bytes":            {false, format.ClusterKey, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := powerLog(t, test.checkpoint)
				path := filepath.Join(dir, filepath.FromSlash(test.key))
				if test.key == format.LogKey(6) {
					b := openOnly(t, openDir(t, dir), immediate())
					mustAppend(t, b, "t", "after")
					kill(t, b)
				}
				zeroed(t, path, test.from, test.cut)
				store := openDir(t, dir)
				before := keys(t, store, "")
				b, err := seb.Open(t.Context(), store, immediate())
				if err == nil {
					kill(t, b)
				}
				wantText(t, err, test.key)
				wantCode(t, err, seb.CodeBrokerStopped)
				if after := keys(t, store, ""); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("the store was changed: %v, before %v", after, before)
				}
			})
		})
	}
}

// If only the bytes of records are lost, only their reads fail. Everything else works, and no zeros
// are ever served.
func TestZeroFilledRecordsAfterPowerLossAreNotServed(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, dir string)
		lost   seb.Offset
	}{
		"data object": {func(t *testing.T, dir string) {
			zeroed(t, onlyFile(t, dir, "data"), 0, false)
		}, 1},
		"tail of a data object": {func(t *testing.T, dir string) {
			zeroed(t, onlyFile(t, dir, "data"), 4<<20, false)
		}, 1},
		"data object, no bytes": {func(t *testing.T, dir string) {
			zeroed(t, onlyFile(t, dir, "data"), 0, true)
		}, 1},
		"pages of a commit": {func(t *testing.T, dir string) {
			zeroed(t, filepath.Join(dir, filepath.FromSlash(format.LogKey(4))), 4096, false)
		}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := powerLog(t, false)
				test.damage(t, dir)
				b := open(t, openDir(t, dir), immediate())
				if at := mustAppend(t, b, "t", "after"); at != 4 {
					t.Errorf("the log goes on at %d", at)
				}
				for at, want := range []string{"first", large("object", 5<<20), pagesValue, "last", "after"} {
					f, err := b.Fetch(t.Context(), "t", 0, seb.At(seb.Offset(at)), seb.FetchOptions{MaxBytes: 1})
					if seb.Offset(at) == test.lost {
						wantCode(t, err, seb.CodeDataLost)
						continue
					}
					if err != nil || string(f.Records[0].Value) != want {
						t.Errorf("offset %d: %v", at, err)
					}
				}
			})
		})
	}
}

func onlyFile(t *testing.T, dir, sub string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, sub, "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files in %s: %s, %v", sub, strings.Join(found, " "), err)
	}
	return found[0]
}
