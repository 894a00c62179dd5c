package httpapi

import (
	"bytes"
	"math"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// backoffTo stands between the shortest and the longest time.
	backoffTo = ".."
	// attemptsMax is how many attempts a queue may allow.
	attemptsMax = 1000
)

// fieldReader reads the value of one field of an object.
type fieldReader func(j *jsonReader, name string) error

// fields are those that an object may have.
type fields []struct {
	name string
	read fieldReader
}

func (f fields) names() string {
	var names []string
	for _, known := range f {
		names = append(names, known.name)
	}
	return strings.Join(names, ", ")
}

// parseFields reads an object whose fields are all optional; no text at all is one
// without any.
func parseFields(text []byte, what string, known fields) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	j, err := newJSONReader(text)
	if err != nil {
		return err
	}
	err = j.object(what, func(name []byte) error {
		for _, f := range known {
			if string(name) == f.name {
				return f.read(j, f.name)
			}
		}
		if len(known) == 0 {
			return invalid("there are none here", "%s has an unknown field %q at byte %d", what, name, j.at)
		}
		return j.unknown(what, name, known.names())
	})
	if err != nil {
		return err
	}
	return j.end()
}

// durationInto reads a duration; null leaves it as it is.
func durationInto(d **time.Duration) fieldReader {
	return func(j *jsonReader, name string) error {
		s, err := j.string(name)
		if s == nil || err != nil {
			return err
		}
		*d, err = parseDuration(name, string(s))
		return err
	}
}

func parseDuration(name, s string) (*time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, invalid("such as 500ms, 30s or 12h", "%s is %.100q, which is no duration", name, s)
	}
	return &d, nil
}

func countInto(n **int, lo, hi int64) fieldReader {
	return func(j *jsonReader, name string) error {
		got, given, err := j.integer(name, lo, hi)
		if given {
			*n = new(int(got))
		}
		return err
	}
}

func boolInto(b **bool) fieldReader {
	return func(j *jsonReader, name string) error {
		raw, err := j.raw()
		switch {
		case err != nil:
			return err
		case string(raw) == "null":
		case string(raw) == "true", string(raw) == "false":
			*b = new(string(raw) == "true")
		default:
			return invalid("", "%s must be true or false, at byte %d", name, j.at)
		}
		return nil
	}
}

func textInto(to *string) fieldReader {
	return func(j *jsonReader, name string) error {
		s, err := j.string(name)
		*to = string(s)
		return err
	}
}

// queueSpec is what a body says about a queue.
type queueSpec struct {
	update seb.QueueUpdate
	from   seb.Position
}

func parseQueueSpec(body []byte) (queueSpec, error) {
	s := queueSpec{from: seb.Earliest}
	u := &s.update
	err := parseFields(body, "a queue", fields{
		{"lease", durationInto(&u.Lease)},
		{"max_attempts", countInto(&u.MaxAttempts, 1, attemptsMax)},
		{"backoff", s.backoff},
		{"dead_letter_topic", s.deadLetterTopic},
		{"order", s.order},
		{"paused", boolInto(&u.Paused)},
		{"from", s.begin},
	})
	return s, err
}

// backoff reads the shortest and the longest time, or one that is both.
func (s *queueSpec) backoff(j *jsonReader, name string) error {
	text, err := j.string(name)
	if text == nil || err != nil {
		return err
	}
	least, most, both := strings.Cut(string(text), backoffTo)
	if !both {
		most = least
	}
	from, err := time.ParseDuration(least)
	to, err2 := time.ParseDuration(most)
	if err != nil || err2 != nil || strings.HasPrefix(most, ".") { // three dots and an hour would be six minutes
		return invalid("such as 1s..1h, or 10s if it is always the same", "backoff is %.100q; it must be the shortest and the longest time", text)
	}
	s.update.BackoffMin, s.update.BackoffMax = &from, &to
	return nil
}

// deadLetterTopic reads a name; null means none.
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

// begin reads where a new queue begins.
func (s *queueSpec) begin(j *jsonReader, name string) error {
	const hint = `use "earliest", "latest" or {"offset":41}`
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
			err = invalid(hint, "from holds no offset")
		}
		return err
	}
	text, err := j.string(name)
	switch {
	case err != nil || text == nil:
	case string(text) == "earliest":
		s.from = seb.Earliest
	case string(text) == "latest":
		s.from = seb.Latest
	default:
		err = invalid(hint, "from is %.100q", text)
	}
	return err
}
