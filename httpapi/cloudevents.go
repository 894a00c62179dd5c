package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/simple-event-broker/seb"
)

// An event of CloudEvents 1.0 becomes a record as in binary mode of the Kafka binding:
// the attribute NAME is the header ce_NAME, but datacontenttype is the header content-type;
// the data is the value; the extension partitionkey is also the key.
// See https://github.com/cloudevents/spec, HTTP and Kafka bindings, JSON format.
const (
	typeEvent       = "application/cloudevents+json"
	typeEventBatch  = "application/cloudevents-batch+json"
	typeAnyEvent    = "application/cloudevents"
	eventWirePrefix = "Ce-" // begins the names of HTTP headers in binary mode
	eventPrefix     = "ce_" // begins the names of record headers
	partitionKey    = "partitionkey"
	dataContentType = "datacontenttype"
)

// requiredAttributes are the attributes that every event must have.
var requiredAttributes = []string{"id", "source", "specversion", "type"}

// isBinaryEvent tells whether a request has the attributes of an event in HTTP headers.
func isBinaryEvent(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, eventWirePrefix) {
			return true
		}
	}
	return false
}

// cloudEvent holds the attributes of an event that is about to become a record.
type cloudEvent struct {
	headers     []seb.Header
	contentType string
	key         []byte
}

// set adds an attribute. value is the attribute's canonical text.
func (e *cloudEvent) set(name string, value []byte) error {
	if err := checkAttribute(name, string(value)); err != nil {
		return err
	}
	switch name {
	case dataContentType:
		e.contentType = string(value)
		e.headers = append(e.headers, seb.Header{Name: contentTypeHeader, Value: value})
		return nil
	case partitionKey:
		e.key = value
	}
	e.headers = append(e.headers, seb.Header{Name: eventPrefix + name, Value: value})
	return nil
}

// checkAttribute refuses an invalid name or value of an attribute.
func checkAttribute(name, value string) error {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return invalid("names of attributes are lower-case letters and digits", "%q can't be an attribute of an event", name)
	}
	if i := strings.IndexFunc(value, unicode.IsControl); i >= 0 || !utf8.ValidString(value) {
		return invalid("", "the attribute %s is not text, or has a control character", name)
	}
	ok, should := true, "not be empty"
	switch name {
	case "id", "type", "subject", partitionKey:
		ok = value != ""
	case "specversion":
		ok, should = value == "1.0", "be 1.0, the supported version of CloudEvents"
	case "source", "dataschema":
		_, err := url.Parse(value)
		ok, should = value != "" && err == nil, "be a URI"
	case "time":
		_, err := time.Parse(time.RFC3339Nano, value)
		ok, should = err == nil, "be RFC 3339, such as 2026-01-31T12:00:00Z"
	case dataContentType:
		_, _, err := mime.ParseMediaType(value)
		ok, should = err == nil, "be a media type, such as application/json"
	}
	if !ok {
		return invalid("", "the attribute %s is %.200q; it must %s", name, value, should)
	}
	return nil
}

// complete refuses an event that lacks a required attribute.
func (e *cloudEvent) complete() error {
	var missing []string
	for _, name := range requiredAttributes {
		if !slices.ContainsFunc(e.headers, func(h seb.Header) bool { return h.Name == eventPrefix+name }) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return invalid("every CloudEvent has "+strings.Join(requiredAttributes, ", "), "the event has no %s", strings.Join(missing, ", "))
	}
	return nil
}

// isJSON tells whether the event's data is JSON. If the event names no content type, the data is JSON.
func (e *cloudEvent) isJSON() bool {
	t, _, _ := strings.Cut(strings.ToLower(e.contentType), ";")
	t = strings.TrimSpace(t)
	return t == "" || strings.HasSuffix(t, "/json") || strings.HasSuffix(t, "+json")
}

// keepEvent reads an event's attributes from the ce- headers of a request whose body is the event's data.
func (s *appendSpec) keepEvent(header http.Header) error {
	var e cloudEvent
	for name, values := range header {
		attribute, found := strings.CutPrefix(name, eventWirePrefix)
		switch attribute = strings.ToLower(attribute); {
		case !found:
			continue
		case len(values) > 1:
			return invalid("give it once", "the header ce-%s is given %d times", attribute, len(values))
		case attribute == dataContentType:
			return invalid("use the header Content-Type", "the header ce-%s is not allowed if the body is the event's data", attribute)
		}
		if err := e.set(attribute, []byte(decodeAttribute(values[0]))); err != nil {
			return err
		}
	}
	if given := header.Get("Content-Type"); given != "" {
		if err := e.set(dataContentType, []byte(given)); err != nil {
			return err
		}
	}
	if err := e.complete(); err != nil {
		return err
	}
	return s.takeEvent(&e)
}

// takeEvent adds an event's attributes to the headers of the request's records, and takes their key from the
// event if the event has one.
func (s *appendSpec) takeEvent(e *cloudEvent) error {
	for _, h := range s.headers {
		if h.Name == contentTypeHeader || strings.HasPrefix(h.Name, eventPrefix) {
			return invalid("give the event an attribute instead", "the header %s%s can't be combined with an event", headerPrefix, h.Name)
		}
	}
	if s.key != nil && e.key != nil {
		return invalid("leave one of them out", "the key is given twice: outside the event, and by its %s", partitionKey)
	}
	if e.key != nil {
		s.key = e.key
	}
	s.headers = append(s.headers, e.headers...)
	return nil
}

// decodeAttribute decodes an attribute from an HTTP header. The HTTP binding percent-encodes text that
// headers can't carry. Older versions of the binding also put the text in quotes.
func decodeAttribute(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		var plain []byte
		for i := 1; i < len(s)-1; i++ {
			if s[i] == '\\' && i+1 < len(s)-1 {
				i++
			}
			plain = append(plain, s[i])
		}
		s = string(plain)
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// eventsOf returns a record for the event in body, or for each event if body is a list.
func (h *Handler) eventsOf(ctx context.Context, spec *appendSpec, body []byte) (*recordList, error) {
	p, err := h.newRecordsParser(ctx, spec, body)
	if err != nil {
		return nil, err
	}
	if spec.mediaType == typeEvent {
		err = p.event(spec)
	} else {
		err = p.json.list("a batch of events", func(index int) error {
			if err := p.countMax(index + 1); err != nil {
				return err
			}
			return inRecord(index, p.event(spec))
		})
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

// event reads one event in the JSON format.
func (p *recordsParser) event(spec *appendSpec) error {
	var (
		e            cloudEvent
		data, base64 []byte // nil: not given
	)
	err := p.json.object("an event", func(name []byte) (err error) {
		switch string(name) {
		case "data":
			if !p.json.null() {
				data, err = p.json.raw()
			}
		case "data_base64":
			base64, err = p.base64("data_base64")
		default:
			err = p.attribute(&e, string(name))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case data != nil && base64 != nil:
		return invalid("leave one of them out", "the event has data and data_base64")
	}
	if err := e.complete(); err != nil {
		return err
	}
	if data != nil && !e.isJSON() {
		if data, err = (&jsonReader{text: data}).string("data that is not JSON by its datacontenttype"); err != nil {
			return err
		}
	}
	switch {
	case base64 != nil:
		data = base64
	case data != nil && e.contentType == "":
		if err := e.set(dataContentType, []byte(typeJSON)); err != nil { // data without datacontenttype is JSON
			return err
		}
	}
	// While the list grows, each record may be in memory twice for a moment.
	if err := p.owe(2*recordStructBytes + 2*(len(e.headers)+len(spec.headers))*headerStructBytes); err != nil {
		return err
	}
	of := appendSpec{key: spec.key, timestamp: spec.timestamp, headers: slices.Clip(spec.headers)}
	if err := of.takeEvent(&e); err != nil {
		return err
	}
	p.out.list = append(p.out.list, of.record(data))
	return nil
}

// attribute reads the value of an attribute: a string, a boolean or an integer. The value null means that
// the event doesn't have the attribute.
func (p *recordsParser) attribute(e *cloudEvent, name string) error {
	if p.json.null() {
		return nil
	}
	if len(e.headers) == p.headersMax {
		return &seb.Error{
			Code: seb.CodeTooManyHeaders, Outcome: seb.NotCommitted, Limit: int64(p.headersMax),
			Detail: fmt.Sprintf("there are more than %d attributes", p.headersMax),
		}
	}
	if p.json.peek() == '"' {
		value, err := p.json.string(name)
		if err != nil {
			return err
		}
		return e.set(name, value)
	}
	value, err := p.json.raw()
	if err != nil {
		return err
	}
	_, number := strconv.ParseInt(string(value), 10, 32)
	if number != nil && !bytes.Equal(value, []byte("true")) && !bytes.Equal(value, []byte("false")) {
		return invalid("put structured values into data", "the attribute %.200q must be a string, true, false, or an integer of 32 bits", name)
	}
	return e.set(name, value)
}
