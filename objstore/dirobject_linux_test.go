package objstore

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// makeSpecial creates, in log/ of a store, one file of every kind that is not a regular file. It returns the
// kind of each file.
func makeSpecial(t *testing.T, root string) map[string]string {
	t.Helper()
	log := filepath.Join(root, "log")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(log, dirMode))
	must(syscall.Mkfifo(filepath.Join(log, "fifo"), 0o600))
	must(os.Symlink("fifo", filepath.Join(log, "link-to-fifo")))
	must(os.Symlink("/etc/passwd", filepath.Join(log, "link-out")))
	must(os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(os.Symlink("../file", filepath.Join(log, "link-to-file")))
	must(os.Symlink("/dev/zero", filepath.Join(log, "link-to-device")))
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(log, "socket"), Net: "unix"})
	must(err)
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	})
	must(os.Mkdir(filepath.Join(log, "directory"), dirMode))
	return map[string]string{
		"log/fifo": "a FIFO", "log/link-to-fifo": "a symbolic link", "log/socket": "a socket", "log/directory": "a directory",
		"log/link-out": "a symbolic link", "log/link-to-device": "a symbolic link", "log/link-to-file": "a symbolic link",
	}
}

func TestSpecialFilesAreRefusedByName(t *testing.T) {
	root := t.TempDir()
	special := makeSpecial(t, root)
	writable := openTestDir(t, root, (*os.File).Sync)
	reader, err := OpenDirReadOnly(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}()
	for key, kind := range special {
		for _, store := range []*Dir{writable, reader} {
			_, err := store.Get(t.Context(), key, 0, -1)
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), filepath.Join(root, key)+" is "+kind) {
				t.Errorf("Get(%s) = %v", key, err)
			}
		}
		if _, err := writable.Create(t.Context(), key, []byte("x")); !errors.Is(err, ErrNotRegular) || errors.Is(err, ErrExists) {
			t.Errorf("Create(%s) = %v", key, err)
		}
	}
}

// If List left out a name whose file is not an object, the key would seem to be free, but every Create
// of it would fail.
func TestSpecialFilesAreListed(t *testing.T) {
	root := t.TempDir()
	makeSpecial(t, root)
	page, err := openTestDir(t, root, (*os.File).Sync).List(t.Context(), "log/", "", 0)
	want := []string{"log/fifo", "log/link-out", "log/link-to-device", "log/link-to-fifo", "log/link-to-file", "log/socket"}
	if err != nil || !slices.Equal(page.Keys, want) {
		t.Fatalf("listed %q, %v", page.Keys, err)
	}
}

func TestFIFOWhereADirectoryShouldBeKeepsNobodyWaiting(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "log"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := openTestDir(t, root, (*os.File).Sync)
	wrong := filepath.Join(root, "log") + " is a FIFO, and must be a directory"
	if page, err := d.List(t.Context(), "log/", "", 0); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), wrong) {
		t.Errorf("listed %q, %v", page.Keys, err)
	}
	if _, err := d.Create(t.Context(), "log/1"); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), wrong) {
		t.Errorf("Create below a FIFO = %v", err)
	}
	if _, err := d.Get(t.Context(), "log/1", 0, -1); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), wrong) {
		t.Errorf("Get below a FIFO = %v", err)
	}
	temp := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(temp, dirMode); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(temp, tempDir), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(temp); err == nil || !strings.Contains(err.Error(), "is a FIFO") {
		t.Errorf("OpenDir where %s is a FIFO = %v", tempDir, err)
	}
}

// Unlike List, Walk also shows a directory whose path could be a key.
func TestWalkShowsWhatIsNoObject(t *testing.T) {
	root := t.TempDir()
	special := makeSpecial(t, root)
	special["log"] = "a directory"
	special["file"] = "a file"
	d := openTestDir(t, root, (*os.File).Sync)
	got := map[string]string{}
	if err := d.Walk(t.Context(), func(path string, mode fs.FileMode) { got[path] = KindOf(mode) }); err != nil || !maps.Equal(got, special) {
		t.Errorf("Walk = %v, %v, want %v", got, err, special)
	}
}

// Every request refuses a key below something that is not a directory. If it did not, objects would seem to
// be missing, or would be written to the wrong place.
func TestWhatIsNoDirectoryIsRefusedByEveryRequest(t *testing.T) {
	outside := t.TempDir()
	writeFile(t, outside, "1")
	for kind, put := range map[string]func(path string) error{
		"a file":                             func(path string) error { return os.WriteFile(path, []byte("body"), 0o600) },
		"a FIFO":                             func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symbolic link inside":             func(path string) error { return os.Symlink("there", path) },
		"a symbolic link outside":            func(path string) error { return os.Symlink(outside, path) },
		"a symbolic link that leads nowhere": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		for _, wrong := range []string{"log", "log/sub"} {
			for name, request := range map[string]func(d *Dir, key string) error{
				"Create": func(d *Dir, key string) error { _, err := d.Create(t.Context(), key, []byte("x")); return err },
				"Get":    func(d *Dir, key string) error { _, err := d.Get(t.Context(), key, 0, -1); return err },
				"List": func(d *Dir, key string) error {
					_, err := d.List(t.Context(), filepath.Dir(key)+"/", "", 0)
					return err
				},
				"Delete": func(d *Dir, key string) error { _, err := d.Delete(t.Context(), key); return err },
				"FirstMissing": func(d *Dir, key string) error {
					_, err := d.FirstMissing(t.Context(), []string{key})
					return err
				},
			} {
				for _, used := range []bool{false, true} { // whether the store used the directory before it was replaced
					root := t.TempDir()
					d := openTestDir(t, root, (*os.File).Sync)
					mustCreate(t, d, "there/1")
					mustCreate(t, d, "log/1")
					if used {
						mustCreate(t, d, wrong+"/1"+"1")
					}
					path := filepath.Join(root, wrong)
					if err := errors.Join(os.RemoveAll(path), put(path)); err != nil {
						t.Fatal(err)
					}
					kindOf, _, _ := strings.Cut(kind, " link")
					err := request(d, wrong+"/1")
					if !errors.Is(err, ErrNotRegular) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists) ||
						!strings.Contains(err.Error(), path+" is "+kindOf) || !strings.Contains(err.Error(), "must be a directory") {
						t.Errorf("%s where %s is %s, used is %v: %v", name, wrong, kind, used, err)
					}
				}
			}
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside of the store: %v, %v", entries, err)
	}
}
