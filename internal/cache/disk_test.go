package cache

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// openOnDisk returns a cache that keeps nothing in memory, so that every Get reads from disk.
func openOnDisk(t testing.TB, dir string, diskBytes int64) (*Cache, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	c := open(t, Options{Dir: dir, DiskBytes: diskBytes, Logger: log.logger()})
	if c.disk == nil {
		t.Fatalf("no disk: %v", log.lines())
	}
	return c, log
}

func closeCache(t testing.TB, c *Cache) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// volumeFiles returns the paths of the volumes, oldest first.
func volumeFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "0*"+volumeSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// damage replaces the content of a file by what f returns for it.
func damage(t testing.TB, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, f(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func addBatches(c *Cache, from, to, size int) {
	for n := from; n < to; n++ {
		c.AddFetched(batch(n, size))
	}
}

// countHits returns how many of the batches [from, to) the cache has, and compares all their
// bytes.
func countHits(t testing.TB, c *Cache, from, to, size int) int {
	t.Helper()
	hits := 0
	for n := from; n < to; n++ {
		r, want := batch(n, size)
		got := c.Get(r)
		if got != nil {
			hits++
		}
		if got != nil && !bytes.Equal(got, want) {
			t.Fatalf("batch %d: wrong bytes", n)
		}
	}
	return hits
}

func TestDiskHoldsWhatWasFetched(t *testing.T) {
	dir := t.TempDir()
	c, _ := openOnDisk(t, dir, 1<<20)
	addBatches(c, 0, 10, 1000)
	addBatches(c, 0, 10, 1000)
	r, b := batch(99, 1000)
	if c.Add(r, b); c.Get(r) != nil {
		t.Error("what was committed just now went to disk")
	}
	if hits := countHits(t, c, 0, 10, 1000); hits != 10 {
		t.Fatalf("%d hits of 10", hits)
	}
	if s := c.Stats(); s.DiskEntries != 10 || s.DiskVolumes != 1 || s.DiskHits != 10 || s.DiskBytes > 10*1100 {
		t.Fatalf("%+v", s)
	}

	// After a restart the cache finds the batches, and appends to the same file.
	closeCache(t, c)
	if c.Get(r) != nil || countHits(t, c, 0, 10, 1000) != 0 {
		t.Fatal("a closed cache reads a directory that may be another's")
	}
	c, log := openOnDisk(t, dir, 1<<20)
	addBatches(c, 10, 20, 1000)
	if hits := countHits(t, c, 0, 20, 1000); hits != 20 || len(volumeFiles(t, dir)) != 1 {
		t.Fatalf("%d hits of 20, files %v, log %v", hits, volumeFiles(t, dir), log.lines())
	}
}

func TestDiskHitsMoveToMemory(t *testing.T) {
	c := open(t, Options{MemoryMax: 1 << 20, Dir: t.TempDir(), DiskBytes: 1 << 20})
	r, b := batch(1, 1000)
	c.AddFetched(r, b)
	c.Shrink(1 << 20)
	c.Get(r)
	c.Get(r)
	if s := c.Stats(); s.DiskHits != 1 || s.MemoryHits != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestDiskStaysWithinItsBounds(t *testing.T) {
	const most = 80_000
	dir := t.TempDir()
	c, log := openOnDisk(t, dir, most)
	for n := range 200 {
		c.AddFetched(batch(n, 1000))
		var sum int64
		for _, f := range volumeFiles(t, dir) {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			sum += info.Size()
		}
		if s := c.Stats(); s.DiskBytes > most || sum != s.DiskBytes {
			t.Fatalf("%d bytes counted, %d on disk", s.DiskBytes, sum)
		}
	}
	if old, young := countHits(t, c, 0, 100, 1000), countHits(t, c, 140, 200, 1000); old != 0 || young != 60 {
		t.Fatalf("%d old ones and %d of the 60 youngest remain", old, young)
	}
	r, b := batch(300, most/volumesMin+1)
	if c.AddFetched(r, b); c.Get(r) != nil {
		t.Fatal("an entry larger than a volume was kept")
	}
	closeCache(t, c)
	c, _ = openOnDisk(t, dir, most/2)
	if s := c.Stats(); s.DiskBytes > most/2 || s.DiskEntries == 0 || s.DiskEvicted == 0 {
		t.Fatalf("opened with a lower bound: %+v", s)
	}
	if s := c.Stats(); s.DiskCorrupt+s.DiskErrors > 0 || log.lines()[0] != "" {
		t.Fatalf("%+v, log %v", s, log.lines())
	}
}

func TestDiskIndexIsBounded(t *testing.T) {
	dir := t.TempDir()
	c, _ := openOnDisk(t, dir, 1<<30)
	c.disk.indexMax = 80
	addBatches(c, 0, 500, 100)
	s := c.Stats()
	if s.DiskEntries > 80 || s.DiskEvicted == 0 || countHits(t, c, 450, 500, 100) != 50 {
		t.Fatalf("%+v", s)
	}
}

// Whichever bit of a file flips while the cache runs, a Get returns the right bytes or nothing.
func TestFlippedBitsAreMisses(t *testing.T) {
	dir := t.TempDir()
	r, b := batch(1, 100)
	size := entryHeaderSize + len(b)
	for i := range size {
		c, log := openOnDisk(t, dir, 1<<20)
		c.AddFetched(r, b)
		damage(t, volumeFiles(t, dir)[0], func(p []byte) []byte { p[i] ^= 1 << (i % 8); return p })
		if got := c.Get(r); got != nil {
			t.Fatalf("byte %d: a hit", i)
		}
		if s := c.Stats(); s.DiskCorrupt != 1 || len(log.lines()) != 1 || !strings.Contains(log.lines()[0], "damaged") {
			t.Fatalf("byte %d: %+v, log %v", i, s, log.lines())
		}
		// Once it is added again, Get finds it.
		if c.AddFetched(r, b); !bytes.Equal(c.Get(r), b) {
			t.Fatalf("byte %d: not found after it was added again", i)
		}
		closeCache(t, c)
		if err := os.Remove(volumeFiles(t, dir)[0]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	const count, size = 10, 1000
	for name, tc := range map[string]struct {
		change func([]byte) []byte
		want   int // hits if the file is damaged while the cache is closed
		live   int // hits if the file is damaged while the cache runs, which keeps all intact entries
	}{
		"zeroed":             {func(p []byte) []byte { clear(p); return p }, 0, 0},
		"emptied":            {func(p []byte) []byte { return nil }, 0, 0},
		"cut in an entry":    {func(p []byte) []byte { return p[:len(p)/2+100] }, 5, 5},
		"cut in a header":    {func(p []byte) []byte { return p[:len(p)/10*9+20] }, 9, 9},
		"second half zeroed": {func(p []byte) []byte { clear(p[len(p)/2:]); return p }, 5, 5},
		"first entry zeroed": {func(p []byte) []byte { clear(p[:len(p)/10]); return p }, 0, 9},
		"garbage appended":   {func(p []byte) []byte { return append(p, "garbage"...) }, 10, 10},
		"a batch changed":    {func(p []byte) []byte { p[entryHeaderSize+100]++; return p }, 9, 9},
		"shifted":            {func(p []byte) []byte { return append([]byte{0}, p...) }, 0, 0},
	} {
		t.Run(name+" while stopped", func(t *testing.T) {
			dir := t.TempDir()
			c, _ := openOnDisk(t, dir, 1<<20)
			addBatches(c, 0, count, size)
			closeCache(t, c)
			damage(t, volumeFiles(t, dir)[0], tc.change)
			c, log := openOnDisk(t, dir, 1<<20)
			if hits := countHits(t, c, 0, count, size); hits != tc.want {
				t.Fatalf("%d hits, want %d", hits, tc.want)
			}
			if s := c.Stats(); name != "emptied" && s.DiskCorrupt == 0 || s.DiskCorrupt > 0 != (log.lines()[0] != "") || len(log.lines()) > 1 {
				t.Fatalf("%+v, log %v", s, log.lines())
			}
			requireAddsAgain(t, c, dir, count, size)
		})
		t.Run(name+" while running", func(t *testing.T) {
			dir := t.TempDir()
			c, log := openOnDisk(t, dir, 1<<20)
			addBatches(c, 0, count, size)
			damage(t, volumeFiles(t, dir)[0], tc.change)
			// A file that ends too early is dropped as a whole once a read finds this.
			hits := countHits(t, c, 0, count, size)
			if hits != tc.live {
				t.Fatalf("%d hits, want %d", hits, tc.live)
			}
			if s := c.Stats(); (s.DiskCorrupt > 0) != (hits < count) || len(log.lines()) > 1 {
				t.Fatalf("%+v, log %v", s, log.lines())
			}
			requireAddsAgain(t, c, dir, count, size)
		})
	}
}

// requireAddsAgain checks that a cache with damaged files still works, also after another
// restart.
func requireAddsAgain(t *testing.T, c *Cache, dir string, count, size int) {
	t.Helper()
	addBatches(c, 0, count, size)
	if hits := countHits(t, c, 0, count, size); hits != count {
		t.Fatalf("%d hits of %d after they were added again", hits, count)
	}
	closeCache(t, c)
	c, _ = openOnDisk(t, dir, 1<<20)
	addBatches(c, 0, count, size)
	if hits := countHits(t, c, 0, count, size); hits != count {
		t.Fatalf("%d hits of %d after a restart", hits, count)
	}
}

func TestFilesRemovedWhileRunning(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"volumes": func(dir string) error { return os.Remove(filepath.Join(dir, "00000000000000000001"+volumeSuffix)) },
		"all": func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Mkdir(dir, 0o700)
		},
		"directory": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			c, log := openOnDisk(t, dir, 1<<20)
			addBatches(c, 0, 10, 1000)
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			if hits := countHits(t, c, 0, 10, 1000); hits != 0 || c.Stats().DiskCorrupt != 1 || c.Stats().DiskEntries != 0 {
				t.Fatalf("%d hits, %+v", hits, c.Stats())
			}
			addBatches(c, 0, 10, 1000)
			want := 10
			if name == "directory" {
				want = 0 // somebody removed it on purpose: the cache does not create it again before the next start
			}
			if hits := countHits(t, c, 0, 10, 1000); hits != want || len(log.lines()) > 2 {
				t.Fatalf("%d hits, want %d, log %v", hits, want, log.lines())
			}
		})
	}
	t.Run("before a write", func(t *testing.T) {
		dir := t.TempDir()
		c, _ := openOnDisk(t, dir, 1<<20)
		addBatches(c, 0, 5, 1000)
		if err := os.Remove(volumeFiles(t, dir)[0]); err != nil {
			t.Fatal(err)
		}
		addBatches(c, 5, 10, 1000) // the first write finds that the file is gone
		if hits := countHits(t, c, 0, 10, 1000); hits != 4 {
			t.Fatalf("%d hits, want 4", hits)
		}
	})
}

func TestForeignFilesAreNotUsed(t *testing.T) {
	fill := func(t *testing.T, dir string) {
		c, _ := openOnDisk(t, dir, 1<<20)
		addBatches(c, 0, 5, 1000)
		closeCache(t, c)
	}
	t.Run("another cluster", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir)
		log := new(logBuffer)
		c, err := Open(Options{Cluster: [16]byte{9}, Dir: dir, DiskBytes: 1 << 20, Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		defer closeCache(t, c)
		if hits := countHits(t, c, 0, 5, 1000); hits != 0 || len(volumeFiles(t, dir)) != 0 || !strings.Contains(log.lines()[0], "another cluster") {
			t.Fatalf("%d hits, files %v, log %v", hits, volumeFiles(t, dir), log.lines())
		}
		addBatches(c, 0, 5, 1000)
		if hits := countHits(t, c, 0, 5, 1000); hits != 5 {
			t.Fatalf("%d hits of 5", hits)
		}
	})
	t.Run("another version", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir)
		damage(t, volumeFiles(t, dir)[0], func(p []byte) []byte {
			p[4] = entryVersion + 1
			sum := entryCRC(p, p[entryHeaderSize:])
			for i := range 4 {
				p[entryCRCAt+i] = byte(sum >> (8 * i))
			}
			return p
		})
		c, log := openOnDisk(t, dir, 1<<20)
		if hits := countHits(t, c, 0, 5, 1000); hits != 0 || !strings.Contains(log.lines()[0], "another version") {
			t.Fatalf("%d hits, log %v", hits, log.lines())
		}
	})
	t.Run("not the cache's", func(t *testing.T) {
		dir := t.TempDir()
		names := []string{"notes.txt", "1" + volumeSuffix, "x" + volumeSuffix, "00000000000000000001"}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, n), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, "00000000000000000009"+volumeSuffix), 0o700); err != nil {
			t.Fatal(err)
		}
		fill(t, dir)
		for _, n := range names {
			if b, err := os.ReadFile(filepath.Join(dir, n)); err != nil || string(b) != "mine" {
				t.Errorf("%s: %q, %v", n, b, err)
			}
		}
	})
}

// failingWriter writes n bytes, then fails.
type failingWriter struct {
	volumeWriter
	n   *int
	err error
}

func (w failingWriter) WriteAt(p []byte, at int64) (int, error) {
	n := min(len(p), *w.n)
	*w.n -= n
	if n < len(p) {
		done, _ := w.volumeWriter.WriteAt(p[:n], at)
		return done, w.err
	}
	return w.volumeWriter.WriteAt(p, at)
}

func TestFailingWritesAreMisses(t *testing.T) {
	for name, failure := range map[string]error{"full": syscall.ENOSPC, "quota": syscall.EDQUOT, "broken": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c, log := openOnDisk(t, dir, 80_000)
			room := 25_500 // two volumes of nine entries each, and half of another
			good := c.disk.openWrite
			c.disk.openWrite = func(path string, flag int) (volumeWriter, error) {
				w, err := good(path, flag)
				return failingWriter{w, &room, failure}, err
			}
			addBatches(c, 0, 40, 1000)
			s := c.Stats()
			hits := countHits(t, c, 0, 40, 1000)
			if hits != s.DiskEntries || s.DiskErrors == 0 || s.DiskCorrupt > 0 || len(log.lines()) != 1 {
				t.Fatalf("%d hits, %+v, log %v", hits, s, log.lines())
			}
			if errors.Is(failure, syscall.EIO) && hits < 20 {
				t.Fatalf("%d hits: what was written before was given up", hits)
			}
			if !errors.Is(failure, syscall.EIO) && hits > 10 {
				t.Fatalf("%d hits: the cache doesn't give way on a full disk", hits)
			}
			if files := volumeFiles(t, dir); len(files) != s.DiskVolumes || len(files) > 4 {
				t.Fatalf("%d files for %d volumes", len(files), s.DiskVolumes)
			}
			room = 1 << 30
			addBatches(c, 0, 40, 1000)
			if hits := countHits(t, c, 0, 40, 1000); hits != 40 {
				t.Fatalf("%d hits of 40 once there is room", hits)
			}
			closeCache(t, c)
			c, _ = openOnDisk(t, dir, 80_000)
			if hits := countHits(t, c, 0, 40, 1000); hits < 20 {
				t.Fatalf("%d hits of 40 after a restart", hits)
			}
		})
	}
}

func TestReadOnlyFilesAreMisses(t *testing.T) {
	dir := t.TempDir()
	c, log := openOnDisk(t, dir, 1<<20)
	addBatches(c, 0, 5, 1000)
	c.disk.openWrite = func(path string, _ int) (volumeWriter, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EROFS}
	}
	addBatches(c, 5, 10, 1000)
	if hits := countHits(t, c, 0, 10, 1000); hits != 5 || c.Stats().DiskErrors != 5 || len(log.lines()) != 1 {
		t.Fatalf("%d hits, %+v, log %v", hits, c.Stats(), log.lines())
	}
}

func TestADirectoryThatCanNotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := t.TempDir()
	first, _ := openOnDisk(t, taken, 1<<20)
	addBatches(first, 0, 5, 1000)
	for name, dir := range map[string]string{"a file": file, "below a file": filepath.Join(file, "x"), "taken": taken} {
		t.Run(name, func(t *testing.T) {
			log := new(logBuffer)
			c := open(t, Options{MemoryMax: 1 << 20, Dir: dir, DiskBytes: 1 << 20, Logger: log.logger()})
			if len(log.lines()) != 1 || !strings.Contains(log.lines()[0], "without a disk cache") {
				t.Fatalf("log %v", log.lines())
			}
			addBatches(c, 0, 5, 1000)
			if s := c.Stats(); countHits(t, c, 0, 5, 1000) != 5 || s.DiskVolumes != 0 {
				t.Fatalf("memory does not work: %+v", s)
			}
		})
	}
	if hits := countHits(t, first, 0, 5, 1000); hits != 5 {
		t.Fatalf("the first one has %d hits of 5", hits)
	}
	closeCache(t, first)
	second, _ := openOnDisk(t, taken, 1<<20)
	if hits := countHits(t, second, 0, 5, 1000); hits != 5 {
		t.Fatalf("the next one has %d hits of 5", hits)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs a user other than root: root may write into every directory; TestReadOnlyFilesAreMisses stands in")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	log := new(logBuffer)
	c := open(t, Options{MemoryMax: 1 << 20, Dir: dir, DiskBytes: 1 << 20, Logger: log.logger()})
	addBatches(c, 0, 5, 1000)
	if hits := countHits(t, c, 0, 5, 1000); hits != 5 || len(log.lines()) != 1 {
		t.Fatalf("%d hits, log %v", hits, log.lines())
	}
}

// Has finds what is in memory or on disk, and counts neither as a hit nor as a miss.
func TestHasIsNoUse(t *testing.T) {
	c := open(t, Options{MemoryMax: 1 << 20, Dir: t.TempDir(), DiskBytes: 1 << 20})
	kept, b := batch(1, 200)
	c.AddFetched(kept, b)
	onlyMemory, b := batch(2, 200)
	c.Add(onlyMemory, b)
	missing, _ := batch(3, 200)
	if !c.Has(kept) || !c.Has(onlyMemory) || c.Has(missing) {
		t.Error("it does not have what was added")
	}
	c.Shrink(1 << 20)
	if !c.Has(kept) || c.Has(onlyMemory) {
		t.Error("memory was emptied, but not the disk")
	}
	if s := c.Stats(); s.MemoryHits+s.DiskHits+s.Misses > 0 || s.MemoryEntries > 0 {
		t.Errorf("%+v", s)
	}
}
