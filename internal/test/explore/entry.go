package explore

import "fmt"

// entry is what a commit of the model brings: the number of its payload, from
// 1, in the low four bits. A number is never used twice, so that it stands for
// the nonce as well. The bits above tell where the payload is: 0 in the commit
// itself, 1 to 7 in the data object whose upload began when the slot of that
// number less 1 was applied. The highest bit is set for a commit without
// payload: the entry that no later one first refers to a data object whose
// upload began before its slot was applied.
//
// An entry with a data object is also the name of the object: a broker that uploads
// a payload again has applied more.
type entry uint8

const (
	numberBits       = 4
	numberMask       = 1<<numberBits - 1
	floorBit   entry = 0x80
	// beginMax is the highest slot after which an upload can begin.
	beginMax = 6
)

// inData returns the entry of a payload whose upload begins at a slot.
func (e entry) inData(begin int) entry {
	return e&numberMask | entry(begin+1)<<numberBits
}

func (e entry) number() int { return int(e & numberMask) }

// data reports whether the payload is in a data object.
func (e entry) data() bool { return e&^numberMask != 0 && !e.floor() }

// begin returns the slot that was applied when the upload began.
func (e entry) begin() int { return int(e>>numberBits) - 1 }

func (e entry) floor() bool { return e&floorBit != 0 }

// String is how stories call what a slot brings.
func (e entry) String() string {
	switch {
	case e == 0:
		return "nothing"
	case e.floor():
		return fmt.Sprintf("f%d, a data floor", e.number())
	case e.data():
		return fmt.Sprintf("p%d in data/%d", e.number(), e.begin())
	default:
		return fmt.Sprintf("p%d", e.number())
	}
}
