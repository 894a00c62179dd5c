package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	headBytes = 16 << 10 // most heads of commits are smaller
	reads     = 16       // commits that are read side by side

	// A request times out after requestTimeout plus the time that its bytes take at bytesPerSecond.
	requestTimeout = 30 * time.Second
	bytesPerSecond = 256 << 10
	triesMax       = 5 // of a request that fails
	pauseMin       = 200 * time.Millisecond
)

// opened is what is in a bucket, read without a write.
type opened struct {
	store       objstore.Store
	clock       func() time.Duration // the time since this machine was started
	cluster     format.Cluster
	checkpoints []format.Seq
	loaded      format.Seq // the slot of the checkpoint from which the state was read; 0 if the log has no checkpoint
	bottom      format.Seq // of the state of that checkpoint
	hash        format.Hash
	state       *state.State
	now         time.Time     // a time of the store's clock
	boot        time.Duration // the time since this machine was started, at now
}

// open reads the state of a log: the newest checkpoint that is sound, and the commits after it.
func open(ctx context.Context, store objstore.Store, clock func() time.Duration) (*opened, error) {
	o := &opened{store: store, clock: clock, state: state.New()}
	err := try(ctx, 0, func(ctx context.Context) error {
		body, err := objstore.GetWhole(ctx, store, format.ClusterKey, format.ClusterBytesMax)
		if err != nil {
			return err
		}
		o.cluster, err = format.DecodeCluster(body.Body)
		return err
	})
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, ErrNoLog
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", format.ClusterKey, err)
	}
	err = o.list(ctx, format.CheckpointPrefix, func(key string) {
		if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok && s > 0 {
			o.checkpoints = append(o.checkpoints, s)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := o.load(ctx); err != nil {
		return nil, err
	}
	return o, o.replay(ctx)
}

// load reads the newest checkpoint that is there, and sound.
func (o *opened) load(ctx context.Context) error {
	var last error
	for i := len(o.checkpoints) - 1; i >= 0; i-- {
		s := o.checkpoints[i]
		key := format.CheckpointKey(s)
		err := try(ctx, format.CheckpointBytesMax, func(ctx context.Context) error {
			body, err := objstore.GetWholeIf(ctx, o.store, key, format.CheckpointBytesMax, format.CheckCheckpointStart)
			if err != nil {
				return err
			}
			c, err := format.DecodeCheckpoint(body.Body)
			if err != nil {
				return err
			}
			if c.Cluster != o.cluster.ID || c.Seq != s {
				return fmt.Errorf("%w: it is the checkpoint of slot %d of cluster %v", format.ErrForeign, c.Seq, c.Cluster)
			}
			if o.state, err = state.Decode(c.Seq, c.Body); err == nil {
				o.loaded, o.bottom, o.hash = s, o.state.Bottom(), c.Hash
			}
			return err
		})
		if err == nil {
			return nil
		}
		last = fmt.Errorf("read %s: %w", key, err)
		if !aboutBytes(err) && !errors.Is(err, objstore.ErrNotFound) {
			return last
		}
	}
	return last
}

// replay applies the commits after the checkpoint.
func (o *opened) replay(ctx context.Context) error {
	for {
		next := o.state.Seq() + 1
		var commits [reads]*format.Commit
		g, gctx := errgroup.WithContext(ctx)
		for i := range commits {
			g.Go(func() (err error) {
				commits[i], err = o.commit(gctx, next+format.Seq(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i, c := range commits {
			if c == nil {
				return nil
			}
			key := format.LogKey(next + format.Seq(i))
			if c.Seq > 1 && c.Prev != o.hash {
				return fmt.Errorf("%s: %w: it does not follow the commit before it", key, format.ErrForeign)
			}
			if err := o.state.Apply(c); err != nil {
				return fmt.Errorf("%s: %w: %w", key, format.ErrCorrupt, err)
			}
			o.hash = c.Hash
		}
	}
}

// commit reads the head of a slot; it returns nil if there is no commit.
func (o *opened) commit(ctx context.Context, s format.Seq) (c *format.Commit, err error) {
	key := format.LogKey(s)
	err = try(ctx, 0, func(ctx context.Context) error {
		body, err := o.store.Get(ctx, key, 0, headBytes)
		if err != nil {
			return err
		}
		start, err := commitlog.StartCommit(body)
		if err == nil && !start.Whole() {
			body, err = o.store.Get(ctx, key, 0, start.End())
		}
		if err == nil {
			c, err = format.DecodeCommit(body.Body)
		}
		if err == nil && (c.Cluster != o.cluster.ID || c.Seq != s) {
			err = fmt.Errorf("%w: it is the commit of slot %d of cluster %v", format.ErrForeign, c.Seq, c.Cluster)
		}
		return err
	})
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, nil //nolint:nilnil // the slot is free
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return c, nil
}

// list calls visit with the keys that begin with prefix, in order.
func (o *opened) list(ctx context.Context, prefix string, visit func(key string)) error {
	for after, more := "", true; more; {
		var page objstore.Page
		err := try(ctx, 0, func(ctx context.Context) (err error) {
			page, err = o.store.List(ctx, prefix, after, 0)
			if err == nil {
				err = commitlog.CheckPage(page, prefix, after)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if page.Time.After(o.now) {
			o.now, o.boot = page.Time, o.clock()
		}
		for _, key := range page.Keys {
			visit(key)
			after = key
		}
		more = page.More && len(page.Keys) > 0
	}
	return nil
}

// aboutBytes tells whether an error is about the bytes of an object. A second read may show other bytes.
func aboutBytes(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrForeign)
}

// try sends a request until the store answers it, at most triesMax times.
func try(ctx context.Context, bytes int64, request func(context.Context) error) error {
	for n := 1; ; n++ {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout+time.Duration(bytes)*time.Second/bytesPerSecond)
		err := request(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, errors.Is(err, objstore.ErrNotFound), errors.Is(err, objstore.ErrStopped), errors.Is(err, objstore.ErrNotRegular),
			errors.Is(err, format.ErrVersion), objstore.SetupFailureOf(err) != nil, n == triesMax:
			return err
		}
		wait.For(ctx, pauseMin<<n)
	}
}
