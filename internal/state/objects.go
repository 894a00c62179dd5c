package state

import "iter"

// Object is an object of the store that holds batches.
type Object struct {
	// Data is true for a data object, false for a commit.
	Data bool
	// For a commit, Seq is the slot, and Tag is the first 64 bits of the nonce. For a data
	// object, Seq and Tag are the two numbers in the object's key.
	Seq, Tag uint64
	// Size is the size of the whole object in bytes.
	Size uint32
}

// object is an Object in 24 bytes. live is the number of batches in the object that the state
// still has. The state also keeps objects whose live is 0.
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
	bytes  int64 // sum of the objects' sizes
	chunks []*[objectsChunk]object
}

func (o *objects) next() uint64 { return o.first + uint64(o.count) }

func (o *objects) entry(index uint64) *object {
	i := index - o.first
	return &o.chunks[i/objectsChunk][i%objectsChunk]
}

func (o *objects) add(x Object) {
	if o.count%objectsChunk == 0 {
		o.chunks = append(o.chunks, new([objectsChunk]object))
	}
	e := object{seq: x.Seq, tag: x.Tag, size: x.Size}
	if x.Data {
		e.seq |= dataBit
	}
	o.count++
	o.bytes += int64(x.Size)
	*o.entry(o.next() - 1) = e
}

func (o *objects) retain(index uint64)  { o.entry(index).live++ }
func (o *objects) release(index uint64) { o.entry(index).live-- }

// AllObjects iterates over the objects that the state knows, in the order of the commits that
// added them. The second value says whether the state still has a batch in the object.
func (s *State) AllObjects() iter.Seq2[Object, bool] {
	return func(yield func(Object, bool) bool) {
		for i := range s.objects.count {
			o := s.objects.entry(s.objects.first + uint64(i))
			if !yield(o.Object(), o.live > 0) {
				return
			}
		}
	}
}
