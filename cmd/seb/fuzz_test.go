package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// Whatever the sizes of batches, together the batches hold all lines.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nlast"), 10, 2, int64(1))
	f.Add([]byte("\n\n\n"), 1, 1, int64(0))
	f.Fuzz(func(t *testing.T, in []byte, bytesMax, recordsMax int, skip int64) {
		if bytesMax < 1 || recordsMax < 1 || skip < 0 {
			return // refused by the command
		}
		batches, err := readBatches(t.Context(), t, newBatcher((&formatFlags{}).input(false), bytesMax, recordsMax), bytes.NewReader(in), skip)
		var want []string
		for line := range bytes.Lines(in) {
			want = append(want, strings.TrimSuffix(string(line), "\n"))
		}
		if tooMany := errors.As(err, new(usageError)); tooMany != (skip > int64(len(want))) || !tooMany && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		want = want[min(skip, int64(len(want))):]
		for _, b := range batches {
			size := 4
			for _, line := range b {
				size += 4 + len(line)
			}
			if len(b) == 0 || len(b) > recordsMax || len(b) > 1 && size > bytesMax {
				t.Fatalf("a batch of %d lines, %d bytes", len(b), size)
			}
		}
		if got := slices.Concat(batches...); !slices.Equal(got, want) {
			t.Fatalf("%q is cut into %q", in, got)
		}
	})
}

// For any error answer of any server: the error has the status of the answer, a request that is repeated
// was certainly not carried out, and the wait before that is bounded.
func FuzzProblem(f *testing.F) {
	f.Add(429, "1", []byte(`{"code":"over_memory_budget","outcome":"not_committed","status":200}`))
	f.Add(503, "9223372036854775807", []byte(`{"outcome":"unknown","hint":"wait"}`))
	f.Add(503, "-1", []byte(`{"outcome":"surely not"}`))
	f.Add(502, "", []byte("<html>Bad Gateway</html>"))
	f.Fuzz(func(t *testing.T, status int, retryAfter string, body []byte) {
		res := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(bytes.NewReader(body))}
		err := readProblem(res)
		e, ok := errors.AsType[*apiError](err)
		if !ok || e.Status != status || e.Error() == "" || e.retryAfter < 0 || e.retryAfter > retryAfterMax {
			t.Fatalf("%d %q became %+v", status, body, e)
		}
		_, outcome := retryable(err)
		if outcome != seb.NotCommitted && outcome != seb.Unknown {
			t.Fatalf("%d %q has the outcome %q", status, body, outcome)
		}
		said := bytes.Contains(body, []byte("not_committed")) || bytes.Contains(body, []byte(`\u`))
		if outcome == seb.NotCommitted && !said && status >= 500 {
			t.Fatalf("%d %q is taken for not committed", status, body)
		}
	})
}

// A size that String writes is read back as the same size.
func FuzzSize(f *testing.F) {
	for _, s := range []string{"4MiB", "128MB", "4096", "1 GiB", "8388608TiB", "-1", "1.5MiB", "0x10", "+1B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again size
		if err := s.UnmarshalText([]byte(text)); err != nil {
			return
		}
		if s < 0 {
			t.Fatalf("%q is %d bytes", text, int64(s))
		}
		written := s.String()
		if strings.Contains(written, ".") {
			return // rounded, for people
		}
		if err := again.UnmarshalText([]byte(written)); err != nil || again != s {
			t.Fatalf("%q is %d bytes, written as %q, which is %d, %v", text, int64(s), written, int64(again), err)
		}
	})
}

// For any input: each record is a part of it, and records in the binary format are written back as the same
// bytes.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("k=v\n=\nno key"), 3, true)
	f.Add(appendSized(appendSized(nil, nil), []byte("value")), 7, false)
	f.Add([]byte("\xfe\xff\xff\xff"), 2, false)
	f.Fuzz(func(t *testing.T, in []byte, cutAt int, lines bool) {
		var framing framing = sizedFraming{}
		if lines {
			framing = &lineFraming{separator: []byte("=")}
		}
		data, used := in[:min(len(in), max(0, cutAt))], 0
		for {
			fr, whole, err := framing.cut(data[used:], len(data) == len(in))
			switch {
			case err != nil:
				return
			case !whole && len(data) < len(in):
				data = in
				continue
			case !whole && used < len(in):
				t.Fatalf("%d bytes of %q are left over", len(in)-used, in)
			case !whole:
				return
			}
			frame := in[used : used+fr.took]
			used += fr.took
			again := appendSized(appendSized(nil, fr.key), fr.value)
			if lines {
				again = append(slices.Clone(fr.value), '\n')
				if fr.key != nil {
					again = append(append(slices.Clone(fr.key), '='), again...)
				}
				again = again[:len(frame)] // the last LF may be missing
			}
			if !bytes.Equal(again, frame) {
				t.Fatalf("%q is read as key %q and value %q", frame, fr.key, fr.value)
			}
		}
	})
}

// The result is one JSON object without an offset; all its other fields are those of the line.
func FuzzRecordJSON(f *testing.F) {
	f.Add([]byte(awkward[3]))
	f.Add([]byte(`{"offset":{"a":[1,2]},"value_json":{"x":null},"partition":3}`))
	f.Add([]byte(`{"value":"a","value":"b"} `))
	f.Fuzz(func(t *testing.T, line []byte) {
		out, err := appendRecordJSON(nil, line, true)
		if err != nil {
			return
		}
		var in, got map[string]json.RawMessage
		if json.Unmarshal(line, &in) != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%q became %q", line, out)
		}
		delete(in, "offset")
		delete(in, "partition")
		if len(in) != len(got) {
			t.Fatalf("%q became %q", line, out)
		}
		for name := range in {
			if !bytes.Equal(in[name], got[name]) {
				t.Fatalf("%s of %q became %q", name, line, out)
			}
		}
	})
}

// An answer in lines has as many records as its offsets say, and pop returns each.
func FuzzParseFetchedLines(f *testing.F) {
	f.Add("2", "2", []byte("{\"offset\":0}\n{\"offset\":1}\n"))
	f.Add("1", "9", []byte("{\"offset\":0}"))
	f.Add("0", "0", []byte(""))
	f.Fuzz(func(t *testing.T, next, end string, body []byte) {
		got, err := parseFetchedLines(http.Header{"Seb-Next-Offset": {next}, "Seb-End-Offset": {end}}, body)
		if err != nil {
			return
		}
		var all []byte
		for got.first < got.next {
			all = append(append(all, got.pop()...), '\n')
		}
		if !bytes.Equal(all, body) {
			t.Fatalf("%q is taken for %q", body, all)
		}
	})
}

// For any record, the variables for the command fit into an environment, have seb's prefix, and are unique.
func FuzzMessageEnvironment(f *testing.F) {
	f.Add([]byte(`{"token":"t","attempt":1,"leased_until":"2026-01-31T12:00:30.250Z","partition":0,"offset":1,"timestamp":"2026-01-31T12:00:00.250Z","key":"42","value":"x","headers":{"a b":["1","2"],"PATH":"/"},"headers_base64":{"grün":"/w=="}}`))
	f.Add([]byte(`{"key_base64":"AA==","value":null,"headers":{"=":"\u0000"}}`))
	name := regexp.MustCompile(`^SEB_MESSAGE_[A-Z0-9_]*$`)
	f.Fuzz(func(t *testing.T, text []byte) {
		var m messageJSON
		if json.Unmarshal(text, &m) != nil {
			return
		}
		seen := map[string]bool{}
		for _, variable := range (&handler{cmd: &workCmd{}}).environment(m.message()) {
			key, value, _ := strings.Cut(variable, "=")
			if !name.MatchString(key) || seen[key] || strings.ContainsRune(value, 0) || len(variable) > variableBytesMax+len(variablePrefix)+1 {
				t.Fatalf("%.100q", variable)
			}
			seen[key] = true
		}
	})
}

// For any file of headers: each header is a line of the file, and errors show no header.
func FuzzHeaderLines(f *testing.F) {
	f.Add("Authorization: Bearer 123\n\nX-Tenant: a:b\r\n")
	f.Add("Authorization: Bearer 123\nAuthorization: Bearer 124")
	f.Add(":secret")
	f.Fuzz(func(t *testing.T, text string) {
		headers, err := parseHeaderLines(text)
		if err != nil && (len(headers) > 0 || strings.Contains(err.Error(), "secret")) {
			t.Fatalf("%v with %q", err, headers)
		}
		for name, value := range headers {
			if name == "" || strings.TrimSpace(name) != name || strings.TrimSpace(value) != value || strings.ContainsAny(name+value, "\n") ||
				!strings.Contains(text, name) || !strings.Contains(text, value) {
				t.Fatalf("%q holds the header %q: %q", text, name, value)
			}
		}
	})
}
