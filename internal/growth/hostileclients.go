package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// hostileClients measures the clients of one API key alone, then while connections of
// another key hold as much memory as they can for as long as they can.
func hostileClients(ctx context.Context, r *run) error {
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store)
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
	during := time.Duration(r.size(5, 20)) * time.Second
	const hostile, bodyBytes, atOnce, rate = 8, 32 << 20, 8 << 20, 320_000
	r.row("good clients", "2 that append 1 MiB, 8 that append 5 bytes")
	for _, others := range []struct{ path, contentType, start string }{
		{"/v1/topics/bad/records", "application/x-ndjson", ""},
		{"/v1/commits", "application/json", `{"appends":[{"topic":"bad","records":[{"value":"`},
	} {
		largeAlone, smallAlone := goodClients(ctx, good, during)
		r.row("1 MiB appends, alone", largeAlone.figures()...)
		r.row("small appends, alone", smallAlone.figures()...)
		client := throttled{
			method: http.MethodPost, path: others.path, contentType: others.contentType, start: others.start,
			size: bodyBytes, atOnce: atOnce, sendRate: rate,
		}
		var large, small latencies
		theirs := beset(ctx, bad, hostile, client, func() { large, small = goodClients(ctx, good, during) })
		r.row(fmt.Sprintf("with %d hostile bodies to %s", hostile, others.path), theirs)
		r.row("  1 MiB appends", append(large.figures(), fmt.Sprintf("%.2f of the rate alone", large.rate()/largeAlone.rate()), compared(large, largeAlone))...)
		r.row("  small appends", append(small.figures(), fmt.Sprintf("%.2f of the rate alone", small.rate()/smallAlone.rate()), compared(small, smallAlone))...)
	}
	return nil
}

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

// withKey makes an API key, and returns b for requests with it.
func (b *broker) withKey(ctx context.Context, name, scope string) (*broker, error) {
	var made struct{ Key string }
	if err := b.into(ctx, http.MethodPost, "/v1/keys", fmt.Sprintf(`{"name":%q,"scopes":[%q]}`, name, scope), &made); err != nil {
		return nil, err
	}
	with := *b
	with.key = made.Key
	return &with, nil
}
