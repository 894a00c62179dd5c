package fsck

import (
	"context"
	"errors"
	"slices"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/objstore"
)

// identify finds out which cluster's log this is: the one that seb.json names,
// unless that is lost, or no witness knows that one and most know another.
// Without this a seb.json that was mixed up would make every object a foreign one.
func (c *checker) identify(ctx context.Context) error {
	named, err := c.readCluster(ctx)
	if err != nil {
		return err
	}
	witnesses, err := c.witnesses(ctx)
	if err != nil {
		return err
	}
	c.cluster = named
	other, votes := majority(witnesses)
	switch {
	case named == commitlog.ClusterID{}:
		c.cluster = other
	case votes > 1 && !slices.Contains(witnesses, named):
		c.cluster = other
		c.found(Foreign, commitlog.ClusterKey, "%v: it names cluster %v, the log is of cluster %v", commitlog.ErrForeign, named, other)
	}
	c.report.Cluster = c.cluster.String()
	return nil
}

// majority returns the id that most witnesses bear, and how many.
func majority(ids []commitlog.ClusterID) (most commitlog.ClusterID, votes int) {
	for _, id := range ids {
		n := 0
		for _, other := range ids {
			if other == id {
				n++
			}
		}
		if n > votes {
			most, votes = id, n
		}
	}
	return most, votes
}

// readCluster returns the id that seb.json names, zeros if it can't be read.
func (c *checker) readCluster(ctx context.Context) (commitlog.ClusterID, error) {
	const key = commitlog.ClusterKey
	var cluster commitlog.Cluster
	err := believe(ctx, func() error {
		o, err := c.get(ctx, key, 0, commitlog.ClusterBytesMax)
		if err != nil {
			return err
		}
		cluster, err = commitlog.DecodeCluster(o.Body)
		return err
	})
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		c.found(Missing, key, "brokers refuse the bucket without it")
		return commitlog.ClusterID{}, nil
	case errors.Is(err, commitlog.ErrVersion):
		return commitlog.ClusterID{}, err
	case err != nil:
		return cluster.ID, c.blame(key, err)
	}
	return cluster.ID, nil
}

// witnesses returns the ids in a few objects that look sound: the first slot,
// the last one, the newest checkpoint.
func (c *checker) witnesses(ctx context.Context) ([]commitlog.ClusterID, error) {
	var keys []string
	if s := c.inv.slots; len(s) > 0 {
		keys = append(keys, commitlog.LogKey(commitlog.Seq(s.first())))
		if s.last() != s.first() {
			keys = append(keys, commitlog.LogKey(commitlog.Seq(s.last())))
		}
	}
	if n := len(c.inv.checkpoints); n > 0 {
		keys = append(keys, commitlog.CheckpointKey(c.inv.checkpoints[n-1]))
	}
	const idEnd = int64(commitlog.PrologueSize + len(commitlog.ClusterID{})) // it begins every kind of head
	var ids []commitlog.ClusterID
	for _, key := range keys {
		o, err := c.get(ctx, key, 0, idEnd)
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		if _, err := commitlog.DecodePrologue(o.Body); err == nil && int64(len(o.Body)) == idEnd {
			ids = append(ids, commitlog.ClusterID(o.Body[commitlog.PrologueSize:]))
		}
	}
	return ids, nil
}
