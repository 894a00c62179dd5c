package objstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb/objstore"
)

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"log/00000000000000000001", "seb.json", "", "..", "a/../b", "a//b", ".tmp/x", "a/", "ä", strings.Repeat("k", 255), strings.Repeat("k", 256)} {
		f.Add(key)
	}
	dir, err := objstore.OpenDir(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	memory := objstore.NewMemory()
	f.Fuzz(func(t *testing.T, key string) {
		valid := objstore.CheckKey(key) == nil
		for _, store := range []objstore.Store{dir, memory} {
			_, err := store.Get(t.Context(), key, 0, -1)
			if definite := errors.Is(err, objstore.ErrNotFound); definite != valid {
				t.Errorf("%T.Get(%q) = %v, valid %v", store, key, err, valid)
			}
		}
	})
}
