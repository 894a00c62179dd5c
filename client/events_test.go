package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// endless is a server that sends one character without end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

// A line, and an event of many lines, take a bounded amount of memory.
func TestEventIsBounded(t *testing.T) {
	const most = 1 << 20
	for _, line := range []string{"data: ", ": comment ", "id: ", ""} {
		server := &endless{}
		_, err := readEvent(bufio.NewReader(io.MultiReader(strings.NewReader(line), server)), most, func() {})
		if !errors.Is(err, errEventTooLarge) || server.read > 2*most {
			t.Errorf("%q: %v after %d bytes", line, err, server.read)
		}
	}
	lines := strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 2*most/1000)
	if e, err := readEvent(bufio.NewReader(strings.NewReader(lines+"\n")), most, func() {}); !errors.Is(err, errEventTooLarge) {
		t.Errorf("%v, %d bytes", err, len(e.data))
	}
	data := bytes.Repeat([]byte("x"), most-100)
	if e, err := readEvent(bufio.NewReader(strings.NewReader("data: "+string(data)+"\n\n")), most, func() {}); err != nil || !bytes.Equal(e.data, data) {
		t.Errorf("%v, %d bytes", err, len(e.data))
	}
}
