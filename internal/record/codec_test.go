package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/simple-event-broker/seb/internal/zstdpool"
)

var codecs = []Codec{Gzip, Snappy, LZ4, Zstd}

func TestDecompressionIsBounded(t *testing.T) {
	const limit = 1 << 20
	zeros := make([]byte, 64<<20)
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			bomb, err := compress(nil, zeros, c)
			if err != nil {
				t.Fatal(err)
			}
			var want *LimitError
			if _, err := decompress(bomb, c, limit); !errors.As(err, &want) || want.Limit != limit {
				t.Fatalf("%d bytes that hold %d: %v", len(bomb), len(zeros), err)
			}
			if out, err := decompress(bomb, c, len(zeros)); err != nil || !bytes.Equal(out, zeros) {
				t.Fatalf("%d bytes at exactly the limit: %v", len(out), err)
			}
		})
	}
}

func TestDamagedCompressionIsCorrupt(t *testing.T) {
	text := []byte(strings.Repeat("how much wood would a woodchuck chuck? ", 300))
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			good, err := compress(nil, text, c)
			if err != nil {
				t.Fatal(err)
			}
			for n := range good {
				if out, err := decompress(good[:n], c, 1<<20); err == nil && bytes.Equal(out, text) && n < len(good)-8 {
					t.Fatalf("%d of %d bytes decompress to everything", n, len(good))
				} else if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%d of %d bytes: %v", n, len(good), err)
				}
			}
			// The pooled decoder still works for the next batch after damaged input.
			if out, err := decompress(good, c, 1<<20); err != nil || !bytes.Equal(out, text) {
				t.Fatalf("after damage: %v", err)
			}
		})
	}
}

func TestSnappyForms(t *testing.T) {
	text := []byte(strings.Repeat("snappy ", 20000))
	bare := snappy.Encode(nil, text)
	framed := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1)
	for part := range bytes.SplitSeq(text, []byte("snappy snap")) {
		block := snappy.Encode(nil, append(part, "snappy snap"...))
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
	}
	if got, err := decompress(bare, Snappy, len(text)); err != nil || !bytes.Equal(got, text) {
		t.Errorf("a bare block: %v", err)
	}
	if got, err := decompress(framed, Snappy, 1<<20); err != nil || !bytes.HasPrefix(got, text[:100]) {
		t.Errorf("framed blocks: %v", err)
	}
	if got, err := decompress(framed[:16], Snappy, 100); err != nil || len(got) != 0 {
		t.Errorf("a frame without blocks: %q, %v", got, err)
	}
	for name, p := range map[string][]byte{
		"empty":                {},
		"header cut":           framed[:12],
		"block size cut":       framed[:18],
		"block cut":            framed[:30],
		"claims a gigabyte":    {0x80, 0x80, 0x80, 0x80, 0x04, 0},
		"claims 33 bits":       {0x80, 0x80, 0x80, 0x80, 0x80, 0x04, 0},
		"S2's repeated offset": {8, 3 << 2, 'a', 'b', 'c', 'd', 1, 0},
	} {
		if _, err := decompress(p, Snappy, 1<<31-1); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestZstdWindowIsBounded(t *testing.T) {
	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(2*zstdpool.WindowMax))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w.Reset(&out)
	if _, err := w.Write(make([]byte, 3*zstdpool.WindowMax)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := decompress(out.Bytes(), Zstd, 1<<30); !errors.Is(err, zstd.ErrWindowSizeExceeded) || !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}
