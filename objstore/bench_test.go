package objstore_test

import (
	"fmt"
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
