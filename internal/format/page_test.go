package format

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"testing"
)

var goldenKeysBody = []byte("a section of keys, which this package does not read")

func goldenPage() ([]byte, Page) {
	return EncodePage(goldenCluster, DataRef{Seq: 5, ID: 0x0102030405060708}, goldenTime, goldenKeysBody, 1024)
}

func goldenPageCommit() *Commit {
	_, p := goldenPage()
	return &Commit{
		Created: goldenTime, Cluster: goldenCluster, Seq: 9, Nonce: goldenNonce, Prev: hashOf(0xdd), Time: goldenTime,
		Entries: []Entry{&PageStored{Page: p, First: Digest{1, 2, 3}}},
	}
}

func TestGoldenPage(t *testing.T) {
	file := golden(t, "page.golden")
	object, want := goldenPage()
	requireBytes(t, object, file)
	cluster, got, err := DecodePageHead(file[:PagePos])
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, want)
	requireEqual(t, cluster, goldenCluster)
	if err := got.Check(file[got.Pos:]); err != nil {
		t.Error(err)
	}
	requireIs(t, got.Check(file[got.Pos+1:]), ErrCorrupt)
	file[len(file)-1] ^= 1
	requireIs(t, got.Check(file[got.Pos:]), ErrCorrupt)
	if !IsPage(file) || IsPage(golden(t, "segment.golden")) || IsPage(file[:PagePos-1]) {
		t.Error("a page is taken for a segment, or a segment for a page")
	}
	_, err = DecodeSegmentHead(file)
	requireIs(t, err, ErrCorrupt)
	_, _, err = DecodePageHead(golden(t, "segment.golden"))
	requireIs(t, err, ErrCorrupt)
	_, _, err = DecodePageHead(golden(t, "data.golden"))
	requireIs(t, err, ErrForeign)
}

// TestPageFieldTable builds a page and its entry only from the tables in the comments.
func TestPageFieldTable(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	size := 32 + 40 + 32 + len(goldenKeysBody)
	sum := crc32.Checksum(goldenKeysBody, castagnoli)
	head := u64(u64(append([]byte(nil), goldenCluster[:]...), 5), 0x0102030405060708)
	head = u32(u32(head, uint32(size)), 1)
	head = u64(u32(u32(head, 3), 0), 1024)
	head = u32(u32(u32(u32(head, 104), uint32(len(goldenKeysBody))), sum), 0)
	b := u32(u64(append([]byte("seb!"), 2, 0), goldenTime), 0)
	b = u32(append(b, 4, 0), uint32(len(head)))
	b = u32(b, crc32.Checksum(head, castagnoli))
	b = u32(b, crc32.Checksum(b, castagnoli))
	requireBytes(t, golden(t, "page.golden"), slices.Concat(b, head, goldenKeysBody))

	entry := u64(u64(nil, 5), 0x0102030405060708)
	for _, x := range []uint32{uint32(size), 104, uint32(len(goldenKeysBody)), sum, 1024, 0} {
		entry = u32(entry, x)
	}
	entry = append(append(entry, 1, 2, 3), make([]byte, 13)...)
	requireBytes(t, goldenPageCommit().Entries[0].append(nil), entry)
}

func TestGoldenPageEntry(t *testing.T) {
	file := golden(t, "commit.page.golden")
	requireBytes(t, EncodeCommit(goldenPageCommit()), file)
	got, err := DecodeCommit(file)
	if err != nil {
		t.Fatal(err)
	}
	want := goldenPageCommit()
	EncodeCommit(want)
	requireEqual(t, got, want)
}

func TestInvalidPages(t *testing.T) {
	for name, change := range map[string]func(p *Page){
		"no keys":          func(p *Page) { p.Keys = 0 },
		"another position": func(p *Page) { p.Pos, p.Size = p.Pos+1, p.Size-1 },
		"too small":        func(p *Page) { p.Size-- },
		"too large":        func(p *Page) { p.Size++ },
		"more than 4 GiB":  func(p *Page) { p.Size = math.MaxUint32 },
		"seq":              func(p *Page) { p.Ref.Seq = 1 << 63 },
	} {
		t.Run(name, func(t *testing.T) {
			c := goldenPageCommit()
			change(&c.Entries[0].(*PageStored).Page)
			_, err := DecodeCommit(EncodeCommit(c))
			requireIs(t, err, ErrCorrupt)
		})
	}
	body := goldenPageCommit().Entries[0].append(nil)
	body[36] = 1
	c := goldenPageCommit()
	c.Entries[0] = &cutEntry{entryPageStored, body}
	_, err := DecodeCommit(EncodeCommit(c))
	requireIs(t, err, ErrCorrupt)
	c.Entries[0] = &cutEntry{entryPageStored, body[:pageStoredSize-1]}
	_, err = DecodeCommit(EncodeCommit(c))
	requireIs(t, err, ErrCorrupt)

	_, p := goldenPage()
	sound := func() *SegmentHead {
		return &SegmentHead{Cluster: goldenCluster, Ref: p.Ref, Sections: []Section{{Kind: SectionKeys, Rows: 1024, Pos: p.Pos, Size: p.Size, CRC: p.CRC}}}
	}
	for name, change := range map[string]func(h *SegmentHead){
		"no section":        func(h *SegmentHead) { h.Sections = nil },
		"another section":   func(h *SegmentHead) { h.Sections[0].Kind = SectionBatches },
		"two sections":      func(h *SegmentHead) { h.Sections = append(h.Sections, Section{Kind: 77}) },
		"batches":           func(h *SegmentHead) { h.Batches = 1 },
		"too many keys":     func(h *SegmentHead) { h.Sections[0].Rows = 1<<32 + 1 },
		"no keys":           func(h *SegmentHead) { h.Sections[0].Rows = 0 },
		"size of object":    func(h *SegmentHead) { h.Ref.Size++ },
		"size of section":   func(h *SegmentHead) { h.Sections[0].Size-- },
		"position":          func(h *SegmentHead) { h.Sections[0].Pos++ },
		"seq of the object": func(h *SegmentHead) { h.Ref.Seq = 1 << 63 },
	} {
		t.Run("head: "+name, func(t *testing.T) {
			h := sound()
			if _, _, err := DecodePageHead(EncodeSegmentHead(h)); err != nil {
				t.Fatal(err)
			}
			change(h)
			_, _, err := DecodePageHead(EncodeSegmentHead(h))
			requireIs(t, err, ErrCorrupt)
		})
	}
}

func FuzzDecodePage(f *testing.F) {
	f.Add(golden(f, "page.golden"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDecode(t, b, KindSegment, func(b []byte) (*Page, []byte, error) {
			cluster, p, err := DecodePageHead(b)
			if err != nil {
				return nil, nil, err
			}
			return &p, EncodeSegmentHead(&SegmentHead{
				Cluster: cluster, Ref: p.Ref,
				Sections: []Section{{Kind: SectionKeys, Rows: uint64(p.Keys), Pos: p.Pos, Size: p.Size, CRC: p.CRC}},
			}), nil
		})
	})
}
