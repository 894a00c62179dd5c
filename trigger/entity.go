package trigger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// pageCount is the number of pages into which entities are divided by a hash. Snapshots consist of pages.
const pageCount = 1024

// page has the entities of all triggers whose hash is that of the page.
type page struct {
	clock    position // what a stored page already includes: earlier records do not count for it again
	entities map[entityKey]string
}

// entityKey names what a trigger knows about an entity.
type entityKey struct{ trigger, entity string }

func (k entityKey) compare(other entityKey) int {
	return cmp.Or(cmp.Compare(k.trigger, other.trigger), cmp.Compare(k.entity, other.entity))
}

// page returns the page of an entity.
func (v *evaluator) page(entity string) *page {
	h := fnv.New64a()
	h.Write([]byte(entity))
	return &v.pages[h.Sum64()%pageCount]
}

// entity is what a trigger knows about an entity.
type entity struct {
	driplang.Entity[*seen]
	fired []int64 // when it has fired, as far as the repeat needs that; microseconds since 1970
}

// load decodes an entity, or returns a new one. Deadlines up to passed have passed.
func (p *page) load(a *active, key entityKey, passed int64) *entity {
	stored, ok := p.entities[key]
	if !ok {
		return &entity{}
	}
	n, err := decodeEntity(a, []byte(stored), passed)
	if err != nil {
		panic(fmt.Sprintf("trigger %s, entity %q: %v", key.trigger, key.entity, err)) // this process has encoded it
	}
	return n
}

// save encodes an entity, or forgets it if nothing has to be kept.
func (p *page) save(a *active, key entityKey, n *entity) {
	if n.Empty() && len(n.fired) == 0 {
		delete(p.entities, key)
		return
	}
	if p.entities == nil {
		p.entities = map[entityKey]string{}
	}
	p.entities[key] = string(n.append(a, nil))
}

// An entity is stored as varints: the number of times at which it has fired, the first of these and the differences between them,
// and then what driplang.Machine.AppendEntity writes. Under the repeat `once`, nothing follows the time at which it has fired.

func (n *entity) append(a *active, b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(n.fired)))
	before := int64(0)
	for _, at := range n.fired {
		b = binary.AppendVarint(b, at-before)
		before = at
	}
	if n.done(a) {
		return b
	}
	return a.machine.AppendEntity(b, &n.Entity, a.appendSeen)
}

func decodeEntity(a *active, b []byte, passed int64) (*entity, error) {
	n := &entity{}
	r := reader{rest: b}
	count, at := r.uvarint(), int64(0)
	if count > driplang.MaxTimes {
		r.fail()
	}
	for range count {
		if r.err != nil {
			break
		}
		at += r.varint()
		n.fired = append(n.fired, at)
	}
	if r.err != nil || n.done(a) {
		return n, r.err
	}
	of, err := a.machine.DecodeEntity(r.rest, time.UnixMicro(passed), a.readSeen)
	if err != nil {
		return nil, err
	}
	n.Entity = *of
	return n, nil
}

// done reports whether the entity can never fire again.
func (n *entity) done(a *active) bool { return a.Repeat == driplang.Once && len(n.fired) > 0 }

// mayFire reports whether the repeat allows a firing that is due at a time, and if so notes it.
func (n *entity) mayFire(r driplang.Repeat, due int64) bool {
	most, per := r.Limit()
	if most == 0 {
		return true
	}
	if per > 0 {
		n.fired = slices.DeleteFunc(n.fired, func(t int64) bool { return t <= due-per.Microseconds() })
	}
	if len(n.fired) >= most {
		return false
	}
	n.fired = append(n.fired, due)
	if per == 0 {
		n.Entity = driplang.Entity[*seen]{} // it never fires again
	}
	return true
}
