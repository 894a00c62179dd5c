package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	listCallers = 24
	listWidth   = 1_000 // partitions of each topic
)

// lists measures requests for the list of topics, many of them at the same time.
func lists(ctx context.Context, r *run) error {
	n := r.size(300, 3_000)
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store, "--state-memory", "1GiB")
	if err != nil {
		return err
	}
	if err := each(ctx, n, func(ctx context.Context, i int) error {
		_, err := b.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/topics/t%d", i), fmt.Sprintf(`{"partitions":%d}`, listWidth))
		return err
	}); err != nil {
		return err
	}
	before, peakBefore, err := b.memory()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, listCallers)
	bytes := make([]int64, listCallers)
	for i := range listCallers {
		wg.Go(func() { bytes[i], errs[i] = b.size(ctx, "/v1/topics") })
	}
	wg.Wait()
	var answered, total int64
	for i, err := range errs {
		if err == nil {
			answered++
			total += bytes[i]
		}
	}
	now, peak, err := b.memory()
	if err != nil {
		return err
	}
	r.row(fmt.Sprintf("%d topics of %d partitions, %d lists at once", n, listWidth, listCallers),
		fmt.Sprintf("%d answered, %s", answered, mib(total)), "memory before, now, peak before, peak",
		mib(before), mib(now), mib(peakBefore), mib(peak))
	return nil
}

// size requests a path and returns how many bytes the answer has.
func (b *broker) size(ctx context.Context, path string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return n, err
}

// dead makes many dead letters in one queue, and measures requests for pages of these dead letters.
func dead(ctx context.Context, r *run) error {
	n := r.size(20_000, 100_000)
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store)
	if err != nil {
		return err
	}
	if err := fill(ctx, b, "t", n); err != nil {
		return err
	}
	const queue = "/v1/topics/t/queues/q"
	if _, err := b.ask(ctx, http.MethodPut, queue, `{"max_attempts":1}`); err != nil {
		return err
	}
	for deadLetters := 0; deadLetters < n; {
		var got struct {
			Messages []struct{ Token string }
		}
		if err := b.into(ctx, http.MethodPost, queue+"/receive", `{"max":1000}`, &got); err != nil {
			return err
		}
		tokens := make([]string, len(got.Messages))
		for i, m := range got.Messages {
			tokens[i] = fmt.Sprintf("%q", m.Token)
		}
		if len(tokens) == 0 {
			return fmt.Errorf("%d of %d records are dead letters, and no more are handed out", deadLetters, n)
		}
		if _, err := b.ask(ctx, http.MethodPost, queue+"/nack", `{"tokens":[`+strings.Join(tokens, ",")+`]}`); err != nil {
			return err
		}
		deadLetters += len(tokens)
	}
	if err := measure(ctx, r, b, fmt.Sprintf("%d dead letters, pages of 100", n), func(ctx context.Context, b *broker, _, call int) error {
		_, err := b.size(ctx, fmt.Sprintf("%s/dead?limit=100&next=0:%d", queue, call*100%n))
		return err
	}); err != nil {
		return err
	}
	return measure(ctx, r, b, "the queue shown", func(ctx context.Context, b *broker, _, _ int) error {
		_, err := b.size(ctx, queue)
		return err
	})
}
