package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// pushes measures appends while many pushed queues have a backlog, and how evenly the broker serves the
// queues. The target of the pushes runs on the same machine, and uses CPU time too.
func pushes(ctx context.Context, r *run) error {
	queues, records := r.size(200, 1_000), r.size(3_000, 10_000)
	const topics = 20
	target, err := newTarget(ctx, queues)
	if err != nil {
		return err
	}
	defer target.close()
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store, "--push-allow", "127.0.0.0/8")
	if err != nil {
		return err
	}
	queue := func(i int) string { return fmt.Sprintf("/v1/topics/t%d/queues/q%d", i%topics, i) }
	err = each(ctx, topics, func(ctx context.Context, i int) error { return fill(ctx, b, fmt.Sprint("t", i), records) })
	if err != nil {
		return err
	}
	err = each(ctx, queues, func(ctx context.Context, i int) error {
		_, err := b.ask(ctx, http.MethodPut, queue(i), `{"from":"earliest"}`)
		return err
	})
	if err != nil {
		return err
	}
	appends := func(ctx context.Context, b *broker, _, _ int) error {
		_, err := b.ask(ctx, http.MethodPost, "/v1/topics/other/records", strings.Repeat("x", 200))
		return err
	}
	if err := measure(ctx, r, b, "appends without pushes", appends); err != nil {
		return err
	}
	err = each(ctx, queues, func(ctx context.Context, i int) error {
		_, err := b.ask(ctx, http.MethodPut, queue(i)+"/push", fmt.Sprintf(`{"url":"%s/%d"}`, target.url, i))
		return err
	})
	if err != nil {
		return err
	}
	before, began := target.counts(), time.Now()
	if err := measure(ctx, r, b, fmt.Sprintf("appends while %d queues are pushed", queues), appends); err != nil {
		return err
	}
	took, got := time.Since(began), target.counts()
	sum := int64(0)
	for i := range got {
		got[i] -= before[i]
		sum += got[i]
	}
	r.row("deliveries meanwhile", fmt.Sprintf("%.0f/s", float64(sum)/took.Seconds()),
		fmt.Sprintf("a queue: %d to %d", slices.Min(got), slices.Max(got)))
	now, peak, err := b.memory()
	if err != nil {
		return err
	}
	r.row("memory: now, peak", mib(now), mib(peak))
	return nil
}

// target is a server that receives pushed records and counts them by the last element of the URL's path.
type target struct {
	url    string
	server *http.Server
	took   []atomic.Int64
}

func newTarget(ctx context.Context, queues int) (*target, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{url: "http://" + l.Addr().String(), took: make([]atomic.Int64, queues)}
	mux := http.NewServeMux()
	for i := range t.took {
		mux.HandleFunc(fmt.Sprintf("/%d", i), func(http.ResponseWriter, *http.Request) { t.took[i].Add(1) })
	}
	t.server = &http.Server{Handler: mux}
	go func() { _ = t.server.Serve(l) }() // returns an error once close is called
	return t, nil
}

func (t *target) counts() []int64 {
	counts := make([]int64, len(t.took))
	for i := range t.took {
		counts[i] = t.took[i].Load()
	}
	return counts
}

func (t *target) close() { _ = t.server.Close() } // an error does not matter: the measurement is over
