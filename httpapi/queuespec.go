package httpapi

import (
	"math"
	"strings"

	"github.com/simple-event-broker/seb"
)

const (
	// backoffTo separates the shortest from the longest wait in the text of a back-off, such as 1s..1h.
	backoffTo = ".."
	// attemptsMax is how many attempts a queue may allow.
	attemptsMax = 1000
)

// queueSpec is the body of a request that creates or changes a queue.
type queueSpec struct {
	update seb.QueueUpdate
	from   seb.Position
	begins bool // the body has from
}

func parseQueueSpec(body []byte) (queueSpec, error) {
	s := queueSpec{from: seb.Earliest}
	u := &s.update
	err := parseFields(body, "a queue", fields{
		{"lease", durationInto(&u.Lease)},
		{"max_attempts", countInto(&u.MaxAttempts, attemptsMax)},
		{"backoff", s.backoff},
		{"dead_letter_topic", s.deadLetterTopic},
		{"order", s.order},
		{"paused", boolInto(&u.Paused)},
		{"from", s.begin},
	})
	return s, err
}

// backoff reads a back-off: the shortest and the longest wait, such as 1s..1h, or one constant wait.
func (s *queueSpec) backoff(j *jsonReader, name string) error {
	text, err := j.stringOf(name, `a string such as "1s..1h"`)
	if text == nil || err != nil {
		return err
	}
	least, most, both := strings.Cut(string(text), backoffTo)
	if !both {
		most = least
	}
	from, err := ParseDuration(least)
	to, err2 := ParseDuration(most)
	if err != nil || err2 != nil || strings.HasPrefix(most, ".") { // "1s...1h" would mean 0.1 h, six minutes
		return invalid("write 1s..1h, or 10s for a constant wait", "invalid backoff %.100q: it must be the shortest and the longest wait", text)
	}
	s.update.BackoffMin, s.update.BackoffMax = &from, &to
	return nil
}

// deadLetterTopic reads the name of the dead-letter topic. The value null means that the queue has none.
func (s *queueSpec) deadLetterTopic(j *jsonReader, name string) error {
	topic, err := j.string(name)
	s.update.DeadLetterTopic = new(string(topic))
	return err
}

func (s *queueSpec) order(j *jsonReader, name string) error {
	order, err := j.string(name)
	if order != nil {
		s.update.Order = new(seb.QueueOrder(order))
	}
	return err
}

// begin reads the position at which a new queue begins.
func (s *queueSpec) begin(j *jsonReader, name string) error {
	const forms = `"earliest", "latest" or {"offset":41}`
	const hint = "use " + forms
	s.begins = true
	if j.peek() == '{' {
		given := false
		err := j.object(name, func(field []byte) error {
			if string(field) != "offset" {
				return j.unknown(name, field, "offset")
			}
			n, there, err := j.integer("offset", 0, math.MaxInt64)
			s.from, given = seb.At(seb.Offset(n)), there
			return err
		})
		if err == nil && !given {
			err = invalid(hint, "from has no offset")
		}
		return err
	}
	text, err := j.stringOf(name, forms)
	switch {
	case err != nil || text == nil:
	case string(text) == "earliest":
		s.from = seb.Earliest
	case string(text) == "latest":
		s.from = seb.Latest
	default:
		err = invalid(hint, "invalid value of from: %.100q", text)
	}
	return err
}
