package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// hostileClients measures clients with one API key, first alone, then while clients with another key make the
// broker hold as much memory as they can.
func hostileClients(ctx context.Context, r *run) error {
	const atOnce, rate = 8 << 20, 320_000
	r.row("good clients", "2 that append 1 MiB, 8 that append 5 bytes")
	for _, client := range []throttled{
		{path: "/v1/topics/bad/records", contentType: "application/x-ndjson", size: 32 << 20},
		{path: "/v1/commits", contentType: "application/json", size: 16 << 20, start: `{"appends":[{"topic":"bad","records":[{"value":"`},
	} {
		client.method, client.atOnce, client.sendRate = http.MethodPost, atOnce, rate
		if err := besiege(ctx, r, client); err != nil {
			return err
		}
	}
	return nil
}

// besiege measures the good clients alone, then together with hostile clients, and repeats both. It removes
// its store at the end, since the store is large.
func besiege(ctx context.Context, r *run, client throttled) error {
	store, err := r.store()
	if err != nil {
		return err
	}
	// With a long linger, latencies depend less on the speed of the machine, and the broker writes
	// fewer commits, so that the store stays small.
	b, err := r.serve(ctx, store, "--linger", "50ms")
	if err != nil {
		return err
	}
	ops, err := b.withKey(ctx, "ops", "admin")
	if err != nil {
		return err
	}
	good, err := ops.withKey(ctx, "good", "write")
	if err != nil {
		return err
	}
	bad, err := ops.withKey(ctx, "bad", "write")
	if err != nil {
		return err
	}
	const hostile, rounds = 8, 2
	during := time.Duration(r.size(10, 30)) * time.Second
	var largeAlone, smallAlone, large, small latencies
	theirs := make([]string, rounds)
	for i := range rounds {
		l, s := goodClients(ctx, good, during)
		largeAlone, smallAlone = largeAlone.and(l), smallAlone.and(s)
		theirs[i] = beset(ctx, bad, hostile, client, func() {
			l, s := goodClients(ctx, good, during)
			large, small = large.and(l), small.and(s)
		})
	}
	r.row(fmt.Sprintf("%d hostile bodies to %s", hostile, client.path), theirs...)
	r.row("  1 MiB appends, alone", append(largeAlone.figures(), longest(largeAlone))...)
	r.row("  1 MiB appends, with", append(large.figures(), longest(large), fmt.Sprintf("%.2f of the rate alone", large.rate()/largeAlone.rate()))...)
	r.row("  small appends, alone", append(smallAlone.figures(), longest(smallAlone))...)
	r.row("  small appends, with", append(small.figures(), longest(small), fmt.Sprintf("%.2f of the rate alone", small.rate()/smallAlone.rate()))...)
	b.kill()
	return os.RemoveAll(store)
}

func longest(l latencies) string { return fmt.Sprintf("longest %.0f ms", float64(l.at(1))/1e6) }

// goodClients appends large and small records at the same time.
func goodClients(ctx context.Context, b *broker, during time.Duration) (large, small latencies) {
	value := strings.Repeat("x", 1<<20)
	var both sync.WaitGroup
	both.Go(func() {
		large = load(ctx, 2, during, func(ctx context.Context, _, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/large/records", value)
			return err
		})
	})
	both.Go(func() {
		small = load(ctx, 8, during, func(ctx context.Context, _, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/small/records", "small")
			return err
		})
	})
	both.Wait()
	return large, small
}

// withKey creates an API key, and returns a copy of b that sends requests with the key.
func (b *broker) withKey(ctx context.Context, name, scope string) (*broker, error) {
	var made struct{ Key string }
	if err := b.into(ctx, http.MethodPost, "/v1/keys", fmt.Sprintf(`{"name":%q,"scopes":[%q]}`, name, scope), &made); err != nil {
		return nil, err
	}
	with := *b
	with.key = made.Key
	return &with, nil
}
