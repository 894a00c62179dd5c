package cache

import (
	"bytes"
	"testing"

	"github.com/simple-event-broker/seb/internal/record"
)

// testKey is the key of volumes that are not in a directory.
var testKey = func() *key {
	k, err := newKey([32]byte{42})
	if err != nil {
		panic(err)
	}
	return k
}()

func volumeOf(n int) []byte {
	var s []byte
	for i := range n {
		r, b := batch(i, 100*(i+1))
		s = append(append(s, entryHeader(testKey, cluster, r, b)...), b...)
	}
	return s
}

func TestScanFindsEveryEntry(t *testing.T) {
	s := volumeOf(60) // 186 kB: more than a window
	n, at := 0, int64(0)
	end, err := scanVolume(bytes.NewReader(s), int64(len(s)), cluster, func(r Range, got int64) bool {
		if want, _ := batch(n, 100*(n+1)); r != want || got != at {
			t.Fatalf("entry %d is %+v at %d, want %+v at %d", n, r, got, want, at)
		}
		n++
		at += entrySize(r)
		return true
	})
	if err != nil || end != int64(len(s)) || n != 60 {
		t.Fatalf("%d entries up to %d of %d, %v", n, end, len(s), err)
	}
}

// The layout is fixed: every later version must recognize entries of this one.
func TestEntryHeaderLayout(t *testing.T) {
	r := Range{Object: Object{Kind: 2, Seq: 0x0102030405060708, Tag: 0x1112131415161718}, Pos: 0x21222324, Size: 0x31323334, CRC: 0x41424344}
	got := entryHeader(testKey, [16]byte([]byte("0123456789abcdef")), r, make([]byte, uncovered))
	want := "sebc" + "\x02\x00" + "\x02" + "\x00" + "0123456789abcdef" +
		"\x08\x07\x06\x05\x04\x03\x02\x01" + "\x18\x17\x16\x15\x14\x13\x12\x11" +
		"\x24\x23\x22\x21" + "\x34\x33\x32\x31" + "\x44\x43\x42\x41"
	if string(got[:entryCRCAt]) != want || len(got) != entryHeaderSize {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// FuzzScan checks that the scan of any bytes ends, and that an entry that verifies is that of
// its Range.
func FuzzScan(f *testing.F) {
	whole := volumeOf(3)
	f.Add(whole)
	f.Add(whole[:len(whole)-10])
	f.Add(whole[1:])
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, s []byte) {
		last := int64(0)
		end, err := scanVolume(bytes.NewReader(s), int64(len(s)), cluster, func(r Range, at int64) bool {
			if at != last || at+entrySize(r) > int64(len(s)) {
				t.Fatalf("an entry of %d bytes at %d, after one that ends at %d of %d", entrySize(r), at, last, len(s))
			}
			last = at + entrySize(r)
			b, err := verifyEntry(testKey, cluster, r, s[at:last])
			if err == nil && record.Verify(b, r.CRC) != nil {
				t.Fatal("an entry verifies whose batch does not")
			}
			return true
		})
		if end != last || (err == nil) != (end == int64(len(s))) {
			t.Fatalf("ends at %d of %d, the last entry at %d; %v", end, len(s), last, err)
		}
	})
}
