package seb

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/change"
)

const ackBytes = 256 // about the memory that a token of a waiting commit takes

// acks checks the commit's acknowledgements, and returns them as changes.
func (c Commit) acks(cluster string) ([]change.CommitAck, error) {
	acks := make([]change.CommitAck, len(c.Acks))
	first := map[namedQueue]string{}
	for i, p := range c.Acks {
		a, queue := change.CommitAck{Part: fmt.Sprintf("acks/%d", i)}, namedQueue{p.Topic, p.Queue}
		a.QueueName = queue.names()
		if before, twice := first[queue]; twice {
			e := refused(CodeInvalidRequest, "%s already names this queue", before)
			e.Hint = "name each queue once, with all of its tokens"
			return nil, e.of(a.Part)
		}
		first[queue] = a.Part
		err := queue.check()
		if err == nil {
			err = checkTokens(p.Tokens)
		}
		if err != nil {
			return nil, ofPart(a.Part, err)
		}
		for j, token := range p.Tokens {
			x, err := parseAnswer(token, cluster)
			if err != nil {
				return nil, ofPart(a.TokenPart(j), err)
			}
			a.Answers = append(a.Answers, x)
		}
		acks[i] = a
	}
	return acks, nil
}
