package change

import (
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// CommitEnds is a condition of a [Commit]: in the slot before the commit, the topic existed, and had exactly
// these partitions, which ended exactly there. The condition does not look at the requests that share the
// commit: their records have the log time of the commit itself.
type CommitEnds struct {
	Part  string // name of the condition
	Topic string
	ID    format.TopicID    // 0, which no topic has, stands for a topic of another log
	Ends  []format.Position // of all partitions, in ascending order
}

// AddEnds adds the condition that a caller asks for. tag is the topic's tag, such as 1f0c6a3e.7; the tags of the
// topics of this log begin with cluster.
func (x *Commit) AddEnds(topic, tag, cluster string, ends map[int32]format.Offset) error {
	e, err := newCommitEnds("ends/"+strconv.Itoa(len(x.Ends)), topic, tag, cluster, ends)
	if err != nil {
		return err
	}
	for _, before := range x.Ends {
		if before.Topic == topic {
			return ofPart(e.Part, refused(CodeInvalidRequest, "", "%s already names this topic", before.Part))
		}
	}
	x.Ends = append(x.Ends, e)
	return nil
}

// SetAfter sets the condition After.
func (x *Commit) SetAfter(t time.Time) error {
	if year := t.UTC().Year(); year < 1970 || year > 9999 {
		return ofPart(PartAfter, refused(CodeInvalidRequest, "", "the commit must be later than %s; give a time from 1970 to 9999", t.UTC().Format(time.RFC3339)))
	}
	x.After = t.UnixMicro()
	return nil
}

func newCommitEnds(part, topic, tag, cluster string, ends map[int32]format.Offset) (e CommitEnds, err error) {
	e.Part, e.Topic = part, topic
	if err := CheckTopicName(topic); err != nil {
		return e, ofPart(part, err)
	}
	if e.Ends, err = Positions(ends); err != nil {
		return e, ofPart(part, err)
	}
	of, number, _ := strings.Cut(tag, ".")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return e, ofPart(part, refused(CodeInvalidRequest, "send the id of the topic unchanged, as a cut has it", "invalid topic id %.80q", tag))
	}
	if of == cluster {
		e.ID = format.TopicID(id)
	}
	return e, nil
}

// PartAfter is the part name of the condition After of a [Commit].
const PartAfter = "after"

// check refuses the commit unless its conditions hold.
func (x *Commit) check(d *state.Draft) error {
	for _, e := range x.Ends {
		if refusal := e.check(d); refusal != nil {
			return ofPart(e.Part, refusal)
		}
	}
	if x.After != 0 && d.Time() <= x.After {
		return ofPart(PartAfter, refused(CodeTooEarly, "wait, then send the commit again",
			"the log time of the commit would be %s; it must be later than %s", timeText(d.Time()), timeText(x.After)))
	}
	return nil
}

func (e CommitEnds) check(d *state.Draft) *Refusal {
	const hint = "the log has changed since you read it: take another cut, read up to it, then decide again"
	t := d.TopicBefore(e.Topic)
	switch {
	case t == nil:
		return refused(CodeEndsConflict, hint, "there is no topic %q", e.Topic)
	case t.ID != e.ID:
		return refused(CodeEndsConflict, hint, "topic %q has another id: it was deleted and created again, or the id is from another log", e.Topic)
	case len(e.Ends) < len(t.Partitions):
		return refused(CodeEndsConflict, hint, "topic %q has %d partitions, and the condition names only %d of them", e.Topic, len(t.Partitions), len(e.Ends))
	}
	for i, want := range e.Ends {
		if int(want.Partition) != i || i >= len(t.Partitions) {
			return refused(CodeEndsConflict, hint, "topic %q has %d partitions, from 0 on; the condition names partition %d", e.Topic, len(t.Partitions), want.Partition)
		}
		if end := t.Partitions[i].End; end != want.Offset {
			return refused(CodeEndsConflict, hint, "partition %d of topic %q ended at offset %d before the commit, not at %d", i, e.Topic, end, want.Offset)
		}
	}
	return nil
}

// timeText returns a log time, in microseconds since 1970, as clients see it.
func timeText(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}
