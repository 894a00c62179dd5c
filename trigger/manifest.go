package trigger

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/simple-event-broker/seb"
)

// evaluatorVersion changes when triggers decide differently from then on.
const evaluatorVersion = 1

// A manifest is stored as a byte 1, the version of this form; the version of the evaluator; the number of pages whose place is told, and
// for each its index, the offset of the record that has it, plus 1 (0: the page has no entities), and its clock; the clock of all other
// pages, which have no entities; the number of versions that have fired, and for each its name, its number and its last firing; and the
// number of topics that were read, and for each its id, the number of its partitions, and for each its number and the offset at which to
// read on, as of the earliest clock or before. Numbers are varints.
const manifestForm = 1

// manifest names the newest copy of each page.
type manifest struct {
	pages map[int]storedPage
	clock position // of the pages that are not among them
	fired map[firedVersion]lastFire
	next  map[seb.TopicID]map[int32]seb.Offset // where to read on, as of the earliest clock or before
}

// storedPage says where a page is stored.
type storedPage struct {
	at    seb.Offset // of the record; -1 if the page has no entities
	clock position
}

// firedVersion names a version of a trigger.
type firedVersion struct {
	name   string
	number int64
}

func (m *manifest) encode() []byte {
	b := binary.AppendUvarint([]byte{manifestForm}, evaluatorVersion)
	b = binary.AppendUvarint(b, uint64(len(m.pages)))
	for _, i := range slices.Sorted(maps.Keys(m.pages)) {
		p := m.pages[i]
		b = binary.AppendUvarint(b, uint64(i))
		b = binary.AppendUvarint(b, uint64(p.at+1))
		b = p.clock.append(b)
	}
	b = m.clock.append(b)
	b = binary.AppendUvarint(b, uint64(len(m.fired)))
	for _, k := range slices.SortedFunc(maps.Keys(m.fired), firedVersion.compare) {
		l := m.fired[k]
		b = binary.AppendVarint(appendText(b, k.name), k.number)
		b = appendText(l.position().append(b), l.Entity)
	}
	b = binary.AppendUvarint(b, uint64(len(m.next)))
	for _, id := range slices.Sorted(maps.Keys(m.next)) {
		b = binary.AppendUvarint(b, uint64(id))
		b = binary.AppendUvarint(b, uint64(len(m.next[id])))
		for _, p := range slices.Sorted(maps.Keys(m.next[id])) {
			b = binary.AppendUvarint(b, uint64(p))
			b = binary.AppendUvarint(b, uint64(m.next[id][p]))
		}
	}
	return b
}

func (k firedVersion) compare(other firedVersion) int {
	if k.name != other.name {
		if k.name < other.name {
			return -1
		}
		return 1
	}
	return int(k.number - other.number)
}

func decodeManifest(b []byte) (*manifest, error) {
	if len(b) == 0 || b[0] != manifestForm {
		return nil, fmt.Errorf("%w: a manifest of an unknown form", errState)
	}
	r := reader{rest: b[1:]}
	if v := r.uvarint(); r.err == nil && v != evaluatorVersion {
		return nil, fmt.Errorf("the state of triggers is of version %d of their evaluator, and this is version %d", v, evaluatorVersion)
	}
	m := &manifest{pages: map[int]storedPage{}, fired: map[firedVersion]lastFire{}, next: map[seb.TopicID]map[int32]seb.Offset{}}
	for range r.count() {
		i := r.uvarint()
		p := storedPage{at: seb.Offset(r.uvarint()) - 1, clock: r.position()}
		if i >= pageCount {
			r.fail()
		}
		if r.err != nil {
			return nil, r.err
		}
		m.pages[int(i)] = p
	}
	m.clock = r.position()
	for range r.count() {
		k := firedVersion{r.text(), r.varint()}
		at, entity := r.position(), r.text()
		if r.err != nil {
			return nil, r.err
		}
		m.fired[k] = placeOf(&firing{at: at, entity: entity})
	}
	for range r.count() {
		id := seb.TopicID(r.uvarint())
		m.next[id] = map[int32]seb.Offset{}
		for range r.count() {
			p, next := r.uvarint(), r.uvarint()
			if p > math.MaxInt32 || next > math.MaxInt64 {
				r.fail()
			}
			if r.err != nil {
				return nil, r.err
			}
			m.next[id][int32(p)] = seb.Offset(next)
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail()
	}
	return m, r.err
}
