package seb

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

const ackBytes = 256 // about what a token of a commit takes while it waits

// queueAck is one part of a [Commit].
type queueAck struct {
	name    string // of the part
	queue   *Queue
	answers []*answer // one for each token
}

// acks returns the commit's acknowledgements, checked.
func (b *Broker) acks(c Commit) ([]queueAck, error) {
	acks := make([]queueAck, len(c.Acks))
	first := map[Queue]string{}
	for i, p := range c.Acks {
		a := queueAck{name: fmt.Sprintf("acks/%d", i), queue: b.Queue(p.Topic, p.Queue)}
		if before, twice := first[*a.queue]; twice {
			e := refused(CodeInvalidRequest, "%s names the same queue", before)
			e.Hint = "name each queue once, with all of its tokens"
			return nil, e.of(a.name)
		}
		first[*a.queue] = a.name
		err := a.queue.check()
		if err == nil {
			err = checkTokens(p.Tokens)
		}
		if err != nil {
			return nil, ofPart(a.name, err)
		}
		for j, token := range p.Tokens {
			x, err := a.queue.parseOne(token)
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
func (a *queueAck) token(index int) string { return fmt.Sprintf("%s/tokens/%d", a.name, index) }

// acknowledge returns the entries that acknowledge deliveries, or the first refusal.
func acknowledge(d *state.Draft, acks []queueAck) (entries []format.Entry, _ *Error) {
	for _, a := range acks {
		topic, id, refusal := a.queue.find(d)
		if refusal != nil {
			return nil, refusal.of(a.name)
		}
		good := a.queue.answerable(d, topic, id, a.answers, false)
		for i, x := range a.answers {
			if x.err != nil { // also if it was done before: the rest must not be done twice
				return nil, x.err.of(a.token(i))
			}
		}
		entries = append(entries, doneEntries(id, good)...)
	}
	return entries, nil
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
