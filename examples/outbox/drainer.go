package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	parallelMax = 8 // batches, each of another topic, that are sent at the same time

	pauseMin = 100 * time.Millisecond
	pauseMax = time.Minute

	// grace is how long requests under way may go on after the process was told to end.
	grace = 10 * time.Second

	reportEvery = 10 * time.Second
)

// limits bound how many rows, and bytes of rows, are taken from the table at a time.
type limits struct {
	rows  int
	bytes int
}

// drainer moves the rows of an outbox into topics, each row once.
type drainer struct {
	config *pgx.ConnConfig
	broker *broker
	most   limits
	once   bool          // end when the outbox is empty, or at the first failure
	poll   time.Duration // longest wait for a notification of new rows
	pace   time.Duration // shortest time between two queries for rows, while rows come one by one
	log    *slog.Logger

	paused map[string]pause // topics that failed
	moved  tally

	began    time.Time
	wait     time.Duration // time until the next try to connect
	standing bool          // another drainer has the lock, and this drainer has logged that it stands by
	worked   bool          // next has succeeded once, so the database has the tables and privileges
}

// pause is a time in which no batches of a topic are sent, after a failure.
type pause struct {
	until time.Time
	last  time.Duration
}

// tally counts what was moved since the last report.
type tally struct {
	since                   time.Time
	rows, batches, replayed int
}

// drain moves rows until the connection of s is lost or ctx ends. If d.once is set, it ends when
// the outbox is empty.
func (d *drainer) drain(ctx context.Context, s *session) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	for ctx.Err() == nil {
		began := time.Now()
		batches, more, err := d.next(work, s)
		if err != nil {
			return err
		}
		d.worked = true
		for group := range slices.Chunk(batches, parallelMax) {
			if ctx.Err() != nil {
				return nil
			}
			if err := d.move(work, s, group); err != nil {
				return err
			}
		}
		d.report(reportEvery)
		if d.once && len(batches) == 0 {
			return nil
		}
		if more || d.once {
			continue
		}
		if err := s.wait(ctx, d.untilNext()); err != nil {
			return err
		}
		sleep(ctx, d.pace-time.Since(began))
	}
	return nil
}

// next returns the batches to send now: first the batches that may have been sent before,
// then new ones. more is true if there are more rows for new batches.
func (d *drainer) next(ctx context.Context, s *session) (batches []batch, more bool, err error) {
	var leave []string
	for topic, p := range d.paused {
		if time.Now().Before(p.until) {
			leave = append(leave, topic)
		}
	}
	old, err := s.oldBatches(ctx, leave)
	if err != nil {
		return nil, false, err
	}
	fresh, err := s.makeBatches(ctx, d.most, leave)
	if err != nil {
		return nil, false, err
	}
	batches = append(old, fresh...)
	// Forget topics that failed and have no rows left, because somebody deleted
	// the rows.
	maps.DeleteFunc(d.paused, func(topic string, _ pause) bool {
		return !slices.Contains(leave, topic) && !slices.ContainsFunc(batches, func(b batch) bool { return b.topic == topic })
	})
	more = slices.ContainsFunc(fresh, func(b batch) bool { return b.more })
	return batches, more, nil
}

// move sends batches of different topics at the same time, and then settles them. It
// returns errors of the database and, if d.once is set, errors of the broker.
func (d *drainer) move(ctx context.Context, s *session, batches []batch) error {
	records := make([][]record, len(batches))
	for i, b := range batches {
		if b.stale {
			continue
		}
		var err error
		if records[i], err = s.records(ctx, b); err != nil {
			return err
		}
	}
	errs := make([]error, len(batches))
	var group sync.WaitGroup
	var mu sync.Mutex // guards d.moved
	for i, b := range batches {
		switch {
		case b.stale:
			errs[i] = staleError(b)
		case len(records[i]) > 0:
			group.Go(func() {
				var replayed bool
				if replayed, errs[i] = d.broker.append(ctx, b.topic, b.key(), records[i]); errs[i] == nil {
					mu.Lock()
					defer mu.Unlock()
					d.moved.add(len(records[i]), replayed)
				}
			})
		}
	}
	group.Wait()
	return d.settle(ctx, s, batches, errs)
}

// settle deletes from the database the batches that were appended, and the fresh batches
// that were certainly not appended. It pauses the topics whose batches failed.
func (d *drainer) settle(ctx context.Context, s *session, batches []batch, errs []error) error {
	var done, undone []batch
	for i, b := range batches {
		var f *failure
		switch {
		case errs[i] == nil:
			done = append(done, b)
			delete(d.paused, b.topic)
		case errors.As(errs[i], &f) && f.certain && b.fresh:
			undone = append(undone, b)
		}
	}
	if err := errors.Join(s.finish(ctx, done), s.release(ctx, undone)); err != nil {
		return err
	}
	for i, b := range batches {
		if errs[i] == nil {
			continue
		}
		if d.once {
			return fmt.Errorf("topic %s, %s: %w", b.topic, b, errs[i])
		}
		d.pauseTopic(b, errs[i])
	}
	return nil
}

// pauseTopic pauses a topic after a failure. All later rows of the topic wait too, so that
// its rows stay in order. Other topics go on.
func (d *drainer) pauseTopic(b batch, err error) {
	p := d.paused[b.topic]
	p.last = min(max(2*p.last, pauseMin), pauseMax)
	level := slog.LevelWarn
	var f *failure
	if errors.As(err, &f) {
		p.last = max(p.last, f.retryAfter)
		if f.refused {
			level = slog.LevelError
		}
	}
	p.until = time.Now().Add(p.last)
	d.paused[b.topic] = p
	d.log.Log(context.Background(), level, "not moved, trying again", "topic", b.topic, "what", b.String(), "in", p.last, "error", err)
}

// untilNext returns how long the drainer may wait for new rows.
func (d *drainer) untilNext() time.Duration {
	next := d.poll
	for _, p := range d.paused {
		next = min(next, max(time.Until(p.until), pauseMin))
	}
	return next
}

func staleError(b batch) error {
	return &failure{refused: true, err: fmt.Errorf("it was sent more than %v ago and may be in the topic, but the broker may have forgotten its idempotency key: "+
		"look for records whose header outbox-id is the id of one of its rows, with `seb consume %s --format json`; "+
		"if they are there, DELETE FROM outbox WHERE id = ANY (SELECT unnest(row_ids) FROM outbox_batches WHERE id = '%s'); "+
		"then, in any case, DELETE FROM outbox_batches WHERE id = '%s'", doubtMax, b.topic, b.id, b.id)}
}

func (t *tally) add(rows int, replayed bool) {
	t.rows += rows
	t.batches++
	if replayed {
		t.replayed++
	}
}

// report logs what was moved since the last report. It does nothing if less than the given
// time has passed since that report.
func (d *drainer) report(every time.Duration) {
	took := time.Since(d.moved.since)
	if d.moved.batches == 0 || took < every {
		return
	}
	d.log.Info("moved", "rows", d.moved.rows, "batches", d.moved.batches, "batches sent again", d.moved.replayed, "in", took.Round(time.Millisecond))
	d.moved = tally{since: time.Now()}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
