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

// ErrNoCluster says that the store has objects, but no seb.json: they are no log, or its seb.json is lost.
var ErrNoCluster = errors.New("the store has no " + format.ClusterKey)

// OpenCluster reads seb.json, which has the constants of a bucket. If the bucket is empty, OpenCluster
// creates seb.json with deleteDelay and margin. It returns ErrNoCluster if a bucket has objects but no seb.json.
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
		case objstore.SetupFailureOf(err) != nil:
			return format.Cluster{}, err // further attempts would fail too
		case !errors.Is(err, objstore.ErrNotFound):
			// The network may damage single answers. So OpenCluster returns an error about damage
			// only if all answers were damaged.
			if !isDamage(err) || try == 0 || isDamage(last) {
				last = err
			}
			continue
		case other != "":
			return format.Cluster{}, fmt.Errorf("%w, but holds %s", ErrNoCluster, other)
		}
		last = err
		page, err := listOnce(ctx, store, "", "")
		if err != nil {
			last = err
			if objstore.SetupFailureOf(err) != nil {
				return format.Cluster{}, err
			}
			continue
		}
		// Objects that brokers wrote to probe the store don't matter: the bucket counts as empty.
		taken := slices.DeleteFunc(page.Keys, func(k string) bool { return strings.HasPrefix(k, format.ProbePrefix) })
		if len(taken) > 0 {
			// Another broker may have created seb.json and other objects since readCluster, so
			// read seb.json once more.
			if taken[0] != format.ClusterKey {
				other = taken[0]
			}
			continue
		}
		// If createCluster succeeds, or says that seb.json exists, the next round still reads seb.json.
		if err := createCluster(ctx, store, deleteDelay, margin, now); err != nil && !errors.Is(err, objstore.ErrExists) {
			last = err
			if objstore.SetupFailureOf(err) != nil {
				return format.Cluster{}, err
			}
		}
	}
	return format.Cluster{}, fmt.Errorf("all %d attempts failed, the last with: %w", attemptsMax, last)
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
		return format.Cluster{}, err
	}
	return format.DecodeCluster(o.Body)
}
