package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lockPatience is how long -once waits for the lock: a process that has just
// ended may have it for another moment.
const lockPatience = 5 * time.Second

// run drains until ctx ends, or with once until the outbox is empty. It connects
// again whenever the connection is lost.
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

// connected drains through one connection.
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

// again says in d.wait when to try again after err, or returns why not to.
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
