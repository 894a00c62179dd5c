package change

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// Commit makes several changes together, or none of them. Its refusal names the part.
type Commit struct {
	Moves []CommitMove
	Acks  []CommitAck
}

// CommitMove is a part of a [Commit] that moves a consumer.
type CommitMove struct {
	Part string // its name
	MoveConsumer
}

// CommitAck is a part of a [Commit] that acknowledges records of a queue.
type CommitAck struct {
	Part string // its name
	QueueName
	Answers []*Answer
}

// TokenPart returns the name of the part that is a token of an acknowledgement.
func (a CommitAck) TokenPart(index int) string { return fmt.Sprintf("%s/tokens/%d", a.Part, index) }

// Apply implements engine.Change.
func (x *Commit) Apply(d *state.Draft) (entries []format.Entry, _ error) {
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
		if x.Err != nil { // also if it was done before: the rest must not be done twice
			return nil, ofPart(a.TokenPart(i), x.Err)
		}
	}
	return doneEntries(id, good), nil
}
