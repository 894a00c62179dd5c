package commitlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/wait"
	"github.com/simple-event-broker/seb/objstore"
)

// OpenCluster reads the constants of a bucket. If the bucket is empty it sets them, with
// deleteDelay and margin. It refuses a bucket that has objects but no seb.json.
func OpenCluster(ctx context.Context, store objstore.Store, deleteDelay, margin time.Duration, now time.Time) (format.Cluster, error) {
	if err := format.CheckDelays(deleteDelay, margin); err != nil {
		return format.Cluster{}, err
	}
	var (
		last  error
		other string // a key that is in the bucket although seb.json is not
	)
	for try := range attemptsMax {
		if try > 0 {
			if wait.For(ctx, time.Duration(try)*backoffMin); ctx.Err() != nil {
				return format.Cluster{}, ctx.Err()
			}
		}
		c, err := readCluster(ctx, store)
		switch {
		case err == nil:
			return c, nil
		case !errors.Is(err, objstore.ErrNotFound):
			// A damaged answer counts as damage of the object only if all answers are damaged.
			if !isDamage(err) || try == 0 || isDamage(last) {
				last = err
			}
			continue
		case other != "":
			return format.Cluster{}, fmt.Errorf("%w: the bucket has no %s but holds %s; use an empty bucket or prefix, or restore %s",
				format.ErrForeign, format.ClusterKey, other, format.ClusterKey)
		}
		last = err
		page, err := listOnce(ctx, store, "", "")
		if err != nil {
			last = fmt.Errorf("list the bucket: %w", err)
			continue
		}
		// A bucket is empty even if it has objects that brokers wrote to probe the store.
		taken := slices.DeleteFunc(page.Keys, func(k string) bool { return strings.HasPrefix(k, format.ProbePrefix) })
		if len(taken) > 0 {
			// Another broker may have created seb.json and other objects since the read, so read
			// seb.json once more.
			if taken[0] != format.ClusterKey {
				other = taken[0]
			}
			continue
		}
		// Whatever the outcome, the next round reads seb.json.
		if err := createCluster(ctx, store, deleteDelay, margin, now); err != nil && !errors.Is(err, objstore.ErrExists) {
			last = err
		}
	}
	return format.Cluster{}, fmt.Errorf("open %s: all %d attempts failed, the last with: %w", format.ClusterKey, attemptsMax, last)
}

func createCluster(ctx context.Context, store objstore.Store, deleteDelay, margin time.Duration, now time.Time) error {
	c := format.Cluster{Format: format.Version, DeleteDelay: format.Duration(deleteDelay), Margin: format.Duration(margin), Created: now.UTC().Truncate(time.Second)}
	rand.Read(c.ID[:])
	body, err := format.EncodeCluster(c)
	if err != nil {
		return err
	}
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	_, err = store.Create(ctx, format.ClusterKey, body)
	return err
}

func readCluster(ctx context.Context, store objstore.Store) (format.Cluster, error) {
	ctx, cancel := timeout(ctx, 0)
	defer cancel()
	o, err := objstore.GetWhole(ctx, store, format.ClusterKey, format.ClusterBytesMax)
	if errors.Is(err, objstore.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	if err != nil {
		return format.Cluster{}, fmt.Errorf("get %s: %w", format.ClusterKey, err)
	}
	return format.DecodeCluster(o.Body)
}
