package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	checkpointCommits = 1_000 // the default of --checkpoint-commits
	commitClients     = 32
)

// commits measures a log of many small commits: appends at the log's beginning and end, the number of
// checkpoints, and how soon a broker starts from the newest checkpoint, from the second newest, and without a
// checkpoint.
func commits(ctx context.Context, r *run) error {
	n := r.size(100_000, 1_000_000)
	part := n / 10
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store, "--batch", "each")
	if err != nil {
		return err
	}
	if _, err := b.ask(ctx, http.MethodPut, "/v1/topics/t", `{}`); err != nil {
		return err
	}
	body := strings.Repeat("x", 1_000)
	var first float64
	for i := range 10 {
		began := time.Now()
		err := each(ctx, part, func(ctx context.Context, _ int) error {
			_, err := b.ask(ctx, http.MethodPost, "/v1/topics/t/records", body)
			return err
		})
		if err != nil {
			return err
		}
		rate := float64(part) / time.Since(began).Seconds()
		if i == 0 {
			first = rate
		}
		r.row(fmt.Sprintf("%d commits, %d clients", (i+1)*part, commitClients), fmt.Sprintf("%.0f commits/s", rate), fmt.Sprintf("%.2f of the first", rate/first))
	}
	now, peak, err := b.memory()
	if err != nil {
		return err
	}
	r.row("memory: now, peak", mib(now), mib(peak))
	return restarts(ctx, r, b, store, n)
}

// restarts measures how soon a broker is ready after kill -9 of b, whose log has n commits: first with all
// checkpoints, then without the newest, then without any.
func restarts(ctx context.Context, r *run, b *broker, store string, n int) error {
	checkpoints, err := filepath.Glob(filepath.Join(store, "checkpoint", "*"))
	if err != nil {
		return err
	}
	r.row("checkpoints made, due", fmt.Sprint(len(checkpoints)), fmt.Sprint(n/checkpointCommits))
	for _, start := range []struct {
		what   string
		remove int // how many more checkpoints to remove, the newest first
	}{
		{"ready after kill -9", 0},
		{"ready without the newest checkpoint", 1},
		{"ready without any checkpoint", len(checkpoints) - 1},
	} {
		b.kill()
		for range start.remove {
			if err := os.Remove(checkpoints[len(checkpoints)-1]); err != nil {
				return err
			}
			checkpoints = checkpoints[:len(checkpoints)-1]
		}
		if b, err = r.serve(ctx, store, "--batch", "each"); err != nil {
			return err
		}
		r.row(start.what, seconds(b.ready))
	}
	return nil
}
