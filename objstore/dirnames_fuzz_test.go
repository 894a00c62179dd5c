package objstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/objstore"
)

// A file that another program puts into a store's directory is an object if its name is a
// key. Any other file is ignored, and disturbs nothing.
func FuzzDirNames(f *testing.F) {
	for _, name := range []string{"00000000000000000001", "seb.json", ".tmp", "a b", "a~", "ä", "\xff", "A", strings.Repeat("k", 255)} {
		f.Add(name)
	}
	dir := f.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := store.Create(f.Context(), "log/first", []byte("x")); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		file := filepath.Join(dir, "log", name)
		if len(name) > 255 || strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." || name == "first" {
			return // does not name a file in the directory
		}
		if err := os.WriteFile(file, []byte("foreign"), 0o600); err != nil {
			t.Skip(err) // the file system does not allow this name
		}
		defer func() {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}()
		want := []string{"log/first"}
		if objstore.CheckKey("log/"+name) == nil {
			want = append(want, "log/"+name)
			slices.Sort(want)
		}
		page, err := store.List(t.Context(), "log/", "", 0)
		if err != nil || !slices.Equal(page.Keys, want) || page.More {
			t.Fatalf("%q is listed as %q, %v", name, page.Keys, err)
		}
		if len(want) == 1 {
			return
		}
		if _, err := store.Create(t.Context(), "log/"+name, []byte("ours")); !errors.Is(err, objstore.ErrExists) {
			t.Fatalf("create over %q: %v", name, err)
		}
		if o, err := store.Get(t.Context(), "log/"+name, 0, -1); err != nil || string(o.Body) != "foreign" {
			t.Fatalf("%q holds %q, %v", name, o.Body, err)
		}
	})
}
