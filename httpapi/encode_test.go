package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"pgregory.net/rapid"
)

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                typeNDJSON,
		" ":                               typeNDJSON,
		"*/*":                             typeNDJSON,
		"application/*":                   typeNDJSON,
		"Application/JSON":                typeJSON,
		"application/json; charset=utf-8": typeJSON,
		"*/*, application/json":           typeJSON,
		"application/*, application/vnd.seb.batch":                typeBatch,
		"application/json, application/vnd.seb.batch":             typeJSON,
		"application/vnd.seb.batch, application/json":             typeBatch,
		"application/json;q=0.5, application/vnd.seb.batch;q=0.6": typeBatch,
		"application/x-ndjson;q=0, */*":                           typeJSON,
		"text/html, */*;q=0.1":                                    typeNDJSON,
		"application/json;q=wrong":                                typeJSON,
		"text/event-stream":                                       typeEvents,
		"*/*, text/event-stream":                                  typeEvents,
		"text/html":                                               "",
		"*/*;q=0":                                                 "",
		"application/json;q=0":                                    "",
		",;,":                                                     "",
	} {
		got, err := negotiate([]string{accept})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("negotiate(%q) = %q, %v; want %q", accept, got, err, want)
		}
	}
	if got, err := negotiate([]string{"text/html", "application/json"}); got != typeJSON || err != nil {
		t.Errorf("two headers: %q, %v", got, err)
	}
}

func TestEscapedIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		quoted := append(appendEscaped([]byte{'"'}, []byte(want)), '"')
		var got string
		if err := json.Unmarshal(quoted, &got); err != nil || got != want {
			t.Fatalf("%q became %s: %q, %v", want, quoted, got, err)
		}
	})
}

type failingWriter struct{ writes int }

func (w *failingWriter) Write(p []byte) (int, error) {
	w.writes++
	return 0, errors.New("gone")
}

func TestChunksStopAtTheFirstError(t *testing.T) {
	w := &failingWriter{}
	c := newChunks(w)
	defer c.free()
	r := seb.Record{Key: make([]byte, 1<<20), Value: append(make([]byte, 1<<20), 0xff)}
	for range 3 {
		c.record(&r)
		c.bytes(r.Value)
	}
	if err := c.flush(); err == nil || w.writes != 1 {
		t.Errorf("%d writes, error %v", w.writes, err)
	}
	if cap(c.buf) > 4*chunkBytes {
		t.Errorf("the buffer has grown to %d bytes", cap(c.buf))
	}
}

// The memory that is reserved for a buffer suffices, whatever the records have.
func TestChunksKeepToTheirMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	c := newChunks(io.Discard)
	defer c.free()
	control := bytes.Repeat([]byte{1}, 2*chunkBytes) // takes six times its size as JSON
	for n := range 300 {
		size := n * n % len(control)
		for _, value := range [][]byte{control[:size], append(make([]byte, size), 0xff)} {
			r := seb.Record{Key: control[:n], Value: value, Headers: make([]seb.Header, 30*n)}
			r.Headers = append(r.Headers, seb.Header{Name: "name", Value: value})
			c.record(&r)
			c.bytes(value)
		}
		if cap(c.buf) > chunkReserved {
			t.Fatalf("record %d: the buffer has grown to %d bytes, but %d are reserved", n, cap(c.buf), chunkReserved)
		}
	}
}

func TestTempo(t *testing.T) {
	start := time.Unix(1000, 0)
	limit := slowLimit{stallMax: 10 * time.Second, bytesPerSecondMin: 100}
	var p progress
	for _, c := range []struct {
		after time.Duration
		bytes int64
		want  time.Duration
	}{
		{0, 0, 10 * time.Second},                        // the longest silence counts
		{4 * time.Second, 50, 10500 * time.Millisecond}, // behind the rate: the rate counts
		{4 * time.Second, 100_000, 14 * time.Second},    // ahead of the rate: the longest silence counts
		{500 * time.Second, 50_000, 510 * time.Second},
	} {
		p.bytes = c.bytes
		if got := p.deadline(limit, start.Add(c.after)).Sub(start); got != c.want {
			t.Errorf("after %v with %d bytes the deadline is %v, want %v", c.after, c.bytes, got, c.want)
		}
	}
}

// Others may need the memory that a client's bytes take: the more it has sent, the faster it must go on, and bytes
// sent early earn it no long pause.
func TestPaceRisesWithWhatIsHeld(t *testing.T) {
	start := time.Unix(1000, 0)
	limit := slowLimit{stallMax: 10 * time.Second, bytesPerSecondMin: 100}
	var p pace
	for _, c := range []struct {
		after time.Duration
		bytes int64
		want  time.Duration
	}{
		{0, 0, 10 * time.Second},
		{4 * time.Second, 50, 10500 * time.Millisecond},
		{5 * time.Second, 600_050, 15 * time.Second},          // far ahead: the longest silence counts
		{10 * time.Second, 601_050, 15100 * time.Millisecond}, // the rate is now 10,000 bytes per second
	} {
		p.bytes = c.bytes
		got := p.deadline(limit, start.Add(c.after)).Sub(start)
		if diff := got - c.want; diff < -time.Millisecond || diff > time.Millisecond {
			t.Errorf("after %v with %d bytes the deadline is %v, want %v", c.after, c.bytes, got, c.want)
		}
	}
}
