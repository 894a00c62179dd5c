package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/simple-event-broker/seb"
)

const (
	// streamIdleMax is how long a follower that nobody calls keeps its stream.
	streamIdleMax = 30 * time.Second

	nextRecordsDefault = 1000
	nextBytesDefault   = 1 << 20
)

// remoteFollower follows a topic, or the records of a consumer, by an event stream. It keeps the stream
// between calls, but not for longer than streamIdleMax: so it needs no Close.
type remoteFollower struct {
	client *Client
	path   []string   // of the records
	first  url.Values // where the first stream begins
	opened bool       // the first stream was opened: mark is set

	mark   seb.Bookmark // past all records that Next has returned
	stream *stream      // nil: none
	idle   *time.Timer
	idleMu sync.Mutex // guards stream, which idle may end
}

// NewFollower does what [seb.Broker.NewFollower] does.
func (c *Client) NewFollower(ctx context.Context, topic string, partition int32, from seb.Position) (Follower, error) {
	q := partitionQuery(partition)
	if positionQuery(q, from) {
		f, err := c.Fetch(ctx, topic, max(0, partition), from, seb.FetchOptions{Limit: 1})
		if err != nil {
			return nil, err
		}
		first := f.Next - seb.Offset(len(f.Records))
		q.Set("offset", strconv.FormatInt(int64(first), 10))
	}
	f, err := c.newFollower(ctx, []string{"topics", topic, "records"}, q)
	return f, asAsked(err, from)
}

// ResumeFollower does what [seb.Broker.ResumeFollower] does.
func (c *Client) ResumeFollower(ctx context.Context, topic string, from seb.Bookmark) (Follower, error) {
	q := partitionQuery(from.Partition)
	q.Set("last_event_id", from.String())
	return c.newFollower(ctx, []string{"topics", topic, "records"}, q)
}

func partitionQuery(partition int32) url.Values {
	q := url.Values{}
	if partition != seb.AllPartitions {
		q.Set("partition", strconv.Itoa(int(partition)))
	}
	return q
}

func (c *Client) newFollower(ctx context.Context, path []string, q url.Values) (Follower, error) {
	f := &remoteFollower{client: c, path: path, first: q}
	if _, err := f.open(ctx); err != nil {
		return nil, err
	}
	f.release()
	return f, nil
}

// open returns the follower's stream. If there is none, it opens one where the last one ended.
func (f *remoteFollower) open(ctx context.Context) (*stream, error) {
	f.idleMu.Lock()
	defer f.idleMu.Unlock()
	if f.client.life.Err() != nil {
		return nil, errClosed()
	}
	if f.idle != nil {
		f.idle.Stop()
	}
	if f.stream != nil {
		return f.stream, nil
	}
	q := f.first
	if f.opened {
		q = partitionQuery(f.mark.Partition)
		q.Set("last_event_id", f.mark.String())
	}
	s, mark, err := f.client.openStream(ctx, &request{method: http.MethodGet, path: f.path, query: q})
	if err != nil {
		return nil, err
	}
	if !f.opened {
		f.mark, f.opened = mark, true
	}
	f.stream = s
	return s, nil
}

// drop cancels the follower's stream, if there is one, and forgets it. The next call of open opens another stream.
func (f *remoteFollower) drop() {
	f.idleMu.Lock()
	defer f.idleMu.Unlock()
	if f.stream != nil {
		f.stream.cancel()
		f.stream = nil
	}
}

// release ends the stream soon, unless the follower is used again before that.
func (f *remoteFollower) release() {
	f.idleMu.Lock()
	defer f.idleMu.Unlock()
	if f.idle == nil {
		f.idle = time.AfterFunc(streamIdleMax, f.drop)
	} else {
		f.idle.Reset(streamIdleMax)
	}
}

// Next does what [seb.Follower.Next] does.
func (f *remoteFollower) Next(ctx context.Context, opts seb.FetchOptions) ([]seb.Record, error) {
	if err := checkBounds(opts); err != nil {
		return nil, err
	}
	limit, maxBytes := opts.Limit, opts.MaxBytes
	if limit == 0 {
		limit = nextRecordsDefault
	}
	if maxBytes == 0 {
		maxBytes = nextBytesDefault
	}
	if opts.TopicTag != "" || opts.Reserve != nil {
		return nil, invalid("a follower of a client takes neither TopicTag nor Reserve", "")
	}
	var rs []seb.Record
	err := f.await(ctx, opts.Wait, func(s *stream) (done, ended bool, err error) {
		rs, ended, err = s.take(limit, maxBytes)
		return len(rs) > 0, ended, err
	})
	for _, r := range rs {
		f.mark.Advance(r)
	}
	return rs, err
}

// Wait does what [seb.Follower.Wait] does.
func (f *remoteFollower) Wait(ctx context.Context, d time.Duration) (some bool, err error) {
	err = f.await(ctx, d, func(s *stream) (_, ended bool, err error) {
		some, ended, err = s.waiting()
		return some, ended, err
	})
	return some, err
}

// await calls look until it is done, or d has passed. If a stream ends, await opens the next one.
func (f *remoteFollower) await(ctx context.Context, d time.Duration, look func(*stream) (done, ended bool, err error)) error {
	defer f.release()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var again backoff
	for {
		s, err := f.open(ctx)
		if err != nil {
			return err
		}
		done, ended, err := look(s)
		if done {
			return nil
		}
		if ended {
			f.drop()
			if err != nil {
				return err
			}
			if !again.wait(ctx, timer.C) {
				return contextError(ctx)
			}
			continue
		}
		select {
		case <-s.more:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		}
	}
}

// contextError returns nil if ctx goes on.
func contextError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &seb.Error{Code: seb.CodeCanceled, Detail: canceledDetail, Err: context.Cause(ctx)}
}

// backoff makes the pauses between streams that end right after they began.
type backoff struct{ last time.Duration }

// wait pauses, and returns false if ctx or the caller's time ends first.
func (b *backoff) wait(ctx context.Context, over <-chan time.Time) bool {
	b.last = min(max(2*b.last, backoffMin), backoffMax)
	pause := time.NewTimer(b.last)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// Bookmark does what [seb.Follower.Bookmark] does.
func (f *remoteFollower) Bookmark() seb.Bookmark {
	mark := f.mark
	mark.Offsets = slices.Clone(mark.Offsets) // Next changes the follower's own
	return mark
}

// follow iterates over what f reads, until ctx ends or f fails for good.
func follow(ctx context.Context, open func() (Follower, error)) iter.Seq2[seb.Record, error] {
	return func(yield func(seb.Record, error) bool) {
		f, err := open()
		if err != nil {
			yield(seb.Record{}, err)
			return
		}
		for {
			rs, err := f.Next(ctx, seb.FetchOptions{Wait: followWait})
			if err != nil {
				yield(seb.Record{}, err)
				return
			}
			for _, r := range rs {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}
