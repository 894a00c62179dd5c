package trigger

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A page is stored as a byte 1, the version; the index of the page; its clock; the number of triggers with entities in it; and for
// each of them its name, its version, the number of its entities, and each entity with the bytes of its state. Texts and bytes have
// their length before them; numbers are varints. Triggers and entities are sorted, so a page has one form.
const pageVersion = 1

// clock returns the position up to which the evaluator has decided everything.
func (v *evaluator) clock() position {
	if d := deadlineAt(v.passed); d.compare(v.at) > 0 {
		return d
	}
	return v.at
}

// storePage returns the bytes of a page, as of now.
func (v *evaluator) storePage(index int) []byte {
	p := &v.pages[index]
	of := map[string][]string{} // the entities of each trigger
	for key := range p.entities {
		if v.triggers[key.trigger] != nil {
			of[key.trigger] = append(of[key.trigger], key.entity)
		}
	}
	clock := v.clock()
	if p.clock.compare(clock) > 0 {
		clock = p.clock // it was stored later than what the evaluator has read again so far
	}
	b := binary.AppendUvarint([]byte{pageVersion}, uint64(index))
	b = clock.append(b)
	b = binary.AppendUvarint(b, uint64(len(of)))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		b = appendText(b, name)
		b = binary.AppendVarint(b, v.triggers[name].version)
		b = binary.AppendUvarint(b, uint64(len(of[name])))
		slices.Sort(of[name])
		for _, entity := range of[name] {
			b = appendText(b, entity)
			b = appendText(b, p.entities[entityKey{name, entity}])
		}
	}
	return b
}

// loadPage loads a stored page, and sets the timers of its entities. Entities of other versions of triggers are left out.
func (v *evaluator) loadPage(b []byte) error {
	if len(b) == 0 || b[0] != pageVersion {
		return fmt.Errorf("%w: a page of an unknown version", errState)
	}
	r := reader{rest: b[1:]}
	index := r.uvarint()
	if index >= pageCount {
		r.fail()
		return r.err
	}
	p := &v.pages[index]
	p.clock, p.entities = r.position(), map[entityKey]string{}
	for range r.uvarint() {
		name, version := string(r.bytes()), r.varint()
		for range r.uvarint() {
			key, state := entityKey{name, string(r.bytes())}, r.bytes()
			if r.err != nil {
				return r.err
			}
			a := v.triggers[name]
			if a == nil || a.version != version {
				continue
			}
			n, err := decodeEntity(a, state, p.clock.passed())
			if err != nil {
				return fmt.Errorf("trigger %s, entity %q: %w", name, key.entity, err)
			}
			p.entities[key] = string(state)
			if due, ok := a.machine.Deadline(&n.Entity); ok {
				v.timers.set(timer{due: due.UnixMicro(), key: key})
			}
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail()
	}
	return r.err
}
