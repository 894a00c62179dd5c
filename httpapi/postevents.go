package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/simple-event-broker/seb"
)

// eventsTopic is the topic of events whose request names none.
const eventsTopic = "events"

// eventsNeed is the need of a request that appends events.
var eventsNeed = need{declared: true, scope: seb.ScopeWrite, topic: eventsTopicOf}

func eventsTopicOf(r *http.Request) string {
	if q := r.URL.Query(); q.Has("topic") {
		return q.Get("topic")
	}
	return eventsTopic
}

// postEvents appends events, as triggers see them: what happened (event), to whom or what (entity_id), and data. Records of one
// entity have one key, so they keep their order.
func (h *Handler) postEvents(w *response, _ *http.Request) error {
	r := w.clientRequest()
	if _, err := parseQuery(r, "topic"); err != nil {
		return err
	}
	conditions, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	return h.append(w, r, &appendSpec{
		topic: eventsTopicOf(r), events: true, partition: -1, conditions: conditions,
		headers: []seb.Header{{Name: contentTypeHeader, Value: []byte(typeJSON)}},
	})
}

// postedEventsOf returns a record for the event in body, or for each event if body is a list.
func (h *Handler) postedEventsOf(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	p, err := h.newRecordsParser(ctx, spec, body)
	if err != nil {
		return nil, err
	}
	if p.json.peek() == '[' {
		err = p.json.list("the body", func(index int) error {
			if err := p.countMax(index + 1); err != nil {
				return err
			}
			return inRecord(index, p.posted(spec))
		})
	} else {
		err = p.posted(spec)
	}
	if err == nil {
		err = p.json.end()
	}
	if err != nil {
		p.out.free()
		return nil, err
	}
	return p.out, nil
}

// posted reads one event.
func (p *recordsParser) posted(spec *appendSpec) error {
	var event, entity, data []byte // the JSON of each; nil: not given
	err := p.json.object("an event", func(name []byte) (err error) {
		switch string(name) {
		case "event":
			if p.json.peek() != '"' {
				return p.json.mistyped("event", "a string")
			}
			event, err = p.json.raw()
		case "entity_id":
			if c := p.json.peek(); c != '"' && c != '-' && (c < '0' || c > '9') {
				return p.json.mistyped("entity_id", "a string or an integer")
			}
			entity, err = p.json.raw()
		case "data":
			data, err = p.json.raw()
		default:
			err = p.json.unknown("an event", name, "event, entity_id, data")
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case len(event) <= len(`""`):
		return invalid(`send {"event":"signed_up","entity_id":"42","data":{}}`, "event is missing: it is the name of what happened")
	case entity == nil || string(entity) == `""`:
		return invalid(`send {"event":"signed_up","entity_id":"42","data":{}}`, "entity_id is missing: it says to whom or what the event happened")
	}
	// While the list grows, each record may be in memory twice for a moment.
	if err := p.owe(2*recordStructBytes + len(event) + 2*len(entity) + len(data) + len(`{"event":,"entity_id":,"data":}`)); err != nil {
		return err
	}
	key, err := entityKey(entity)
	if err != nil {
		return err
	}
	value := append(append([]byte(`{"event":`), event...), `,"entity_id":`...)
	value = append(value, entity...)
	if data != nil {
		value = append(append(value, `,"data":`...), data...)
	}
	p.out.list = append(p.out.list, seb.Record{Key: key, Value: append(value, '}'), Headers: spec.headers})
	return nil
}

// entityKey returns the key of the records of an entity, which is given as JSON: a string or an integer.
func entityKey(entity []byte) ([]byte, error) {
	if entity[0] == '"' {
		j := jsonReader{text: bytes.Clone(entity)} // the reader decodes in place
		return j.string("entity_id")
	}
	id, err := strconv.ParseInt(string(entity), 10, 64)
	if err != nil {
		return nil, invalid("send it as a string", "entity_id is %.40s; a number must be an integer of 64 bits", entity)
	}
	return strconv.AppendInt(nil, id, 10), nil
}
