package objstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/simple-event-broker/seb/objstore"
)

func BenchmarkDirCreate(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("bytes=%d/callers=%d", size, callers), func(b *testing.B) {
				dir, err := objstore.OpenDir(b.TempDir())
				if err != nil {
					b.Fatal(err)
				}
				benchmarkCreate(b, dir, size, callers)
				if err := dir.Close(); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkDirList lists a directory of many objects as a start does: all of them, and those
// behind the last of a large page.
func BenchmarkDirList(b *testing.B) {
	const objects = 1_000_000
	place := b.TempDir()
	dir, err := objstore.OpenDir(place)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = dir.Close() }() // nothing was written
	if err := os.Mkdir(filepath.Join(place, "log"), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range objects {
		if err := os.WriteFile(filepath.Join(place, fmt.Sprintf("log/%020d", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, limit := range []int{1000, objects} {
		for _, after := range []string{"", fmt.Sprintf("log/%020d", objects-1000)} {
			b.Run(fmt.Sprintf("limit=%d/after=%q", limit, after), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := dir.List(b.Context(), "log/", after, limit); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkMemoryCreateDiscarding(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("bytes=%d/callers=%d", 1<<20, callers), func(b *testing.B) {
			benchmarkCreate(b, objstore.NewMemory(objstore.WithDiscard("log/")), 1<<20, callers)
		})
	}
}

func benchmarkCreate(b *testing.B, store objstore.Store, size, callers int) {
	body := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var created atomic.Int64
	done := make(chan error)
	b.ResetTimer()
	for range callers {
		go func() {
			var err error
			for err == nil {
				index := created.Add(1)
				if index > int64(b.N) {
					break
				}
				_, err = store.Create(b.Context(), fmt.Sprintf("log/%020d", index), body)
			}
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
