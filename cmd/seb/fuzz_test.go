package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// For any record, the variables for the command fit into an environment, have seb's prefix, and are unique.
func FuzzMessageEnvironment(f *testing.F) {
	f.Add([]byte("42"), "a b", []byte("1"), "a_b", []byte("2"), "PATH", []byte("/"))
	f.Add([]byte{0}, "=", []byte{0}, "grün", []byte{0xff}, "", []byte(nil))
	name := regexp.MustCompile(`^SEB_MESSAGE_[A-Z0-9_]*$`)
	f.Fuzz(func(t *testing.T, key []byte, name1 string, value1 []byte, name2 string, value2 []byte, name3 string, value3 []byte) {
		m := seb.Message{Record: seb.Record{Key: key, Headers: []seb.Header{{Name: name1, Value: value1}, {Name: name2, Value: value2}, {Name: name3, Value: value3}}}}
		seen := map[string]bool{}
		for _, variable := range (&handler{cmd: &workCmd{}}).environment(m) {
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
