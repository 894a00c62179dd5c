package fsck

import (
	"context"
	"errors"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
)

// identify finds the cluster id of the log. Normally this is the id in seb.json. But seb.json may be lost,
// or it may be the seb.json of another cluster: then every object would seem foreign. So identify also
// reads the ids in up to three objects, the witnesses. In two cases identify ignores seb.json and takes the
// id that most witnesses have: if seb.json can't be read, or if no witness has the id in seb.json but at
// least two witnesses have the same other id.
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
	case named == format.ClusterID{}:
		c.cluster = other
	case votes > 1 && !slices.Contains(witnesses, named):
		c.cluster = other
		c.found(Foreign, format.ClusterKey, "%v: it names cluster %v, but the log is of cluster %v", format.ErrForeign, named, other)
	}
	c.report.Cluster = c.cluster.String()
	return nil
}

// majority returns the id that most witnesses have, and how many have it.
func majority(ids []format.ClusterID) (most format.ClusterID, votes int) {
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

// readCluster returns the cluster id in seb.json, or zeros if seb.json is missing or damaged.
func (c *checker) readCluster(ctx context.Context) (format.ClusterID, error) {
	const key = format.ClusterKey
	var cluster format.Cluster
	err := believe(ctx, func() error {
		o, err := c.get(ctx, key, 0, format.ClusterBytesMax)
		if err != nil {
			return err
		}
		cluster, err = format.DecodeCluster(o.Body)
		return err
	})
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		c.found(Missing, key, "brokers refuse the bucket without it")
		return format.ClusterID{}, nil
	case errors.Is(err, format.ErrVersion):
		return format.ClusterID{}, err
	case err != nil:
		return format.ClusterID{}, c.blame(key, err)
	}
	return cluster.ID, nil
}

// witnesses returns the cluster ids in the first slot, the last slot and the newest checkpoint. It leaves out
// an object that is absent, or whose prologue (the first 32 bytes of the object) is damaged.
func (c *checker) witnesses(ctx context.Context) ([]format.ClusterID, error) {
	var keys []string
	if s := c.inv.slots; len(s) > 0 {
		keys = append(keys, format.LogKey(format.Seq(s.first())))
		if s.last() != s.first() {
			keys = append(keys, format.LogKey(format.Seq(s.last())))
		}
	}
	if n := len(c.inv.checkpoints); n > 0 {
		keys = append(keys, format.CheckpointKey(c.inv.checkpoints[n-1]))
	}
	const idEnd = int64(format.PrologueSize + len(format.ClusterID{})) // the head follows the prologue, and every kind of head begins with the cluster id
	var ids []format.ClusterID
	for _, key := range keys {
		o, err := c.get(ctx, key, 0, idEnd)
		if _, damaged := classOf(err); damaged || errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := format.DecodePrologue(o.Body); err == nil && int64(len(o.Body)) == idEnd {
			ids = append(ids, format.ClusterID(o.Body[format.PrologueSize:]))
		}
	}
	return ids, nil
}
