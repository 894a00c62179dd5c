package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// slowClients measures small appends, first alone, then while other clients send or read slowly.
func slowClients(ctx context.Context, r *run) error {
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store)
	if err != nil {
		return err
	}
	const uploadBytes, phoneRate = 8_000_000, 320_000
	large := strings.Repeat("x", 1<<20)
	for range 16 {
		if _, err := b.ask(ctx, http.MethodPost, "/v1/topics/large/records", large); err != nil {
			return err
		}
	}
	const aloneFor = 10 * time.Second
	withFor := time.Duration(r.size(30, 90)) * time.Second // longer than an upload, which takes 25 s
	small := func(during time.Duration) latencies {
		return load(ctx, loadWorkers, during, func(ctx context.Context, _, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/small/records", "small")
			return err
		})
	}
	upload := throttled{
		method: http.MethodPost, path: "/v1/topics/uploads/records", contentType: "application/octet-stream",
		size: uploadBytes, sendRate: phoneRate,
	}
	// The readRate is a little above the lowest rate that the broker accepts.
	read := throttled{method: http.MethodGet, path: "/v1/topics/large/records?limit=16&max_bytes=8388608", readRate: 160_000}
	for _, others := range []struct {
		what   string
		n      int
		client throttled
	}{
		{"8 uploads of 8 MB at 320 KB/s", 8, upload},
		{"64 uploads of 8 MB at 320 KB/s", 64, upload},
		{"64 readers of 8 MiB at 160 KB/s", 64, read},
	} {
		alone := small(aloneFor)
		r.row(fmt.Sprintf("small appends, %d clients, alone", loadWorkers), alone.figures()...)
		var with latencies
		theirs := beset(ctx, slices.Repeat([]*broker{b}, others.n), others.client, func() { with = small(withFor) })
		r.row("  with "+others.what, append(with.figures(), compared(with, alone), theirs)...)
	}
	now, peak, err := b.memory()
	if err != nil {
		return err
	}
	r.row("memory: now, peak", mib(now), mib(peak))
	return nil
}

// compared says by what factor requests take longer with other clients than alone.
func compared(with, alone latencies) string {
	return fmt.Sprintf("p50 and p99 are %.2f and %.2f times as long as alone", float64(with.at(0.50))/float64(alone.at(0.50)), float64(with.at(0.99))/float64(alone.at(0.99)))
}
