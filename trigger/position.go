package trigger

import (
	"cmp"
	"encoding/binary"
	"math"
	"time"

	"github.com/simple-event-broker/seb"
)

// position is the place of a record among the records of all topics, or the deadline at a time, which comes after all records of
// that time. Times are microseconds since 1970.
type position struct {
	time      int64
	topic     seb.TopicID // deadlineTopic is that of a deadline
	partition int32
	offset    seb.Offset
}

// deadlineTopic is an id that no topic has.
const deadlineTopic = seb.TopicID(math.MaxUint64)

// deadlineAt returns the position of the deadline at a time.
func deadlineAt(time int64) position { return position{time: time, topic: deadlineTopic} }

func (p position) compare(q position) int {
	return cmp.Or(
		cmp.Compare(p.time, q.time), cmp.Compare(p.topic, q.topic), cmp.Compare(p.partition, q.partition), cmp.Compare(p.offset, q.offset),
	)
}

// passed returns the time up to which all deadlines have passed at the position.
func (p position) passed() int64 {
	if p.topic == deadlineTopic {
		return p.time
	}
	return p.time - 1
}

// append appends the position as varints: the time, the topic plus 1 (0 is a deadline), and for a record the partition and the
// offset.
func (p position) append(b []byte) []byte {
	b = binary.AppendVarint(b, p.time)
	b = binary.AppendUvarint(b, uint64(p.topic)+1)
	if p.topic != deadlineTopic {
		b = binary.AppendUvarint(b, uint64(p.partition))
		b = binary.AppendUvarint(b, uint64(p.offset))
	}
	return b
}

// timeOf returns a time of microseconds since 1970.
func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
