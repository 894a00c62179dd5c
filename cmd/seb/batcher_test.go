package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// lines decodes a batch as a broker does.
func decodeLines(body []byte) ([]string, bool) {
	if len(body) < 4 {
		return nil, false
	}
	count := int(binary.LittleEndian.Uint32(body))
	if len(body) < 4+4*count {
		return nil, false
	}
	sizes, values := body[4:4+4*count], body[4+4*count:]
	lines := make([]string, 0, count)
	for ; len(sizes) > 0; sizes = sizes[4:] {
		n := int(binary.LittleEndian.Uint32(sizes))
		if n > len(values) {
			return nil, false
		}
		lines = append(lines, string(values[:n]))
		values = values[n:]
	}
	return lines, len(values) == 0
}

// fataler is a test, or one run of a property.
type fataler interface{ Fatalf(string, ...any) }

// readBatches returns what a batcher makes of r, batch by batch.
func readBatches(ctx context.Context, t fataler, g *batcher, r io.Reader, skip int64) (batches [][]string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.read(ctx, r, skip)
	}()
	defer func() { <-done }()
	var batch *recordBatch
	for {
		if batch, err = g.next(ctx, batch, time.Time{}); err != nil {
			return batches, err
		}
		body := batch.body()
		lines, ok := decodeLines(body)
		if !ok || len(lines) != batch.count() || len(body) != batch.size() {
			t.Fatalf("no batch: %q", body)
		}
		batches = append(batches, lines)
	}
}

func TestGathererCutsLines(t *testing.T) {
	for _, test := range []struct {
		name, in string
		skip     int64
		want     []string
	}{
		{"nothing", "", 0, nil},
		{"one line", "a\n", 0, []string{"a"}},
		{"last line without LF", "a\nb", 0, []string{"a", "b"}},
		{"empty lines are empty records", "\n\na\n\n", 0, []string{"", "", "a", ""}},
		{"CR is kept", "a\r\nb\r", 0, []string{"a\r", "b\r"}},
		{"any bytes", "\x00\xff\n\x80", 0, []string{"\x00\xff", "\x80"}},
		{"skip", "a\nb\nc\n", 2, []string{"c"}},
		{"skip all", "a\nb", 2, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in)), iotest.DataErrReader(strings.NewReader(test.in))} {
				batches, err := readBatches(t.Context(), t, newBatcher((&formatFlags{}).input(false), 1<<20, 1000), r, test.skip)
				if !errors.Is(err, io.EOF) || errors.As(err, new(usageError)) {
					t.Fatalf("ended with %v", err)
				}
				var got []string
				for _, b := range batches {
					got = append(got, b...)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestGathererKeepsEveryLineInOrderWithinItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.StringOf(rapid.RuneFrom([]rune("ab\r\x00é")))).Draw(t, "lines")
		bytesMax := rapid.IntRange(1, 60).Draw(t, "bytesMax")
		recordsMax := rapid.IntRange(1, 5).Draw(t, "recordsMax")
		in := strings.Join(want, "\n") + "\n"
		if len(want) == 0 {
			in = ""
		}
		var got []string
		batches, err := readBatches(context.Background(), t, newBatcher((&formatFlags{}).input(false), bytesMax, recordsMax), strings.NewReader(in), 0)
		if !errors.Is(err, io.EOF) {
			t.Fatalf("ended with %v", err)
		}
		for _, lines := range batches {
			size := 4
			for _, l := range lines {
				size += 4 + len(l)
			}
			if len(lines) > recordsMax || (size > bytesMax && len(lines) > 1) {
				t.Fatalf("a batch of %d lines and %d bytes", len(lines), size)
			}
			got = append(got, lines...)
		}
		if len(want)+len(got) > 0 && !cmp.Equal(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}

func TestGathererReportsThatReadingBrokeOff(t *testing.T) {
	broken := errors.New("cable cut")
	r := io.MultiReader(strings.NewReader("a\nb\nhalf a li"), iotest.ErrReader(broken))
	batches, err := readBatches(t.Context(), t, newBatcher((&formatFlags{}).input(false), 1<<20, 1000), r, 0)
	if !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff([][]string{{"a", "b"}}, batches); diff != "" {
		t.Errorf("half a line must not become a record: %s", diff)
	}
}

// A chunk of the input is handed over as soon as it is read, so that the records of a slow writer do not
// wait for later ones.
func TestGathererHandsOverWhatThereIs(t *testing.T) {
	r, w := io.Pipe()
	g := newBatcher((&formatFlags{}).input(false), 1<<20, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.read(t.Context(), r, 0)
	}()
	for _, chunk := range []string{"a\nb\nc", "d\n"} {
		if _, err := io.WriteString(w, chunk); err != nil {
			t.Fatal(err)
		}
		b, err := g.next(t.Context(), nil, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a\nb\nc": "ab", "d\n": "cd"}[chunk]
		if !bytes.Equal(b.values, []byte(want)) {
			t.Errorf("after %q: %q, not %q", chunk, b.values, want)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestGathererEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := newBatcher((&formatFlags{}).input(false), 1, 1) // full after a line: the reader waits for room
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.read(ctx, strings.NewReader("a\nb\nc\n"), 0)
	}()
	if _, err := g.next(ctx, nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	if _, err := g.next(ctx, nil, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("next answers %v", err)
	}
}
