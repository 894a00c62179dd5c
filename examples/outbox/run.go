package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lockPatience is how long a drainer with -once waits for the lock: the database may
// release the lock of a process a moment after the process has ended.
const lockPatience = 5 * time.Second

// run drains the outbox until ctx ends. It connects again whenever the connection is lost.
// If d.once is set, run ends when the outbox is empty, or at the first failure.
func (d *drainer) run(ctx context.Context) error {
	d.paused = map[string]pause{}
	d.began, d.moved.since, d.wait = time.Now(), time.Now(), pauseMin
	defer d.report(0)
	for {
		err := d.connected(ctx)
		switch {
		case ctx.Err() != nil && d.once:
			return errors.New("interrupted before the outbox was empty")
		case ctx.Err() != nil, err == nil:
			return nil
		}
		if err := d.again(err); err != nil {
			return err
		}
		sleep(ctx, d.wait)
		d.wait = min(2*d.wait, pauseMax)
	}
}

// connected connects to the database, and drains the outbox until the connection is lost.
func (d *drainer) connected(ctx context.Context) error {
	s, err := connect(ctx, d.config)
	if err != nil {
		return err
	}
	defer s.close()
	d.log.Info("draining the outbox", "database", d.config.Database, "server", d.broker.base.Redacted())
	d.wait, d.standing = pauseMin, false
	return d.drain(ctx, s)
}

// again decides what run does after err. If run should connect again, again sets d.wait to the time that run
// waits before that. If run should end, again returns an error.
func (d *drainer) again(err error) error {
	hint, hopeless := hopeless(err)
	if hopeless {
		err = fmt.Errorf("%w; %s", err, hint)
	}
	elsewhere := errors.Is(err, errElsewhere)
	switch {
	case elsewhere && d.once && time.Since(d.began) < lockPatience:
		d.wait = pauseMin
	case d.once, hopeless && !d.worked:
		return err
	case elsewhere:
		if !d.standing {
			d.log.Info("another process drains this outbox; standing by")
		}
		d.standing, d.wait = true, d.poll
	default:
		d.log.Warn("lost the database, trying again", "in", d.wait, "error", err)
	}
	return nil
}
