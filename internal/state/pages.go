package state

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Remembered appends with an idempotency key never change, and the state forgets them in the order in which they came. So the oldest
// ones leave the snapshots for pages: objects that hold a run of them each. The state keeps them in memory as before. docs/rfcs/0003
// explains the rules.

// page is a page whose appends the state has not forgotten, at least not all of them.
type page struct {
	format.Page
	end uint64 // number of the append after the last one in the page, counted like keyed.first
}

const (
	pageMemory = int64(unsafe.Sizeof(page{}))
	// keyedSizeMin is how many bytes an append with an idempotency key takes in a snapshot at least.
	keyedSizeMin = 34
)

// object returns the object that holds the page.
func (p *page) object() Object {
	return Object{Data: true, Seq: uint64(p.Ref.Seq), Tag: p.Ref.ID, Size: p.Ref.Size}
}

// paged returns how many of the appends in the list are in pages: the first ones.
func (k *keyed) paged() int {
	if len(k.pages) == 0 || k.unread {
		return 0
	}
	return int(k.pages[len(k.pages)-1].end - k.first)
}

// snapshotBytes returns about how many bytes the append takes in a snapshot.
func (k *Keyed) snapshotBytes() int64 { return 36 + 8*int64(len(k.Ranges)) }

// Pages returns the pages that hold the oldest appends with an idempotency key, the oldest page first.
func (s *State) Pages() (pages []format.Page) {
	for i := range s.keyed.pages {
		pages = append(pages, s.keyed.pages[i].Page)
	}
	return pages
}

// Unread reports whether the state, which was decoded from a snapshot, does not have the appends in its pages: see [State.ReadPages].
func (s *State) Unread() bool { return s.keyed.unread }

// PlanPage returns the appends that the next page is to hold, if those that are in no page take about least bytes in a snapshot;
// otherwise nil. The result takes about most bytes. Callers must not change it.
func (s *State) PlanPage(least, most int64) []Keyed {
	if s.level < format.LevelSegments || s.keyed.unpaged < least || s.keyed.unread {
		return nil
	}
	list := s.keyed.list[s.keyed.paged():]
	n := 0
	for bytes := int64(0); n < len(list) && bytes < most; n++ {
		bytes += list[n].snapshotBytes()
	}
	if n == 0 {
		return nil
	}
	return slices.Clip(list[:n])
}

// EncodeKeyed returns the section of a page with these appends.
func EncodeKeyed(list []Keyed) []byte {
	size := int64(binary.MaxVarintLen64)
	for i := range list {
		size += list[i].snapshotBytes()
	}
	return appendKeyed(make([]byte, 0, size), list)
}

// KeyedSection returns all appends with an idempotency key that the state remembers, as a page with them has them.
func (s *State) KeyedSection() []byte { return EncodeKeyed(s.keyed.list) }

// DecodeKeyed returns the appends in the section of a page.
func DecodeKeyed(section []byte) ([]Keyed, error) {
	r := reader{b: section}
	list := r.keyedList()
	if len(r.b) != 0 {
		r.fail("%d bytes follow after the end of the page", len(r.b))
	}
	return list, r.err
}

func (d *Draft) takePage(x *format.PageStored) error {
	if d.page {
		return fmt.Errorf("%w: a commit names two pages", ErrNonsense)
	}
	d.page = true
	return d.CheckPage(x)
}

// CheckPage checks an entry without adding the entry to the commit. The error wraps [ErrNonsense].
func (d *Draft) CheckPage(x *format.PageStored) error {
	k := &d.s.keyed
	if d.s.level < format.LevelSegments {
		return fmt.Errorf("%w: an entry about a page at level %d of the log", ErrNonsense, d.s.level)
	}
	if err := d.CheckData(x.Ref); err != nil {
		return err
	}
	list := k.list[k.paged():]
	switch {
	case int64(x.Keys) > int64(len(list)):
		return fmt.Errorf("%w: %s has %d idempotency keys, but only %d are in no page", ErrNonsense, x.Ref.Key(), x.Keys, len(list))
	case list[0].Key != x.First:
		return fmt.Errorf("%w: %s does not begin with the oldest idempotency key that is in no page", ErrNonsense, x.Ref.Key())
	case list[0].expired(d.time):
		return fmt.Errorf("%w: the log has forgotten the first idempotency key in %s", ErrNonsense, x.Ref.Key())
	}
	body := EncodeKeyed(list[:x.Keys])
	if sum := crc32.Checksum(body, castagnoli); len(body) != int(x.Size) || sum != x.CRC {
		return fmt.Errorf("%w: %s should have %d bytes of idempotency keys with the checksum %08x, but has %d with the checksum %08x",
			ErrNonsense, x.Ref.Key(), len(body), sum, x.Size, x.CRC)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// addPage applies an entry that takePage has accepted.
func (s *State) addPage(x *format.PageStored) {
	k := &s.keyed
	from := k.paged()
	for i := range k.list[from : from+int(x.Keys)] {
		k.unpaged -= k.list[from+i].snapshotBytes()
	}
	k.pages = append(k.pages, page{x.Page, k.first + uint64(from) + uint64(x.Keys)})
	s.memory += pageMemory
}

// dropPages drops the pages whose appends are all forgotten.
func (s *State) dropPages() {
	k := &s.keyed
	n := 0
	for ; n < len(k.pages) && k.pages[n].end <= k.first; n++ {
		s.died(k.pages[n].object())
		s.memory -= pageMemory
	}
	if n > 0 {
		k.pages = slices.Clone(k.pages[n:])
	}
}

// forgetPages makes all appends appends that are in no page.
func (s *State) forgetPages() {
	k := &s.keyed
	for i := range k.list[:k.paged()] {
		k.unpaged += k.list[i].snapshotBytes()
	}
	s.memory -= int64(len(k.pages)) * pageMemory
	k.pages = nil
}

// ReadPages gives the state, which was decoded from a snapshot, the appends in its pages. bodies are the sections of the pages, in the
// order of [State.Pages]. After an error, the state is of no use.
func (s *State) ReadPages(bodies [][]byte) error {
	if !s.keyed.unread {
		return nil
	}
	old := s.keyed
	if len(bodies) != len(old.pages) {
		return fmt.Errorf("%w: %d pages were read, not %d", errSnapshot, len(bodies), len(old.pages))
	}
	s.memory -= old.bytes
	count := len(old.list)
	for _, body := range bodies {
		count += len(body) / keyedSizeMin
	}
	s.keyed = keyed{list: make([]Keyed, 0, count), index: make(map[format.Digest]uint64, count)} // it is faster if they need not grow
	for i := range old.pages {
		p := &old.pages[i]
		if err := s.readPage(p, bodies[i]); err != nil {
			return fmt.Errorf("%s: %w", p.Ref.Key(), err)
		}
		p.end = uint64(len(s.keyed.list))
		s.keyed.pages = append(s.keyed.pages, *p)
	}
	r := reader{}
	for i := range old.list {
		s.rememberKeyed(&r, &old.list[i])
	}
	s.keyed.unpaged = old.unpaged
	return r.err
}

// readPage adds the appends in a page, except those that the log has forgotten.
func (s *State) readPage(p *page, body []byte) error {
	if err := p.Check(body); err != nil {
		return err
	}
	list, err := DecodeKeyed(body)
	if err != nil {
		return err
	}
	r, before := reader{}, len(s.keyed.list)
	for i := range list {
		if len(s.keyed.list) > 0 || !list[i].expired(s.time) {
			s.rememberKeyed(&r, &list[i])
		}
	}
	if len(list) != int(p.Keys) || len(s.keyed.list) == before {
		r.fail("the page has %d keys instead of %d, or all of them are forgotten", len(list), p.Keys)
	}
	return r.err
}

// pagesSection returns the section of the snapshot about pages.
func (v *View) pagesSection() []byte {
	b := binary.AppendUvarint(nil, uint64(len(v.pages)))
	for i := range v.pages {
		p := &v.pages[i]
		b = binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, uint64(p.Ref.Seq)), p.Ref.ID)
		for _, u := range []uint32{p.Ref.Size, p.Pos, p.Size, p.Keys} {
			b = binary.AppendUvarint(b, uint64(u))
		}
		b = binary.LittleEndian.AppendUint32(b, p.CRC)
	}
	return b
}

// decodePages reads what pagesSection has written, and reports whether there are pages.
func (s *State) decodePages(r *reader) bool {
	n := r.count(17)
	for range n {
		p := format.Page{Ref: format.DataRef{Seq: format.Seq(r.max(dataBit - 1)), ID: r.fixed64()}}
		for _, u := range []*uint32{&p.Ref.Size, &p.Pos, &p.Size, &p.Keys} {
			*u = uint32(r.max(math.MaxUint32))
		}
		p.CRC = r.fixed32()
		if r.err == nil && (p.Valid() != nil || p.Ref.Seq > s.seq || int64(p.Keys)*keyedSizeMin > int64(p.Size) || slices.ContainsFunc(s.keyed.pages, func(q page) bool { return q.Ref == p.Ref })) {
			r.fail("a page at %s is invalid or repeated", p.Ref.Key())
		}
		if r.err != nil {
			return false
		}
		s.keyed.pages = append(s.keyed.pages, page{Page: p})
		unread := int64(p.Keys) * KeyedMemory(1) // an estimate, for those who don't read the pages
		s.memory += pageMemory + unread
		s.keyed.bytes += unread
	}
	s.keyed.unread = n > 0
	return n > 0
}
