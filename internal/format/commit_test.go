package format

import (
	"errors"
	"hash/crc32"
	"testing"
)

func TestCommitStartThatCannotBeRight(t *testing.T) {
	const most = HeadBytesMax - PrologueSize
	valid := EncodeCommit(&Commit{Seq: 1, PayloadSize: 10, Entries: []Entry{&UnknownEntry{Kind: 100, Body: make([]byte, 1000)}}})
	size := int64(len(valid)) + 10
	start := func(change func(b []byte)) []byte {
		b := append([]byte(nil), valid[:PrologueSize+commitFixedSize]...)
		change(b)
		le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
		return b
	}
	same := func([]byte) {}
	if err := CheckCommitStart(start(same), size); err != nil {
		t.Errorf("a valid start: %v", err)
	}
	for name, c := range map[string]struct {
		b    []byte
		size int64
		want error
	}{
		"short":            {start(same)[:PrologueSize+commitFixedSize-1], size, ErrCorrupt},
		"another kind":     {start(func(b []byte) { b[18] = byte(KindData) }), size, ErrForeign},
		"object too short": {start(same), size - 1, ErrCorrupt},
		"object too long":  {start(same), size + 1, ErrCorrupt},
		"head too large":   {start(func(b []byte) { le.PutUint32(b[20:], most+1) }), PrologueSize + most + 1 + 10, ErrCorrupt},
		"too many entries": {start(func(b []byte) { le.PutUint32(b[14:], 1000/entryHeaderSize+2) }), size, ErrCorrupt},
		"too many data":    {start(func(b []byte) { le.PutUint32(b[PrologueSize+84:], 1000/dataRefSize+1) }), size, ErrCorrupt},
		"damaged prologue": {append([]byte{0}, start(same)[1:]...), size, ErrCorrupt},
		"nothing":          {nil, 0, ErrCorrupt},
	} {
		if err := CheckCommitStart(c.b, c.size); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
	}
	largest := start(func(b []byte) { le.PutUint32(b[20:], most) })
	if err := CheckCommitStart(largest, HeadBytesMax+10); err != nil {
		t.Errorf("the largest head: %v", err)
	}
}
