package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"
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
		retry, _ := retryable(err)
		if cutOff := r.loose && isCutOff(err); ctx.Err() == nil && !retry && !cutOff {
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

func (r *reader) step(ctx context.Context, t *testing.T, broker *client) error {
	if r.end > 0 && rand.Float64() < readAgain {
		offset := rand.IntN(r.end)
		f, err := fetchAt(ctx, broker, r.partition, offset, againBytes, 0)
		if err != nil {
			return err
		}
		if f.next == f.first {
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
	r.end = int(f.next)
	return nil
}

// fetchAt reads from an offset, and expects the records from there on without a gap, or none.
func fetchAt(ctx context.Context, broker *client, partition, offset, bytes int, wait time.Duration) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{
		"partition": {strconv.Itoa(partition)},
		"offset":    {strconv.Itoa(offset)},
		"max_bytes": {strconv.Itoa(bytes)},
		"wait":      {wait.String()},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, broker.url(query, "topics", loadTopic, "records"), nil)
	if err != nil {
		return fetched{}, err
	}
	req.Header.Set("Accept", batchType)
	res, err := broker.do(req)
	if err != nil {
		return fetched{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fetched{}, unanswered(broker.base, err)
	}
	f, err := parseFetched(res.Header, body)
	if err == nil && f.first != int64(offset) {
		err = fmt.Errorf("DenseOffsets: a read at %d begins at %d", offset, f.first)
	}
	return f, err
}

// readAll reads a partition to its end, which is at end or later. A broker may take a moment to see the
// commits of others.
func readAll(t *testing.T, broker *client, h *history, partition, end int) {
	t.Helper()
	deadline := time.Now().Add(leaveTimeout)
	for offset := 0; ; {
		f, err := fetchAt(t.Context(), broker, partition, offset, readBytes, 0)
		if err != nil {
			t.Fatalf("read partition %d of %s at %d: %v", partition, broker.base, offset, err)
		}
		h.saw(t, partition, f)
		offset = int(f.next)
		switch {
		case f.next > f.first:
			deadline = time.Now().Add(leaveTimeout)
		case offset >= end && f.next == f.end:
			return
		case time.Now().After(deadline):
			t.Fatalf("partition %d of %s ends at %d; it was seen, or acknowledged, to %d", partition, broker.base, offset, end)
		default:
			<-time.After(pollPause)
		}
	}
}

// each calls found with each value of an answer, and its offset.
func (f fetched) each(found func(offset int, value []byte)) {
	sizes, values := f.sizes, f.values
	for offset := f.first; offset < f.next; offset++ {
		n := binary.LittleEndian.Uint32(sizes)
		found(int(offset), values[:n])
		sizes, values = sizes[4:], values[n:]
	}
}
