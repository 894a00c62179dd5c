package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/httprecord"
)

// The decoder accepts exactly what the encoder writes.
func FuzzBatchBody(f *testing.F) {
	f.Add(batchBody())
	f.Add(batchBody("one", "", "three"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := h.batchOf(t.Context(), &appendSpec{}, body)
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		defer l.free()
		var out bytes.Buffer
		c := newChunks(&out)
		defer c.free()
		if err := writeBatch(c, l.list); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), body) || batchBytes(l.list) != int64(len(body)) {
			t.Fatalf("%x became %x", body, out.Bytes())
		}
	})
}

// Records that were parsed, written and parsed again are the same.
func FuzzRecordsJSON(f *testing.F) {
	f.Add([]byte(`{"records":[{"value":"a","key":"b","headers":{"c":"d","e":["f","g"]},"timestamp":"2026-01-31T12:00:00Z","partition":3}]}`))
	f.Add([]byte(`{"records":[{"value_base64":"/w==","key_base64":"/w==","headers_base64":{"c":"/w=="}},{"value_json":{"a":[1,null]}}]}`))
	f.Add([]byte(`{"records":[{"value":"\ud83d\ude00\u0000\"\\"}]}`))
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, body []byte) {
		spec := &appendSpec{partition: -1}
		first, err := h.recordsJSONOf(t.Context(), spec, bytes.Clone(body))
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		defer first.free()
		if spec.partitions != nil && len(spec.partitions) != len(first.list) {
			t.Fatalf("%d partitions for %d records", len(spec.partitions), len(first.list))
		}
		again := &appendSpec{partition: -1}
		second, err := h.recordsJSONOf(t.Context(), again, encodeRecords(t, first.list))
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		defer second.free()
		for i := range first.list {
			a, b := first.list[i], second.list[i]
			if a.Timestamp.IsZero() {
				b.Timestamp = time.Time{} // the zero time is written as 1970
			}
			a.Timestamp = a.Timestamp.Truncate(time.Millisecond)
			a.Headers, b.Headers = sortedHeaders(a.Headers), sortedHeaders(b.Headers)
			if !bytes.Equal(a.Key, b.Key) || (a.Key == nil) != (b.Key == nil) || !bytes.Equal(a.Value, b.Value) ||
				!a.Timestamp.Equal(b.Timestamp) || !cmp.Equal(a.Headers, b.Headers) || a.Partition != b.Partition {
				t.Fatalf("record %d: %+v became %+v", i, a, b)
			}
		}
	})
}

// The reader accepts what encoding/json accepts, except text that encoding/json would alter, and
// reads the same values.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(` [1, -0.5e+10, "a\u00e9\ud83d\ude00\n", {"a":true,"":null}, false] `))
	f.Add([]byte(`{"a":01}`))
	f.Add([]byte(`"\ud83d\u0041"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := json.Valid(text)
		j, err := newJSONReader(bytes.Clone(text))
		if err != nil {
			if utf8.Valid(text) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		raw, err := j.raw()
		if err == nil {
			err = j.end()
		}
		if err == nil && (!valid || !bytes.Equal(raw, bytes.Trim(text, " \t\r\n"))) {
			t.Fatalf("%q is taken as %q", text, raw)
		}
		if err != nil && valid && !bytes.Contains(text, []byte(`\u`)) && !strings.Contains(err.Error(), "deep") {
			t.Fatalf("%q: %v", text, err)
		}
		var want string
		if err != nil || raw[0] != '"' || json.Unmarshal(text, &want) != nil {
			return
		}
		j.at = 0
		if got, err := j.string("text"); err != nil || string(got) != want {
			t.Fatalf("%q is read as %q, %v; want %q", text, got, err, want)
		}
	})
}

// encodeRecords writes records as a read does, without the fields that only reads have.
func encodeRecords(t *testing.T, records []seb.Record) []byte {
	var out bytes.Buffer
	c := newChunks(&out)
	defer c.free()
	for i := range records {
		r := records[i]
		if r.Timestamp.IsZero() {
			r.Timestamp = time.UnixMilli(0)
		}
		c.record(&r)
		c.text("\n")
	}
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	list := []json.RawMessage{}
	for line := range bytes.Lines(out.Bytes()) {
		if !json.Valid(line) {
			t.Fatalf("a record was written as %s", line)
		}
		list = append(list, bytes.Replace(line, []byte(`"offset":0,`), nil, 1))
	}
	return []byte(mustJSON(t, map[string]any{"records": list}))
}

// sortedHeaders returns headers in the order that they have after JSON: text values before
// binary ones, each by name.
func sortedHeaders(hs []seb.Header) []seb.Header {
	var out bytes.Buffer
	c := newChunks(&out)
	defer c.free()
	var sorted []seb.Header
	for _, field := range []bool{true, false} {
		c.headerMap("h", hs, func(h seb.Header) bool { return (invalidUTF8(h.Value) < 0) == field }, func([]byte) {})
		for _, i := range c.order {
			sorted = append(sorted, hs[i])
		}
	}
	return sorted
}

// The parsers refuse any query with a code, or return values within bounds.
func FuzzQuery(f *testing.F) {
	f.Add("partition=0&key=a%20b")
	f.Add("offset=-5&limit=10&max_bytes=100&wait=3s")
	f.Add("offset=latest&offset=1")
	f.Add("%zz;&&==")
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, raw string) {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/", RawQuery: raw}, Header: http.Header{}}
		if spec, err := parseAppend(r); err == nil {
			if spec.partition < -1 {
				t.Fatalf("%q: partition %d", raw, spec.partition)
			}
		} else if seb.CodeOf(err) == "" {
			t.Fatalf("an error without code: %v", err)
		}
		if spec, err := h.parseConsumerRead(r); err == nil {
			if spec.partition < seb.AllPartitions || spec.limit < 1 || spec.maxBytes < 1 || spec.wait < 0 || spec.wait > readWaitMax {
				t.Fatalf("%q: %+v", raw, spec)
			}
		} else if seb.CodeOf(err) == "" {
			t.Fatalf("an error without code: %v", err)
		}
		if spec, err := h.parseRead(r); err == nil {
			if spec.partition < 0 || spec.limit < 1 || spec.limit > readRecordsMax || spec.maxBytes < 1 ||
				spec.maxBytes > readBytesMax || spec.wait < 0 || spec.wait > readWaitMax {
				t.Fatalf("%q: %+v", raw, spec)
			}
		} else if seb.CodeOf(err) == "" {
			t.Fatalf("an error without code: %v", err)
		}
	})
}

// Every request gets an answer that follows the API's conventions.
func FuzzHTTP(f *testing.F) {
	f.Add("GET", "/v1/topics/t/records?offset=-1", "Accept: application/json", []byte(nil))
	f.Add("POST", "/v1/topics/t/records?key=k", "Content-Type: application/vnd.seb.batch", batchBody("a"))
	f.Add("POST", "/v1/topics/t/records", "Content-Type: application/vnd.seb.records+json", []byte(`{"records":[{"value":"a"}]}`))
	f.Add("POST", "/v1/commits", "Idempotency-Key: k", []byte(`{"appends":[{"topic":"t","records":[{"value":"a"}]}],"positions":[{"topic":"t","consumer":"c","offsets":{"0":0}}]}`))
	f.Add("PUT", "/v1/topics/t", "Seb-Request-Id: x", []byte(`{"partitions":1}`))
	f.Add("HEAD", "/v1/topics/t/records/0", "If-None-Match: *", []byte(nil))
	f.Add("PUT", "/v1/topics/t/consumers/c", "Seb-Request-Id: x", []byte(`{"from":{"offsets":{"0":0}}}`))
	f.Add("GET", "/v1/topics/t/consumers/c/records?limit=1", "Accept: application/json", []byte(nil))
	f.Add("POST", "/v1/commits", "Seb-Request-Id: x", []byte(`{"appends":[{"topic":"t","records":[{"value":"a"}]}],"ends":[{"topic":"t","id":"0123abcd.1","ends":{"0":0}}],"after":"2026-01-31T12:00:00.250125Z"}`))
	f.Add("GET", "/v1/cut?topic=t&topic=u", "Accept: */*", []byte(nil))
	f.Add("POST", "/v1/topics/t/consumers/c/commit", "If-Match: \"1.1\"", []byte(`{"offsets":{"0":1}}`))
	f.Add("DELETE", "/v1/topics/t/consumers/c", "Accept: */*", []byte(nil))
	s := newServer(f, seb.Options{Memory: 16 << 20, Limits: seb.Limits{Topics: 10, Partitions: 10, Consumers: 10}}, Options{})
	s.append("t", "x")
	f.Fuzz(func(t *testing.T, method, target, header string, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := fuzzedRequest(ctx, method, target, header, body)
		if r == nil {
			return
		}
		rec := httptest.NewRecorder()
		func() {
			defer func() {
				p := recover()
				if err, ok := p.(error); p != nil && (!ok || !errors.Is(err, http.ErrAbortHandler) || ctx.Err() == nil) {
					t.Fatalf("panic: %v", p)
				}
			}()
			s.handler.ServeHTTP(rec, r)
		}()
		checkConventions(t, r, rec)
	})
}

func fuzzedRequest(ctx context.Context, method, target, header string, body []byte) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(u.Path, "/") || !httprecord.IsToken(method) {
		return nil
	}
	fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(header + "\r\n\r\n"))).ReadMIMEHeader()
	if err != nil {
		return nil
	}
	r := httptest.NewRequestWithContext(ctx, "GET", "/", bytes.NewReader(body))
	r.Method, r.URL, r.RequestURI, r.Header = method, u, target, http.Header(fields)
	return r
}

func checkConventions(t *testing.T, r *http.Request, rec *httptest.ResponseRecorder) {
	if rec.Header().Get(requestIDHeader) == "" {
		t.Fatalf("%s %s: no request id", r.Method, r.URL)
	}
	switch {
	case rec.Code >= 500 && rec.Code != http.StatusNotImplemented && rec.Code != http.StatusServiceUnavailable:
		t.Fatalf("%s %s: status %d: %s", r.Method, r.URL, rec.Code, rec.Body)
	case rec.Code < 400:
	case r.Method == http.MethodHead && rec.Body.Len() == 0:
	case slices.Contains(originalPaths, r.URL.Path) && rec.Header().Get("Content-Type") == "text/plain; charset=utf-8":
	case rec.Header().Get("Content-Type") == "application/problem+json":
		var p wireProblem
		if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Status != rec.Code || p.Code == "" {
			t.Fatalf("%s %s: %v: %s", r.Method, r.URL, err, rec.Body)
		}
	default:
		t.Fatalf("%s %s: status %d as %s: %s", r.Method, r.URL, rec.Code, rec.Header().Get("Content-Type"), rec.Body)
	}
	if rec.Code == http.StatusOK && rec.Header().Get("Content-Type") == typeBatch && r.Method == "GET" {
		if b := rec.Body.Bytes(); len(b) < 4 || binary.LittleEndian.Uint32(b) > math.MaxInt16 {
			t.Fatalf("%s: a batch of %d bytes", r.URL, len(b))
		}
	}
}
