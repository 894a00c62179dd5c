package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// stateReadTimeout bounds the reading of a checkpoint, which may have hundreds of MiB.
const stateReadTimeout = 5 * time.Minute

// stateLeftMax bounds the time until the state is full that doctor estimates: longer estimates are cut to it.
// doctor makes no estimate for a log that is younger than stateAgeMin.
const stateAgeMin, stateLeftMax = time.Hour, 100 * 365 * 24 * time.Hour

// stateInfo tells how much of --state-memory the log of a store takes.
type stateInfo struct {
	Slot     uint64  `json:"slot"`  // of the checkpoint; later commits are not counted
	Level    uint32  `json:"level"` // of the log's format
	Bytes    int64   `json:"bytes"`
	Limit    int64   `json:"limit_bytes"`
	DaysLeft float64 `json:"days_left,omitempty"` // at the mean rate since the log began
	Warning  string  `json:"warning,omitempty"`
}

// logState prints how much of limit the state of the log takes, according to the newest checkpoint. If there
// is no log, or no checkpoint, it prints nothing.
func (d *diagnosis) logState(ctx context.Context, limit int64) error {
	ctx, cancel := context.WithTimeout(ctx, stateReadTimeout)
	defer cancel()
	key, err := d.newestCheckpoint(ctx)
	if err != nil || key == "" {
		return err
	}
	first, err := objstore.GetWhole(ctx, d.store, format.ClusterKey, format.ClusterBytesMax)
	if err != nil {
		return err
	}
	cluster, err := format.DecodeCluster(first.Body)
	if err != nil {
		return err
	}
	o, err := objstore.GetWholeIf(ctx, d.store, key, format.CheckpointBytesMax, format.CheckCheckpointStart)
	if err != nil {
		return err
	}
	c, err := format.DecodeCheckpoint(o.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	s, err := state.Decode(c.Seq, c.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	use := seb.StateUse{Used: s.Memory(), Limit: limit}
	if age, lasting := time.UnixMicro(c.Created).Sub(cluster.Created), s.LastingMemory(); age >= stateAgeMin && lasting > 0 {
		left := max(0, limit-limit/16-use.Used) // appends are refused when a sixteenth is left
		use.Left = time.Duration(min(float64(left)/float64(lasting)*float64(age), float64(stateLeftMax)))
	}
	d.State = &stateInfo{Slot: uint64(c.Seq), Level: s.Level(), Bytes: use.Used, Limit: limit, DaysLeft: float64(use.Left/time.Hour) / 24, Warning: use.Warning()}
	d.printf("  state: %v of --state-memory, which is %v by this command's flag, as of commit %d\n", size(use.Used), size(limit), c.Seq)
	d.printf("  format: the log has level %d; seb reads and writes up to level %d\n", s.Level(), seb.FormatLevel)
	if use.Warning() != "" {
		d.printf("  %s\n", d.paint(red, use.Warning()))
	}
	return nil
}

// newestCheckpoint returns the key of the newest checkpoint, or "" if there is none.
func (d *diagnosis) newestCheckpoint(ctx context.Context) (newest string, err error) {
	for page := (objstore.Page{More: true}); page.More; {
		if page, err = d.store.List(ctx, format.CheckpointPrefix, newest, 0); err != nil {
			return "", err
		}
		if len(page.Keys) == 0 && page.More {
			return "", errors.New("the list of checkpoints does not go on")
		}
		if len(page.Keys) > 0 {
			newest = page.Keys[len(page.Keys)-1]
		}
	}
	return newest, nil
}
