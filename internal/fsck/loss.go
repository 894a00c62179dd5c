package fsck

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// loss says which records are lost with a data object, or with consecutive slots (a run).
type loss struct {
	topic   string
	first   row
	batches int
}

// lossKey names a data object, or the first slot of a run of slots.
type lossKey struct {
	data bool
	seq  format.Seq
	id   uint64
}

func (l *loss) String() string {
	if l == nil {
		return ""
	}
	s := fmt.Sprintf("; lost with it: topic %s partition %d offsets %d to %d", l.topic, l.first.partition, l.first.base, l.first.base+format.Offset(l.first.span)-1)
	if l.batches > 1 {
		s += fmt.Sprintf(" and %d more batches", l.batches-1)
	}
	return s
}

// losses returns which records are lost with the missing objects, according to the state at the end
// of the log. If that state has no batches in an object, the result has no loss for the object.
func (c *checker) losses(slots spans, data []dataKey) map[lossKey]*loss {
	lost := make(map[lossKey]*loss)
	if c.state == nil || len(slots)+len(data) == 0 {
		return lost
	}
	gone := make(map[dataKey]bool)
	for _, key := range data {
		gone[key] = true
	}
	eachRow(c.state, func(o state.Object, r row) {
		key := lossKey{seq: slots.runOf(format.Seq(o.Seq))}
		if o.Data {
			key = lossKey{true, format.Seq(o.Seq), o.Tag}
			if !gone[dataKey{key.seq, key.id}] {
				return
			}
		} else if key.seq == 0 {
			return
		}
		l := lost[key]
		if l == nil {
			l = &loss{topic: c.state.TopicByID(r.topic).Name, first: r}
			lost[key] = l
		}
		l.batches++
	})
	return lost
}
