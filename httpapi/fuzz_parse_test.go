package httpapi

import (
	"bufio"
	"bytes"
	stdgzip "compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/simple-event-broker/seb"
)

// The records are exactly the lines of the body.
func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"))
	f.Add([]byte("\n"))
	h := newServer(f, seb.Options{}, Options{}).handler
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := h.linesOf(t.Context(), &appendSpec{}, body)
		if err != nil {
			if seb.CodeOf(err) != seb.CodeRequestTooLarge || bytes.Count(body, []byte("\n")) < h.recordsMax()-1 {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		defer l.free()
		var again []byte
		for i := range l.list {
			if bytes.IndexByte(l.list[i].Value, '\n') >= 0 {
				t.Fatalf("line %d is %q", i, l.list[i].Value)
			}
			again = append(append(again, l.list[i].Value...), '\n')
		}
		if len(body) > 0 && body[len(body)-1] != '\n' {
			again = again[:len(again)-1]
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("%q became %q", body, again)
		}
	})
}

// The chosen media type is one that a read can answer with, and one of those that the client prefers.
func FuzzAccept(f *testing.F) {
	f.Add("application/json;q=0.5, */*;q=0.1", "application/vnd.seb.batch")
	f.Add("text/html", "")
	f.Add("application/*;q=NaN, ;;q=2,", "*/*;q=-0")
	f.Fuzz(func(t *testing.T, first, second string) {
		ranges := first + "," + second
		got, err := negotiate([]string{first, second})
		blank := strings.TrimSpace(ranges) == ""
		if (err == nil) != (slices.Contains(answers, got)) || err != nil && seb.CodeOf(err) != codeNotAcceptable {
			t.Fatalf("%q: %q, %v", ranges, got, err)
		}
		var best float64
		if err == nil && !blank {
			best, _ = qualityOf(ranges, got)
		}
		for _, a := range answers {
			quality, _ := qualityOf(ranges, a)
			if !(quality >= 0 && quality <= 1) || !blank && quality > best {
				t.Fatalf("%q: %q of quality %v is served as %q of %v, %v", ranges, a, quality, got, best, err)
			}
		}
	})
}

// A body is decoded as other decoders do it, within its limit, and all of its memory is
// freed.
func FuzzContentEncoding(f *testing.F) {
	f.Add(true, gzipped(f, []byte("some text, some text")))
	f.Add(true, append(gzipped(f, []byte("two")), gzipped(f, []byte("members"))...))
	reserved := gzipped(f, []byte("reserved"))
	reserved[3] |= 1 << 5
	f.Add(true, reserved)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(false, enc.EncodeAll([]byte("some text, some text"), nil))
	f.Add(false, enc.EncodeAll(make([]byte, 1<<20), nil))
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<29))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(dec.Close)
	s := newServer(f, seb.Options{}, Options{})
	const limit = 64 << 10
	f.Fuzz(func(t *testing.T, gzip bool, encoded []byte) {
		if len(encoded) > limit/2 { // readBody accepts no more
			return
		}
		decode := s.handler.unzstd
		if gzip {
			decode = s.handler.gunzip
		}
		got, err := decode(t.Context(), &decoding{reserve: s.broker.ReserveMore, limit: limit}, encoded)
		want, wantErr := decodeOtherwise(gzip, dec, encoded, limit)
		switch {
		case err != nil && seb.CodeOf(err) != seb.CodeInvalidRequest && seb.CodeOf(err) != seb.CodeRequestTooLarge:
			t.Fatalf("%v", err)
		case errors.Is(err, stdgzip.ErrHeader) && wantErr == nil:
			// The standard library ignores reserved flags. RFC 1952 (2.3.1.2) requires an error.
		case err != nil && wantErr == nil && len(want) <= limit:
			t.Fatalf("refused: %v; it is %d bytes", err, len(want))
		case err == nil && (wantErr != nil || len(got.data) > limit || !bytes.Equal(got.data, want)):
			t.Fatalf("%d bytes, want %d, %v", len(got.data), len(want), wantErr)
		}
		got.free()
		release, err := s.broker.Reserve(t.Context(), s.adapterBytes())
		if err != nil {
			t.Fatalf("memory is still reserved: %v", err)
		}
		release()
	})
}

// decodeOtherwise decodes with other decoders, up to one byte more than limit.
func decodeOtherwise(gzip bool, dec *zstd.Decoder, encoded []byte, limit int64) ([]byte, error) {
	if !gzip {
		if err := dec.Reset(bytes.NewReader(encoded)); err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(dec, limit+1))
	}
	z, err := stdgzip.NewReader(bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, limit+1))
}

// Headers are parsed exactly or refused with a code. What the log of requests shows of them can't
// break a log line.
func FuzzHeaders(f *testing.F) {
	f.Add("Seb-Key: k\r\nSeb-Header-B: 1\r\nSeb-Header-A: 2\r\nSeb-Timestamp: 2026-01-31T12:00:00Z")
	f.Add("Content-Type: text/plain; charset=utf-8\r\nSeb-Request-Id: a\"b")
	f.Add("Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("If-Match: \"7.3\"\r\nIf-Match: *")
	f.Add("Ce-Id: 1\r\nIdempotency-Key: 1\r\nSeb-Header-: 1")
	f.Fuzz(func(t *testing.T, text string) {
		fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(text + "\r\n\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		r := &http.Request{Method: "POST", URL: &url.URL{Path: "/"}, Header: http.Header(fields)}
		for i, c := range []byte(requestID(r)) {
			if !isRequestIDByte(c) || i >= requestIDBytesMax {
				t.Fatalf("request id %q", requestID(r))
			}
		}
		if id := traceID(r.Header.Get("Traceparent")); id != "" && (len(id) != 32 || !isLowerHex(id)) {
			t.Fatalf("trace id %q", id)
		}
		if _, err := ifMatch(r); err != nil && seb.CodeOf(err) != seb.CodeInvalidRequest {
			t.Fatalf("If-Match: %v", err)
		}
		spec, err := parseAppend(r)
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		want := 0
		for name, values := range fields {
			if strings.HasPrefix(name, headerPrefix) {
				want += len(values)
			}
		}
		extra := len(spec.headers) - want // one for the content type
		sorted := slices.IsSortedFunc(spec.headers, func(a, b seb.Header) int { return strings.Compare(a.Name, b.Name) })
		if extra < 0 || extra > 1 || !sorted && extra == 0 || string(spec.key) != r.Header.Get(keyHeader) || spec.timestamp.IsZero() != (r.Header.Get(timestampHeader) == "") {
			t.Fatalf("%q became %+v", text, spec)
		}
	})
}

// A topic's body is read as encoding/json reads it.
func FuzzTopicSpec(f *testing.F) {
	f.Add([]byte(`{"partitions":4,"config":{}}`))
	f.Add([]byte(`{"partitions":1e1}`))
	f.Add([]byte(`{"partitions":null,"config":null}`))
	f.Add([]byte(`{"partitions":2147483648}`))
	f.Add([]byte(`{"config":{"retention":"168h","retention_bytes":null}}`))
	f.Add([]byte(`{"config":{"retention":null,"retention_bytes":1e3}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := parseTopicSpec(bytes.Clone(body))
		if err != nil {
			if seb.CodeOf(err) == "" {
				t.Fatalf("an error without code: %v", err)
			}
			return
		}
		var want map[string]json.RawMessage
		var typed struct {
			Partitions *int32
			Config     struct {
				Retention      *string
				RetentionBytes *int64 `json:"retention_bytes"`
			}
		}
		if err := errors.Join(json.Unmarshal(body, &want), json.Unmarshal(body, &typed)); err != nil {
			t.Fatalf("%q is taken as %+v: %v", body, spec, err)
		}
		if typed.Config.Retention != nil {
			d, err := time.ParseDuration(*typed.Config.Retention)
			if err != nil || *spec.Retention != d {
				t.Fatalf("%q is taken as %+v: %v", body, spec, err)
			}
		}
		if n := typed.Config.RetentionBytes; n != nil && *n != *spec.RetentionBytes || !cmp.Equal(typed.Partitions, spec.Partitions) {
			t.Fatalf("%q is taken as %+v", body, spec)
		}
		for name := range want {
			if name != "partitions" && name != "config" {
				t.Fatalf("%q is taken with its %q", body, name)
			}
		}
	})
}

// A consumer's body is read as encoding/json reads it.
func FuzzConsumerBodies(f *testing.F) {
	f.Add([]byte(`{"from":"latest"}`))
	f.Add([]byte(`{"from":{"time":"2026-01-31T12:00:00Z"}}`))
	f.Add([]byte(`{"from":{"offsets":{"0":41,"2147483647":9223372036854775807}}}`))
	f.Add([]byte(`{"offsets":{"0":41,"1":0}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		from, err := parseFrom(bytes.Clone(body))
		offsets, commitErr := parseCommit(bytes.Clone(body))
		if err != nil && seb.CodeOf(err) == "" || commitErr != nil && seb.CodeOf(commitErr) == "" {
			t.Fatalf("an error without code: %v, %v", err, commitErr)
		}
		var want struct {
			From    json.RawMessage
			Offsets map[string]int64
		}
		if (err == nil && len(bytes.TrimSpace(body)) > 0 || commitErr == nil) && json.Unmarshal(body, &want) != nil {
			t.Fatalf("%q is taken as %+v and %v", body, from, offsets)
		}
		if commitErr == nil {
			wantOffsets(t, body, want.Offsets, offsets)
		}
		var place struct {
			Time    *string
			Offsets map[string]int64
		}
		switch word := string(want.From); {
		case err != nil:
		case from.given != (want.From != nil):
			t.Fatalf("%q is taken as %+v", body, from)
		case !from.given || strings.HasPrefix(word, `"`):
		case json.Unmarshal(want.From, &place) != nil || (place.Time != nil) == (place.Offsets != nil):
			t.Fatalf("%q is taken as %+v", body, from)
		default:
			wantOffsets(t, body, place.Offsets, from.offsets)
		}
	})
}

func wantOffsets(t *testing.T, body []byte, want map[string]int64, got seb.Offsets) {
	if len(want) != len(got) {
		t.Fatalf("%q is taken as %v", body, got)
	}
	for p, o := range got {
		if n, there := want[strconv.Itoa(int(p))]; !there || n != int64(o) || p < 0 || o < 0 {
			t.Fatalf("%q is taken as %v", body, got)
		}
	}
}

// A body about a queue that is accepted is valid JSON, and its values are within the documented
// limits.
func FuzzQueueBodies(f *testing.F) {
	f.Add([]byte(`{"lease":"30s","max_attempts":5,"backoff":"1s..1h","dead_letter_topic":"orders.dead","order":"key","from":"latest","paused":true}`))
	f.Add([]byte(`{"from":{"offset":41},"dead_letter_topic":null}`))
	f.Add([]byte(`{"max":10,"max_bytes":1048576,"wait":"20s","lease":"1m"}`))
	f.Add([]byte(`{"tokens":["0123abcd.1/0:41.1"],"delay":"5s","reason":"no"}`))
	f.Add([]byte(`{"tokens":["0123abcd.1/0:41.1"],"lease":"1m"}`))
	f.Add([]byte(`{"records":[{"partition":0,"offset":41}]}`))
	f.Add([]byte(`{"limit":10}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		taken := func(what string, err error) bool {
			if err != nil && seb.CodeOf(err) == "" {
				t.Fatalf("%s: an error without code: %v", what, err)
			}
			if err == nil && len(bytes.TrimSpace(body)) > 0 && !json.Valid(body) {
				t.Fatalf("%q is taken as %s", body, what)
			}
			return err == nil
		}
		_, err := parseQueueSpec(bytes.Clone(body))
		taken("a queue", err)
		r, err := parseReceive(bytes.Clone(body))
		if taken("a receive", err) && (r.max < 1 || r.max > receiveMax || r.maxBytes < 1 || r.maxBytes > readBytesMax || r.wait < 0 || r.wait > readWaitMax) {
			t.Fatalf("%q is taken as %+v", body, r)
		}
		var s answerSpec
		for what, fields := range map[string]func(*answerSpec) fields{"an ack": ackFields, "a nack": nackFields, "an extension": extendFields} {
			s = answerSpec{}
			if taken(what, parseAnswer(bytes.Clone(body), what, &s, fields(&s))) && (len(s.tokens) < 1 || len(s.tokens) > tokensMax) {
				t.Fatalf("%q is taken as %+v", body, s)
			}
		}
		o, err := parseRedrive(bytes.Clone(body))
		if taken("a redrive", err) && (len(o.Places) > tokensMax || o.Limit < 0 || o.Limit > redriveMax) {
			t.Fatalf("%q is taken as %+v", body, o)
		}
		if p, err := parsePlace(string(body)); err == nil && len(body) > 0 {
			if again, err := parsePlace(placeText(p)); err != nil || again != p {
				t.Fatalf("%q is taken as %+v, and that as %+v: %v", body, p, again, err)
			}
		}
	})
}
