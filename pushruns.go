package seb

import (
	"context"
	"errors"
	"log/slog"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/push"
	"github.com/simple-event-broker/seb/internal/wait"
)

// pushRun pushes one queue to one target, as the owner of one epoch.
type pushRun struct {
	target *format.QueuePush
	epoch  uint64
	end    context.CancelFunc
	over   chan struct{} // closed when it may be begun again
}

// reap forgets those that are over. What the log says is looked at after that, so that
// none begins anew whose target has just been stopped.
func (d *deliveries) reap() {
	for id, r := range d.running {
		select {
		case <-r.over:
			delete(d.running, id)
		default:
		}
	}
}

// endRuns ends those that are not to go on as they are.
func (d *deliveries) endRuns(queues map[uint64]pushedQueue) {
	for id, r := range d.running {
		q, ok := queues[id]
		if !ok || !q.here || q.epoch != r.epoch || !samePush(q.target, r.target) {
			r.end()
			delete(d.running, id)
		}
	}
}

// begin pushes a queue that this broker owns, until that changes.
func (d *deliveries) begin(ctx context.Context, q pushedQueue) {
	ctx, end := context.WithCancel(ctx)
	r := &pushRun{target: q.target, epoch: q.epoch, end: end, over: make(chan struct{})}
	d.running[q.queue] = r
	log := d.b.logger.With("topic", q.q.topic, "queue", q.q.name)
	p, err := push.New(targetOf(q.target), pushQueue{q.q, func() bool { return d.b.pushesStill(q) }}, push.Options{
		Topic: q.q.topic, TopicID: d.b.TopicTag(q.topicID), Queue: q.q.name, Networks: d.b.pushNetworks(),
		Proxy: d.o.Proxy, RootCAs: d.o.RootCAs, Dial: d.o.dial, Grace: d.o.Grace, Logger: d.b.logger, Metrics: d.b.metrics.push,
		Gone: func(why error) { d.stopped(ctx, q, why.Error(), log) },
	})
	if err != nil { // another version wrote it; until it changes
		log.Error("can't push a queue", "err", err)
		return
	}
	d.b.pushes.began(q.queue, p)
	d.tasks.Go(func() {
		defer end()
		defer d.b.pushes.ended(q.queue, p)
		if err := p.Run(ctx); err != nil && !errors.Is(err, push.ErrGone) {
			log.Debug("pushes a queue no more", "err", err)
			wait.For(ctx, pushRetry)
		}
		close(r.over)
		d.nudge()
	})
}

// pushesStill tells whether a queue is to be pushed as it was.
func (b *Broker) pushesStill(q pushedQueue) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	now := b.state.QueueByID(q.queue)
	return now != nil && !now.Config.Paused && samePush(now.Push, q.target)
}

// stopped has the log say that a target is gone, however often that has to be tried. Until
// then nothing is sent there from here.
func (d *deliveries) stopped(ctx context.Context, q pushedQueue, why string, log *slog.Logger) {
	for {
		try, cancel := context.WithTimeout(ctx, pushStopMax)
		err := q.q.changePush(try, func(now *format.QueuePush) (*format.QueuePush, *Error) {
			if now == nil || !samePush(now, q.target) {
				return now, nil // it is another by now
			}
			stopped := *now
			stopped.Stopped = why
			return &stopped, nil
		})
		cancel()
		if err == nil || CodeOf(err) == CodeQueueNotFound || CodeOf(err) == CodeTopicNotFound {
			return
		}
		if ctx.Err() != nil {
			return // it is known, or the next owner asks once more
		}
		log.Warn("can't write down that a target is gone; trying again", "err", err)
		wait.For(ctx, pushRetry)
	}
}
