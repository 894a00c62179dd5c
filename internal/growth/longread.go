package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longRead measures reads of many commits of one record each from a slow store.
func longRead(ctx context.Context, r *run) error {
	const n, delay = 8_192, 30 * time.Millisecond
	store, err := startSlowStore(ctx, r, func() time.Duration { return delay })
	if errors.Is(err, errNoVersitygw) {
		r.row("skipped", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer store.stop()
	b, err := r.serve(ctx, store.direct, "--batch", "each")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := each(ctx, n, func(ctx context.Context, _ int) error {
		_, err := b.ask(ctx, http.MethodPost, "/v1/topics/t/records", strings.Repeat("x", 200))
		return err
	}); err != nil {
		return err
	}
	r.row(fmt.Sprintf("%d commits of one record made", n), seconds(time.Since(began)))
	if err := b.stop(); err != nil {
		return err
	}
	for _, memory := range []string{"8MiB", "32MiB"} {
		b, err := r.serve(ctx, store.slow, "--memory", memory)
		if err != nil {
			return err
		}
		one, err := b.read(ctx, n/2, 1)
		if err != nil {
			return err
		}
		r.row(fmt.Sprintf("--memory %s, %v a request: 1 record", memory, delay), one.figures()...)
		whole, err := b.read(ctx, 0, n)
		if err != nil {
			return err
		}
		r.row(fmt.Sprintf("  a read of %d records", n), append(whole.figures(), "first byte "+seconds(whole.first-one.first)+" after that of 1 record")...)
		slowest, reads, began := whole.first, 0, time.Now()
		next := whole.next
		for next < n {
			part, err := b.read(ctx, next, n)
			if err != nil {
				return err
			}
			if part.next == next {
				return fmt.Errorf("a read from offset %d got nothing", next)
			}
			next, slowest, reads = part.next, max(slowest, part.first), reads+1
		}
		r.row("  the rest, read after read", fmt.Sprintf("%d reads in %s", reads, seconds(time.Since(began))), "slowest first byte "+seconds(slowest))
		b.kill()
	}
	return nil
}

// longAnswer holds the figures of one answer to a read.
type longAnswer struct {
	first, all    time.Duration // from the request to the first byte, and to the last
	records, next int
}

func (a longAnswer) figures() []string {
	return []string{"first byte " + seconds(a.first), "all " + seconds(a.all), fmt.Sprintf("%d records", a.records)}
}

// read reads up to limit records of topic t from offset on.
func (b *broker) read(ctx context.Context, offset, limit int) (a longAnswer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/v1/topics/t/records?offset=%d&limit=%d&max_bytes=%d", b.url, offset, limit, 8<<20), nil)
	if err != nil {
		return a, err
	}
	began := time.Now()
	resp, err := b.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("read from offset %d: %s", offset, resp.Status)
	}
	body := bufio.NewReader(resp.Body)
	if _, err := body.Peek(1); err != nil {
		return a, err
	}
	a.first = time.Since(began)
	for {
		_, err := body.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a, err
		}
		a.records++
	}
	a.all = time.Since(began)
	a.next, err = strconv.Atoi(resp.Header.Get("Seb-Next-Offset"))
	return a, err
}
