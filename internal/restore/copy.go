package restore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
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

// CheckTarget returns an error that wraps [ErrOccupied] if a store holds objects.
func CheckTarget(ctx context.Context, to objstore.Store) error { return holdsOnly(ctx, to, "") }

// holdsOnly returns an error if a store holds other objects than own.
func holdsOnly(ctx context.Context, to objstore.Store, own string) error {
	return offline.Retry(ctx, 0, func(ctx context.Context) error {
		page, err := to.List(ctx, "", "", 2)
		for _, key := range page.Keys {
			if err == nil && key != own {
				err = fmt.Errorf("%w, such as %s", ErrOccupied, key)
			}
		}
		return err
	})
}

// claim makes sure that only one copy is made in a store: each writes an object, and then lists the store. Of two, at least one sees
// the object of the other. release deletes the object, unless the store does not allow that: brokers leave such objects alone.
func claim(ctx context.Context, to objstore.Store) (release func(), err error) {
	if err := CheckTarget(ctx, to); err != nil {
		return nil, err
	}
	var id [8]byte
	rand.Read(id[:])
	key := format.ProbePrefix + hex.EncodeToString(id[:])
	if err := put(ctx, to, key, []byte("seb restore\n")); err != nil {
		return nil, err
	}
	if err := holdsOnly(ctx, to, key); err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = to.Delete(ctx, key)
	}, nil
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

// put writes an object to the target, reads it back, and compares the bytes.
func put(ctx context.Context, to objstore.Store, key string, body []byte) error {
	first := true
	err := offline.Retry(ctx, int64(len(body)), func(ctx context.Context) error {
		_, err := to.Create(ctx, key, body)
		if errors.Is(err, objstore.ErrExists) && !first {
			return nil // the reply to an earlier attempt was lost, or the comparison below fails
		}
		first = false
		if errors.Is(err, objstore.ErrExists) {
			return fmt.Errorf("%w: another process has written to it meanwhile", ErrOccupied)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	var got objstore.Object
	err = offline.Retry(ctx, int64(len(body)), func(ctx context.Context) (err error) {
		got, err = objstore.GetWhole(ctx, to, key, int64(len(body)))
		return err
	})
	if err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	if !bytes.Equal(got.Body, body) {
		return fmt.Errorf("read back %s: the store has other bytes than were written", key)
	}
	return nil
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

// moveTail writes what no segment has into new ones, as compaction does. The commits of these segments are in the state alone:
// the copy's log begins after them.
func (c *copier) moveTail(ctx context.Context) error {
	s := c.state
	if s.Level() < format.LevelSegments {
		if err := c.apply(&format.LevelRaised{Level: format.LevelSegments, DeleteDelay: time.Duration(c.cluster.DeleteDelay)}); err != nil {
			return err
		}
	}
	for {
		plan := s.PlanTail(state.PlanOptions{Bytes: c.opts.Memory / 8, Rows: segmentRows, Before: math.MaxInt64, Commits: 0})
		if plan == nil {
			return nil
		}
		added, err := c.buildSegment(ctx, plan)
		if err == nil && added == nil { // none of it can be read
			err = s.LeaveTail(plan)
		} else if err == nil {
			err = c.apply(added)
		}
		if err != nil {
			return err
		}
	}
}

// apply applies entries to the state, as a commit that is not written.
func (c *copier) apply(entries ...format.Entry) error {
	return c.state.Apply(&format.Commit{Seq: c.state.Seq() + 1, Time: c.state.NextTime(0), Entries: entries})
}

// buildSegment writes a segment with batches of the tail; it returns nil if none of them can be read.
func (c *copier) buildSegment(ctx context.Context, plan *state.Plan) (*format.SegmentAdded, error) {
	raws, err := c.readBatches(ctx, plan)
	if err != nil {
		return nil, err
	}
	b := segment.NewBuilder(segment.Options{Codec: record.Zstd})
	var (
		stay  []format.SegmentRange
		moved int64
	)
	for _, r := range plan.Ranges {
		for i := range r.Batches {
			x := &r.Batches[i]
			moved += int64(x.Size)
			if raws[x] == nil {
				stay = append(stay, format.SegmentRange{Topic: r.Topic, Partition: r.Partition, Base: x.Base, End: x.End(), Stays: true})
				continue
			}
			err := b.Add(segment.Input{
				Topic: r.Topic, Partition: r.Partition, Base: x.Base, MaxTime: x.MaxTime, Raw: raws[x],
				Commits: []format.CommitPart{{Base: x.Base, Seq: x.Commit.Seq, Time: x.Commit.Time}},
			})
			if err != nil {
				return nil, err
			}
			delete(raws, x)
		}
	}
	if b.Empty() {
		c.progress(moved)
		return nil, nil //nolint:nilnil // there is no segment
	}
	var id [8]byte
	rand.Read(id[:])
	built, err := b.Finish(c.cluster.ID, format.DataRef{Seq: c.state.Seq(), ID: binary.LittleEndian.Uint64(id[:])}, time.Now().UnixMicro())
	if err != nil {
		return nil, err
	}
	if _, ranges, err := segment.Check(built.Object); err != nil || !slices.Equal(ranges, built.Ranges) {
		return nil, fmt.Errorf("a segment has other records than were put into it: %w", err)
	}
	added := built.Added()
	plan.Describe(added, stay)
	return added, c.putSegment(ctx, built.Ref.Key(), built.Object, moved)
}

// readBatches reads the batches of a plan, object by object. Those that are unreadable are not in the result, if they are to be
// left out.
func (c *copier) readBatches(ctx context.Context, plan *state.Plan) (map[*state.PlannedBatch][]byte, error) {
	var (
		mu      sync.Mutex
		raws    = map[*state.PlannedBatch][]byte{}
		objects = map[state.Object][]*state.PlannedBatch{}
		names   = map[*state.PlannedBatch]string{}
	)
	for i := range plan.Ranges {
		r := &plan.Ranges[i]
		for k := range r.Batches {
			x := &r.Batches[k]
			objects[x.Object] = append(objects[x.Object], x)
			names[x] = fmt.Sprintf("offsets %d to %d of partition %d of topic %q", x.Base, x.End()-1, r.Partition, c.state.TopicByID(r.Topic).Name)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(copiesMax)
	for o, xs := range objects {
		g.Go(func() error {
			slices.SortFunc(xs, func(a, b *state.PlannedBatch) int { return cmp.Compare(a.Pos, b.Pos) })
			first, last := xs[0], xs[len(xs)-1]
			off, end := int64(first.Pos), int64(last.Pos)+int64(last.Size)
			var failed map[*state.PlannedBatch]error
			err := offline.Retry(ctx, end-off, func(ctx context.Context) error {
				failed = map[*state.PlannedBatch]error{}
				body, err := c.source.Store.Get(ctx, objectKey(o), off, end-off)
				if err == nil && int64(len(body.Body)) != end-off {
					err = fmt.Errorf("%w: it has %d bytes", format.ErrCorrupt, body.Size)
				}
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				var damaged error
				for _, x := range xs {
					at := int64(x.Pos) - off
					raw := body.Body[at : at+int64(x.Size) : at+int64(x.Size)]
					if err := record.Verify(raw, x.CRC); err != nil {
						failed[x], damaged = err, err
						continue
					}
					raws[x] = raw
				}
				return damaged
			})
			for _, x := range xs {
				if failed[x] == nil && (err == nil || raws[x] != nil) {
					continue
				}
				if err := c.skip(ctx, names[x]+" in "+objectKey(o), o, cmp.Or(failed[x], err)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return raws, g.Wait()
}

func objectKey(o state.Object) string {
	if o.Data {
		return format.DataRef{Seq: format.Seq(o.Seq), ID: o.Tag}.Key()
	}
	return format.LogKey(format.Seq(o.Seq))
}

// begin writes the first two commits of the copy, and a checkpoint after each, so that the copy can be opened from each of them; then
// seb.json.
func (c *copier) begin(ctx context.Context) error {
	err := offline.Retry(ctx, 0, func(ctx context.Context) error {
		_, err := c.to.Get(ctx, format.ClusterKey, 0, 1)
		return err
	})
	if !errors.Is(err, objstore.ErrNotFound) {
		return errors.Join(err, fmt.Errorf("%w: a broker has begun a log there meanwhile", ErrOccupied))
	}
	if err := c.state.Rebase(c.first - 1); err != nil {
		return err
	}
	prev, entries := c.source.Hash, slices.Concat(c.stopPush(), c.releaseQueues(), c.revokeKeys())
	for range 2 {
		hash, err := c.commit(ctx, prev, entries)
		if err != nil {
			return err
		}
		prev, entries = hash, nil
	}
	seb, err := format.EncodeCluster(c.cluster)
	if err != nil {
		return err
	}
	c.result.Next = c.state.Seq() + 1
	return put(ctx, c.to, format.ClusterKey, seb)
}

// commit writes the next commit and its checkpoint.
func (c *copier) commit(ctx context.Context, prev format.Hash, entries []format.Entry) (format.Hash, error) {
	commit := &format.Commit{
		Created: time.Now().UnixMicro(), Cluster: c.cluster.ID, Seq: c.state.Seq() + 1, Prev: prev, Time: c.state.NextTime(0), Entries: entries,
	}
	rand.Read(commit.Nonce[:])
	object := format.EncodeCommit(commit)
	if err := c.state.Apply(commit); err != nil {
		return format.Hash{}, err
	}
	body := c.state.View().Encode()
	head := format.EncodeCheckpoint(&format.Checkpoint{Cluster: c.cluster.ID, Seq: commit.Seq, Hash: commit.Hash, Created: commit.Created, Body: body})
	if err := put(ctx, c.to, format.LogKey(commit.Seq), object); err != nil {
		return format.Hash{}, err
	}
	return commit.Hash, put(ctx, c.to, format.CheckpointKey(commit.Seq), slices.Concat(head, body))
}

// stopPush returns the entries that stop the push of queues.
func (c *copier) stopPush() (entries []format.Entry) {
	if c.opts.KeepPush {
		return nil
	}
	for _, t := range c.state.Topics() {
		for _, q := range c.state.Queues(t.ID) {
			if q.Push == nil || q.Push.Stopped != "" {
				continue
			}
			push := *q.Push
			push.Stopped = "the log is a copy: brokers of the log that it was made from may push the same records"
			entries = append(entries, &format.QueuePushSet{Queue: q.ID, Push: &push})
			c.result.Stopped = append(c.result.Stopped, t.Name+"/"+q.Name)
		}
	}
	return entries
}

// releaseQueues returns the entries that leave queues without an owner: a worker of the source can't answer to the copy's brokers, so
// they need not wait for its leases.
func (c *copier) releaseQueues() (entries []format.Entry) {
	for _, t := range c.state.Topics() {
		for _, q := range c.state.Queues(t.ID) {
			if q.Owned {
				entries = append(entries, &format.QueueReleased{Queue: q.ID, Epoch: q.Epoch})
			}
		}
	}
	return entries
}

// revokeKeys returns the entries that revoke the API keys which were revoked in the source since then: whoever has such a key must not
// be able to use it again.
func (c *copier) revokeKeys() (entries []format.Entry) {
	for _, k := range c.state.Keys() {
		if c.keys != nil && !c.keys[k.ID] {
			entries = append(entries, &format.KeyRevoked{ID: k.ID})
			c.result.Revoked = append(c.result.Revoked, k.Name)
		}
	}
	return entries
}

// verify opens the copy as a broker would, and compares the state.
func (c *copier) verify(ctx context.Context) error {
	got, err := offline.Open(ctx, c.to, nil, offline.Moment{})
	if err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	if !bytes.Equal(got.State.View().Encode(), c.state.View().Encode()) {
		return errors.New("open the copy: it has another state than the log that was copied")
	}
	return nil
}
