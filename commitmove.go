package seb

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/change"
)

const moveBytes = 32 // about the memory that a position of a waiting commit takes

// moves checks the commit's new positions of consumers, and returns them as changes.
func (c Commit) moves() ([]change.CommitMove, error) {
	moves := make([]change.CommitMove, len(c.Positions))
	first := map[namedConsumer]string{}
	for i, p := range c.Positions {
		m, named := change.CommitMove{Part: fmt.Sprintf("positions/%d", i)}, namedConsumer{p.Topic, p.Consumer}
		if before, twice := first[named]; twice {
			e := refused(CodeInvalidRequest, "%s already sets the position of this consumer", before)
			e.Hint = "name each consumer once, with all of its offsets"
			return nil, e.of(m.Part)
		}
		first[named] = m.Part
		m.ConsumerName, m.IfVersion = named.names(), p.Version
		err := named.check()
		if err == nil {
			m.To, err = change.Positions(p.Offsets)
		}
		if err == nil && len(p.Expect) > 0 {
			m.Expect, err = change.Positions(p.Expect)
		}
		if err != nil {
			return nil, ofPart(m.Part, err)
		}
		moves[i] = m
	}
	return moves, nil
}
