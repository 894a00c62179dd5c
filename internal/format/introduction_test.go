package format

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
)

func goldenIntroduction() *Introduction {
	return &Introduction{
		Cluster: goldenCluster, Ref: DataRef{Seq: 5, ID: 0x0102030405060708, Size: IntroductionBytes}, Created: goldenTime,
		Session: SessionKey(bytes.Repeat([]byte{7}, 32)),
	}
}

func TestGoldenIntroduction(t *testing.T) {
	file := golden(t, "introduction.golden")
	requireBytes(t, EncodeIntroduction(goldenIntroduction()), file)
	got, err := DecodeIntroduction(file)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, goldenIntroduction())
	if len(file) != IntroductionBytes {
		t.Errorf("it has %d bytes", len(file))
	}
}

// TestIntroductionFieldTable builds an introduction only from the tables in the comments.
func TestIntroductionFieldTable(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	head := u64(u64(append([]byte(nil), goldenCluster[:]...), 5), 0x0102030405060708)
	head = append(head, bytes.Repeat([]byte{7}, 32)...)
	b := u32(u64(append([]byte("seb!"), 2, 0), goldenTime), 0)
	b = u32(append(b, 5, 0), uint32(len(head)))
	b = u32(b, crc32.Checksum(head, castagnoli))
	b = u32(b, crc32.Checksum(b, castagnoli))
	requireBytes(t, golden(t, "introduction.golden"), slices.Concat(b, head))
}

func TestInvalidIntroductionsAreRefused(t *testing.T) {
	file := golden(t, "introduction.golden")
	for i := range file {
		b := bytes.Clone(file)
		b[i] ^= 1
		if _, err := DecodeIntroduction(b); !known(err) {
			t.Errorf("byte %d is wrong: %v", i, err)
		}
		if _, err := DecodeIntroduction(file[:i]); !known(err) {
			t.Errorf("it ends at byte %d: %v", i, err)
		}
	}
	_, err := DecodeIntroduction(append(bytes.Clone(file), 0))
	requireIs(t, err, ErrCorrupt)
	nobody := goldenIntroduction()
	nobody.Session = SessionKey{}
	_, err = DecodeIntroduction(EncodeIntroduction(nobody))
	requireIs(t, err, ErrCorrupt)
	for _, other := range []string{"data.golden", "segment.golden", "commit.golden"} {
		_, err = DecodeIntroduction(golden(t, other))
		requireIs(t, err, ErrForeign)
	}
	_, err = DecodeDataHead(file)
	requireIs(t, err, ErrForeign)
}

func FuzzDecodeIntroduction(f *testing.F) {
	f.Add(golden(f, "introduction.golden"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindIntroduction, func(b []byte) (*Introduction, []byte, error) {
			x, err := DecodeIntroduction(b)
			if err != nil {
				return nil, nil, err
			}
			return x, EncodeIntroduction(x), nil
		})
	})
}
