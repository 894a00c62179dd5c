package fsck

import (
	"context"
	"strings"

	"github.com/simple-event-broker/seb/internal/format"
)

// dataKey names a data object.
type dataKey struct {
	seq format.Seq
	id  uint64
}

func keyOf(r format.DataRef) dataKey { return dataKey{r.Seq, r.ID} }

func (k dataKey) String() string { return format.DataRef{Seq: k.seq, ID: k.id}.Key() }

// inventory is what a List of the whole bucket showed, each kind sorted by key.
type inventory struct {
	cluster     bool
	slots       spans
	checkpoints []format.Seq
	data        []dataKey
	probes      []string
	strays      []string
}

// list returns the inventory of the bucket. If an obstacle (see [Obstacle]) is at the path of an object,
// the inventory has the object's key, and the check later finds the object damaged.
func (c *checker) list(ctx context.Context) (inventory, error) {
	var inv inventory
	err := c.try(ctx, 0, func(ctx context.Context) (err error) {
		c.obstacles, err = Obstacles(ctx, c.store)
		return err
	})
	if err != nil {
		return inv, err
	}
	var ahead []string // obstacles, such as directories, that the List may leave out
	for _, o := range c.obstacles {
		if isObject(o.Key) {
			ahead = append(ahead, o.Key)
		} else {
			c.found(Corrupt, o.Key, "%s", o.Detail)
		}
	}
	for after := ""; ; {
		page, err := c.page(ctx, "", after)
		if err != nil {
			return inv, err
		}
		for _, k := range page.Keys {
			for ; len(ahead) > 0 && ahead[0] <= k; ahead = ahead[1:] {
				if ahead[0] != k {
					inv.add(ahead[0])
				}
			}
			inv.add(k)
		}
		if !page.More || len(page.Keys) == 0 {
			for _, k := range ahead {
				inv.add(k)
			}
			return inv, nil
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

func (inv *inventory) add(key string) {
	if key == format.ClusterKey {
		inv.cluster = true
	} else if s, ok := format.ParseSeqKey(format.LogPrefix, key); ok && s > 0 {
		inv.slots.add(s)
	} else if s, ok := format.ParseSeqKey(format.CheckpointPrefix, key); ok && s > 0 {
		inv.checkpoints = append(inv.checkpoints, s)
	} else if ref, ok := format.ParseDataKey(key); ok {
		inv.data = append(inv.data, keyOf(ref))
	} else if strings.HasPrefix(key, format.ProbePrefix) {
		inv.probes = append(inv.probes, key)
	} else {
		inv.strays = append(inv.strays, key)
	}
}

// empty reports whether the bucket has no object of a log.
func (inv *inventory) empty() bool { return !inv.cluster && inv.count() == 0 }

// count returns how many objects there are to check, without seb.json.
func (inv *inventory) count() int64 {
	return int64(inv.slots.count()) + int64(len(inv.checkpoints)) + int64(len(inv.data))
}
