package segment

import (
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/sst"
)

// FuzzCheck changes bytes of a segment and then corrects the checksums of head and sections, so that Check looks further.
func FuzzCheck(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	var t testing.T
	for _, codec := range []record.Codec{record.None, record.Zstd} {
		b := NewBuilder(Options{Codec: codec, BatchBytes: 200})
		for base := format.Offset(0); base < 30; {
			s := randomSource(&t, r, 1, 0, base)
			s.Commits = []format.CommitPart{{Base: base, Seq: format.Seq(base + 1)}}
			if err := b.Add(s.Input); err != nil {
				f.Fatal(err)
			}
			base += format.Offset(s.span)
		}
		built, err := b.Finish(testCluster, format.DataRef{Seq: 9, ID: 77}, 1234)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(built.Object())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for range 2 {
			h, ranges, err := Check(b)
			switch {
			case err == nil && (len(ranges) == 0) != (h.Batches == 0):
				t.Fatalf("%+v has the ranges %+v", h, ranges)
			case err != nil && !known(err):
				t.Fatalf("the error does not say what is wrong with the segment: %v", err)
			}
			b = sealed(b)
		}
	})
}

func known(err error) bool {
	for _, is := range []error{format.ErrCorrupt, format.ErrVersion, format.ErrForeign, sst.ErrCorrupt, sst.ErrVersion, record.ErrCorrupt, record.ErrMagic} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// sealed returns b with right checksums of the head and the sections, as far as they can be decoded.
func sealed(b []byte) []byte {
	h, err := format.DecodeSegmentHead(b)
	if err != nil || int64(h.Ref.Size) != int64(len(b)) {
		return b
	}
	for i, s := range h.Sections {
		h.Sections[i].CRC = crc32.Checksum(b[s.Pos:s.Pos+s.Size], castagnoli)
	}
	return append(format.EncodeSegmentHead(h), b[format.SegmentHeadSize(len(h.Sections)):]...)
}
