package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
)

// recordJSON is a record as brokers write it. Bytes that are not UTF-8 come in base64.
type recordJSON struct {
	Partition     int32           `json:"partition"`
	Offset        seb.Offset      `json:"offset"`
	Timestamp     time.Time       `json:"timestamp"`
	LogTime       time.Time       `json:"log_time"`
	Key           *string         `json:"key"`
	KeyBase64     []byte          `json:"key_base64"`
	Value         *string         `json:"value"`
	ValueBase64   []byte          `json:"value_base64"`
	Headers       headers[string] `json:"headers"`
	HeadersBase64 headers[[]byte] `json:"headers_base64"`
}

// record returns the record. A header whose values are partly in UTF-8 and partly in base64 has first the
// values in UTF-8.
func (j *recordJSON) record() seb.Record {
	r := seb.Record{
		Partition: j.Partition, Offset: j.Offset, Timestamp: j.Timestamp, LogTime: j.LogTime,
		Key: oneOf(j.Key, j.KeyBase64), Value: oneOf(j.Value, j.ValueBase64),
	}
	for _, h := range j.Headers {
		r.Headers = append(r.Headers, seb.Header{Name: h.name, Value: []byte(h.value)})
	}
	for _, h := range j.HeadersBase64 {
		r.Headers = append(r.Headers, seb.Header{Name: h.name, Value: h.value})
	}
	return r
}

// oneOf returns text, or raw if there is no text.
func oneOf(text *string, raw []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return raw
}

// headers are the headers of a record in their order. In JSON they are an object: a name has its value, or a
// list of values if the name repeats.
type headers[T string | []byte] []struct {
	name  string
	value T
}

// UnmarshalJSON reads the object.
func (h *headers[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	t, err := d.Token()
	if t == nil || err != nil { // null means no headers
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("headers begin with %v", t)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return err
		}
		var values []T
		if len(text) > 0 && text[0] == '[' {
			err = json.Unmarshal(text, &values)
		} else {
			values = make([]T, 1)
			err = json.Unmarshal(text, &values[0])
		}
		if err != nil {
			return err
		}
		for _, value := range values {
			*h = append(*h, struct {
				name  string
				value T
			}{name.(string), value})
		}
	}
	return nil
}

// appendRecord appends the JSON of a record that is to be appended. A negative partition is left out.
func appendRecord(b []byte, r *seb.Record, partition int32) []byte {
	b = append(b, '{')
	if r.Key != nil {
		b = append(appendBytes(b, "key", r.Key), ',')
	}
	if len(r.Headers) > 0 {
		b = append(appendHeaders(b, r.Headers), ',')
	}
	if !r.Timestamp.IsZero() {
		b = append(b, `"timestamp":"`...)
		b = r.Timestamp.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, `",`...)
	}
	if partition >= 0 {
		b = fmt.Appendf(b, `"partition":%d,`, partition)
	}
	return append(appendBytes(b, "value", r.Value), '}')
}

// appendBytes appends a field with a text, or with base64 if v is not UTF-8.
func appendBytes(b []byte, name string, v []byte) []byte {
	if utf8.Valid(v) {
		b = fmt.Appendf(b, `"%s":`, name)
		return append(b, jsonBody(string(v))...)
	}
	b = fmt.Appendf(b, `"%s_base64":"`, name)
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

// appendHeaders appends the headers: in base64 if one of them is not UTF-8, so that all of them keep their
// order.
func appendHeaders(b []byte, hs []seb.Header) []byte {
	text := true
	for _, h := range hs {
		text = text && utf8.Valid(h.Value)
	}
	if text {
		b = append(b, `"headers":{`...)
	} else {
		b = append(b, `"headers_base64":{`...)
	}
	written := map[string]bool{}
	for i, h := range hs {
		if written[h.Name] {
			continue
		}
		written[h.Name] = true
		if len(written) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, jsonBody(h.Name)...), ':', '[')
		for k, same := range hs[i:] {
			if same.Name != h.Name {
				continue
			}
			if k > 0 {
				b = append(b, ',')
			}
			if text {
				b = append(b, jsonBody(string(same.Value))...)
			} else {
				b = append(b, jsonBody(same.Value)...)
			}
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
