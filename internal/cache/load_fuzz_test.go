package cache

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/internal/record"
)

// Whatever stands in the directory, the cache opens, serves only what verifies,
// works, keeps to its bound, and leaves files alone that are none of its own.
func FuzzLoad(f *testing.F) {
	whole := segmentOf(3)
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
			return // names no file
		}
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Skip(err) // the file system knows of more that names can't hold
		}
		const bytesMax = 1 << 20
		more, added := batch(99, 500)
		for range 2 { // the second time as it was left
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
		if !strings.HasSuffix(name, segmentSuffix) {
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%s is changed: %v", name, err)
			}
		}
	})
}
