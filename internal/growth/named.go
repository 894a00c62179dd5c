package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Each load of a case lasts loadTime, and has loadWorkers clients.
const (
	loadTime    = 5 * time.Second
	loadWorkers = 16
)

func topics(ctx context.Context, r *run) error {
	n := r.size(2_000, 10_000)
	return grown(ctx, r, fmt.Sprintf("%d topics of 8 partitions", n), func(ctx context.Context, b *broker) error {
		return each(ctx, n, func(ctx context.Context, i int) error {
			_, err := b.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/topics/t%d", i), `{"partitions":8}`)
			return err
		})
	}, func(ctx context.Context, b *broker, worker, call int) error {
		_, err := b.ask(ctx, http.MethodPost, fmt.Sprintf("/v1/topics/t%d/records", (worker*997+call)%n), strings.Repeat("x", 200))
		return err
	})
}

func partitions(ctx context.Context, r *run) error {
	n := r.size(200, 1_000)
	return grown(ctx, r, fmt.Sprintf("a topic of %d partitions", n), func(ctx context.Context, b *broker) error {
		_, err := b.ask(ctx, http.MethodPut, "/v1/topics/wide", fmt.Sprintf(`{"partitions":%d}`, n))
		return err
	}, func(ctx context.Context, b *broker, _, _ int) error {
		_, err := b.ask(ctx, http.MethodPost, "/v1/topics/wide/records", strings.Repeat("x", 200))
		return err
	})
}

func consumers(ctx context.Context, r *run) error {
	n := r.size(2_000, 50_000)
	return grown(ctx, r, fmt.Sprintf("%d consumers", n), func(ctx context.Context, b *broker) error {
		if err := fill(ctx, b, "t", 1_000); err != nil {
			return err
		}
		return each(ctx, n, func(ctx context.Context, i int) error {
			_, err := b.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/topics/t/consumers/c%d", i), `{"from":"earliest"}`)
			return err
		})
	}, func(ctx context.Context, b *broker, worker, call int) error {
		_, err := b.ask(ctx, http.MethodPost, fmt.Sprintf("/v1/topics/t/consumers/c%d/commit", (worker*997+call)%n),
			fmt.Sprintf(`{"offsets":{"0":%d}}`, call%1_000))
		return err
	})
}

func queues(ctx context.Context, r *run) error {
	n := r.size(200, 2_000)
	return grown(ctx, r, fmt.Sprintf("%d queues", n), func(ctx context.Context, b *broker) error {
		if err := fill(ctx, b, "t", 10_000); err != nil {
			return err
		}
		return each(ctx, n, func(ctx context.Context, i int) error {
			_, err := b.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/topics/t/queues/q%d", i), `{"lease":"30s"}`)
			return err
		})
	}, func(ctx context.Context, b *broker, worker, call int) error {
		queue := fmt.Sprintf("/v1/topics/t/queues/q%d", (worker*97+call)%n)
		var got struct {
			Messages []struct{ Token string }
		}
		if err := b.into(ctx, http.MethodPost, queue+"/receive", `{"max":1}`, &got); err != nil || len(got.Messages) == 0 {
			return err
		}
		_, err := b.ask(ctx, http.MethodPost, queue+"/ack", fmt.Sprintf(`{"tokens":[%q]}`, got.Messages[0].Token))
		return err
	})
}

// grown measures a broker on a directory that is empty at first: how long fill takes, the latencies of many
// calls of do at the same time (before and after kill -9 of the broker), the broker's memory, and how soon
// the next broker on the directory is ready.
func grown(ctx context.Context, r *run, what string, fill func(context.Context, *broker) error, do func(ctx context.Context, b *broker, worker, call int) error) error {
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store)
	if err != nil {
		return err
	}
	idle, _, err := b.memory()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fill(ctx, b); err != nil {
		return err
	}
	r.row(what+" made", seconds(time.Since(began)))
	if err := measure(ctx, r, b, fmt.Sprintf("%d clients", loadWorkers), do); err != nil {
		return err
	}
	now, peak, err := b.memory()
	if err != nil {
		return err
	}
	r.row("memory: empty, now, peak", mib(idle), mib(now), mib(peak))
	b.kill()
	if b, err = r.serve(ctx, store); err != nil {
		return err
	}
	killed := b.ready
	if err := measure(ctx, r, b, "the same after kill -9", do); err != nil {
		return err
	}
	if err := b.stop(); err != nil {
		return err
	}
	if b, err = r.serve(ctx, store); err != nil {
		return err
	}
	r.row("ready after kill -9, after a clean stop", seconds(killed), seconds(b.ready))
	return nil
}

// measure runs a load, and prints its latencies and the broker's CPU time and memory.
func measure(ctx context.Context, r *run, b *broker, what string, do func(ctx context.Context, b *broker, worker, call int) error) error {
	cpuBefore, err := b.cpu()
	if err != nil {
		return err
	}
	commitsBefore, err := b.metric(ctx, "seb_commits_total")
	if err != nil {
		return err
	}
	l := load(ctx, loadWorkers, loadTime, func(ctx context.Context, worker, call int) error { return do(ctx, b, worker, call) })
	cpu, err := b.cpu()
	if err != nil {
		return err
	}
	commits, err := b.metric(ctx, "seb_commits_total")
	if err != nil {
		return err
	}
	r.row(what, append(l.figures(), fmt.Sprintf("%.0f commits/s", (commits-commitsBefore)/l.over.Seconds()),
		fmt.Sprintf("%.2f cores", (cpu-cpuBefore).Seconds()/l.over.Seconds()))...)
	return nil
}

// fill appends n records of 200 bytes to a topic, up to 1,000 in a request.
func fill(ctx context.Context, b *broker, topic string, n int) error {
	for n > 0 {
		part := min(n, 1_000)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/topics/"+topic+"/records", strings.NewReader(strings.Repeat(strings.Repeat("x", 200)+"\n", part)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := b.client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("append %d records to %s: %s", part, topic, resp.Status)
		}
		n -= part
	}
	return nil
}
