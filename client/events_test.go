package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/simple-event-broker/seb"
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

// Records of several partitions come mixed. A take returns what has come of one partition, in order and within the
// bounds, and leaves the others.
func TestTakesOfOnePartition(t *testing.T) {
	s := &stream{more: make(chan struct{}, 1)}
	s.taken.L = &sync.Mutex{}
	for i := range 12 {
		s.add(t.Context(), seb.Record{Partition: int32(i % 3), Offset: seb.Offset(i / 3), Value: []byte("value")}, 30)
	}
	for _, want := range []struct {
		limit     int
		maxBytes  int64
		partition int32
		offsets   []seb.Offset
	}{
		{100, 1 << 20, 0, []seb.Offset{0, 1, 2, 3}},
		{3, 1 << 20, 1, []seb.Offset{0, 1, 2}},
		{100, 12, 2, []seb.Offset{0, 1}},
		{100, 1, 2, []seb.Offset{2}},
		{100, 1 << 20, 1, []seb.Offset{3}},
		{100, 1 << 20, 2, []seb.Offset{3}},
		{100, 1 << 20, 0, nil},
	} {
		rs, ended, err := s.take(want.limit, want.maxBytes)
		var offsets []seb.Offset
		for _, r := range rs {
			if r.Partition != want.partition {
				t.Errorf("%+v: a record of partition %d", want, r.Partition)
			}
			offsets = append(offsets, r.Offset)
		}
		if !slices.Equal(offsets, want.offsets) || ended || err != nil {
			t.Errorf("%+v: offsets %d, %t, %v", want, offsets, ended, err)
		}
	}
	if s.records != nil || s.bytes != 0 {
		t.Errorf("%d records and %d bytes are left", len(s.records), s.bytes)
	}
}
