package seb

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

const ackBytes = 256 // about what a token of a commit takes while it waits

// queueAck is one part of a [Commit].
type queueAck struct {
	part    string // its name
	queue   namedQueue
	answers []*answer // one for each token
}

// acks returns the commit's acknowledgements, checked.
func (b *Broker) acks(c Commit) ([]queueAck, error) {
	acks := make([]queueAck, len(c.Acks))
	first := map[namedQueue]string{}
	for i, p := range c.Acks {
		a := queueAck{part: fmt.Sprintf("acks/%d", i), queue: namedQueue{p.Topic, p.Queue}}
		if before, twice := first[a.queue]; twice {
			e := refused(CodeInvalidRequest, "%s names the same queue", before)
			e.Hint = "name each queue once, with all of its tokens"
			return nil, e.of(a.part)
		}
		first[a.queue] = a.part
		err := a.queue.check()
		if err == nil {
			err = checkTokens(p.Tokens)
		}
		if err != nil {
			return nil, ofPart(a.part, err)
		}
		for j, token := range p.Tokens {
			x, err := b.parseAnswer(token)
			if err != nil {
				return nil, ofPart(a.token(j), err)
			}
			a.answers = append(a.answers, x)
		}
		acks[i] = a
	}
	return acks, nil
}

// token returns the name of a token of the part.
func (a *queueAck) token(index int) string { return fmt.Sprintf("%s/tokens/%d", a.part, index) }

// Apply implements engine.Change: it acknowledges all deliveries, or none.
func (a *queueAck) Apply(d *state.Draft) ([]format.Entry, error) {
	topic, id, err := a.queue.find(d)
	if err != nil {
		return nil, ofPart(a.part, err)
	}
	good := answerable(d, topic, id, a.answers, false)
	for i, x := range a.answers {
		if x.err != nil { // also if it was done before: the rest must not be done twice
			return nil, x.err.of(a.token(i))
		}
	}
	return doneEntries(id, good), nil
}

// acks hashes acknowledgements.
func (d *digester) acks(acks []CommitAcks) {
	d.number(int64(len(acks)))
	for _, a := range acks {
		d.bytes([]byte(a.Topic))
		d.bytes([]byte(a.Queue))
		d.number(int64(len(a.Tokens)))
		for _, token := range a.Tokens {
			d.bytes([]byte(token))
		}
	}
}
