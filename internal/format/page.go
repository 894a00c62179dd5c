package format

import (
	"bytes"
	"hash/crc32"
	"math"
)

// A page is an object under the key of a data object that has a part of the state, so that snapshots need not have it: remembered
// appends with an idempotency key. It has the prologue and the head of a segment, without batches, and one section:
//
//	3 keys: the appends, as in a snapshot; rows is their number
//
// The entry about pages:
//
//	31 page stored: seq, id (uint64 each) and size (uint32) of the object, position, size and CRC-32C of the section (uint32 each),
//	   number of appends (uint32), 0 (uint32), 16 bytes of the hash of the first append's key
const (
	entryPageStored = 31

	pageStoredSize = 56

	// SectionKeys is the kind of the only section of a page.
	SectionKeys SectionKind = 3

	// PagePos is the position of the section in a page.
	PagePos = PrologueSize + segmentFixedSize + segmentSectionSize
)

// Page says where a part of the state is: appends with an idempotency key.
type Page struct {
	Ref  DataRef
	Pos  uint32 // position of the section in the object
	Size uint32 // of the section
	CRC  uint32 // CRC-32C of the section
	Keys uint32 // number of appends
}

// PageStored says that the oldest appends with an idempotency key that are in no page are in this one.
type PageStored struct {
	Page
	First Digest // hash of the key of the first append in the page
}

func (*PageStored) kind() uint16 { return entryPageStored }
func (*PageStored) size() int    { return pageStoredSize }

func (x *PageStored) append(b []byte) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(x.Ref.Seq)), x.Ref.ID)
	for _, u := range []uint32{x.Ref.Size, x.Pos, x.Size, x.CRC, x.Keys, 0} {
		b = le.AppendUint32(b, u)
	}
	return append(b, x.First[:]...)
}

func decodePageStored(b []byte) (*PageStored, error) {
	x := &PageStored{
		Page: Page{
			Ref: DataRef{Seq: Seq(le.Uint64(b)), ID: le.Uint64(b[8:]), Size: le.Uint32(b[16:])},
			Pos: le.Uint32(b[20:]), Size: le.Uint32(b[24:]), CRC: le.Uint32(b[28:]), Keys: le.Uint32(b[32:]),
		},
		First: Digest(b[40:]),
	}
	if le.Uint32(b[36:]) != 0 {
		return nil, Corrupt("reserved bytes of an entry of kind %d are set", entryPageStored)
	}
	return x, x.Valid()
}

// Valid returns an error if no page can be at that place.
func (p *Page) Valid() error {
	if p.Keys == 0 || p.Pos != PagePos || int64(p.Pos)+int64(p.Size) != int64(p.Ref.Size) || p.Ref.Seq > math.MaxInt64 {
		return Corrupt("a page has %d keys in %d bytes at byte %d of %s, which has %d bytes", p.Keys, p.Size, p.Pos, p.Ref.Key(), p.Ref.Size)
	}
	return nil
}

// Check returns an error unless body has the bytes of the page's section.
func (p *Page) Check(body []byte) error {
	if sum := crc32.Checksum(body, castagnoli); len(body) != int(p.Size) || sum != p.CRC {
		return Corrupt("%s should have %d bytes of keys with the checksum %08x, but has %d with the checksum %08x", p.Ref.Key(), p.Size, p.CRC, len(body), sum)
	}
	return nil
}

// EncodePage returns a page, and its place. ref has the key of the object; created is the writer's wall clock in microseconds since
// 1970; body is the section.
func EncodePage(cluster ClusterID, ref DataRef, created int64, body []byte, keys uint32) ([]byte, Page) {
	ref.Size = uint32(PagePos + len(body))
	p := Page{Ref: ref, Pos: PagePos, Size: uint32(len(body)), CRC: crc32.Checksum(body, castagnoli), Keys: keys}
	head := EncodeSegmentHead(&SegmentHead{
		Cluster: cluster, Ref: ref, Created: created,
		Sections: []Section{{Kind: SectionKeys, Rows: uint64(keys), Pos: p.Pos, Size: p.Size, CRC: p.CRC}},
	})
	return append(head, body...), p
}

// IsPage reports whether b, which has at least the first [PagePos] bytes of an object, may begin a page: else it may begin a
// segment.
func IsPage(b []byte) bool {
	return len(b) >= PagePos && le.Uint32(b[PrologueSize+36:]) == 1 && bytes.Equal(b[PrologueSize+40:][:8], le.AppendUint64(nil, uint64(SectionKeys)))
}

// DecodePageHead reads the prologue and the head of a page. b has at least the first [PagePos] bytes of the object.
func DecodePageHead(b []byte) (cluster ClusterID, p Page, err error) {
	h, last, end, err := decodeSections(b)
	if err != nil {
		return ClusterID{}, Page{}, err
	}
	p = Page{Ref: h.Ref, Pos: last.Pos, Size: last.Size, CRC: last.CRC, Keys: uint32(last.Rows)}
	if len(h.Sections) != 1 || last.Kind != SectionKeys || h.Batches != 0 || last.Rows > math.MaxUint32 || end != int64(h.Ref.Size) {
		return ClusterID{}, Page{}, Corrupt("the head is not that of a page: it has %d sections and %d batches", len(h.Sections), h.Batches)
	}
	return h.Cluster, p, p.Valid()
}
