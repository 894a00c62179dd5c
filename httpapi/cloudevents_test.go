package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
)

// flat returns a record as a list: key, value, then its headers.
func flat(r seb.Record) []string {
	out := []string{string(r.Key), string(r.Value)}
	for _, h := range r.Headers {
		out = append(out, h.Name+"="+string(h.Value))
	}
	return out
}

func wantRecords(t *testing.T, s *server, want ...[]string) {
	t.Helper()
	got := [][]string{}
	for _, r := range s.stored("orders", 0) {
		got = append(got, flat(r))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestCloudEventInHeaders(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "<paid/>", "Content-Type", "text/xml; charset=utf-8", "ce-specversion", "1.0", "ce-id", "A-1", "ce-source", "/shop",
		"ce-type", "com.example.paid", "ce-time", "2026-01-31T12:00:00Z", "ce-subject", "Euro%20%E2%82%AC%20%F0%9F%98%80%22%25", "ce-partitionkey", "42",
		"Seb-Header-Trace", "t")
	s.append("orders", "a\nb\n", "Content-Type", typeNDJSON, "Ce-Specversion", "1.0", "Ce-Id", `"quoted \"id\" 100%"`, "Ce-Source", "urn:x", "Ce-Type", "t", "Ce-Answer", "42")
	s.append("orders", "", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "x", "ce-type", "t", "Seb-Key", "k")
	wantRecords(t, s,
		[]string{"42", "<paid/>", "ce_id=A-1", "ce_partitionkey=42", "ce_source=/shop", "ce_specversion=1.0", "ce_subject=Euro \u20ac \U0001f600\"%",
			"ce_time=2026-01-31T12:00:00Z", "ce_type=com.example.paid", "content-type=text/xml; charset=utf-8", "trace=t"},
		[]string{"", "a\nb\n", "ce_answer=42", `ce_id=quoted "id" 100%`, "ce_source=urn:x", "ce_specversion=1.0", "ce_type=t", "content-type=application/x-ndjson"},
		[]string{"k", "", "ce_id=1", "ce_source=x", "ce_specversion=1.0", "ce_type=t"},
	)
	a := s.get(ordersPath + "/0")
	a.wantHeader(t, "Content-Type", "text/xml; charset=utf-8")
	a.wantHeader(t, "Seb-Header-Ce_id", "A-1")
}

func TestCloudEventAsJSON(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	const head = `{"specversion":"1.0","id":"1","source":"/s","type":"t",`
	for _, body := range []string{
		head + `"datacontenttype":"application/vnd.paid+json","data":{"n": 1.50},"partitionkey":"k"}`,
		head + `"data":"text"}`, // JSON is the default type
		head + `"data":"<a\u00e9/>","datacontenttype":"text/xml"}`,
		head + `"data_base64":"//4=","datacontenttype":"application/octet-stream"}`,
		head + `"data":null,"subject":null,"data_base64":null}`,
		head + `"big":2147483647,"small":-2147483648,"on":true,"off":false,"time":"2026-01-31T12:00:00.5+01:00","dataschema":"https://example.com/s"}`,
	} {
		s.append("orders", body, "Content-Type", "application/cloudevents+json; charset=UTF-8", "Seb-Header-A", "b")
	}
	common := []string{"a=b", "ce_specversion=1.0", "ce_id=1", "ce_source=/s", "ce_type=t"}
	with := func(key, value string, more ...string) []string {
		return append(append([]string{key, value}, common...), more...)
	}
	wantRecords(t, s,
		with("k", `{"n": 1.50}`, "content-type=application/vnd.paid+json", "ce_partitionkey=k"),
		with("", `"text"`, "content-type=application/json"),
		with("", "<a\u00e9/>", "content-type=text/xml"),
		with("", "\xff\xfe", "content-type=application/octet-stream"),
		with("", ""),
		with("", "", "ce_big=2147483647", "ce_small=-2147483648", "ce_on=true", "ce_off=false", "ce_time=2026-01-31T12:00:00.5+01:00", "ce_dataschema=https://example.com/s"),
	)
}

func TestCloudEventsInABatch(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.append("orders", `[{"specversion":"1.0","id":"1","source":"s","type":"t","data":1},
		{"specversion":"1.0","id":"2","source":"s","type":"t","partitionkey":"k","data_base64":"YQ=="}]`, "Content-Type", typeEventBatch)
	if !strings.Contains(a.body, `"count":2,"partition":0,"offset":0`) {
		t.Errorf("answer is %s", a.body)
	}
	wantRecords(t, s,
		[]string{"", "1", "ce_specversion=1.0", "ce_id=1", "ce_source=s", "ce_type=t", "content-type=application/json"},
		[]string{"k", "a", "ce_specversion=1.0", "ce_id=2", "ce_source=s", "ce_type=t", "ce_partitionkey=k"},
	)
}

func TestCloudEventRefusals(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(1)
	const head = `{"specversion":"1.0","id":"1","source":"/s","type":"t"`
	structured := func(more string) (string, []string) { return head + more + "}", []string{"Content-Type", typeEvent} }
	binary := func(more ...string) (string, []string) {
		return "x", append([]string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "t"}, more...)
	}
	batch := func(body string) (string, []string) { return body, []string{"Content-Type", typeEventBatch} }
	type request struct {
		body   string
		header []string
	}
	r := func(body string, header []string) request { return request{body, header} }
	for name, c := range map[string]struct {
		request
		detail string
	}{
		"nothing at all":          {request{"{}", []string{"Content-Type", typeEvent}}, "id, source, specversion, type"},
		"no id":                   {request{`{"specversion":"1.0","source":"s","type":"t"}`, []string{"Content-Type", typeEvent}}, "no id"},
		"null id":                 {request{`{"specversion":"1.0","id":null,"source":"s","type":"t"}`, []string{"Content-Type", typeEvent}}, "no id"},
		"empty id":                {request{`{"specversion":"1.0","id":"","source":"s","type":"t"}`, []string{"Content-Type", typeEvent}}, "not be empty"},
		"old version":             {request{`{"specversion":"0.3","id":"1","source":"s","type":"t"}`, []string{"Content-Type", typeEvent}}, "0.3"},
		"source that is no URI":   {request{`{"specversion":"1.0","id":"1","source":"%zz","type":"t"}`, []string{"Content-Type", typeEvent}}, "URI"},
		"both kinds of data":      {r(structured(`,"data":1,"data_base64":"YQ=="`)), "data_base64"},
		"text that is an object":  {r(structured(`,"data":{},"datacontenttype":"text/plain"`)), "must be a string"},
		"bad base64":              {r(structured(`,"data_base64":"Y"`)), "base64"},
		"attribute twice":         {r(structured(`,"id":"2"`)), "twice"},
		"attribute in upper case": {r(structured(`,"traceId":"2"`)), "traceId"},
		"attribute with a dash":   {r(structured(`,"trace-id":"2"`)), "trace-id"},
		"attribute without name":  {r(structured(`,"":"2"`)), `""`},
		"attribute with parts":    {r(structured(`,"trace":{"a":1}`)), "trace"},
		"attribute of a fraction": {r(structured(`,"trace":1.5`)), "trace"},
		"attribute too large":     {r(structured(`,"trace":2147483648`)), "trace"},
		"control character":       {r(structured(`,"trace":"a\u0000"`)), "trace"},
		"invalid time":            {r(structured(`,"time":"yesterday"`)), "RFC 3339"},
		"invalid type":            {r(structured(`,"datacontenttype":"a b"`)), "media type"},
		"empty key":               {r(structured(`,"partitionkey":""`)), "partitionkey"},
		"more after the end":      {r(structured(`}{`)), "more"},
		"list for an event":       {request{"[]", []string{"Content-Type", typeEvent}}, "object"},
		"event for a list":        {r(batch(head + "}")), "list"},
		"empty list":              {r(batch("[]")), "no records"},
		"second of a list":        {r(batch("[" + head + `},{"id":"2"}]`)), "record 1: the event has no source"},
		"header twice":            {r(binary("ce-a", "1", "ce-a", "2")), "2 times"},
		"header with a dash":      {r(binary("ce-a-b", "1")), "a-b"},
		"header of the data type": {r(binary("ce-datacontenttype", "text/plain")), "ce-datacontenttype"},
		"header without a name":   {r(binary("ce-", "1")), `""`},
		"header of no text":       {r(binary("ce-a", "%ff")), "text"},
		"broken content type":     {r(binary("Content-Type", "a b")), "media type"},
		"two keys":                {r(binary("ce-partitionkey", "a", "Seb-Key", "a")), "key"},
		"header of an event's":    {r(binary("Seb-Header-ce_id", "2")), "Seb-Header-ce_id"},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.post(ordersPath, c.body, c.header...).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("detail %q does not tell of %s", p.Detail, c.detail)
			}
			if p.Outcome != string(seb.NotCommitted) {
				t.Errorf("outcome is %q", p.Outcome)
			}
		})
	}
	body, header := structured("," + manyAttributes(100))
	s.post(ordersPath, body, header...).wantProblem(t, http.StatusBadRequest, seb.CodeTooManyHeaders)
	if got := s.stored("orders", 0); len(got) != 0 {
		t.Errorf("refused events left %d records", len(got))
	}
}

func manyAttributes(n int) string {
	var all []string
	for i := range n {
		all = append(all, `"x`+strings.Repeat("y", i)+`":1`)
	}
	return strings.Join(all, ",")
}

// Any body sent as an event is refused with a code, or becomes a record with
// all required attributes.
func FuzzCloudEvent(f *testing.F) {
	f.Add(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"n":1.5},"partitionkey":"k"}`, "a%20b", "text/plain")
	f.Add(`[{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"//4=","x":-5}]`, `"q\"`, "")
	s := newServer(f, seb.Options{Memory: 16 << 20}, Options{})
	f.Fuzz(func(t *testing.T, body, attribute, contentType string) {
		var lists []*recordList
		for _, mediaType := range []string{typeEvent, typeEventBatch} {
			l, err := s.handler.eventsOf(t.Context(), &appendSpec{mediaType: mediaType, partition: -1}, []byte(body))
			if err != nil && seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			if err == nil {
				lists = append(lists, l)
			}
		}
		var spec appendSpec
		header := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {attribute}, "Ce-Source": {"s"}, "Ce-Type": {attribute}, "Content-Type": {contentType}}
		switch err := spec.keepEvent(header); {
		case err == nil:
			lists = append(lists, &recordList{list: []seb.Record{spec.record(nil)}})
		case seb.CodeOf(err) == "":
			t.Fatalf("an error without code: %v", err)
		}
		for _, l := range lists {
			for _, r := range l.list {
				has := map[string]bool{}
				for _, h := range r.Headers {
					if has[h.Name] || h.Name != contentTypeHeader && checkAttribute(strings.TrimPrefix(h.Name, eventPrefix), string(h.Value)) != nil {
						t.Fatalf("header %s=%q", h.Name, h.Value)
					}
					has[h.Name] = true
				}
				if !has["ce_id"] || !has["ce_source"] || !has["ce_specversion"] || !has["ce_type"] {
					t.Fatalf("headers %v", r.Headers)
				}
			}
			l.free()
		}
	})
}
