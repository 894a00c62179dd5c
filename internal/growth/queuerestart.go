package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// queueLease is the record lease of the measured queues. After a broker is lost, the new owner of a queue
// waits for the length of a record lease before it hands out records that workers may have.
const queueLease = 30 * time.Second

// queueRestart measures how many messages workers get, from many queues with a backlog, before and after the
// broker is killed.
func queueRestart(ctx context.Context, r *run) error {
	n := r.size(200, 1_000)
	const backlog, most = 20_000, 10
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store, "--linger", "20ms")
	if err != nil {
		return err
	}
	if err := makeQueues(ctx, b, n, backlog); err != nil {
		return err
	}
	done := make([]int, loadWorkers)
	work := func(ctx context.Context, worker, call int) error {
		got, err := workOnce(ctx, b, (call*loadWorkers+worker)%n, most)
		done[worker] += got
		return err
	}
	slice := func(what string) (float64, error) {
		clear(done)
		l := load(ctx, loadWorkers, loadTime, work)
		now, peak, err := b.memory()
		total := 0
		for _, d := range done {
			total += d
		}
		rate := float64(total) / l.over.Seconds()
		r.row(what, append(l.figures(), fmt.Sprintf("%.0f messages/s", rate), "memory now, peak "+mib(now)+", "+mib(peak))...)
		return rate, cmp.Or(err, l.first)
	}
	r.row(fmt.Sprintf("%d queues, each of %d records", n, backlog), fmt.Sprintf("%d clients that take and acknowledge %d at a time", loadWorkers, most))
	for i := range 3 {
		if _, err := slice(fmt.Sprintf("before, %d to %d s", 5*i, 5*i+5)); err != nil {
			return err
		}
	}
	b.kill()
	if b, err = r.serve(ctx, store, "--linger", "20ms"); err != nil {
		return err
	}
	for i := range 9 { // 9 slices of 5 s: the last slices begin after the record leases of the killed broker have ended
		if _, err := slice(fmt.Sprintf("after kill -9, %d to %d s", 5*i, 5*i+5)); err != nil {
			return err
		}
	}
	return nil
}

func makeQueues(ctx context.Context, b *broker, n, records int) error {
	if err := fill(ctx, b, "t", records); err != nil {
		return err
	}
	return each(ctx, n, func(ctx context.Context, i int) error {
		_, err := b.ask(ctx, http.MethodPut, fmt.Sprintf("/v1/topics/t/queues/q%d", i), fmt.Sprintf(`{"lease":%q}`, queueLease))
		return err
	})
}

// workOnce receives from a queue once, acknowledges the received records, and returns their number.
func workOnce(ctx context.Context, b *broker, queue, most int) (n int, _ error) {
	path := fmt.Sprintf("/v1/topics/t/queues/q%d", queue)
	var got struct {
		Messages []struct{ Token string }
	}
	if err := b.into(ctx, http.MethodPost, path+"/receive", fmt.Sprintf(`{"max":%d}`, most), &got); err != nil || len(got.Messages) == 0 {
		return 0, err
	}
	tokens := ""
	for _, m := range got.Messages {
		tokens += fmt.Sprintf(",%q", m.Token)
	}
	_, err := b.ask(ctx, http.MethodPost, path+"/ack", `{"tokens":[`+tokens[1:]+`]}`)
	return len(got.Messages), err
}

// queueLost measures how long workers receive nothing after kill -9 of the owner of a small
// queue, and how many commits the queue needs while one worker receives one record at a time.
func queueLost(ctx context.Context, r *run) error {
	store, err := r.store()
	if err != nil {
		return err
	}
	b, err := r.serve(ctx, store, "--linger", "20ms")
	if err != nil {
		return err
	}
	const records, acknowledged = 320, 300
	if err := makeQueues(ctx, b, 1, records); err != nil {
		return err
	}
	before, err := b.metric(ctx, "seb_commits_total")
	if err != nil {
		return err
	}
	for range acknowledged {
		if n, err := workOnce(ctx, b, 0, 1); err != nil || n != 1 {
			return cmp.Or(err, errors.New("a receive returned no record, though the queue should still have some"))
		}
	}
	after, err := b.metric(ctx, "seb_commits_total")
	if err != nil {
		return err
	}
	r.row(fmt.Sprintf("one worker, %d acknowledgements", acknowledged), fmt.Sprintf("%.0f commits", after-before))
	pause(ctx, time.Minute) // after a minute without a receive, the owner's next commit lowers the dispatch limit
	if _, err := workOnce(ctx, b, 0, 1); err != nil {
		return err
	}
	if _, err := b.ask(ctx, http.MethodPost, "/v1/topics/t/queues/q0/receive", `{}`); err != nil { // this record is never acknowledged
		return err
	}
	b.kill()
	if b, err = r.serve(ctx, store, "--linger", "20ms"); err != nil {
		return err
	}
	const left = records - acknowledged - 1
	began := time.Now()
	var first, last time.Duration
	atOnce := 0
	for got := 0; got < left && time.Since(began) < 2*queueLease; {
		n, err := workOnce(ctx, b, 0, 1)
		if err != nil {
			return err
		}
		if n == 0 {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if last = time.Since(began); got == 0 {
			first = last
		}
		if last < queueLease/2 {
			atOnce++
		}
		got += n
	}
	r.row(fmt.Sprintf("after kill -9 with 1 of %d records out", left), "the first after "+seconds(first),
		fmt.Sprintf("%d within half a lease", atOnce), "the last after "+seconds(last))
	return nil
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
