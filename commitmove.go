package seb

import "fmt"

const moveBytes = 32 // about what a position of a commit takes while it waits

// consumerMove is one part of a [Commit].
type consumerMove struct {
	part string // its name
	moveConsumer
}

// moves returns the commit's moves of consumers, checked.
func (c Commit) moves() ([]consumerMove, error) {
	moves := make([]consumerMove, len(c.Positions))
	first := map[namedConsumer]string{}
	for i, p := range c.Positions {
		m := consumerMove{part: fmt.Sprintf("positions/%d", i)}
		m.namedConsumer, m.version = namedConsumer{p.Topic, p.Consumer}, p.Version
		if before, twice := first[m.namedConsumer]; twice {
			e := refused(CodeInvalidRequest, "%s names the same consumer", before)
			e.Hint = "name each consumer once, with all of its offsets"
			return nil, e.of(m.part)
		}
		first[m.namedConsumer] = m.part
		err := m.check()
		if err == nil {
			m.to, err = p.Offsets.positions()
		}
		if err == nil && len(p.Expect) > 0 {
			m.expect, err = p.Expect.positions()
		}
		if err != nil {
			return nil, ofPart(m.part, err)
		}
		moves[i] = m
	}
	return moves, nil
}
