package seb

import "github.com/simple-event-broker/seb/internal/leases"

// Return gives back messages of [Queue.Receive] that did not reach their worker, as when its
// connection is gone. The next receiver gets them, as the same attempts. Messages that this
// broker has not leased stay as they are: their leases run out.
func (q *Queue) Return(messages []Message) (err error) {
	defer reads(&err)
	tokens := make([]string, len(messages))
	for i := range messages {
		tokens[i] = messages[i].Token
	}
	answers, err := q.b.parseAnswers(tokens)
	if err != nil {
		return err
	}
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return err
	}
	var out []leases.Delivery
	for _, a := range answers {
		if a.Queue == d.Queue() {
			out = append(out, a.Delivery)
		}
	}
	d.Return(out...)
	return nil
}
