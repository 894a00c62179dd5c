package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

// However lines are cut into batches, together they are the lines.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nlast"), 10, 2, int64(1))
	f.Add([]byte("\n\n\n"), 1, 1, int64(0))
	f.Fuzz(func(t *testing.T, in []byte, bytesMax, recordsMax int, skip int64) {
		if bytesMax < 1 || recordsMax < 1 || skip < 0 {
			return // refused by the command
		}
		batches, err := gather(t.Context(), t, newGatherer(bytesMax, recordsMax), bytes.NewReader(in), skip)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		var want []string
		for line := range bytes.Lines(in) {
			want = append(want, strings.TrimSuffix(string(line), "\n"))
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

// Whoever answers with an error: its status stands, what is repeated is certain
// not to have been done, and nobody is made to wait for long.
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

// A size is read as what it is written as.
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
