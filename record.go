package seb

import (
	"fmt"
	"strconv"
	"time"

	"github.com/simple-event-broker/seb/internal/change"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/record"
)

// Numbers that the log assigns. Each kind has its own type, so that code which
// uses the id of a topic as the id of a key does not compile.
type (
	// Offset is the position of a record in its partition. Offsets count from 0, without gaps.
	Offset = format.Offset
	// TopicID names a topic for good, also after it was deleted. 0 names no topic.
	TopicID = format.TopicID
	// KeyID names an API key for good, also after it was revoked. 0 names no key.
	KeyID = format.KeyID
	// Epoch counts the owners of a queue.
	Epoch = format.Epoch
)

// Header is a name with a value in a record. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Record is one record of a topic.
type Record struct {
	// Key chooses the partition, as Kafka's default partitioner does; nil
	// means no key, which differs from an empty key.
	Key []byte
	// Value may be empty. Append stores nil as an empty value. Reads return nil only if the
	// stored value is null, which no method of this package writes.
	Value   []byte
	Headers []Header
	// Timestamp has millisecond precision; the zero time means now.
	Timestamp time.Time

	// Partition, Offset and LogTime are set when a record is read. Append ignores them: see [ToPartition].
	Partition int32
	Offset    Offset
	// LogTime is the time of the commit that appended the record, by the store's clock, with microsecond precision. Each commit
	// has a later time than the one before, and a record keeps its LogTime wherever compaction moves it. The zero time
	// means that the log does not keep such times yet: see docs/guarantees.md.
	LogTime time.Time
}

// bytes returns the size of key, value and headers.
func (r *Record) bytes() int64 {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return int64(n)
}

// records gives records to the engine and to dispatchers. It is an engine.Records and a
// dispatch.Records.
type records []Record

// Record implements engine.Records.
func (rs records) Record(i int, r *record.Record) {
	r.Key, r.Value = rs[i].Key, rs[i].Value
	for _, h := range rs[i].Headers {
		r.Headers = append(r.Headers, record.Header{Key: h.Name, Value: h.Value})
	}
	if !rs[i].Timestamp.IsZero() {
		r.Timestamp = rs[i].Timestamp.UnixMilli()
	}
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
	fromTime
	fromOffsetOn
)

var (
	// Earliest is the first record that the partition still holds.
	Earliest = Position{}
	// Latest is the end of the partition: only records yet to come.
	Latest = Position{kind: fromLatest}
)

// At is the record at offset o. o may also be the end of the partition.
func At(o Offset) Position { return Position{fromOffset, int64(o)} }

// AtOrAfter is the record at offset o. If the partition no longer holds that record,
// AtOrAfter is the first record that the partition holds.
func AtOrAfter(o Offset) Position { return Position{fromOffsetOn, int64(o)} }

// stored returns the position in the form that changes use. For a position made by AtTime it returns the
// start of the partition: the caller of stored then searches for the first record of that time.
func (p Position) stored() change.Position {
	switch p.kind {
	case fromLatest:
		return change.Position{FromEnd: true}
	case fromLast:
		return change.Position{Offset: Offset(-max(p.n, 0)), FromEnd: true}
	case fromOffset:
		return change.Position{Offset: Offset(p.n), Exact: true}
	case fromOffsetOn:
		return change.Position{Offset: Offset(p.n)}
	default:
		return change.Position{}
	}
}

// Offset returns the offset of a position made by [At]; ok is false for all others.
func (p Position) Offset() (o Offset, ok bool) { return Offset(p.n), p.kind == fromOffset }

// Last is n records before the end of the partition, or the start of the partition if it
// holds fewer records.
func Last(n int64) Position { return Position{fromLast, n} }

// AtTime is the first record, by offset, whose timestamp is t or later, or the end of the
// partition if there is no such record. Timestamps need not ascend: later records may have
// earlier timestamps.
func AtTime(t time.Time) Position {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) > 0 {
		ms++ // round up, since timestamps have whole milliseconds
	}
	return Position{fromTime, ms}
}

// ParsePosition parses "earliest", "latest", an offset N, -N for the last N records, or a time
// in the form of RFC 3339, from 1970 on. The empty string means earliest. Errors have
// CodeInvalidRequest.
func ParsePosition(s string) (_ Position, err error) {
	defer reads(&err)
	switch s {
	case "", "earliest":
		return Earliest, nil
	case "latest":
		return Latest, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		if p := AtTime(t); p.n >= 0 && time.UnixMilli(p.n).UTC().Year() <= 9999 { // RFC 3339 has no later year
			return p, nil
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n == -1<<63 {
		return Position{}, &Error{
			Code:   CodeInvalidRequest,
			Detail: fmt.Sprintf("invalid position %q", s),
			Hint:   "use earliest, latest, an offset such as 41, -10 for the last ten records, or a time such as 2026-01-31T12:00:00Z",
		}
	}
	if s[0] == '-' {
		return Last(-n), nil
	}
	return At(Offset(n)), nil
}

// String returns a text that ParsePosition parses, except for [AtOrAfter].
func (p Position) String() string {
	switch p.kind {
	case fromLatest:
		return "latest"
	case fromOffset:
		return strconv.FormatInt(p.n, 10)
	case fromOffsetOn:
		return strconv.FormatInt(p.n, 10) + " or later"
	case fromLast:
		return "-" + strconv.FormatInt(p.n, 10)
	case fromTime:
		return time.UnixMilli(p.n).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	default:
		return "earliest"
	}
}
