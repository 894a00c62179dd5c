package change

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Commit makes several changes together, or none of them. A refusal names the part that is refused.
type Commit struct {
	// Ends and After are conditions of the commit. After is in microseconds since 1970: the log time of the
	// commit must be later. 0 means no condition.
	Ends  []CommitEnds
	After int64
	Moves []CommitMove
	Acks  []CommitAck
}

// CommitMove is a part of a [Commit] that sets positions of a consumer.
type CommitMove struct {
	Part string // name of the part
	MoveConsumer
}

// CommitAck is a part of a [Commit] that acknowledges records of a queue.
type CommitAck struct {
	Part string // name of the part
	QueueName
	Answers []*Answer
}

// TokenPart returns the part name of the token at an index of Answers, for example "acks/0/tokens/2" if
// a.Part is "acks/0".
func (a CommitAck) TokenPart(index int) string { return fmt.Sprintf("%s/tokens/%d", a.Part, index) }

// Apply implements engine.Change.
func (x *Commit) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	if err := x.check(d); err != nil {
		return nil, err
	}
	for i := range x.Moves {
		moved, err := x.Moves[i].Apply(d)
		if err != nil {
			return nil, ofPart(x.Moves[i].Part, err)
		}
		entries = append(entries, moved...)
	}
	for _, a := range x.Acks {
		done, err := a.apply(d)
		if err != nil {
			return nil, err
		}
		entries = append(entries, done...)
	}
	return entries, nil
}

// apply acknowledges all deliveries, or none.
func (a CommitAck) apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := a.find(d)
	if err != nil {
		return nil, ofPart(a.Part, err)
	}
	good := answerable(d, topic, id, a.Answers, false)
	for i, x := range a.Answers {
		// A delivery that was already acknowledged is refused, too. So a client that repeats a commit
		// can't make the other changes of the commit twice.
		if x.Err != nil {
			return nil, ofPart(a.TokenPart(i), x.Err)
		}
	}
	return doneEntries(id, good), nil
}
