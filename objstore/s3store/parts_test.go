package s3store

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

func TestPartsReaderReadsTheConcatenation(t *testing.T) {
	for _, parts := range [][][]byte{
		nil,
		{nil, {}},
		{[]byte("one")},
		{nil, []byte("a"), {}, bytes.Repeat([]byte("bc"), 3000), []byte("d"), nil},
	} {
		if err := iotest.TestReader(newPartsReader(parts), bytes.Join(parts, nil)); err != nil {
			t.Errorf("%d parts: %v", len(parts), err)
		}
	}
}

func TestPartsReaderSeeks(t *testing.T) {
	r := newPartsReader([][]byte{[]byte("01"), nil, []byte("234"), []byte("5")})
	for off := range int64(7) {
		if at, err := r.Seek(off, io.SeekStart); at != off || err != nil {
			t.Fatalf("Seek(%d) = %d, %v", off, at, err)
		}
		if rest, err := io.ReadAll(r); string(rest) != "012345"[off:] || err != nil {
			t.Errorf("after Seek(%d): %q, %v", off, rest, err)
		}
	}
	if _, err := r.Seek(7, io.SeekStart); err == nil {
		t.Error("Seek beyond the end succeeded")
	}
}
