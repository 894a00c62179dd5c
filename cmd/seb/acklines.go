package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/simple-event-broker/seb"
)

// ackRunsMax is how many runs of records may wait for their acknowledgements. A run has the records of one
// answer of the broker.
const ackRunsMax = 64 << 10

const ackLinesHint = "with --ack-lines, the program that reads the records writes one line for each record that it has processed, and nothing else, to the standard input of seb consume"

// acknowledgements turns lines into positions of a consumer. Each line acknowledges a record, in the order in
// which consume writes them.
type acknowledgements struct {
	in      io.Reader
	endless bool // more records may always come
	runs    chan ackRun
	wake    chan struct{} // capacity 1; has a value if the fields below have changed

	mu       sync.Mutex // guards the fields below
	expected int64      // records that were written, or are being written
	acked    int64
	offsets  seb.Offsets // positions after the acknowledged records that run has not committed
	finished bool        // no more records will be written
	ended    bool        // no more lines will come
	err      error       // why no more lines will come
}

// ackRun is a run of records of a partition. They have the offsets from first to next, without next.
type ackRun struct {
	partition   int32
	first, next seb.Offset
}

func newAcknowledgements(in io.Reader, endless bool) *acknowledgements {
	return &acknowledgements{in: in, endless: endless, runs: make(chan ackRun, ackRunsMax), wake: make(chan struct{}, 1), offsets: seb.Offsets{}}
}

// change calls f with the lock, and wakes run.
func (a *acknowledgements) change(f func()) {
	a.mu.Lock()
	f()
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default: // run will see this change too
	}
}

// expect says that records are about to be written. It blocks while too many runs wait.
func (a *acknowledgements) expect(ctx context.Context, partition int32, first, next seb.Offset) error {
	if first == next {
		return nil
	}
	a.change(func() { a.expected += int64(next - first) })
	select {
	case a.runs <- ackRun{partition, first, next}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish says that no more records will be written. It returns how many wait for their acknowledgements.
func (a *acknowledgements) finish() (waiting int64) {
	a.change(func() {
		a.finished = true
		waiting = a.expected - a.acked
	})
	return waiting
}

// run reads lines and commits positions. It returns nil once all records are written and acknowledged. It
// returns an error if the lines end before that, or if commit does.
func (a *acknowledgements) run(commit func(seb.Offsets) error) error {
	go func() { // a read of standard input can't be interrupted, so nobody waits for this: the process ends
		err := a.read()
		a.change(func() { a.ended, a.err = true, err })
	}()
	for range a.wake {
		offsets, over, err := a.take()
		if len(offsets) > 0 {
			if err := commit(offsets); err != nil {
				return err
			}
		}
		if over {
			return err
		}
	}
	return nil
}

// take returns the positions to commit, and whether no others will come.
func (a *acknowledgements) take() (offsets seb.Offsets, over bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	offsets = maps.Clone(a.offsets)
	clear(a.offsets)
	switch {
	case a.ended && a.err != nil:
		return offsets, true, a.err
	case a.finished && a.acked == a.expected:
		return offsets, true, nil
	case a.ended && (a.endless || a.acked < a.expected):
		err = fmt.Errorf("standard input ended: %d of %s acknowledged", a.acked, counted(a.expected, "record was", "records were"))
		return offsets, true, hinted(err, ackLinesHint)
	default:
		return offsets, false, nil
	}
}

// read reads lines until they end. It returns nil for the regular end.
func (a *acknowledgements) read() error {
	lines := bufio.NewReader(a.in)
	var of ackRun
	for {
		switch err := skipLine(lines); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the acknowledgements from standard input: %w", err)
		}
		if of.first == of.next {
			select {
			case of = <-a.runs:
			default:
				return hinted(fmt.Errorf("standard input has more lines than records were written: %d", a.acked),
					ackLinesHint)
			}
		}
		of.first++
		a.change(func() {
			a.acked++
			a.offsets[of.partition] = of.first
		})
	}
}

// skipLine reads to the end of a line. Without LF there is no line: its writer may have been killed.
func skipLine(r *bufio.Reader) error {
	for {
		_, err := r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}
