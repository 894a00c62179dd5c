package explore

import "fmt"

// entry is the content of a commit of the model: a payload, or a data floor.
//
//   - The low four bits are a number from 1. No two payloads or floors share a number, so the number
//     also stands for the nonce of the commit.
//   - The next three bits tell where the payload is: 0 means in the commit itself; n from 1 to 7 means
//     in a data object whose upload began when slot n-1 was the broker's last applied slot.
//   - The highest bit marks a data floor, see the package comment.
//
// An entry with a data object is also the name of the object. A broker that uploads a payload again has
// applied more slots since the first upload. So the payload gets another entry, and the new object another
// name.
type entry uint8

const (
	numberBits       = 4
	numberMask       = 1<<numberBits - 1
	floorBit   entry = 0x80
	// beginMax is the highest slot that the method begin can return.
	beginMax = 6
)

// inData returns the entry for the payload of e in a data object. The argument is the broker's last applied
// slot when the upload begins.
func (e entry) inData(begin int) entry {
	return e&numberMask | entry(begin+1)<<numberBits
}

func (e entry) number() int { return int(e & numberMask) }

// data reports whether the payload is in a data object.
func (e entry) data() bool { return e&^numberMask != 0 && !e.floor() }

// begin returns the slot that was the broker's last applied slot when the upload began.
func (e entry) begin() int { return int(e>>numberBits) - 1 }

func (e entry) floor() bool { return e&floorBit != 0 }

// String returns the name of the entry in stories.
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
