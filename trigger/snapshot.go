package trigger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A page is stored as a byte 1, the version of this form; the index of the page; the number of triggers with entities in it; and for
// each of them its name, the number of its versions, and for each of these its number, the number of its entities, and each entity
// with its runs; then the number of its entities that have fired, and each of these with the times. Texts and bytes have their
// length before them; numbers are varints. Everything is sorted, so a page has one form.
const pageForm = 1

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
	versions := map[*trigger][]*active{}
	for a := range p.runs {
		versions[a.trigger] = append(versions[a.trigger], a)
	}
	for t := range p.fired {
		if _, has := versions[t]; !has {
			versions[t] = nil
		}
	}
	b := binary.AppendUvarint([]byte{pageForm}, uint64(index))
	b = binary.AppendUvarint(b, uint64(len(versions)))
	for _, t := range slices.SortedFunc(maps.Keys(versions), func(a, b *trigger) int { return cmp.Compare(a.name, b.name) }) {
		b = appendText(b, t.name)
		b = binary.AppendUvarint(b, uint64(len(versions[t])))
		slices.SortFunc(versions[t], func(a, b *active) int { return cmp.Compare(a.number, b.number) })
		for _, a := range versions[t] {
			b = binary.AppendVarint(b, a.number)
			b = binary.AppendUvarint(b, uint64(len(p.runs[a])))
			for _, entity := range slices.Sorted(maps.Keys(p.runs[a])) {
				b = appendText(appendText(b, entity), p.runs[a][entity])
			}
		}
		fired := p.fired[t]
		if fired == nil {
			fired = &firedEntities{}
		}
		b = binary.AppendUvarint(b, uint64(len(fired.order)))
		fired.all(func(entity string, times firedTimes) { b = appendText(appendText(b, entity), string(times)) })
	}
	return b
}

// loadPage loads a page that was stored at the given moment, and sets the timers of its entities. find returns a version, or nil if
// what the page knows of it is to be left out.
func (v *evaluator) loadPage(b []byte, clock position, find func(name string, number int64) *active) error {
	if len(b) == 0 || b[0] != pageForm {
		return fmt.Errorf("%w: a page of an unknown form", errState)
	}
	r := reader{rest: b[1:]}
	index := r.uvarint()
	if index >= pageCount {
		r.fail()
		return r.err
	}
	p := &v.pages[index]
	p.clock = clock
	for range r.count() {
		name := r.text()
		for range r.count() {
			a := find(name, r.varint())
			for range r.count() {
				if key, state := (entityKey{a, r.text()}), r.text(); r.err != nil {
					return r.err
				} else if a == nil {
					continue
				} else if err := v.loadEntity(p, key, state); err != nil {
					return err
				}
			}
		}
		t := v.triggers[name]
		for range r.count() {
			entity, times := r.text(), firedTimes(r.text())
			if r.err != nil {
				return r.err
			}
			if _, err := decodeFired(times); err != nil {
				return fmt.Errorf("trigger %s, entity %q: %w", name, entity, err)
			}
			if t != nil {
				p.putFired(t, entity, times)
			}
		}
		if r.err != nil {
			return r.err
		}
	}
	if len(r.rest) > 0 {
		r.fail()
	}
	p.dirty = false
	return r.err
}

func (v *evaluator) loadEntity(p *page, key entityKey, runs string) error {
	n, err := key.of.machine.DecodeEntity([]byte(runs), timeOf(p.clock.passed()), key.of.readSeen)
	if err != nil {
		return fmt.Errorf("trigger %s, entity %q: %w", key.of.name, key.entity, err)
	}
	p.put(key, runs)
	if due, ok := key.of.machine.Deadline(n); ok {
		v.timers.set(timer{due: due.UnixMicro(), key: key})
	}
	return nil
}
