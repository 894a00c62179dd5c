package objstore_test

import (
	"testing"

	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestMemoryConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMemory() })
}

func TestDirConforms(t *testing.T) {
	storetest.Run(t, openDir)
}

func TestObservedStoreConforms(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store {
		return objstore.Observe(objstore.NewMemory(), func(objstore.Op) {})
	})
}

func openDir(t *testing.T) objstore.Store {
	t.Helper()
	dir, err := objstore.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}
