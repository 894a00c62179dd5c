package trigger

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// pageCount is the number of pages into which entities are divided by a hash. Snapshots consist of pages.
const pageCount = 1024

// page has the entities of all triggers whose hash is that of the page. What it knows of an entity is kept encoded, since that takes
// a fraction of the memory.
type page struct {
	clock position                      // what a stored page already includes: earlier records do not count for it again
	runs  map[*active]map[string]string // the runs of an entity under a version of a trigger, as driplang.Machine.AppendEntity writes them
	fired map[*trigger]*firedEntities   // when an entity has fired, in any version of a trigger
	bytes int64                         // about how much memory the runs take
	dirty bool                          // the page has changed since it was stored
}

// entityKey names an entity under a version of a trigger.
type entityKey struct {
	of     *active
	entity string
}

// pageOf returns the index of the page of an entity.
func pageOf(entity string) int {
	h := fnv.New64a()
	h.Write([]byte(entity))
	return int(h.Sum64() % pageCount)
}

// entity is what a version of a trigger knows about an entity.
type entity = driplang.Entity[*seen]

// load decodes an entity, or returns a new one. Deadlines up to passed have passed.
func (p *page) load(key entityKey, passed int64) *entity {
	stored, ok := p.runs[key.of][key.entity]
	if !ok {
		return &entity{}
	}
	n, err := key.of.machine.DecodeEntity([]byte(stored), time.UnixMicro(passed), key.of.readSeen)
	if err != nil {
		panic(fmt.Sprintf("trigger %s, entity %q: %v", key.of.name, key.entity, err)) // this process has encoded it
	}
	return n
}

// save encodes an entity, or forgets it if nothing has to be kept.
func (p *page) save(key entityKey, n *entity) {
	if n.Empty() {
		p.put(key, "")
		return
	}
	p.put(key, string(key.of.machine.AppendEntity(nil, n, key.of.appendSeen)))
}

// entityBytes is about how much memory an entity takes in addition to its name and its runs: those of its map and its timer.
const entityBytes = 130

// put sets the encoded runs of an entity; empty forgets them.
func (p *page) put(key entityKey, runs string) {
	before, had := p.runs[key.of][key.entity]
	if before == runs {
		return
	}
	p.dirty = true
	p.bytes += int64(len(runs) - len(before))
	switch entry := int64(entityBytes + len(key.entity)); {
	case !had:
		p.bytes += entry
	case runs == "":
		p.bytes -= entry
	}
	if runs == "" {
		key.of.entities--
		if delete(p.runs[key.of], key.entity); len(p.runs[key.of]) == 0 {
			delete(p.runs, key.of)
		}
		return
	}
	if p.runs == nil {
		p.runs = map[*active]map[string]string{}
	}
	if p.runs[key.of] == nil {
		p.runs[key.of] = map[string]string{}
	}
	if !had {
		key.of.entities++
	}
	p.runs[key.of][key.entity] = runs
}

// firedTimes are the times at which an entity has fired, as far as the repeat of the trigger needs them: varints of the first of them,
// and of the differences between them. Times are microseconds since 1970.
type firedTimes string

func encodeFired(times []int64) firedTimes {
	var b []byte
	before := int64(0)
	for _, at := range times {
		b = binary.AppendVarint(b, at-before)
		before = at
	}
	return firedTimes(b)
}

func decodeFired(f firedTimes) (times []int64, err error) {
	r := reader{rest: []byte(f)}
	for at := int64(0); len(r.rest) > 0; times = append(times, at) {
		at += r.varint()
	}
	return times, r.err
}

// mayFire reports whether the repeat of a version allows a firing that is due at a time, and if so notes it.
func (p *page) mayFire(key entityKey, due int64) bool {
	most, per := key.of.Repeat.Limit()
	if most == 0 {
		return true
	}
	times, err := decodeFired(p.firedTimes(key))
	if err != nil {
		panic(fmt.Sprintf("trigger %s, entity %q: %v", key.of.name, key.entity, err)) // it was checked when it was loaded
	}
	if per > 0 {
		times = slices.DeleteFunc(times, func(t int64) bool { return t <= due-per.Microseconds() })
	}
	if len(times) >= most {
		return false
	}
	p.putFired(key.of.trigger, key.entity, encodeFired(append(times, due)))
	return true
}

// firedTimes returns when an entity has fired; empty if it has not.
func (p *page) firedTimes(key entityKey) firedTimes {
	return p.fired[key.of.trigger].times(key.entity)
}

// putFired sets when an entity has fired; empty forgets that.
func (p *page) putFired(t *trigger, entity string, times firedTimes) {
	p.dirty = true
	if p.fired == nil {
		p.fired = map[*trigger]*firedEntities{}
	}
	if p.fired[t] == nil {
		p.fired[t] = &firedEntities{}
	}
	if p.fired[t].set(entity, times); len(p.fired[t].order) == 0 {
		delete(p.fired, t)
	}
}

// done reports whether the entity can never fire again.
func (p *page) done(key entityKey) bool {
	return key.of.Repeat == driplang.Once && p.firedTimes(key) != ""
}
