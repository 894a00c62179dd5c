package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const ordersPath = "/v1/topics/orders/records"

// stored returns the records of a partition, read through the library.
func (s *server) stored(topic string, partition int32) []seb.Record {
	s.t.Helper()
	var out []seb.Record
	for r, err := range s.broker.Read(s.t.Context(), topic, partition, seb.Earliest) {
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func values(records []seb.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

func TestAppendSingle(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	a := s.append("orders", "a value\n", "Content-Type", "text/plain; charset=utf-8", "Seb-Key", "k",
		"Seb-Timestamp", "2026-01-31T13:00:00.25+01:00", "Seb-Header-Trace", "one", "Seb-Header-Trace", "two", "Seb-Header-App", "")
	if want := `{"topic":"orders","count":1,"partition":0,"offset":0,"ranges":[{"partition":0,"offset":0,"count":1}]}` + "\n"; a.body != want {
		t.Errorf("answer is %s, want %s", a.body, want)
	}
	a.wantHeader(t, "Content-Type", "application/json")
	got := s.stored("orders", 0)[0]
	if string(got.Value) != "a value\n" || string(got.Key) != "k" || got.Timestamp.UTC().Format(timestampLayout) != "2026-01-31T12:00:00.250Z" {
		t.Errorf("stored %+v", got)
	}
	var headers []string
	for _, h := range got.Headers {
		headers = append(headers, h.Name+"="+string(h.Value))
	}
	want := []string{"app=", "content-type=text/plain; charset=utf-8", "trace=one", "trace=two"}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestAppendSingleWithoutContentType(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.append("orders", "", "Content-Type", "application/octet-stream")               // an empty value is not null
	s.append("orders", "x", "Content-Type", "application/x-www-form-urlencoded")     // curl -d
	s.append("orders", `{"records":[]}`, "Content-Type", "application/json")         // one record: the body is not parsed
	s.append("orders", "y", "Content-Type", "a/b", "Seb-Header-Content-Type", "c/d") // the record's header wins
	s.append("orders", "z", "Content-Type", "not a media type")                      // an invalid media type is not kept
	s.append("orders", "1\n2", "Content-Type", "e/f", "Content-Type", typeNDJSON)    // the first counts
	if got, want := values(s.stored("orders", 0)), []string{"", "x", `{"records":[]}`, "y", "z", "1\n2"}; !cmp.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
	var types []string
	for _, r := range s.stored("orders", 0) {
		for _, h := range r.Headers {
			types = append(types, string(h.Value))
		}
	}
	if want := []string{"application/json", "c/d", "e/f"}; !cmp.Equal(types, want) {
		t.Errorf("content types %q, want %q", types, want)
	}
}

// Values that were probably meant as records are appended as they are, and the answer says so.
func TestAppendHintsAtValuesThatLookLikeRecords(t *testing.T) {
	const list = ` {"records" : [{"value":"a"},{"value":"b"}]}`
	s := newServer(t, seb.Options{}, Options{})
	for _, c := range []struct {
		contentType, body string
		hints             string // the type that the hint names; "" without a hint
	}{
		{"application/json", list, typeRecords},
		{"application/x-www-form-urlencoded", list, typeRecords}, // curl -d
		{"", list, typeRecords},
		{"application/json", `{"records":5}`, ""},
		{typeNDJSON, list, ""},
		{typeRecords, list, ""},
		{"application/json", " [{\"a\":1},\n{\"a\":2}]", typeRecords},
		{"application/json; charset=utf-8", `["a"]`, typeRecords},
		{"application/json", `["a"`, ""},
		{"text/plain", `["a"]`, ""},
		{"application/jsonl", "{}\n{}\n", typeNDJSON},
		{"Application/NDJSON", "{}\n{}\n", typeNDJSON},
		{"application/json-lines", "{}\n{}\n", typeNDJSON},
		{"application/jsonlines", "{}\n{}\n", typeNDJSON},
		{"text/x-ndjson; charset=utf-8", "{}\n{}\n", typeNDJSON},
		{"application/jsonl", list, typeNDJSON},
		{typeNDJSON, `{"key":"a","value":"b"}`, typeRecords},
		{typeNDJSON, `{ "partition":0,"offset":1,"value":"b"}`, typeRecords},
		{typeNDJSON, `{"key":"a","amount":5}`, ""},
		{typeNDJSON, `{"id":"a","value":"b"}`, ""},
	} {
		a := s.append("orders", c.body, "Content-Type", c.contentType)
		if hint := a.Header.Get("Seb-Hint"); (hint != "") != (c.hints != "") || !strings.Contains(hint, c.hints) {
			t.Errorf("%s as %q: the hint is %q", c.body, c.contentType, hint)
		}
	}
	if got := values(s.stored("orders", 0)); got[0] != list || len(got) != 21 {
		t.Errorf("stored %q", got)
	}
}

// A POST without a body is a mistake, unless it says that it has an empty value, and what that is.
func TestAppendOfNothingNeedsAnEmptyValue(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	for _, c := range []struct {
		name, head, body string
		want             int
	}{
		{"curl -X POST", "", "", 400},
		{"only a length", "Content-Length: 0\r\n", "", 400},
		{"only a type", "Content-Type: text/plain\r\n", "", 400},
		{"only a key", "Seb-Key: k\r\n", "", 400},
		{"an empty stream", "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400},
		{"curl -d ''", "Content-Length: 0\r\nContent-Type: application/x-www-form-urlencoded\r\n", "", 201},
		{"a length and a key", "Content-Length: 0\r\nSeb-Key: k\r\n", "", 201},
		{"an event without data", "ce-specversion: 1.0\r\nce-id: 1\r\nce-source: x\r\nce-type: t\r\n", "", 201},
	} {
		a := s.exchange("POST " + ordersPath + " HTTP/1.1\r\nHost: localhost\r\n" + c.head + "\r\n" + c.body)
		if a.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, a.StatusCode, c.want, a.body)
		}
		if c.want != http.StatusCreated {
			if p := a.wantProblem(t, c.want, seb.CodeInvalidRequest); p.Outcome != string(seb.NotCommitted) || !strings.Contains(p.Hint, "Content-Length: 0") {
				t.Errorf("%s: %+v", c.name, p)
			}
		}
	}
	if got := values(s.stored("orders", 0)); !cmp.Equal(got, []string{"", "", ""}) {
		t.Errorf("stored %q", got)
	}
}

func TestAppendChoosesPartition(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", strings.NewReader(`{"partitions":4}`)).want(t, http.StatusCreated)
	var first struct{ Partition int }
	s.post(ordersPath+"?key=customer-7", "a").json(t, &first)
	for range 3 {
		var again struct{ Partition int }
		if s.post(ordersPath, "a", "Seb-Key", "customer-7").json(t, &again); again != first {
			t.Errorf("the same key went to %v, then %v", first, again)
		}
	}
	if a := s.post(ordersPath+"?partition=3&key=customer-7", "a"); !strings.Contains(a.body, `"partition":3,`) {
		t.Errorf("asked for partition 3: %s", a.body)
	}
	if got := s.stored("orders", 3); string(got[len(got)-1].Key) != "customer-7" {
		t.Errorf("the key was lost: %+v", got)
	}
	s.append("orders", "v", "Seb-Key", "") // an empty key is not the same as none
}

// The expected partitions are those that the default partitioner of Kafka's Java client chooses from 12.
func TestAppendChoosesThePartitionThatKafkaWould(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(12)
	for key, want := range map[string]int32{
		"21": 0, "foobar": 6, "abc": 3, "": 9, "a": 4, "ab": 2, "abcd": 8, "order-1": 10, "order-2": 3, "\xff\x80\xfe\x81\xfd\x82\xfc": 11,
		"cl\u00e9": 6, "\x37\xa0\xa9": 0, "\xeb\x25\x3f\x87": 1, "\xe2\x42\x1c\x2d\xc1\xe4\x3e": 6,
	} {
		answers := map[string]answer{
			"query":     s.post(ordersPath+"?key="+url.QueryEscape(key), "v"),
			"JSON":      s.post(ordersPath, fmt.Sprintf(`{"records":[{"value":"v","key_base64":%q}]}`, base64.StdEncoding.EncodeToString([]byte(key))), "Content-Type", typeRecords),
			"every one": s.post(ordersPath+"?key="+url.QueryEscape(key), "v\nv\n", "Content-Type", typeNDJSON),
		}
		if !strings.ContainsFunc(key, unicode.IsControl) {
			answers["header"] = s.post(ordersPath, "v", keyHeader, key)
		}
		for name, a := range answers {
			a.want(t, http.StatusCreated)
			var got struct{ Partition *int32 }
			if a.json(t, &got); got.Partition == nil || *got.Partition != want {
				t.Errorf("the key %q in %s went elsewhere than to %d: %s", key, name, want, a.body)
			}
		}
	}
}

// The answers to HEAD, and to If-None-Match with the record's tag, have no body.
func TestReadOneRecordWithoutItsValue(t *testing.T) {
	s := newServerWith(t, 2)
	tag := s.get(ordersPath + "/1").Header.Get("ETag")
	if other := s.get(ordersPath + "/0").Header.Get("ETag"); other == tag || tag == "" {
		t.Errorf("two records have the tags %q and %q", tag, other)
	}
	for name, a := range map[string]answer{
		"HEAD":            s.do("HEAD", ordersPath+"/1", nil),
		"the tag":         s.get(ordersPath+"/1", "If-None-Match", tag),
		"HEAD of the tag": s.do("HEAD", ordersPath+"/1", nil, "If-None-Match", tag),
		"any tag":         s.get(ordersPath+"/1", "If-None-Match", "*"),
	} {
		want := http.StatusNotModified
		if name == "HEAD" {
			want = http.StatusOK
			a.wantHeader(t, "Content-Length", "1")
		}
		a.want(t, want)
		a.wantHeader(t, "ETag", tag)
		a.wantHeader(t, "Cache-Control", "private, no-cache")
		if a.body != "" {
			t.Errorf("%s: got %q", name, a.body)
		}
	}
	s.get(ordersPath+"/1", "If-None-Match", `"another"`).want(t, http.StatusOK)
}

func TestAppendNDJSON(t *testing.T) {
	for _, c := range []struct {
		body string
		want []string
	}{
		{"{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}},
		{"one\ntwo", []string{"one", "two"}},
		{"\n", []string{""}},
		{"a\n\n\r\nb\r\n", []string{"a", "", "\r", "b\r"}},
		{"\xff\xfe\n", []string{"\xff\xfe"}},
	} {
		s := newServer(t, seb.Options{}, Options{})
		s.append("orders", c.body, "Content-Type", "application/x-ndjson; charset=utf-8", "Seb-Key", "k", "Seb-Header-A", "b")
		got := s.stored("orders", 0)
		if !cmp.Equal(values(got), c.want) {
			t.Errorf("%q became %q, want %q", c.body, values(got), c.want)
		}
		for _, r := range got {
			if string(r.Key) != "k" || len(r.Headers) != 1 || r.Headers[0].Name != "a" {
				t.Errorf("%q: record without what the request says of all: %+v", c.body, r)
			}
		}
	}
}

func TestAppendBatch(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	want := []string{"one", "", "three\n", strings.Repeat("x", 100_000)}
	a := s.append("orders", string(batchBody(want...)), "Content-Type", typeBatch)
	if !strings.Contains(a.body, `"count":4,"partition":0,"offset":0`) {
		t.Errorf("answer is %s", a.body)
	}
	if got := values(s.stored("orders", 0)); !cmp.Equal(got, want) {
		t.Errorf("stored %.100q, want %.100q", got, want)
	}
}

func TestAppendRecordsJSON(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", strings.NewReader(`{"partitions":2}`)).want(t, http.StatusCreated)
	const body = `{"records":[
		{"value":"text \u00e9 \ud83d\ude00","key":"k","headers":{"a":"1","b":["2","3"]},"timestamp":"2026-01-31T12:00:00Z","partition":1},
		{"value_base64":"//4=","key_base64":"/w==","headers_base64":{"c":"/w=="},"partition":1},
		{"value_json": {"n": [1, 2.50, null]} ,"key":null,"headers":null,"timestamp":null,"partition":null},
		{"value_json":null,"value":null,"partition":1},
		{"value":""}]}`
	a := s.post(ordersPath+"?partition=0", body, "Content-Type", typeRecords)
	a.want(t, http.StatusCreated)
	want := `{"topic":"orders","count":5,"ranges":[{"partition":0,"offset":0,"count":2},{"partition":1,"offset":0,"count":3}]}` + "\n"
	if a.body != want {
		t.Errorf("answer is %s, want %s", a.body, want)
	}
	zero, one := s.stored("orders", 0), s.stored("orders", 1)
	if got, want := values(zero), []string{`{"n": [1, 2.50, null]}`, ""}; !cmp.Equal(got, want) {
		t.Errorf("partition 0 has %q, want %q", got, want)
	}
	if got, want := values(one), []string{"text é 😀", "\xff\xfe", "null"}; !cmp.Equal(got, want) {
		t.Errorf("partition 1 has %q, want %q", got, want)
	}
	headers := []seb.Header{{Name: "a", Value: []byte("1")}, {Name: "b", Value: []byte("2")}, {Name: "b", Value: []byte("3")}}
	if string(one[0].Key) != "k" || !cmp.Equal(one[0].Headers, headers) || one[0].Timestamp.UTC().Format(timestampLayout) != "2026-01-31T12:00:00.000Z" {
		t.Errorf("first record is %+v", one[0])
	}
	if string(one[1].Key) != "\xff" || string(one[1].Headers[0].Value) != "\xff" || zero[0].Key != nil {
		t.Errorf("records are %+v, %+v", one[1], zero[0])
	}
}

func TestAppendRefusals(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.do("PUT", "/v1/topics/orders", nil).want(t, http.StatusCreated)
	js := func(record string) string { return `{"records":[{"value":"ok"},` + record + `]}` }
	for _, c := range []struct {
		name, query, mediaType, body string
		header                       []string
		status                       int
		code                         seb.Code
		detail                       string
	}{
		{"an unknown parameter", "?partion=1", "", "x", nil, 400, seb.CodeInvalidRequest, `"partion"`},
		{"a parameter twice", "?partition=0&partition=0", "", "x", nil, 400, seb.CodeInvalidRequest, "2 times"},
		{"a broken query", "?key=%zz", "", "x", nil, 400, seb.CodeInvalidRequest, "malformed"},
		{"an invalid partition", "?partition=-1", "", "x", nil, 400, seb.CodeInvalidRequest, "partition"},
		{"a partition beyond int32", "?partition=4294967296", "", "x", nil, 400, seb.CodeInvalidRequest, "partition"},
		{"a partition that isn't there", "?partition=1", "", "x", nil, 404, seb.CodePartitionNotFound, ""},
		{"if_offset below zero", "?if_offset=-1", "", "x", nil, 400, seb.CodeInvalidRequest, "if_offset"},
		{"if_offset without a number", "?if_offset=latest", "", "x", nil, 400, seb.CodeInvalidRequest, "if_offset"},
		{"an empty idempotency key", "", "", "x", []string{"Idempotency-Key", ""}, 400, seb.CodeInvalidRequest, "1 to 255 bytes"},
		{"two idempotency keys", "", "", "x", []string{"Idempotency-Key", "1", "Idempotency-Key", "2"}, 400, seb.CodeInvalidRequest, "Idempotency-Key"},
		{"an unknown header", "", "", "x", []string{"Seb-Mood", "fine"}, 400, seb.CodeInvalidRequest, "Seb-Mood"},
		{"an invalid delay", "", "", "x", []string{"Seb-Delay", "soon"}, 400, seb.CodeInvalidRequest, "Seb-Delay"},
		{"a negative delay", "", "", "x", []string{"Seb-Delay", "-1s"}, 400, seb.CodeInvalidRequest, "-1s; it must be 0s"},
		{"a delay of more than a year", "", typeNDJSON, "x", []string{"Seb-Delay", "8785h"}, 400, seb.CodeInvalidRequest, "366 days"},
		{"two delays", "", "", "x", []string{"Seb-Delay", "1s", "Seb-Delay", "2s"}, 400, seb.CodeInvalidRequest, "Seb-Delay"},
		{"an invalid time", "", "", "x", []string{"Seb-Deliver-At", "10m"}, 400, seb.CodeInvalidRequest, "Seb-Deliver-At"},
		{"a time in more than a year", "", typeBatch, string(batchBody("x")), []string{"Seb-Deliver-At", "2999-01-01T00:00:00Z"}, 400, seb.CodeInvalidRequest, "366 days"},
		{"a delay and a time", "", "", "x", []string{"Seb-Delay", "0s", "Seb-Deliver-At", "2026-01-31T12:00:00Z"}, 400, seb.CodeInvalidRequest, "Seb-Deliver-At"},
		{"a header without a name", "", "", "x", []string{"Seb-Header-", "v"}, 400, seb.CodeInvalidRequest, "Seb-Header-"},
		{"two keys", "?key=a", "", "x", []string{"Seb-Key", "a"}, 400, seb.CodeInvalidRequest, "key"},
		{"a key twice", "", "", "x", []string{"Seb-Key", "a", "Seb-Key", "a"}, 400, seb.CodeInvalidRequest, "2 times"},
		{"an invalid timestamp", "", "", "x", []string{"Seb-Timestamp", "yesterday"}, 400, seb.CodeInvalidRequest, "yesterday"},
		{"a timestamp before 1970", "", "", "x", []string{"Seb-Timestamp", "0001-01-01T00:00:00Z"}, 400, seb.CodeInvalidRequest, "1970"},
		{"an event in XML", "", "application/cloudevents+xml", "<event/>", nil, 415, codeUnsupportedMediaType, "cloudevents+xml"},
		{"half an event in headers", "", "", "{}", []string{"ce-id", "1"}, 400, seb.CodeInvalidRequest, "source, specversion, type"},
		{"an encoding", "", "", "x", []string{"Content-Encoding", "br"}, 415, codeUnsupportedEncoding, `"br"`},
		{"two encodings", "", "", "x", []string{"Content-Encoding", "gzip, zstd"}, 415, codeUnsupportedEncoding, ""},
		{"gzip that isn't", "", "", "x", []string{"Content-Encoding", "gzip"}, 400, seb.CodeInvalidRequest, "gzip"},
		{"zstd that isn't", "", "", "x", []string{"Content-Encoding", "zstd"}, 400, seb.CodeInvalidRequest, "zstd"},
		{"cut gzip", "", "", string(gzipped(t, []byte("some text"))[:20]), []string{"Content-Encoding", "gzip"}, 400, seb.CodeInvalidRequest, "gzip"},
		{"no lines", "", typeNDJSON, "", nil, 400, seb.CodeInvalidRequest, "no records"},
		{"an empty batch", "", typeBatch, string(batchBody()), nil, 400, seb.CodeInvalidRequest, "no records"},
		{"no batch", "", typeBatch, "abc", nil, 400, seb.CodeInvalidRequest, "3 bytes"},
		{"a batch without its sizes", "", typeBatch, "\x02\x00\x00\x00\x01\x00\x00\x00", nil, 400, seb.CodeInvalidRequest, "2 records"},
		{"a batch of four billion", "", typeBatch, "\xff\xff\xff\xff\x01\x00\x00\x00", nil, 400, seb.CodeInvalidRequest, "4294967295"},
		{"a batch cut off", "", typeBatch, string(batchBody("one", "two")[:16]), nil, 400, seb.CodeInvalidRequest, "record 1"},
		{"a batch with more", "", typeBatch, string(batchBody("one")) + "x", nil, 400, seb.CodeInvalidRequest, "byte 11"},
		{"a key for all in JSON", "?key=a", typeRecords, js(`{"value":"x"}`), nil, 400, seb.CodeInvalidRequest, "key"},
		{"JSON without records", "", typeRecords, `{}`, nil, 400, seb.CodeInvalidRequest, "no records"},
		{"JSON with nothing", "", typeRecords, ``, nil, 400, seb.CodeInvalidRequest, "the body is empty"},
		{"JSON with more", "", typeRecords, js(`{"value":"x"}`) + "x", nil, 400, seb.CodeInvalidRequest, "byte"},
		{"JSON with an unknown field", "", typeRecords, js(`{"val":"x"}`), nil, 400, seb.CodeInvalidRequest, `"val"`},
		{"JSON with another top", "", typeRecords, `{"recs":[]}`, nil, 400, seb.CodeInvalidRequest, `"recs"`},
		{"JSON without a value", "", typeRecords, js(`{"key":"x"}`), nil, 400, seb.CodeInvalidRequest, "record 1"},
		{"JSON with two values", "", typeRecords, js(`{"value":"x","value_json":1}`), nil, 400, seb.CodeInvalidRequest, "record 1"},
		{"JSON with two keys", "", typeRecords, js(`{"value":"x","key":"a","key_base64":"YQ=="}`), nil, 400, seb.CodeInvalidRequest, "record 1"},
		{"JSON with a field twice", "", typeRecords, js(`{"value":"x","value":"y"}`), nil, 400, seb.CodeInvalidRequest, "twice"},
		{"JSON with a number for a value", "", typeRecords, js(`{"value":1}`), nil, 400, seb.CodeInvalidRequest, "record 1: value"},
		{"JSON with bad base64", "", typeRecords, js(`{"value_base64":"Y"}`), nil, 400, seb.CodeInvalidRequest, "base64"},
		{"JSON with half a surrogate pair", "", typeRecords, js(`{"value":"\ud83d"}`), nil, 400, seb.CodeInvalidRequest, "byte 37"},
		{"JSON that is not UTF-8", "", typeRecords, js("{\"value\":\"\xff\"}"), nil, 400, seb.CodeInvalidRequest, "byte 37"},
		{"JSON with a bad timestamp", "", typeRecords, js(`{"value":"x","timestamp":"now"}`), nil, 400, seb.CodeInvalidRequest, `"now"`},
		{"JSON with a bad partition", "", typeRecords, js(`{"value":"x","partition":1.5}`), nil, 400, seb.CodeInvalidRequest, "record 1: partition"},
		{"JSON with a missing partition", "", typeRecords, js(`{"value":"x","partition":7}`), nil, 404, seb.CodePartitionNotFound, ""},
		{"JSON with a bad header", "", typeRecords, js(`{"value":"x","headers":{"a":[1]}}`), nil, 400, seb.CodeInvalidRequest, "record 1: headers"},
		{"JSON with a null header", "", typeRecords, js(`{"value":"x","headers":{"a":null}}`), nil, 400, seb.CodeInvalidRequest, `"a"`},
		{"JSON with an empty header", "", typeRecords, js(`{"value":"x","headers":{"a":[]}}`), nil, 400, seb.CodeInvalidRequest, `"a"`},
		{"JSON with many headers", "", typeRecords, js(`{"value":"x","headers":{"a":["","",""` + strings.Repeat(`,""`, 98) + `]}}`), nil, 400, seb.CodeTooManyHeaders, "record 1"},
		{"JSON nested too deep", "", typeRecords, js(`{"value_json":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`), nil, 400, seb.CodeInvalidRequest, "deep"},
		{"JSON that breaks off", "", typeRecords, `{"records":[{"value":"x"},`, nil, 400, seb.CodeInvalidRequest, "byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := c.header
			if c.mediaType != "" {
				header = append([]string{"Content-Type", c.mediaType}, header...)
			}
			p := s.post(ordersPath+c.query, c.body, header...).wantProblem(t, c.status, c.code)
			if !strings.Contains(p.Detail, c.detail) {
				t.Errorf("detail %q does not tell of %s", p.Detail, c.detail)
			}
			if p.Outcome != string(seb.NotCommitted) {
				t.Errorf("outcome is %q", p.Outcome)
			}
		})
	}
	if got := s.stored("orders", 0); len(got) != 0 {
		t.Errorf("refused requests left %d records", len(got))
	}
}

func TestAppendWithoutAutoCreate(t *testing.T) {
	s := newServer(t, seb.Options{NoAutoCreate: true}, Options{})
	s.post("/v1/events", `{"event":"a","entity_id":"1"}`).wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	p := s.post(ordersPath, "x").wantProblem(t, http.StatusNotFound, seb.CodeTopicNotFound)
	if p.Outcome != string(seb.NotCommitted) {
		t.Errorf("outcome is %q", p.Outcome)
	}
}

func TestAppendLimits(t *testing.T) {
	limits := seb.Limits{RecordBytes: 1000, RequestBytes: 400_000, RecordHeaders: 2}
	s := newServer(t, seb.Options{Limits: limits}, Options{})

	p := s.post(ordersPath, strings.Repeat("x", 1001)).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRecordTooLarge)
	if p.Limit != 1000 {
		t.Errorf("record limit is %d", p.Limit)
	}
	line := strings.Repeat("x", 999) + "\n"
	s.append("orders", strings.Repeat(line, 399), "Content-Type", typeNDJSON)
	p = s.post(ordersPath, strings.Repeat(line, 401), "Content-Type", typeNDJSON).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
	if p.Limit != 400_000 {
		t.Errorf("request limit is %d", p.Limit)
	}
	s.post(ordersPath, "x", "Seb-Header-A", "", "Seb-Header-B", "", "Seb-Header-C", "").wantProblem(t, http.StatusBadRequest, seb.CodeTooManyHeaders)

	// Many records in few bytes: the limit is on the memory that they take.
	max := s.handler.recordsMax()
	s.append("orders", strings.Repeat("\n", max), "Content-Type", typeNDJSON)
	p = s.post(ordersPath, strings.Repeat("\n", max+1), "Content-Type", typeNDJSON).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
	if p.Limit != int64(max) {
		t.Errorf("limit of records is %d, want %d", p.Limit, max)
	}
	many := batchBody(make([]string, max+1)...)
	s.post(ordersPath, string(many), "Content-Type", typeBatch).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
	if got := len(s.stored("orders", 0)); got != 399+max {
		t.Errorf("%d records stored, want %d", got, 399+max)
	}
}

func TestAppendEncodings(t *testing.T) {
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	streamed := func(b []byte) []byte { // a frame without its size
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			n := min(len(b), 1000)
			if _, err := w.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	const limit = 1 << 20
	bombs := []int{limit + 1, 50 * limit}
	if testing.Short() {
		bombs = []int{2 * limit}
	}
	s := newServer(t, seb.Options{Limits: seb.Limits{RecordBytes: limit, RequestBytes: limit}}, Options{})
	encoders := map[string]func([]byte) []byte{
		"gzip": func(b []byte) []byte { return gzipped(t, b) },
		"gzip of two members": func(b []byte) []byte {
			return append(gzipped(t, b[:len(b)/3]), gzipped(t, b[len(b)/3:])...)
		},
		"zstd":          func(b []byte) []byte { return zw.EncodeAll(b, nil) },
		"zstd streamed": streamed,
		"zstd of two frames": func(b []byte) []byte {
			return append(zw.EncodeAll(b[:len(b)/3], nil), streamed(b[len(b)/3:])...)
		},
	}
	for name, encode := range encoders {
		encoding, _, _ := strings.Cut(name, " ")
		for _, size := range []int{0, 1, 4096, 65536, 65537, 300_000, limit} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				topic := fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), size)
				want := string(bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size])
				s.append(topic, string(encode([]byte(want))), "Content-Encoding", encoding)
				if got := s.stored(topic, 0); len(got) != 1 || string(got[0].Value) != want {
					t.Errorf("the value did not survive")
				}
			})
		}
		t.Run(name+"/bomb", func(t *testing.T) {
			for _, size := range bombs {
				bomb := encode(make([]byte, size))
				if len(bomb) > limit/2 {
					t.Skipf("%d bytes are no bomb", len(bomb))
				}
				s.handler.refused = newRefusedBodies() // else large bodies would get 429
				p := s.post(ordersPath, string(bomb), "Content-Encoding", encoding).wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRequestTooLarge)
				if p.Limit != limit {
					t.Errorf("limit is %d", p.Limit)
				}
			}
		})
	}
}

func TestAppendWithoutAKeyTakesPartitionsInTurn(t *testing.T) {
	s := newServer(t, seb.Options{}, Options{})
	s.createOrders(4)
	for round := range 3 {
		took := map[int32]bool{}
		for range 4 {
			var got struct {
				Partition *int32
				Offset    int
			}
			if s.append("orders", "v").json(t, &got); got.Partition == nil || got.Offset != round {
				t.Fatalf("round %d: the answer is %+v", round, got)
			}
			took[*got.Partition] = true
		}
		if len(took) != 4 {
			t.Errorf("round %d took partitions %v", round, took)
		}
	}
}

func TestAppendIsAnsweredOnceTheStoreHasIt(t *testing.T) {
	store := storetest.NewFaulty(objstore.NewMemory())
	bubbleOn(t, store, seb.Options{}, Options{}, 0, func(t *testing.T, s *server) {
		s.createOrders(1)
		stored := make(chan struct{})
		defer store.On(objstore.VerbCreate, "log/", func(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
			answer, err := next(ctx, r)
			<-stored
			return answer, err
		})()
		got := make(chan answer, 1)
		go func() { got <- s.post(ordersPath, "v") }()
		synctest.Wait()
		early := len(got)
		close(stored)
		if (<-got).want(t, http.StatusCreated); early != 0 {
			t.Error("it was answered before the store had it")
		}
	})
}

func TestIdempotencyKeyIsKeptForADay(t *testing.T) {
	bubble(t, seb.Options{}, func(t *testing.T, s *server) {
		append := func() answer { return s.append("orders", "a", "Idempotency-Key", "k") }
		append()
		time.Sleep(24*time.Hour - time.Second)
		append().wantHeader(t, "Idempotency-Replayed", "true")
		time.Sleep(2 * time.Hour)
		append().wantHeader(t, "Idempotency-Replayed", "")
	})
}

// A gzip body is decoded only as far as a record can still be valid: the broker does not notice that these bodies are cut off.
func TestCompressedRecordThatIsTooLargeIsNotDecodedToItsEnd(t *testing.T) {
	s := newServer(t, seb.Options{Limits: seb.Limits{RecordBytes: 1000}}, Options{})
	s.append("orders", "x")
	long := strings.Repeat("a", 4<<20)
	for name, c := range map[string]struct{ mediaType, body, detail string }{
		"value":      {"text/plain", long, "record 0 has more than 1000 bytes"},
		"first line": {typeNDJSON, long, "record 0 has more than 1000 bytes"},
		"later line": {typeNDJSON, strings.Repeat("short\n", 20) + long, "record 20 has more than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			body := gzipped(t, []byte(c.body))
			p := s.post(ordersPath, string(body[:len(body)/2]), "Content-Encoding", "gzip", "Content-Type", c.mediaType).
				wantProblem(t, http.StatusRequestEntityTooLarge, seb.CodeRecordTooLarge)
			if p.Detail != c.detail || p.Limit != 1000 {
				t.Errorf("the detail is %q, the limit %d", p.Detail, p.Limit)
			}
		})
	}
	lines := strings.Repeat(strings.Repeat("b", 1000)+"\n", 1000)
	s.append("orders", string(gzipped(t, []byte(lines))), "Content-Encoding", "gzip", "Content-Type", typeNDJSON).want(t, http.StatusCreated)
}
