package seb

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

const moveBytes = 32 // about what a position of a commit takes while it waits

// consumerMove is one part of a [Commit].
type consumerMove struct {
	name       string // of the part
	consumer   *Consumer
	version    string
	expect, to []format.Position
	moved      string // its version after the commit
}

// moves returns the commit's moves of consumers, checked.
func (b *Broker) moves(c Commit) ([]consumerMove, error) {
	moves := make([]consumerMove, len(c.Positions))
	first := map[Consumer]string{}
	for i, p := range c.Positions {
		m := consumerMove{name: fmt.Sprintf("positions/%d", i), consumer: b.Consumer(p.Topic, p.Consumer), version: p.Version}
		if before, twice := first[*m.consumer]; twice {
			e := refused(CodeInvalidRequest, "%s names the same consumer", before)
			e.Hint = "name each consumer once, with all of its offsets"
			return nil, e.of(m.name)
		}
		first[*m.consumer] = m.name
		err := m.consumer.check()
		if err == nil {
			m.to, err = p.Offsets.positions()
		}
		if err == nil && len(p.Expect) > 0 {
			m.expect, err = p.Expect.positions()
		}
		if err != nil {
			return nil, ofPart(m.name, err)
		}
		moves[i] = m
	}
	return moves, nil
}

// move returns the entries that move consumers, or the first refusal.
func move(d *state.Draft, moves []consumerMove) ([]format.Entry, *Error) {
	entries := make([]format.Entry, len(moves))
	for i := range moves {
		m := &moves[i]
		id, refusal := m.consumer.mayCommit(d, m.to, commitOptions{version: m.version, expect: m.expect})
		if refusal != nil {
			return nil, refusal.of(m.name)
		}
		m.moved = versionOf(id, d.ConsumerVersion(id)+1)
		entries[i] = &format.PositionsMoved{Consumer: id, Positions: m.to}
	}
	return entries, nil
}
