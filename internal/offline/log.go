// Package offline reads the state of a log from its bucket, without a broker and without a write.
package offline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	headBytes = 16 << 10 // most heads of commits are smaller
	reads     = 16       // commits that are read side by side
	listKeys  = 50_000   // most keys of a page: in a directory, a page costs as much as all pages; S3 returns at most 1,000

	// A request times out after requestTimeout plus the time that its bytes take at bytesPerSecond.
	requestTimeout = 30 * time.Second
	bytesPerSecond = 256 << 10
	triesMax       = 5 // of a request that fails
	pauseMin       = 200 * time.Millisecond
)

// ErrNoLog says that a store has no log.
var ErrNoLog = errors.New("the store holds no log: it has no " + format.ClusterKey)

// MissingError says that a store has no commit that it should have.
type MissingError struct{ Slot format.Seq }

// Error names the commit.
func (e *MissingError) Error() string {
	return fmt.Sprintf("the store has no %s, although the log goes on after it", format.LogKey(e.Slot))
}

// Log is what is in a bucket.
type Log struct {
	Store       objstore.Store
	Cluster     format.Cluster
	Checkpoints []format.Seq // those that the store lists
	Loaded      format.Seq   // the slot of the checkpoint from which the state was read; 0 if it was read from the first commit on
	Bottom      format.Seq   // of the state of that checkpoint
	State       *state.State
	Hash        format.Hash   // of the head of the last commit of State; zero if there is no commit
	Now         time.Time     // a time of the store's clock
	Boot        time.Duration // the time since this machine was started, at Now
	Ended       bool          // the store has no commit after State

	clock func() time.Duration // the time since this machine was started
}

// Moment is a moment in the life of a log: after a slot, or after the last commit up to a time. The zero value is the end of the log.
type Moment struct {
	Slot format.Seq
	Time int64 // the log's time in microseconds since 1970
}

// before tells whether the moment is before a commit.
func (m Moment) before(slot format.Seq, time int64) bool {
	return m.Slot > 0 && slot > m.Slot || m.Time > 0 && time > m.Time
}

// Open reads the state of a log at a moment: the newest checkpoint of that moment that is sound, and the commits after it. If the
// log ends before the moment, the state is that of its end. clock returns the time since this machine was started; nil if the caller
// does not need Boot.
func Open(ctx context.Context, store objstore.Store, clock func() time.Duration, at Moment) (*Log, error) {
	o := &Log{Store: store, clock: clock, State: state.New()}
	err := Retry(ctx, 0, func(ctx context.Context) error {
		body, err := objstore.GetWhole(ctx, store, format.ClusterKey, format.ClusterBytesMax)
		if err != nil {
			return err
		}
		o.Cluster, err = format.DecodeCluster(body.Body)
		return err
	})
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, ErrNoLog
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", format.ClusterKey, err)
	}
	err = o.List(ctx, format.CheckpointPrefix, func(key string) {
		if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok && s > 0 {
			o.Checkpoints = append(o.Checkpoints, s)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := o.load(ctx, at); err != nil {
		return nil, err
	}
	for {
		if err := o.replay(ctx, at); !errors.Is(err, errGoOn) {
			return o, err
		}
	}
}

// load reads the newest checkpoint that is not after a moment, and sound.
func (o *Log) load(ctx context.Context, at Moment) error {
	var last error
	for i := len(o.Checkpoints) - 1; i >= 0; i-- {
		s := o.Checkpoints[i]
		if at.before(s, 0) {
			continue
		}
		key, late := format.CheckpointKey(s), false
		err := Retry(ctx, format.CheckpointBytesMax, func(ctx context.Context) error {
			body, err := objstore.GetWholeIf(ctx, o.Store, key, format.CheckpointBytesMax, format.CheckCheckpointStart)
			if err != nil {
				return err
			}
			c, err := format.DecodeCheckpoint(body.Body)
			if err != nil {
				return err
			}
			if c.Cluster != o.Cluster.ID || c.Seq != s {
				return fmt.Errorf("%w: it is the checkpoint of slot %d of cluster %v", format.ErrForeign, c.Seq, c.Cluster)
			}
			x, err := state.Decode(c.Seq, c.Body)
			if err != nil {
				return err
			}
			if late = at.before(s, x.Time()); late {
				return nil
			}
			if x.Unread() {
				bodies, err := commitlog.ReadPages(ctx, o.Store, x.Pages())
				if err == nil {
					err = x.ReadPages(bodies)
				}
				if err != nil {
					return err
				}
			}
			o.State, o.Loaded, o.Bottom, o.Hash = x, s, x.Bottom(), c.Hash
			return nil
		})
		if err == nil && !late {
			return nil
		}
		if late {
			continue
		}
		last = fmt.Errorf("read %s: %w", key, err)
		if !AboutBytes(err) && !errors.Is(err, objstore.ErrNotFound) {
			return last
		}
	}
	return last
}

// replay applies the commits after the checkpoint, up to a moment.
func (o *Log) replay(ctx context.Context, at Moment) error {
	for at.Slot == 0 || o.State.Seq() < at.Slot {
		next := o.State.Seq() + 1
		var (
			commits [reads]*format.Commit
			errs    [reads]error // those after the moment don't matter
			g       sync.WaitGroup
		)
		for i := range commits {
			g.Go(func() { commits[i], errs[i] = o.commit(ctx, next+format.Seq(i)) })
		}
		g.Wait()
		for i, c := range commits {
			if at.Slot > 0 && o.State.Seq() == at.Slot {
				return nil
			}
			if errs[i] != nil {
				return errs[i]
			}
			if c == nil {
				return o.end(ctx)
			}
			if at.before(c.Seq, c.Time) {
				return nil
			}
			key := format.LogKey(next + format.Seq(i))
			if c.Seq > 1 && c.Prev != o.Hash {
				return fmt.Errorf("%s: %w: it does not follow the commit before it", key, format.ErrForeign)
			}
			if err := o.State.Apply(c); err != nil {
				return fmt.Errorf("%s: %w: %w", key, format.ErrCorrupt, err)
			}
			o.Hash = c.Hash
		}
	}
	return nil
}

// end is called when a slot has no commit. It checks that the log ends there.
func (o *Log) end(ctx context.Context) error {
	next := o.State.Seq() + 1
	later := false
	if err := o.List(ctx, format.LogPrefix, func(key string) {
		s, ok := format.ParseSeqKey(format.LogPrefix, key)
		later = later || ok && s > next
	}); err != nil {
		return err
	}
	if later {
		c, err := o.commit(ctx, next) // it may have been written before the list
		if err != nil {
			return err
		}
		if c == nil {
			return &MissingError{next}
		}
		return errGoOn
	}
	o.Ended = true
	return nil
}

// errGoOn says that the log did go on.
var errGoOn = errors.New("the log goes on")

// commit reads the head of a slot; it returns nil if there is no commit.
func (o *Log) commit(ctx context.Context, s format.Seq) (c *format.Commit, err error) {
	key := format.LogKey(s)
	err = Retry(ctx, 0, func(ctx context.Context) error {
		body, err := o.Store.Get(ctx, key, 0, headBytes)
		if err != nil {
			return err
		}
		start, err := commitlog.StartCommit(body)
		if err == nil && !start.Whole() {
			body, err = o.Store.Get(ctx, key, 0, start.End())
		}
		if err == nil {
			c, err = format.DecodeCommit(body.Body)
		}
		if err == nil && (c.Cluster != o.Cluster.ID || c.Seq != s) {
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

// List calls visit with the keys that begin with prefix, in order.
func (o *Log) List(ctx context.Context, prefix string, visit func(key string)) error {
	for after, more := "", true; more; {
		var page objstore.Page
		err := Retry(ctx, 0, func(ctx context.Context) (err error) {
			page, err = o.Store.List(ctx, prefix, after, listKeys)
			if err == nil {
				err = commitlog.CheckPage(page, prefix, after)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if page.Time.After(o.Now) {
			o.Now = page.Time
			if o.clock != nil {
				o.Boot = o.clock()
			}
		}
		for _, key := range page.Keys {
			visit(key)
			after = key
		}
		more = page.More && len(page.Keys) > 0
	}
	return nil
}

// Damaged tells whether an error says that a log is damaged.
func Damaged(err error) bool {
	_, missing := errors.AsType[*MissingError](err)
	return missing || AboutBytes(err)
}

// AboutBytes tells whether an error is about the bytes of an object. A second read may show other bytes.
func AboutBytes(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrForeign)
}

// Retry sends a request until the store answers it, at most triesMax times. bytes is about how many the request transfers.
func Retry(ctx context.Context, bytes int64, request func(context.Context) error) error {
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
