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

// makeSpecial puts files of every kind that is not regular into log/ of a
// store, and returns what each is.
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

// A name that is taken by what is no object would be found free by a List that
// left it out, and then refuse every Create.
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

// A List goes down into directories, and does not show the one that stands under a key.
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
