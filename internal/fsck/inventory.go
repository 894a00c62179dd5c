package fsck

import (
	"context"
	"strings"

	"github.com/simple-event-broker/seb/internal/commitlog"
)

// dataKey names a data object.
type dataKey struct {
	seq commitlog.Seq
	id  uint64
}

func keyOf(r commitlog.DataRef) dataKey { return dataKey{r.Seq, r.ID} }

func (k dataKey) String() string { return commitlog.DataRef{Seq: k.seq, ID: k.id}.Key() }

// inventory is what a List of the whole bucket showed, in the order of keys.
type inventory struct {
	cluster     bool
	slots       spans
	checkpoints []commitlog.Seq
	data        []dataKey
	probes      []string
	strays      []string
}

func (c *checker) list(ctx context.Context) (inventory, error) {
	var inv inventory
	for after := ""; ; {
		page, err := c.page(ctx, "", after)
		if err != nil {
			return inv, err
		}
		for _, k := range page.Keys {
			inv.add(k)
		}
		if !page.More || len(page.Keys) == 0 {
			return inv, nil
		}
		after = page.Keys[len(page.Keys)-1]
	}
}

func (inv *inventory) add(key string) {
	if key == commitlog.ClusterKey {
		inv.cluster = true
	} else if s, ok := commitlog.ParseSeqKey(commitlog.LogPrefix, key); ok && s > 0 {
		inv.slots.add(s)
	} else if s, ok := commitlog.ParseSeqKey(commitlog.CheckpointPrefix, key); ok && s > 0 {
		inv.checkpoints = append(inv.checkpoints, s)
	} else if ref, ok := commitlog.ParseDataKey(key); ok {
		inv.data = append(inv.data, keyOf(ref))
	} else if strings.HasPrefix(key, commitlog.ProbePrefix) {
		inv.probes = append(inv.probes, key)
	} else {
		inv.strays = append(inv.strays, key)
	}
}

// empty tells whether nothing in the bucket is of a log.
func (inv *inventory) empty() bool { return !inv.cluster && inv.count() == 0 }

// count returns how many objects there are to check beside seb.json.
func (inv *inventory) count() int64 {
	return int64(inv.slots.count()) + int64(len(inv.checkpoints)) + int64(len(inv.data))
}
