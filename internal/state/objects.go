package state

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// Object is an object of the store that holds batches.
type Object struct {
	// Data is true for a data object or a segment, false for a commit.
	Data bool
	// For a commit, Seq is the slot, and Tag is the first 64 bits of the nonce. For a data
	// object, Seq and Tag are the two numbers in the object's key.
	Seq, Tag uint64
	// Size is the size of the whole object in bytes.
	Size uint32
}

// object is an Object in 24 bytes. live is the number of batches in the object that the state
// still has. Below [format.LevelSegments], the state also keeps objects whose live is 0.
type object struct {
	seq  uint64 // the highest bit is set for a data object
	tag  uint64
	size uint32
	live uint32
}

const (
	dataBit      = 1 << 63
	objectsChunk = 256
)

func (o *object) Object() Object {
	return Object{Data: o.seq&dataBit != 0, Seq: o.seq &^ dataBit, Tag: o.tag, Size: o.size}
}

// objects is a list of objects by index; the indexes from first on have no gaps. A View can
// share the chunks with the state: after an object was added, the state changes only the field
// live of the object, and a View does not read that field.
type objects struct {
	first  uint64
	count  int
	cut    int   // how many objects at the beginning of the first chunk are no longer in the list
	bytes  int64 // sum of the objects' sizes
	chunks []*[objectsChunk]object
	// commits has, for each chunk, the commits that brought the objects: nil, or zero for an object, if the object came
	// before the log reached [format.LevelSegments].
	commits []*[objectsChunk]format.CommitTime
	live    int // objects with batches
}

func (o *objects) next() uint64 { return o.first + uint64(o.count) }

// place returns the number of the chunk that has an index, and the position there.
func (o *objects) place(index uint64) (chunk, at uint64) {
	i := index - o.first + uint64(o.cut)
	return i / objectsChunk, i % objectsChunk
}

func (o *objects) entry(index uint64) *object {
	chunk, at := o.place(index)
	return &o.chunks[chunk][at]
}

// commit returns the commit that brought an object; zero if the object came before the log had segments.
func (o *objects) commit(index uint64) (c format.CommitTime) {
	if chunk, at := o.place(index); o.commits[chunk] != nil {
		c = o.commits[chunk][at]
	}
	return c
}

// add adds an object that a commit brought; commit is zero below [format.LevelSegments].
func (o *objects) add(x Object, commit format.CommitTime) {
	if (o.count+o.cut)%objectsChunk == 0 {
		o.chunks, o.commits = append(o.chunks, new([objectsChunk]object)), append(o.commits, nil)
	}
	e := object{seq: x.Seq, tag: x.Tag, size: x.Size}
	if x.Data {
		e.seq |= dataBit
	}
	o.count++
	o.bytes += int64(x.Size)
	chunk, at := o.place(o.next() - 1)
	o.chunks[chunk][at] = e
	if commit == (format.CommitTime{}) {
		return
	}
	if o.commits[chunk] == nil {
		o.commits[chunk] = new([objectsChunk]format.CommitTime)
	}
	o.commits[chunk][at] = commit
}

// cutDead drops the objects without batches at the beginning of the list. Objects behind one that has batches stay.
func (o *objects) cutDead() {
	for o.count > 0 && o.entry(o.first).live == 0 {
		o.bytes -= int64(o.entry(o.first).size)
		o.first, o.count, o.cut = o.first+1, o.count-1, o.cut+1
		if o.cut == objectsChunk {
			o.chunks, o.commits, o.cut = o.chunks[1:], o.commits[1:], 0
		}
	}
	if o.count == 0 {
		o.chunks, o.commits, o.cut = nil, nil, 0
	}
}

const commitMemory = int64(unsafe.Sizeof(format.CommitTime{}))

// memory returns about how many bytes the list takes at a level of the log. From [format.LevelSegments] on, objects
// without batches leave the list soon.
func (o *objects) memory(level uint32) int64 {
	if level < format.LevelSegments {
		return int64(o.count) * objectMemory
	}
	return int64(o.live) * (objectMemory + commitMemory)
}

func (o *objects) retain(index uint64) {
	e := o.entry(index)
	if e.live++; e.live == 1 {
		o.live++
	}
}

// lives reports whether an object has batches of the tail. It goes through the list: callers ask seldom.
func (o *objects) lives(x Object) bool {
	for i := range o.count {
		if e := o.entry(o.first + uint64(i)); e.live > 0 && e.Object() == x {
			return true
		}
	}
	return false
}

// release reports whether this was the object's last batch.
func (o *objects) release(index uint64) bool {
	e := o.entry(index)
	e.live--
	if e.live == 0 {
		o.live--
	}
	return e.live == 0
}

// AllObjects iterates over the objects that the state knows, in the order of the commits that
// added them, then over the segments and the pages. The second value says whether the state still has a batch in the object.
// Objects without batches in the state are those that died: see [State.Dead]. Below [format.LevelSegments] they are
// in the list of objects.
func (s *State) AllObjects() iter.Seq2[Object, bool] {
	return func(yield func(Object, bool) bool) {
		for i := range s.objects.count {
			o := s.objects.entry(s.objects.first + uint64(i))
			if (s.level < format.LevelSegments || o.live > 0) && !yield(o.Object(), o.live > 0) {
				return
			}
		}
		for _, x := range s.segments {
			if !yield(x.object(), true) {
				return
			}
		}
		for i := range s.keyed.pages {
			if !yield(s.keyed.pages[i].object(), true) {
				return
			}
		}
		for _, o := range s.stayed() {
			if !s.objects.lives(o) && !yield(o, true) {
				return
			}
		}
		for _, d := range s.dead {
			if !yield(d.Object, false) {
				return
			}
		}
	}
}

// Stayed iterates over the batches that stay where they are since compaction could not read them, by topic, partition and offset.
func (s *State) Stayed() iter.Seq[Location] {
	return func(yield func(Location) bool) {
		for _, t := range s.topics.oldest(s.TopicCount()) {
			for i := range t.Partitions {
				for _, x := range t.Partitions[i].stays() {
					if !yield(x) {
						return
					}
				}
			}
		}
	}
}

// stayed returns the objects in which batches stay that compaction could not read, sorted.
func (s *State) stayed() []Object {
	return slices.SortedFunc(maps.Keys(s.stayObjects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Tag, b.Tag))
	})
}
