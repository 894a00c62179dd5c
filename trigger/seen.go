package trigger

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/driplang"
)

// seen is what a run keeps of an event that counted.
type seen struct {
	at     position
	name   string
	fields map[string]any // the fields that conditions and emits use, in the form of [driplang.Event.Variables]
	event  *Event         // only while the event is being evaluated
}

// variables returns what conditions see of the event.
func (s *seen) variables() map[string]any {
	if s.event != nil {
		return s.event.Variables()
	}
	return s.fields
}

// prune returns the fields of an event that some paths lead to. An empty path leads to the event as a whole.
func prune(from map[string]any, paths [][]string) map[string]any {
	kept := map[string]any{}
	for _, path := range paths {
		if len(path) == 0 {
			return from
		}
		value, ok := from[path[0]]
		if !ok {
			continue
		}
		inner, isMap := value.(map[string]any)
		if len(path) == 1 || !isMap {
			kept[path[0]] = value
			continue
		}
		deeper := prune(inner, [][]string{path[1:]})
		if before, ok := kept[path[0]].(map[string]any); ok {
			deeper = merge(before, deeper)
		}
		kept[path[0]] = deeper
	}
	return kept
}

// merge returns the fields of two parts of one value.
func merge(a, b map[string]any) map[string]any {
	all := make(map[string]any, len(a)+len(b))
	for name, value := range a {
		all[name] = value
	}
	for name, value := range b {
		before, has := all[name].(map[string]any)
		if inner, isMap := value.(map[string]any); has && isMap {
			value = merge(before, inner)
		}
		all[name] = value
	}
	return all
}

// An event is stored as its position; its name, as the index among the names of the expression plus 1, or as 0, the length of the
// name and the name; and the length of its fields, and the fields as JSON, in which times are microseconds since 1970.

// storedFields is the JSON of the fields of an event.
type storedFields struct {
	Data    any               `json:"data,omitempty"`
	Bytes   []byte            `json:"bytes,omitempty"` // data that is no text
	Key     *string           `json:"key,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Topic   *string           `json:"topic,omitempty"`
	Time    *int64            `json:"time,omitempty"`
	LogTime *int64            `json:"log_time,omitempty"`
}

func (a *active) appendSeen(b []byte, s *seen) []byte {
	b = s.at.append(b)
	if i := slices.Index(a.names, s.name); i >= 0 {
		b = binary.AppendUvarint(b, uint64(i)+1)
	} else {
		b = binary.AppendUvarint(b, 0)
		b = appendText(b, s.name)
	}
	return appendText(b, a.storeFields(s))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// storeFields returns the fields of an event as JSON; empty if the trigger uses none.
func (a *active) storeFields(s *seen) string {
	if len(a.keeps) == 0 {
		return ""
	}
	var f storedFields
	for name, value := range prune(s.variables(), a.keeps) {
		switch v := value.(type) {
		case []byte:
			f.Bytes = v
		case map[string]string:
			f.Headers = v
		case time.Time:
			at := v.UnixMicro()
			if name == "time" {
				f.Time = &at
			} else {
				f.LogTime = &at
			}
		case string:
			switch name {
			case "key":
				f.Key = &v
			case "topic":
				f.Topic = &v
			default:
				f.Data = v
			}
		default:
			f.Data = v
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("fields of event %s: %v", s.name, err)) // they came from JSON
	}
	return string(text)
}

func loadFields(text []byte) (map[string]any, error) {
	fields := map[string]any{}
	if len(text) == 0 {
		return fields, nil
	}
	var f struct {
		storedFields
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Data != nil {
		data, err := driplang.ParseData(f.Data)
		if err != nil {
			return nil, err
		}
		fields["data"] = data
	}
	if f.Bytes != nil {
		fields["data"] = f.Bytes
	}
	if f.Key != nil {
		fields["key"] = *f.Key
	}
	if f.Headers != nil {
		fields["headers"] = f.Headers
	}
	if f.Topic != nil {
		fields["topic"] = *f.Topic
	}
	if f.Time != nil {
		fields["time"] = time.UnixMicro(*f.Time).UTC()
	}
	if f.LogTime != nil {
		fields["log_time"] = time.UnixMicro(*f.LogTime).UTC()
	}
	return fields, nil
}

func (a *active) readSeen(b []byte) (*seen, []byte, error) {
	r := reader{rest: b}
	s := &seen{at: r.position()}
	if i := r.uvarint(); i > uint64(len(a.names)) {
		r.fail()
	} else if i > 0 {
		s.name = a.names[i-1]
	} else {
		s.name = string(r.bytes())
	}
	fields := r.bytes()
	if r.err == nil {
		s.fields, r.err = loadFields(fields)
	}
	return s, r.rest, r.err
}
