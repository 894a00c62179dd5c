package seb

import "github.com/simple-event-broker/seb/internal/leases"

// Return gives back messages of [Queue.Receive] that nobody got to see: who asked for
// them is gone, say. The next receiver gets them, as the same attempts. It does nothing
// about those that this broker does not know to be out: their leases run out.
func (q *Queue) Return(messages []Message) (err error) {
	defer reads(&err)
	tokens := make([]string, len(messages))
	for i := range messages {
		tokens[i] = messages[i].Token
	}
	answers, err := q.parse(tokens)
	if err != nil {
		return err
	}
	d, _, err := q.ownedHere()
	if err != nil || d == nil {
		return err
	}
	var out []leases.Delivery
	for _, a := range answers {
		if a.queue == d.Queue() {
			out = append(out, a.delivery())
		}
	}
	d.Return(out...)
	return nil
}
