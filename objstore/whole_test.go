package objstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/simple-event-broker/seb/objstore"
)

func TestWholeObjectsAreReadWithinABound(t *testing.T) {
	root := t.TempDir()
	dir, err := objstore.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	}()
	const mib = 1 << 20
	body := bytes.Repeat([]byte("0123456789abcdef"), 3*mib/16)
	for _, size := range []int{0, 1, mib, mib + 1, 3 * mib} {
		key := "data/x"
		if _, err := dir.Create(t.Context(), key, body[:size]); err != nil {
			t.Fatal(err)
		}
		for _, bound := range []int64{int64(size), int64(size) + 1, 1 << 40} {
			if o, err := objstore.GetWhole(t.Context(), dir, key, bound); err != nil || !bytes.Equal(o.Body, body[:size]) || o.Time.IsZero() {
				t.Errorf("%d bytes within %d: got %d, %v", size, bound, len(o.Body), err)
			}
		}
		if _, err := objstore.GetWhole(t.Context(), dir, key, int64(size)-1); size > 0 && !errors.Is(err, objstore.ErrTooLarge) {
			t.Errorf("%d bytes within one less: %v", size, err)
		}
		if _, err := dir.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := objstore.GetWhole(t.Context(), dir, "none", 10); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("an object that is not there: %v", err)
	}

	huge := filepath.Join(root, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 100<<30); err != nil {
		t.Skip(err) // the file system has no sparse files of that size
	}
	if _, err := objstore.GetWhole(t.Context(), dir, "huge", 64<<20); !errors.Is(err, objstore.ErrTooLarge) {
		t.Errorf("an object of 100 GiB: %v", err)
	}
}

func TestForeignObjectsAreRefusedByTheirFirstBytes(t *testing.T) {
	var read int64
	store := objstore.Observe(objstore.NewMemory(), func(op objstore.Op) {
		if op.Verb == objstore.VerbGet {
			read += op.Bytes
		}
	})
	const mib = 1 << 20
	if _, err := store.Create(t.Context(), "data/x", make([]byte, 5*mib)); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("zeros")
	_, err := objstore.GetWholeIf(t.Context(), store, "data/x", 10*mib, func(first []byte, size int64) error {
		if len(first) != mib || size != 5*mib {
			t.Errorf("judged by %d bytes of %d", len(first), size)
		}
		return refusal
	})
	if !errors.Is(err, refusal) || read != mib {
		t.Errorf("refused after %d bytes: %v", read, err)
	}
	o, err := objstore.GetWholeIf(t.Context(), store, "data/x", 10*mib, func([]byte, int64) error { return nil })
	if err != nil || len(o.Body) != 5*mib {
		t.Errorf("got %d bytes, %v", len(o.Body), err)
	}
}
