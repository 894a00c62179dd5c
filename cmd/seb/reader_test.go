package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

const (
	readWait   = 200 * time.Millisecond // at the log's end
	readAgain  = 0.3                    // the share of reads below the offset that was reached
	readBytes  = 4 << 20
	againBytes = 64 << 10
)

// reader follows one partition while it is written, and reads earlier offsets again and again.
type reader struct {
	target    *target
	history   *history
	partition int
	loose     bool // see load

	end         int // everything before this offset was read
	read, again int // records
}

func (r *reader) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		broker, moved := r.target.get()
		err := r.step(ctx, t, broker)
		if err == nil {
			r.target.reads.Add(1)
			continue
		}
		if cutOff := r.loose && isCutOff(err); ctx.Err() == nil && !retryable(err) && !cutOff {
			t.Errorf("read partition %d at %d: %v", r.partition, r.end, err)
			return
		}
		select {
		case <-moved:
		case <-time.After(rand.N(appendPause)):
		case <-ctx.Done():
		}
	}
}

func (r *reader) step(ctx context.Context, t *testing.T, broker *client.Client) error {
	if r.end > 0 && rand.Float64() < readAgain {
		offset := rand.IntN(r.end)
		f, err := fetchAt(ctx, broker, r.partition, offset, againBytes, 0)
		if err != nil {
			return err
		}
		if f.Next == f.First {
			return fmt.Errorf("Visible: offset %d was read here before, and isn't there any more", offset)
		}
		r.again += r.history.saw(t, r.partition, f)
		return nil
	}
	f, err := fetchAt(ctx, broker, r.partition, r.end, readBytes, readWait)
	if err != nil {
		return err
	}
	r.read += r.history.saw(t, r.partition, f)
	r.end = int(f.Next)
	return nil
}

// fetchAt reads from an offset, and expects the records from there on without a gap, or none.
func fetchAt(ctx context.Context, broker *client.Client, partition, offset, bytes int, wait time.Duration) (client.Encoded, error) {
	opts := seb.FetchOptions{MaxBytes: int64(bytes), Wait: wait}
	f, err := broker.FetchEncoded(ctx, loadTopic, int32(partition), seb.At(seb.Offset(offset)), opts, client.Values, nil)
	if err == nil && f.First != seb.Offset(offset) {
		err = fmt.Errorf("DenseOffsets: a read at %d begins at %d", offset, f.First)
	}
	return f, err
}

// readAll reads a partition to its end, which is at end or later. A broker may take a moment to see the
// commits of others.
func readAll(t *testing.T, broker *client.Client, h *history, partition, end int) {
	t.Helper()
	deadline := time.Now().Add(leaveTimeout)
	for offset := 0; ; {
		f, err := fetchAt(t.Context(), broker, partition, offset, readBytes, 0)
		if err != nil {
			t.Fatalf("read partition %d at %d: %v", partition, offset, err)
		}
		h.saw(t, partition, f)
		offset = int(f.Next)
		switch {
		case f.Next > f.First:
			deadline = time.Now().Add(leaveTimeout)
		case offset >= end && f.Next == f.End:
			return
		case time.Now().After(deadline):
			t.Fatalf("partition %d ends at %d; it was seen, or acknowledged, to %d", partition, offset, end)
		default:
			<-time.After(pollPause)
		}
	}
}
