package driplang

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// An entity is stored as these fields, which are varints of encoding/binary if nothing else is said:
//
//	runs     number of open runs, then each run
//	last     only of a counting first part: number of times, then the first time and the differences between times
//	lasting  only of a lasting first part: a byte 0; or a byte 1, a run, and a byte 1 if a run waits for the first part, else 0
//
// A run is the time at which it began (signed); for each THEN its operand, and unless that is the first one, the time from the
// beginning to its origin (signed); for each leaf how often it has happened, and if that is as often as it has to, its event, as
// the caller writes it. Times are microseconds since 1970.

// errEntity says that bytes are no entity of the program.
var errEntity = errors.New("the state of an entity is damaged")

// AppendEntity appends the state of an entity to b. event appends an event that a leaf has kept.
func (m *Machine[T]) AppendEntity(b []byte, n *Entity[T], event func([]byte, T) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(n.runs)))
	for _, r := range n.runs {
		b = m.appendRun(b, r, event)
	}
	switch m.kind {
	case counting:
		b = binary.AppendUvarint(b, uint64(len(n.last)))
		before := int64(0)
		for _, at := range n.last {
			b = binary.AppendVarint(b, at-before)
			before = at
		}
	case lasting:
		b = appendBool(b, n.lasting != nil)
		if n.lasting != nil {
			b = appendBool(m.appendRun(b, n.lasting, event), n.waits)
		}
	default:
	}
	return b
}

func (m *Machine[T]) appendRun(b []byte, r *Run[T], event func([]byte, T) []byte) []byte {
	b = binary.AppendVarint(b, r.begun)
	for i, at := range r.at {
		b = binary.AppendUvarint(b, uint64(at))
		if at > 0 {
			b = binary.AppendVarint(b, r.origins[i]-r.begun)
		}
	}
	for i, leaf := range m.leaves {
		b = binary.AppendUvarint(b, uint64(r.counts[i]))
		if r.happened(leaf) {
			b = event(b, r.Events[i])
		}
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// DecodeEntity reads what [Machine.AppendEntity] has written for the same program. All deadlines up to now must have passed.
// event reads an event from the beginning of its argument, and returns the rest.
func (m *Machine[T]) DecodeEntity(b []byte, now time.Time, event func([]byte) (T, []byte, error)) (*Entity[T], error) {
	d := decoder[T]{program: m.Program, rest: b, event: event}
	n := &Entity[T]{}
	for range d.uvarint(math.MaxUint16) {
		r := d.run()
		if d.err != nil {
			return nil, d.err
		}
		r.next = r.deadline(m.root, r.begun, moment{time: micros(now), deadline: true}, free)
		n.runs = append(n.runs, r)
	}
	switch m.kind {
	case counting:
		at := int64(0)
		for range d.uvarint(uint64(m.first.Times)) {
			at += d.varint()
			n.last = append(n.last, at)
		}
	case lasting:
		if d.bool() {
			n.lasting, n.waits = d.run(), d.bool()
		}
	default:
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = errEntity
	}
	if d.err != nil {
		return nil, d.err
	}
	return n, nil
}

// decoder reads fields. After an error, it reads zeros.
type decoder[T any] struct {
	program *Program
	rest    []byte
	event   func([]byte) (T, []byte, error)
	err     error
}

func (d *decoder[T]) run() *Run[T] {
	r := newRun[T](d.program, d.varint())
	d.program.root.eachThen(func(n *node) {
		r.at[n.then] = uint8(d.uvarint(uint64(len(n.args) - 1)))
		if r.at[n.then] > 0 {
			r.origins[n.then] = r.begun + d.varint()
		}
	})
	for i, leaf := range d.program.leaves {
		r.counts[i] = uint16(d.uvarint(uint64(leaf.Times)))
		if d.err != nil || !r.happened(leaf) {
			continue
		}
		event, rest, err := d.event(d.rest)
		if err != nil {
			d.err = err
			continue
		}
		r.Events[i], d.rest = event, rest
	}
	return r
}

// eachThen calls f for each THEN below n, in the order of their indexes.
func (n *node) eachThen(f func(*node)) {
	if n.then >= 0 {
		f(n)
	}
	for _, a := range n.args {
		a.eachThen(f)
	}
}

// uvarint reads a number from 0 to most.
func (d *decoder[T]) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.err != nil || n <= 0 || v > most {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder[T]) varint() int64 {
	v, n := binary.Varint(d.rest)
	if d.err != nil || n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder[T]) bool() bool { return d.uvarint(1) == 1 }

func (d *decoder[T]) fail() {
	if d.err == nil {
		d.err = errEntity
	}
}
