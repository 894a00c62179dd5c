package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// mixed are values, and the fields in which they come with values=json.
var mixed = []struct{ value, field string }{
	{`{"order": 42}`, `"value_json":{"order": 42}`},
	{"{\r\n  \"lines\": [\n1,\n\n2 ]\n}\n", `"value_json":{  "lines": [1,2 ]}`}, // a line of NDJSON, or of an event
	{`"paid"`, `"value_json":"paid"`},
	{`"two\nlines"`, `"value_json":"two\nlines"`},
	{`-1.5e3`, `"value_json":-1.5e3`},
	{`null`, `"value_json":null`},
	{`paid`, `"value":"paid"`},
	{`{"order":42`, `"value":"{\"order\":42"`},
	{`1 2`, `"value":"1 2"`},
	{`2026-01-31`, `"value":"2026-01-31"`},
	{"true\x00", `"value":"true\u0000"`},
	{``, `"value":""`},
	{"\"\xff\"", `"value_base64":"Iv8i"`},
	{`"\ud800"`, `"value":"\"\\ud800\""`},
	{strings.Repeat("[", 2000) + strings.Repeat("]", 2000), `"value":"` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `"`},
	{`["` + strings.Repeat("x", chunkBytes) + "\",\n1]", `"value_json":["` + strings.Repeat("x", chunkBytes) + `",1]`},
}

// With values=json, each read gives values that are JSON as JSON, and other values as without it.
func TestReadsGiveJSONValuesAsJSON(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, m := range mixed {
		s.append("orders", m.value, "Content-Type", "application/octet-stream")
	}
	s.setQueue("mail", "", http.StatusCreated)
	s.setQueue("bulk", `{"max_attempts":1}`, http.StatusCreated)
	want := func(where, text string) {
		t.Helper()
		for i, m := range mixed {
			if _, after, found := strings.Cut(text, m.field+"}"); found {
				text = after
				continue
			}
			t.Fatalf("%s: there is no %.100s of record %d in %.300s", where, m.field, i, text)
		}
	}
	const query = "?values=json"
	ndjson := s.get(ordersPath + query)
	want("NDJSON", ndjson.body)
	if n := strings.Count(ndjson.body, "\n"); n != len(mixed) {
		t.Errorf("%d lines for %d records", n, len(mixed))
	}
	want("JSON", s.get(ordersPath+query, "Accept", typeJSON).body)
	want("a consumer", s.get(consumersPath+"/billing/records"+query).body)
	for where, f := range map[string]*stream{
		"a stream":              s.follow(query),
		"a consumer's stream":   s.followAt(consumersPath + "/billing/records" + query),
		"the stream of a queue": s.followAt(mailPath + "/receive" + query + "&max_in_flight=1000"),
	} {
		text := ""
		for n := 0; n < len(mixed); {
			if e := f.next(); e.data != "" {
				text += e.data
				n++
			}
		}
		want(where, text)
	}
	received := s.post(queuesPath+"/bulk/receive"+query, `{"max":100}`)
	want("a receive", received.body)
	var got struct{ Messages []wireMessage }
	received.json(t, &got)
	for _, m := range got.Messages {
		s.post(queuesPath+"/bulk/nack", `{"tokens":["`+m.Token+`"]}`).want(t, http.StatusOK)
	}
	want("dead letters", s.get(queuesPath+"/bulk/dead"+query).body)

	if a := s.get(ordersPath); strings.Contains(a.body, "value_json") {
		t.Error("values come as JSON although the request does not ask for that")
	}
	for _, path := range []string{ordersPath + "?values=text", ordersPath + "?values=", mailPath + "/dead?values=xml", consumersPath + "/billing/records?values=x"} {
		s.get(path).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	for _, path := range []string{ordersPath, consumersPath + "/billing/records"} {
		s.get(path+query, "Accept", typeBatch).wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
	}
	s.post(mailPath+"/receive?values=1", "{}").wantProblem(t, http.StatusBadRequest, seb.CodeInvalidRequest)
}

// A broker that forwards a receive to the owner of the queue, or relays the owner's stream, asks the owner for
// JSON, too.
func TestJSONValuesFromTheOwnerOfAQueue(t *testing.T) {
	peers := newPeersWithQueue(t, 2, 0)
	for range 2 {
		peers[0].append("orders", `{"order":42}`)
	}
	const want = `"value_json":{"order":42}}`
	if a := peers[1].post(mailPath+"/receive?values=json", "{}"); !strings.Contains(a.body, want) {
		t.Errorf("forwarded: %s", a.body)
	}
	f := peers[1].followAt(mailPath + "/receive?values=json")
	for {
		if e := f.next(); e.data != "" {
			if !strings.Contains(e.data, want) {
				t.Errorf("relayed: %s", e.data)
			}
			return
		}
	}
}

// FuzzJSONValues writes a record with any value: the result is one line of JSON, and has the value.
func FuzzJSONValues(f *testing.F) {
	for _, m := range mixed {
		f.Add([]byte(m.value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		var text bytes.Buffer
		out := newChunks(&text)
		defer out.free()
		out.jsonValues = true
		out.record(&seb.Record{Value: value})
		if err := out.flush(); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(text.Bytes(), "\r\n") {
			t.Fatalf("%q became several lines: %q", value, text.Bytes())
		}
		var got struct {
			Value *string         `json:"value"`
			Bytes []byte          `json:"value_base64"`
			JSON  json.RawMessage `json:"value_json"`
		}
		if err := json.Unmarshal(text.Bytes(), &got); err != nil {
			t.Fatalf("%q became %q: %v", value, text.Bytes(), err)
		}
		switch {
		case got.JSON != nil:
			var was, is bytes.Buffer
			if err := errors.Join(json.Compact(&was, value), json.Compact(&is, got.JSON)); err != nil || !bytes.Equal(was.Bytes(), is.Bytes()) {
				t.Fatalf("%q became %q: %v", value, text.Bytes(), err)
			}
		case got.Value != nil && *got.Value == string(value), value == nil, bytes.Equal(got.Bytes, value):
		default:
			t.Fatalf("%q became %q", value, text.Bytes())
		}
	})
}
