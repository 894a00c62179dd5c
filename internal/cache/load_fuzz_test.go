package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/record"
)

// Whatever is in the directory, the cache opens, returns only batches that verify, keeps new
// ones, stays within its bound, and does not touch other files.
func FuzzLoad(f *testing.F) {
	whole := volumeOf(3)
	f.Add("00000000000000000001.sebcache", whole)
	f.Add("00000000000000000001.sebcache", whole[:len(whole)-10])
	f.Add("18446744073709551615.sebcache", whole)
	f.Add("1.sebcache", whole)
	f.Add("lock.sebcache", whole)
	f.Add("notes.txt", whole)
	wanted := make([]Range, 3)
	for i := range wanted {
		wanted[i], _ = batch(i, 100*(i+1))
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if len(name) > 100 || strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." {
			return // not the name of a file
		}
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Skip(err) // the file system refuses some other names
		}
		const bytesMax = 1 << 20
		more, added := batch(99, 500)
		for range 2 { // the second time with what the first left
			c, _ := openOnDisk(t, dir, bytesMax)
			for _, r := range wanted {
				if b := c.Get(r); b != nil && record.Verify(b, r.CRC) != nil {
					t.Fatal("a batch is served that does not verify")
				}
			}
			c.AddFetched(more, added)
			if got := c.Get(more); !bytes.Equal(got, added) {
				t.Fatalf("what was added is served as %d bytes of %d", len(got), len(added))
			}
			if size := c.Stats().DiskBytes; size > bytesMax {
				t.Fatalf("%d bytes on disk", size)
			}
			closeCache(t, c)
		}
		if !strings.HasSuffix(name, volumeSuffix) {
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%s is changed: %v", name, err)
			}
		}
	})
}
