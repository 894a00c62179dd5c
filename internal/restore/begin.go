package restore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/objstore"
)

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
