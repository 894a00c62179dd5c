package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// syncLog is an fsync that records the names of its files and fails on demand.
type syncLog struct {
	mu    sync.Mutex
	names []string           // base names of the fsynced files
	fail  func(string) error // unless nil, returns the error of an fsync by base name
}

func (l *syncLog) fsync(f *os.File) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := filepath.Base(f.Name())
	l.names = append(l.names, name)
	if l.fail != nil {
		if err := l.fail(name); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (l *syncLog) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := 0
	for _, n := range l.names {
		if n == name {
			count++
		}
	}
	return count
}

func openTestDir(t *testing.T, path string, fsync func(*os.File) error) *Dir {
	t.Helper()
	d, err := openDir(path, fsync)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mustCreate(t *testing.T, s Store, key string) {
	t.Helper()
	if _, err := s.Create(t.Context(), key, []byte("body")); err != nil {
		t.Fatal(err)
	}
}

func mustGet(t *testing.T, s Store, key string) {
	t.Helper()
	if object, err := s.Get(t.Context(), key, 0, -1); err != nil || string(object.Body) != "body" {
		t.Fatalf("Get(%s) = %q, %v", key, object.Body, err)
	}
}

func writeFile(t *testing.T, parts ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(parts...), []byte("body"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tempFiles(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, tempDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestDirCreateSyncsBytesThenName(t *testing.T) {
	root := t.TempDir()
	var steps []string
	d := openTestDir(t, root, func(f *os.File) error {
		_, err := os.Stat(filepath.Join(root, "log", "1"))
		steps = append(steps, fmt.Sprintf("%s linked=%v", filepath.Base(filepath.Dir(f.Name()))+"/"+filepath.Base(f.Name()), err == nil))
		return f.Sync()
	})
	d.tempPrefix = "t" // so that the test knows the names
	steps = nil
	mustCreate(t, d, "log/1")
	base := filepath.Base(root)
	want := []string{
		base + "/. linked=false", // log/ is new, so its name is fsynced first
		".tmp/t2 linked=false",
		base + "/log linked=true",
	}
	if !slices.Equal(steps, want) {
		t.Errorf("fsyncs:\n%q, want\n%q", steps, want)
	}
	if left := tempFiles(t, root); len(left) != 0 {
		t.Errorf("temporary files left behind: %q", left)
	}
}

func TestDirOpenSyncsNewParents(t *testing.T) {
	root := t.TempDir()
	var log syncLog
	openTestDir(t, filepath.Join(root, "a", "b", "store"), log.fsync)
	for _, name := range []string{filepath.Base(root), "a", "b"} {
		if log.count(name) != 1 {
			t.Errorf("%s, in which a directory was made, was fsynced %d times", name, log.count(name))
		}
	}
}

// Another process may have linked a name to a file, and not fsynced the directory yet.
func TestDirSyncsFoundNames(t *testing.T) {
	root := t.TempDir()
	var log syncLog
	d := openTestDir(t, root, log.fsync)
	mustCreate(t, d, "log/1")
	before := log.count("log")

	writeFile(t, root, "log", "2")
	mustGet(t, d, "log/2")
	if got := log.count("log") - before; got != 1 {
		t.Errorf("found: directory fsynced %d times, want once", got)
	}
	writeFile(t, root, "log", "3")
	if _, err := d.Create(t.Context(), "log/3", nil); !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
	if got := log.count("log") - before; got != 2 {
		t.Errorf("exists: directory fsynced %d times, want once more", got)
	}
	for _, key := range []string{"log/1", "log/2", "log/3"} {
		mustGet(t, d, key)
	}
	if got := log.count("log") - before; got != 2 {
		t.Errorf("names known to be durable cost %d fsyncs", got-2)
	}

	// Another process deletes log/1 and creates it again.
	if err := os.Remove(filepath.Join(root, "log", "1")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, root, "log", "1")
	if err := os.Chtimes(filepath.Join(root, "log", "1"), time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	mustGet(t, d, "log/1")
	if got := log.count("log") - before; got != 3 {
		t.Errorf("a file was created: its directory was fsynced %d more times, want 1", got-2)
	}
}

func TestDirSyncsFoundDirectoriesToo(t *testing.T) {
	root := t.TempDir()
	var log syncLog
	d := openTestDir(t, root, log.fsync)
	if err := os.MkdirAll(filepath.Join(root, "data", "sub"), dirMode); err != nil {
		t.Fatal(err)
	}
	writeFile(t, root, "data", "sub", "1")
	mustGet(t, d, "data/sub/1")
	if log.count(".") != 1 || log.count("data") != 1 || log.count("sub") != 1 {
		t.Errorf("fsyncs %q; want the directory's and those it stands in", log.names)
	}
}

func TestDirOldNamesNeedNoSync(t *testing.T) {
	root := t.TempDir()
	var log syncLog
	d := openTestDir(t, root, log.fsync)
	mustCreate(t, d, "log/0")
	for _, name := range []string{"1", "2", "3"} {
		writeFile(t, root, "log", name)
	}
	// The store's clock goes ahead, so the files seem to have existed for a while.
	ahead := clockStepMax + time.Minute
	d.now = func() time.Time { return time.Now().Add(ahead) }
	before := log.count("log")
	mustGet(t, d, "log/1") // costs an fsync: the last fsync of the directory came before the link
	mustGet(t, d, "log/2")
	mustGet(t, d, "log/3")
	want := 1
	if info, err := os.Stat(root); err != nil {
		t.Fatal(err)
	} else if _, ok := changeTime(info); !ok {
		want = 3 // without change times every name needs an fsync
	}
	if got := log.count("log") - before; got != want {
		t.Errorf("directory fsynced %d times, want %d", got, want)
	}
	ahead = clockStepMax - time.Minute
	mustCreate(t, d, "log/4") // by the store's clock, this fsync is only 59 minutes later than the link of log/5
	writeFile(t, root, "log", "5")
	before = log.count("log")
	mustGet(t, d, "log/5")
	if got := log.count("log") - before; got != 1 {
		t.Errorf("a name younger than the clock is certain: directory fsynced %d times, want once", got)
	}
}

func TestDirUnchangedDirectoryNeedsNoSync(t *testing.T) {
	root := t.TempDir()
	if info, err := os.Stat(root); err != nil {
		t.Fatal(err)
	} else if _, ok := changeTime(info); !ok {
		t.Skip("no change times")
	}
	var log syncLog
	d := openTestDir(t, root, log.fsync)
	mustCreate(t, d, "log/0")
	d.now = func() time.Time { return time.Now().Add(2 * stampMax) }
	check := func(want int, names ...string) {
		t.Helper()
		for { // until the directory's change time is not in whole microseconds
			info, err := os.Stat(filepath.Join(root, "log"))
			if err != nil {
				t.Fatal(err)
			}
			if changed, _ := changeTime(info); changed.Nanosecond()%1000 != 0 {
				break
			}
			writeFile(t, root, "log", "other")
			if err := os.Remove(filepath.Join(root, "log", "other")); err != nil {
				t.Fatal(err)
			}
		}
		before := log.count("log")
		for _, name := range names {
			mustGet(t, d, "log/"+name)
		}
		if got := log.count("log") - before; got != want {
			t.Errorf("reading %q: directory fsynced %d times, want %d", names, got, want)
		}
	}
	for _, name := range []string{"1", "2", "3"} {
		writeFile(t, root, "log", name)
	}
	check(1, "1", "2", "3")
	writeFile(t, root, "log", "4")
	check(1, "4", "1", "2")
	if err := os.Rename(filepath.Join(root, "log"), filepath.Join(root, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "log"), os.DirFS(filepath.Join(root, "old"))); err != nil {
		t.Fatal(err)
	}
	check(1, "3", "2")
	// Shortly after a change, another change may get the same time. So the directory's change time does not
	// show whether a name was added later, and each Get costs an fsync.
	writeFile(t, root, "log", "5")
	writeFile(t, root, "log", "6")
	info, err := os.Stat(filepath.Join(root, "log"))
	if err != nil {
		t.Fatal(err)
	}
	d.now = func() time.Time { return info.ModTime().Add(stampMax / 2) }
	check(2, "5", "6")
}

func TestDirHoldsFewDirectoriesOpen(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	for round := range 2 {
		for i := range 2 * heldMax {
			dir := fmt.Sprintf("log/%d", i)
			mustCreate(t, d, fmt.Sprintf("%s/%d", dir, round))
			mustGet(t, d, fmt.Sprintf("%s/%d", dir, round))
			if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(root, dir), dirMode); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Get(t.Context(), fmt.Sprintf("%s/%d", dir, round), 0, -1); !errors.Is(err, ErrNotFound) {
				t.Errorf("Get in a directory that was replaced = %v", err)
			}
		}
	}
	if len(d.held) != heldMax {
		t.Errorf("%d directories are held open, want %d", len(d.held), heldMax)
	}
}

func TestChangeTimesThatMayRepeatAreNotTrusted(t *testing.T) {
	synced := time.Unix(1000, 123)
	for changed, want := range map[time.Time]bool{
		time.Unix(997, 456_789_001): true,
		time.Unix(997, 456_789_000): false, // a file system with times in microseconds
		time.Unix(997, 0):           false, // a file system with times in seconds
		time.Unix(999, 456_789_001): false, // too soon before the fsync
	} {
		if got := isUnique(changed, synced); got != want {
			t.Errorf("a change at %v before an fsync at %v: unique is %t, want %t", changed, synced, got, want)
		}
	}
}

func TestDirSharesDirectorySyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		gate := make(chan struct{})
		var log syncLog
		d, err := openDir(root, func(f *os.File) error {
			if filepath.Base(f.Name()) == "log" {
				<-gate
			}
			return log.fsync(f)
		})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		create := func(i int) {
			group.Go(func() { mustCreate(t, d, fmt.Sprintf("log/%d", i)) })
			synctest.Wait() // linked, and waiting for an fsync
		}
		create(0)
		for i := range 10 {
			create(1 + i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			if _, err := d.Create(ctx, "log/gone"); !errors.Is(err, context.Canceled) {
				t.Errorf("Create whose caller left = %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		gate <- struct{}{} // ends the first fsync
		synctest.Wait()
		gate <- struct{}{} // ends the fsync that all later creates share
		group.Wait()
		if got := log.count("log"); got != 2 {
			t.Errorf("11 creates took %d fsyncs of the directory, want 2", got)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDirStopsWhenSyncFails(t *testing.T) {
	broken := errors.New("input/output error")
	tests := map[string]struct {
		fails     func(name string) bool
		mayAppear bool
	}{
		"file":      {func(name string) bool { return strings.HasPrefix(name, "temp") }, false},
		"directory": {func(name string) bool { return name == "log" }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			var log syncLog
			d := openTestDir(t, root, log.fsync)
			d.tempPrefix = "temp"
			mustCreate(t, d, "log/1")
			log.fail = func(name string) error {
				if test.fails(name) {
					return broken
				}
				return nil
			}
			_, err := d.Create(t.Context(), "log/2", []byte("body"))
			if !errors.Is(err, ErrStopped) || !errors.Is(err, broken) || errors.Is(err, ErrExists) {
				t.Errorf("Create = %v, want ErrStopped and the cause", err)
			}
			_, err = os.Stat(filepath.Join(root, "log", "2"))
			if appeared := err == nil; appeared != test.mayAppear {
				t.Errorf("appeared %v, want %v", appeared, test.mayAppear)
			}
			if left := tempFiles(t, root); len(left) != 0 {
				t.Errorf("temporary files left behind: %q", left)
			}

			log.fail = nil // the next fsync would succeed, but prove nothing
			checkStopped(t, d)
		})
	}
}

func checkStopped(t *testing.T, d *Dir) {
	t.Helper()
	_, createErr := d.Create(t.Context(), "log/3")
	_, existsErr := d.Create(t.Context(), "log/1")
	_, getErr := d.Get(t.Context(), "log/1", 0, -1)
	_, listErr := d.List(t.Context(), "log/", "", 0)
	_, deleteErr := d.Delete(t.Context(), "log/1")
	for i, err := range []error{createErr, existsErr, getErr, listErr, deleteErr} {
		if !errors.Is(err, ErrStopped) || errors.Is(err, ErrExists) || errors.Is(err, ErrNotFound) {
			t.Errorf("request %d after a failed fsync = %v, want ErrStopped", i, err)
		}
	}
}

func TestDirAfterCrashes(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	mustCreate(t, d, "log/1")
	// A process that died before link left a temporary file. A process that died between link and unlink
	// left a second name of the object.
	writeFile(t, root, tempDir, "unlinked")
	if err := os.Link(filepath.Join(root, "log", "1"), filepath.Join(root, tempDir, "linked")); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(root, tempDir, "stale")
	writeFile(t, stale)
	old := time.Now().Add(-tempAgeMax - time.Minute)
	if err := os.Chtimes(stale, old, old); err != nil {
		t.Fatal(err)
	}

	d = openTestDir(t, root, (*os.File).Sync)
	if left := tempFiles(t, root); !slices.Equal(left, []string{"linked", "unlinked"}) {
		t.Errorf("temporary files after open: %q, want those that may be in use", left)
	}
	page, err := d.List(t.Context(), "", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{"log/1"}) {
		t.Errorf("List = %q, %v; want the one object", page.Keys, err)
	}
	mustGet(t, d, "log/1")
	if _, err := d.Create(t.Context(), "log/1"); !errors.Is(err, ErrExists) {
		t.Errorf("Create = %v, want ErrExists", err)
	}
}

func TestDirRaceOfProcesses(t *testing.T) {
	root := t.TempDir()
	const processes, racers = 4, 8
	for round := range 20 {
		key := fmt.Sprintf("log/%d", round)
		errs := make([]error, processes*racers)
		var group sync.WaitGroup
		for p := range processes {
			d := openTestDir(t, root, (*os.File).Sync) // separate stores, as in different processes
			for r := range racers {
				group.Go(func() { _, errs[p*racers+r] = d.Create(t.Context(), key, []byte("body")) })
			}
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, ErrExists) {
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("%s has %d winners", key, won)
		}
	}
}

func TestDirRefusesWhatItCantServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file)
	if _, err := OpenDir(file); err == nil || !strings.Contains(err.Error(), "it is a file") {
		t.Errorf("OpenDir of a file = %v", err)
	}
	if _, err := OpenDir(filepath.Join(file, "below")); err == nil {
		t.Error("OpenDir below a file succeeded")
	}
	root := t.TempDir()
	writeFile(t, root, tempDir)
	if _, err := OpenDir(root); err == nil {
		t.Error("OpenDir where no temporary files can be made succeeded")
	}
	if os.Getuid() == 0 {
		return // root may write anywhere
	}
	root = t.TempDir()
	if err := os.Chmod(root, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(root); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("OpenDir of a directory that can't be written = %v", err)
	}
}

func TestDirOddFiles(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	mustCreate(t, d, "log/1")
	mustCreate(t, d, "log/sub/1")
	if err := os.Symlink(outside, filepath.Join(root, "data")); err != nil {
		t.Fatal(err)
	}
	decides := func(err error) bool {
		return err == nil || errors.Is(err, ErrExists) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrStopped)
	}
	for _, key := range []string{"log/sub", "log/1/below", "data/1"} {
		if _, err := d.Create(t.Context(), key); decides(err) {
			t.Errorf("Create(%s) = %v, want a plain error", key, err)
		}
	}
	if _, err := d.Get(t.Context(), "log/sub", 0, -1); decides(err) {
		t.Errorf("Get of a directory = %v, want a plain error", err)
	}
	if _, err := d.Delete(t.Context(), "log/sub"); decides(err) {
		t.Errorf("Delete of a directory = %v, want a plain error", err)
	}
	if _, err := d.Get(t.Context(), "log/1/below", 0, -1); !errors.Is(err, ErrNotRegular) || errors.Is(err, ErrNotFound) {
		t.Errorf("Get below an object = %v, want ErrNotRegular", err)
	}
	if page, err := d.List(t.Context(), "log/1/", "", 0); !errors.Is(err, ErrNotRegular) {
		t.Errorf("List below an object = %q, %v, want ErrNotRegular", page.Keys, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("something got outside of the store: %v, %v", entries, err)
	}
	mustGet(t, d, "log/sub/1")
}

// If a directory vanishes under a running store, acknowledged objects are lost. A new directory would hide
// that loss.
func TestDirDoesNotRemakeWhatVanished(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	mustCreate(t, d, "log/1")
	if err := os.RemoveAll(filepath.Join(root, "log")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), "log/2"); err == nil || errors.Is(err, ErrExists) {
		t.Errorf("Create = %v, want an error", err)
	}
	mustCreate(t, d, "data/1") // other directories of the store still work
}

func TestDirListOfALargeDirectory(t *testing.T) {
	root := t.TempDir()
	d := openTestDir(t, root, (*os.File).Sync)
	if err := os.Mkdir(filepath.Join(root, "log"), dirMode); err != nil {
		t.Fatal(err)
	}
	const count = 6_000 // more keys than List holds before it drops the largest
	var want []string
	for i := range count {
		key := fmt.Sprintf("log/%05d", i*7919%count)
		writeFile(t, root, key)
		want = append(want, key)
	}
	slices.Sort(want)
	after := ""
	for from := 0; from < count; from += 700 {
		page, err := d.List(t.Context(), "log/", after, 700)
		if err != nil {
			t.Fatal(err)
		}
		end := min(from+700, count)
		if !slices.Equal(page.Keys, want[from:end]) || page.More != (end < count) {
			t.Fatalf("page after %q is wrong: %d keys, more %v", after, len(page.Keys), page.More)
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

func TestDurableNamesAreBounded(t *testing.T) {
	var names durableNames
	at := time.Unix(1, 0)
	for i := range 5 * durableNamesMax {
		names.add(fmt.Sprint(i), at)
	}
	if held := len(names.young) + len(names.older); held > 2*durableNamesMax {
		t.Errorf("%d names are held", held)
	}
	last := fmt.Sprint(5*durableNamesMax - 1)
	if !names.has(last, at) || names.has(last, at.Add(1)) || names.has("0", at) {
		t.Error("the last name must be known, by its time, and the first forgotten")
	}
	names.remove(last)
	if names.has(last, at) {
		t.Error("a removed name is known")
	}
}

func TestDirThatIsMovedOrReplacedStops(t *testing.T) {
	requests := map[string]func(d *Dir) error{
		"create": func(d *Dir) error { _, err := d.Create(t.Context(), "log/2", []byte("x")); return err },
		"get":    func(d *Dir) error { _, err := d.Get(t.Context(), "log/1", 0, -1); return err },
		"404":    func(d *Dir) error { _, err := d.Get(t.Context(), "log/3", 0, -1); return err },
		"list":   func(d *Dir) error { _, err := d.List(t.Context(), "", "", 0); return err },
		"delete": func(d *Dir) error { _, err := d.Delete(t.Context(), "log/1"); return err },
	}
	for name, request := range requests {
		for _, replaced := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "store")
			d, err := OpenDir(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Create(t.Context(), "log/1", []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			if replaced {
				if err := os.CopyFS(path, os.DirFS(path+".old")); err != nil {
					t.Fatal(err)
				}
			}
			if err := request(d); !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, replaced is %v: %v, want ErrStopped", name, replaced, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A store that was opened for reading changes no bytes and no times of its directory, and works
// where nothing may be written.
func TestReadOnlyDirWritesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenDirReadOnly(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open what is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log", "1"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDirReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Get(t.Context(), "log/1", 1, -1)
	if err != nil || string(o.Body) != "ne" || o.Size != 3 || o.Time.IsZero() {
		t.Errorf("get: %q of %d bytes at %v, %v", o.Body, o.Size, o.Time, err)
	}
	if _, err := d.Get(t.Context(), "log/2", 0, -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("get what is not there: %v", err)
	}
	page, err := d.List(t.Context(), "", "", 0)
	if err != nil || !slices.Equal(page.Keys, []string{"log/1"}) {
		t.Errorf("list: %v, %v", page.Keys, err)
	}
	if _, err := d.Create(t.Context(), "log/2", []byte("two")); err == nil || errors.Is(err, ErrExists) {
		t.Errorf("create: %v", err)
	}
	if _, err := d.Delete(t.Context(), "log/1"); err == nil {
		t.Error("delete succeeded")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
