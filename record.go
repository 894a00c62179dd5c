package seb

import (
	"fmt"
	"strconv"
	"time"
)

// Offset is the position of a record in its partition: dense, from 0.
type Offset int64

// Header is one name and value beside a record. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Record is what a topic holds.
type Record struct {
	// Key chooses the partition, as Kafka's default partitioner does; nil
	// means that there is none, which differs from an empty one.
	Key []byte
	// Value may be empty. The log makes no difference between nil and empty
	// on append; reads return nil for a null value that another client wrote.
	Value   []byte
	Headers []Header
	// Timestamp has millisecond precision; the zero time means now.
	Timestamp time.Time

	// Partition and Offset tell where a record that was read stands. Append
	// ignores them: see [ToPartition].
	Partition int32
	Offset    Offset
}

// Position is where to begin reading. The zero Position is [Earliest].
type Position struct {
	kind positionKind
	n    int64
}

type positionKind byte

const (
	fromEarliest positionKind = iota
	fromLatest
	fromOffset
	fromLast
)

var (
	// Earliest is the first record that the partition still holds.
	Earliest = Position{}
	// Latest is the end of the partition: only records yet to come.
	Latest = Position{kind: fromLatest}
)

// At is the record at offset o, or the end of the partition if o is its end.
func At(o Offset) Position { return Position{fromOffset, int64(o)} }

// Last is n records before the end of the partition, or its start if it holds fewer.
func Last(n int64) Position { return Position{fromLast, n} }

// ParsePosition reads "earliest", "latest", an offset N, or -N for the last N records.
func ParsePosition(s string) (Position, error) {
	switch s {
	case "", "earliest":
		return Earliest, nil
	case "latest":
		return Latest, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n == -1<<63 {
		return Position{}, &Error{
			Code:   CodeInvalidRequest,
			Detail: fmt.Sprintf("%q is no position", s),
			Hint:   "use earliest, latest, an offset such as 41, or -10 for the last ten records",
		}
	}
	if s[0] == '-' {
		return Last(-n), nil
	}
	return At(Offset(n)), nil
}

// String returns what ParsePosition reads.
func (p Position) String() string {
	switch p.kind {
	case fromLatest:
		return "latest"
	case fromOffset:
		return strconv.FormatInt(p.n, 10)
	case fromLast:
		return "-" + strconv.FormatInt(p.n, 10)
	default:
		return "earliest"
	}
}
