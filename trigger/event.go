package trigger

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/driplang"
)

// The headers of an event of CloudEvents in a record, as in its Kafka binding.
const (
	ceVersion = "ce_specversion"
	ceType    = "ce_type"
	ceSubject = "ce_subject"
)

// Event is a record as triggers see it.
type Event struct {
	driplang.Event
	Entity string // whom or what it is about; empty if the record does not say so
}

// EventOf returns the event of a record:
//
//   - of CloudEvents: the name is the type, and the entity the subject, or else the key.
//   - JSON with a text in "event": the name is that, the entity is "entity_id", or else the key, and the data is "data".
//   - any other record: the name is the topic, the entity the key, and the data the value.
//
// Data is a value of JSON, or else a text, or else bytes.
func EventOf(topic string, r *seb.Record) Event {
	e := Event{Entity: string(r.Key), Event: driplang.Event{
		Name: topic, Topic: topic, Key: text(r.Key), Headers: headersOf(r), Timestamp: r.Timestamp, LogTime: r.LogTime,
	}}
	if name, is := cloudEvent(r); is {
		e.Name = name
		if subject := e.Headers[ceSubject]; subject != "" {
			e.Entity = subject
		}
		e.Data = dataOf(r.Value)
		return e
	}
	e.Data = dataOf(r.Value)
	fields, _ := e.Data.(map[string]any)
	name, named := fields["event"].(string)
	if !named || name == "" {
		return e
	}
	e.Name, e.Data = name, fields["data"]
	if entity := entityOf(fields["entity_id"]); entity != "" {
		e.Entity = entity
	}
	return e
}

// cloudEvent returns the type of an event of CloudEvents. Of a header that repeats, the last value counts.
func cloudEvent(r *seb.Record) (name string, is bool) {
	version, typed := false, false
	for _, h := range r.Headers {
		switch h.Name {
		case ceVersion:
			version = len(h.Value) > 0
		case ceType:
			name, typed = text(h.Value), true
		}
	}
	return name, version && typed
}

// headersOf returns the headers of a record. Of a name that repeats, the last value counts.
func headersOf(r *seb.Record) map[string]string {
	if len(r.Headers) == 0 {
		return nil
	}
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Name] = text(h.Value)
	}
	return headers
}

// dataOf returns the value of a record as conditions see it.
func dataOf(value []byte) any {
	if trimmed := bytes.TrimSpace(value); len(trimmed) > 0 {
		if v, err := driplang.ParseData(trimmed); err == nil {
			return v
		}
	}
	if utf8.Valid(value) {
		return string(value)
	}
	return value
}

// entityOf returns an id in JSON as a text: a text or a whole number.
func entityOf(id any) string {
	switch id := id.(type) {
	case string:
		return id
	case int64:
		return strconv.FormatInt(id, 10)
	}
	return ""
}

// text returns bytes as a text. Bytes that are no UTF-8 become the replacement character, since conditions know texts only.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
