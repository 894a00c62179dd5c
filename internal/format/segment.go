package format

// The head of a segment, after the prologue, little-endian:
//
//	offset size meaning
//	     0   16 cluster id
//	    16    8 seq in the object's key (uint64)
//	    24    8 id in the object's key (uint64)
//	    32    4 size of the whole object (uint32)
//	    36    4 number of sections (uint32)
//	    40   32 for each: kind (uint32), 0 (uint32), rows (uint64), position in the object (uint32), size (uint32),
//	            CRC-32C of the section (uint32), 0 (uint32)
//
// After the head come the sections, back to back, up to the end of the object. The kinds of sections:
//
//	1 batches: RecordBatches, back to back, sorted by topic, partition and offset; rows is their number
//	2 locations: a table of internal/sst, with a row for each batch: see segmentrow.go. It is the last section,
//	  so the end of the object is the footer of this table.
//
// A segment has one section of each of these kinds. Readers ignore sections of other kinds. The prologue's count is
// the number of batches. A page (see page.go) has such a head too, and none of these sections.
const (
	segmentFixedSize   = 40
	segmentSectionSize = 32

	// SegmentSectionsMax is how many sections a segment has at most.
	SegmentSectionsMax = 64
)

// SectionKind says what a section of a segment holds.
type SectionKind uint32

// The kinds of sections.
const (
	SectionBatches   SectionKind = 1
	SectionLocations SectionKind = 2
)

// SegmentHead is the head of a segment.
type SegmentHead struct {
	Cluster  ClusterID
	Ref      DataRef // the object's key and size
	Created  int64   // writer's wall clock in microseconds since 1970
	Batches  uint32
	Sections []Section
}

// Section is a part of a segment.
type Section struct {
	Kind SectionKind
	Rows uint64
	Pos  uint32 // position in the object, in bytes
	Size uint32 // in bytes
	CRC  uint32 // CRC-32C of all its bytes
}

// SegmentHeadSize returns the size in bytes of the prologue and the head of a segment.
func SegmentHeadSize(sections int) int {
	return PrologueSize + segmentFixedSize + segmentSectionSize*sections
}

// Section returns the section of a kind. ok is false if the segment has none.
func (h *SegmentHead) Section(kind SectionKind) (s Section, ok bool) {
	for _, s := range h.Sections {
		if s.Kind == kind {
			return s, true
		}
	}
	return Section{}, false
}

// EncodeSegmentHead returns the prologue and the head of a segment. In the object, the sections follow.
func EncodeSegmentHead(h *SegmentHead) []byte {
	b := make([]byte, PrologueSize, SegmentHeadSize(len(h.Sections)))
	b = append(b, h.Cluster[:]...)
	b = le.AppendUint64(b, uint64(h.Ref.Seq))
	b = le.AppendUint64(b, h.Ref.ID)
	b = le.AppendUint32(b, h.Ref.Size)
	b = le.AppendUint32(b, uint32(len(h.Sections)))
	for _, s := range h.Sections {
		b = le.AppendUint32(le.AppendUint32(b, uint32(s.Kind)), 0)
		b = le.AppendUint64(b, s.Rows)
		b = le.AppendUint32(le.AppendUint32(b, s.Pos), s.Size)
		b = le.AppendUint32(le.AppendUint32(b, s.CRC), 0)
	}
	putPrologue(b, KindSegment, h.Created, h.Batches)
	return b
}

// DecodeSegmentHead reads the prologue and the head of a segment. b has at least these first bytes of the object.
func DecodeSegmentHead(b []byte) (*SegmentHead, error) {
	h, last, end, err := decodeSections(b)
	if err != nil {
		return nil, err
	}
	batches, ok := h.Section(SectionBatches)
	switch {
	case !ok || last.Kind != SectionLocations:
		return nil, Corrupt("a segment has no section with batches, or its last section is not the table of locations")
	case end != int64(h.Ref.Size):
		return nil, Corrupt("a segment's sections end at byte %d, but the object has %d bytes", end, h.Ref.Size)
	case batches.Rows != uint64(h.Batches) || last.Rows != uint64(h.Batches):
		return nil, Corrupt("a segment has %d batches, but its sections have %d and %d rows", h.Batches, batches.Rows, last.Rows)
	}
	return h, nil
}

// decodeSections reads the head of an object with sections. It returns the last section, and where it ends.
func decodeSections(b []byte) (h *SegmentHead, last Section, end int64, err error) {
	p, head, err := decodeHead(b, KindSegment)
	if err != nil {
		return nil, last, 0, err
	}
	if len(head) < segmentFixedSize {
		return nil, last, 0, Corrupt("a head of %d bytes is too short for a segment", len(head))
	}
	sections := le.Uint32(head[36:])
	if want := segmentFixedSize + segmentSectionSize*int64(sections); sections > SegmentSectionsMax || int64(len(head)) != want {
		return nil, last, 0, Corrupt("a segment's head has %d bytes and %d sections; %d sections are allowed", len(head), sections, SegmentSectionsMax)
	}
	h = &SegmentHead{
		Cluster: ClusterID(head[:16]),
		Ref:     DataRef{Seq: Seq(le.Uint64(head[16:])), ID: le.Uint64(head[24:]), Size: le.Uint32(head[32:])},
		Created: p.Created,
		Batches: p.Count,
	}
	end = p.End()
	for rest := head[segmentFixedSize:]; len(rest) > 0; rest = rest[segmentSectionSize:] {
		last = Section{
			Kind: SectionKind(le.Uint32(rest)), Rows: le.Uint64(rest[8:]),
			Pos: le.Uint32(rest[16:]), Size: le.Uint32(rest[20:]), CRC: le.Uint32(rest[24:]),
		}
		if le.Uint32(rest[4:]) != 0 || le.Uint32(rest[28:]) != 0 {
			return nil, last, 0, Corrupt("reserved bytes of a segment's section are set")
		}
		if int64(last.Pos) != end {
			return nil, last, 0, Corrupt("a segment's section begins at byte %d instead of %d", last.Pos, end)
		}
		if _, twice := h.Section(last.Kind); twice {
			return nil, last, 0, Corrupt("a segment has two sections of kind %d", last.Kind)
		}
		end += int64(last.Size)
		h.Sections = append(h.Sections, last)
	}
	return h, last, end, nil
}
