package driplang

import (
	"fmt"
	"time"
)

// Verdict says whether an expression is true of a sequence of events.
type Verdict int8

// The verdicts, in the order of Kleene's logic: AND takes the least of its operands, OR the greatest.
const (
	False     Verdict = -1
	Undecided Verdict = 0
	True      Verdict = 1
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case False:
		return "false"
	case Undecided:
		return "undecided"
	case True:
		return "true"
	}
	return fmt.Sprintf("Verdict(%d)", int8(v))
}

// Event is an event of an entity, as conditions see it.
type Event struct {
	Name      string            // what the events of an expression name
	LogTime   time.Time         // when it happened; windows count from it
	Data      any               // a value as of encoding/json; numbers without a fraction that fit may be int64
	Key       string            // the key of the record
	Headers   map[string]string // the headers of the record
	Topic     string            // the topic of the record
	Timestamp time.Time         // the timestamp of the record, which its producer has set
}
