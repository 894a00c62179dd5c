package restore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/record"
	"github.com/simple-event-broker/seb/internal/segment"
	"github.com/simple-event-broker/seb/internal/sst"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

const (
	copiesMax   = 8      // objects that are read or written at once
	segmentRows = 131072 // batches of the tail that one segment takes
)

// Result says what [Plan.Run] has copied.
type Result struct {
	Cluster  format.ClusterID `json:"cluster"`   // of the copy
	Next     format.Seq       `json:"next_slot"` // the first slot that the copy's brokers will use
	Segments int              `json:"segments"`
	Bytes    int64            `json:"segment_bytes"`
	Stopped  []string         `json:"push_stopped,omitempty"` // queues, as TOPIC/QUEUE
	Revoked  []string         `json:"keys_revoked,omitempty"` // names of API keys that were revoked in the source since then
	// Unreadable names what is missing or damaged in the source, and so in the copy.
	Unreadable []string `json:"unreadable,omitempty"`
}

// UnreadableError says that records of the source are missing or damaged.
type UnreadableError struct {
	What string
	Err  error
}

// Error names the records.
func (e *UnreadableError) Error() string { return fmt.Sprintf("%s can't be read: %v", e.What, e.Err) }

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// copier makes one copy.
type copier struct {
	*Plan
	to      objstore.Store
	cluster format.Cluster // of the copy
	state   *state.State
	memory  *semaphore.Weighted
	tell    func(segments int, bytes int64)

	mu     sync.Mutex
	done   int64 // bytes of batches
	result Result
	now    map[state.Object]bool // the objects that the log needs now; nil before one was missing
}

// Run makes the copy. It calls tell with how many segments it has written, and how many bytes of batches are copied. After an error, the target holds a part of the copy,
// without seb.json.
func (p *Plan) Run(ctx context.Context, to objstore.Store, tell func(segments int, bytes int64)) (*Result, error) {
	release, err := claim(ctx, to)
	if err != nil {
		return nil, err
	}
	c := &copier{Plan: p, to: to, cluster: p.source.Cluster, state: p.source.State, memory: semaphore.NewWeighted(p.opts.Memory), tell: tell}
	rand.Read(c.cluster.ID[:])
	c.cluster.Created = time.Now().UTC().Truncate(time.Second)
	c.result.Cluster = c.cluster.ID
	if err := errors.Join(c.copySegments(ctx), c.copyStayed(ctx)); err != nil {
		return nil, err
	}
	if err := c.moveTail(ctx); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if err := c.verify(ctx); err != nil {
		return nil, err
	}
	release()
	return &c.result, nil
}

// copySegments copies the segments of the source, with the copy's cluster id in their heads.
func (c *copier) copySegments(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(copiesMax)
	for _, n := range c.state.Segments() {
		g.Go(func() error {
			size := int64(n.Ref.Size)
			free, err := c.reserve(ctx, 2*size) // it is read back
			if err != nil {
				return err
			}
			defer free()
			body, err := c.segment(ctx, n)
			if err != nil {
				return c.skip(ctx, "the segment "+n.Ref.Key(), state.Object{Data: true, Seq: uint64(n.Ref.Seq), Tag: n.Ref.ID}, err)
			}
			return c.putSegment(ctx, n.Ref.Key(), body, n.Live())
		})
	}
	return g.Wait()
}

// segment reads a segment, checks every record of it, and gives it the copy's cluster id.
func (c *copier) segment(ctx context.Context, n *state.Segment) (body []byte, err error) {
	err = offline.Retry(ctx, int64(n.Ref.Size), func(ctx context.Context) error {
		o, err := objstore.GetWhole(ctx, c.source.Store, n.Ref.Key(), int64(n.Ref.Size))
		if err != nil {
			return err
		}
		head, _, err := segment.Check(o.Body)
		if err != nil {
			return err
		}
		if head.Cluster != c.source.Cluster.ID || head.Ref != n.Ref {
			return fmt.Errorf("%w: it is the segment %s of cluster %v", format.ErrForeign, head.Ref.Key(), head.Cluster)
		}
		head.Cluster = c.cluster.ID
		body = o.Body
		copy(body, format.EncodeSegmentHead(head))
		return nil
	})
	return body, err
}

// copyStayed copies the objects in which batches are that compaction could not read. Perhaps they can be read now.
func (c *copier) copyStayed(ctx context.Context) error {
	stayed := map[state.Object][]state.Location{}
	for l := range c.state.Stayed() {
		stayed[l.Object] = append(stayed[l.Object], l)
	}
	for o, ls := range stayed {
		key := objectKey(o)
		var copied []byte
		err := offline.Retry(ctx, int64(o.Size), func(ctx context.Context) error {
			got, err := objstore.GetWhole(ctx, c.source.Store, key, int64(o.Size))
			if err == nil {
				copied, err = c.withCluster(o, got.Body)
			}
			for _, l := range ls {
				if err == nil {
					err = record.Verify(got.Body[l.Pos:l.Pos+l.Size], l.CRC)
				}
			}
			return err
		})
		if err != nil {
			if err := c.skip(ctx, "what compaction has left in "+key, o, err); err != nil {
				return err
			}
		}
		if copied != nil { // it may have other records, which are whole
			if err := put(ctx, c.to, key, copied); err != nil {
				return err
			}
		}
		for _, l := range ls {
			c.progress(int64(l.Size))
		}
	}
	return nil
}

// withCluster returns a commit or a data object with the copy's cluster id.
func (c *copier) withCluster(o state.Object, body []byte) ([]byte, error) {
	if int64(len(body)) != int64(o.Size) {
		return nil, format.Corrupt("it has %d bytes instead of %d", len(body), o.Size)
	}
	if o.Data {
		head, err := format.DecodeDataHead(body)
		if err != nil {
			return nil, err
		}
		if head.Cluster != c.source.Cluster.ID || head.Ref.Seq != format.Seq(o.Seq) || head.Ref.ID != o.Tag {
			return nil, fmt.Errorf("%w: it is %s of cluster %v", format.ErrForeign, head.Ref.Key(), head.Cluster)
		}
		head.Cluster = c.cluster.ID
		return slices.Concat(format.EncodeDataHead(head), body[format.DataPayloadStart:]), nil
	}
	commit, err := format.DecodeCommit(body)
	if err != nil {
		return nil, err
	}
	if commit.Cluster != c.source.Cluster.ID || commit.Seq != format.Seq(o.Seq) || commit.Nonce.Tag() != o.Tag {
		return nil, fmt.Errorf("%w: it is the commit of slot %d of cluster %v", format.ErrForeign, commit.Seq, commit.Cluster)
	}
	commit.Cluster = c.cluster.ID
	return slices.Concat(format.EncodeCommit(commit), body[commit.PayloadStart:]), nil
}

// reserve takes memory; it returns what gives the memory back.
func (c *copier) reserve(ctx context.Context, bytes int64) (free func(), err error) {
	bytes = min(bytes, c.opts.Memory)
	return func() { c.memory.Release(bytes) }, c.memory.Acquire(ctx, bytes)
}

func (c *copier) putSegment(ctx context.Context, key string, body []byte, batches int64) error {
	if err := put(ctx, c.to, key, body); err != nil {
		return err
	}
	c.mu.Lock()
	c.result.Segments, c.result.Bytes = c.result.Segments+1, c.result.Bytes+int64(len(body))
	c.mu.Unlock()
	c.progress(batches)
	return nil
}

// progress tells that more bytes of batches are copied.
func (c *copier) progress(batches int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += batches
	c.tell(c.result.Segments, c.done)
}

// skip returns the error for something in an object that can't be read; nil if it is to be left out.
func (c *copier) skip(ctx context.Context, what string, o state.Object, err error) error {
	if errors.Is(err, objstore.ErrNotFound) && !c.lives(ctx, o) {
		return &DeletedError{what}
	}
	if !unreadable(err) {
		return fmt.Errorf("read %s: %w", what, err)
	}
	if !c.opts.SkipUnreadable {
		return &UnreadableError{What: what, Err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Unreadable = append(c.result.Unreadable, fmt.Sprintf("%s: %v", what, err))
	return nil
}

// lives reports whether the log needs an object now, or can't be read.
func (c *copier) lives(ctx context.Context, o state.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		log, err := offline.Open(ctx, c.source.Store, nil, offline.Moment{})
		if err != nil {
			return true
		}
		c.now = map[state.Object]bool{}
		for x, live := range log.State.AllObjects() {
			if live {
				c.now[keyOf(x)] = true
			}
		}
	}
	return c.now[keyOf(o)]
}

// keyOf returns an object with what is in its key.
func keyOf(o state.Object) state.Object {
	if o.Size = 0; !o.Data {
		o.Tag = 0
	}
	return o
}

// unreadable tells whether err is about an object that is missing or damaged.
func unreadable(err error) bool {
	return offline.AboutBytes(err) || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrNotRegular) || errors.Is(err, objstore.ErrTooLarge) ||
		errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrMagic) || errors.Is(err, sst.ErrCorrupt)
}

func objectKey(o state.Object) string {
	if o.Data {
		return format.DataRef{Seq: format.Seq(o.Seq), ID: o.Tag}.Key()
	}
	return format.LogKey(format.Seq(o.Seq))
}
