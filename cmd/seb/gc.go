package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/gc"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

type gcCmd struct {
	storeFlag
	outputFlag
	DryRun bool `help:"Only tell what would be deleted, and what the rest of what is dead waits for; writes nothing."`

	KeepDeleted time.Duration `placeholder:"DURATION" help:"Set, in the log, how long what was deleted stays, such as 720h; at least the log's delete delay. A longer time counts at once, a shorter one after the delete delay, and only if no broker has a longer --keep-deleted (default: leave it as it is)."`
	EndHold     string        `placeholder:"ID" help:"End this hold, in the log: the id that --dry-run shows. Brokers may then delete what a seb restore still copies; one that still runs renews its hold (default: end none)."`

	Memory      size `default:"128MiB" help:"Memory for buffers and the cache, as of a broker; segments take at most a quarter of it (default ${default})."`
	StateMemory size `default:"256MiB" help:"The --state-memory of the brokers of this store (default ${default})."`
}

// Help shows examples.
func (gcCmd) Help() string {
	return `Examples:

    seb gc --dry-run
    seb gc --store 's3://bucket/prefix?region=eu-central-1'
    seb gc --dry-run --output json | jq '.waiting[] | {waits_for, until}'
    seb gc --end-hold 3f0a11d2c9b80e47         # of a seb restore that was killed

Brokers delete what the log no longer needs by themselves. This command does at once what is due: it compacts records,
writes a checkpoint if something dead waits for one, and deletes. Brokers may run meanwhile. It needs the permission to
delete objects. With --dry-run it only reads, and costs a List of the bucket.

Dead objects stay until a checkpoint that shows that they are dead was in the store for the log's delete delay (--delete-delay of
the first seb serve; by default 24h on S3, 4h in a directory) or --keep-deleted, if that is longer, and there is a newer one. Clocks may be wrong, so a process trusts only what it has
seen itself, or what another process has seen since this machine was started. So on a machine where no broker runs, the
first seb gc deletes nothing: it only says in the log which checkpoint it has read. A later seb gc deletes, if the machine was not
started again in between and the delay is over. In a container that starts on another machine each time, it never deletes
anything.

Exit codes: 0 all that was due is done, also if that is nothing; 2 the credentials are wrong, or do not allow to delete
objects; 3 the log is damaged, or is not the one that was opened; 4 there is no log; 6 the store does not answer.`
}

// Run deletes what is due, or tells it.
func (c *gcCmd) Run(ctx context.Context, std streams) error {
	if c.DryRun && c.KeepDeleted != 0 || c.KeepDeleted < 0 {
		return usage(errors.New("--keep-deleted must be a positive duration, and can't be combined with --dry-run, which writes nothing"))
	}
	if c.DryRun && c.EndHold != "" {
		return usage(errors.New("--end-hold can't be combined with --dry-run, which writes nothing"))
	}
	if c.Store == "memory:" {
		return usage(errors.New("a log in memory (--store memory:) is empty when this command starts; name a directory or s3://BUCKET/PREFIX"))
	}
	if c.Memory < gcMemoryMin || c.StateMemory < gcStateMemoryMin {
		return usage(fmt.Errorf("invalid --memory %v or --state-memory %v: they must be at least %v and %v", c.Memory, c.StateMemory, size(gcMemoryMin), size(gcStateMemoryMin)))
	}
	if err := c.mustHoldLog(ctx); err != nil {
		return err
	}
	store, err := c.openExisting(ctx)
	if err == nil && !c.DryRun {
		store, _, err = c.open(ctx)
	}
	if err != nil {
		return err
	}
	return c.collect(ctx, std, store, gc.Options{})
}

const (
	gcMemoryMin      = 8 << 20
	gcStateMemoryMin = 1 << 20
)

func (c *gcCmd) collect(ctx context.Context, std streams, store objstore.Store, opts gc.Options) error {
	opts.Memory, opts.StateMemory, opts.KeepDeleted, opts.EndHold = int64(c.Memory), int64(c.StateMemory), c.KeepDeleted, c.EndHold
	if c.DryRun {
		r, err := gc.Preview(ctx, store, opts)
		if err != nil {
			return c.failed(ctx, "look into", err)
		}
		if c.json() {
			return printJSON(std.out, struct {
				Store  string `json:"store"`
				DryRun bool   `json:"dry_run"`
				*gc.Report
			}{c.Store, true, r})
		}
		p := newPrinter(std.out)
		p.printf("would be deleted now: %s\n", gcCounts(r.Due))
		if r.Compaction {
			p.printf("records would be compacted first\n")
		}
		if r.Problem != "" {
			p.printf("%s\n", p.paint(red, "but nothing would be: "+r.Problem))
		}
		gcWaiting(p, r)
		return p.err
	}
	shown := newProgress(std.err, 0)
	shown.unit = "objects deleted"
	r, err := gc.Run(ctx, store, opts, std.err, func(now gc.Progress) {
		if shown.unit = "objects deleted"; now.Deleted == 0 {
			shown.unit = "jobs of compaction done"
			now.Deleted = now.Jobs
		}
		shown.update(time.Now(), int64(now.Deleted), 0)
	})
	shown.clear()
	unwritten := c.print(std, &r, err)
	if err != nil {
		return c.failed(ctx, "delete what is dead in", err)
	}
	return unwritten
}

// failed returns the error of a run, with the exit code that belongs to it.
func (c *gcCmd) failed(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", doing, c.Store, errInterrupted)
	}
	e, known := errors.AsType[*gc.Error](err)
	err = fmt.Errorf("%s %s: %w", doing, c.Store, err)
	switch {
	case errors.Is(err, offline.ErrNoLog):
		return codedError{hinted(err, "name the store of `seb serve` with --store"), exitRefused}
	case refusesOption(err):
		return usage(err)
	case !known:
		return c.advised(err)
	case e.Refused:
		return codedError{hinted(err, "let the credentials delete the objects of the log (s3:DeleteObject on all of them); in a directory, run seb gc as the user of the brokers"), exitUsage}
	case e.Damage:
		return codedError{hinted(err, e.Hint), exitDamage}
	case e.Unavailable:
		return codedError{hinted(err, cmp.Or(e.Hint, "try again when the store answers; what was deleted stays deleted")), exitUnreachable}
	}
	return err
}

func refusesOption(err error) bool {
	_, delay := errors.AsType[*gc.DelayError](err)
	_, hold := errors.AsType[*gc.HoldError](err)
	return delay || hold
}

// print says what was done. err is why it ended early; nil if it did not.
func (c *gcCmd) print(std streams, r *gc.Result, err error) error {
	if c.json() {
		return printJSON(std.out, struct {
			Store  string `json:"store"`
			DryRun bool   `json:"dry_run"`
			Done   bool   `json:"done"`
			*gc.Result
		}{c.Store, false, err == nil, r})
	}
	p := newPrinter(std.out)
	if r.EndedHold != "" {
		p.printf("ended the hold %s: brokers may delete what only it kept; a seb restore that still runs renews it\n", r.EndedHold)
	}
	if r.Jobs > 0 {
		p.printf("compacted: %s, %v\n", counted(int64(r.Jobs), "job", "jobs"), size(r.MovedBytes))
	}
	if r.Checkpoint > 0 {
		p.printf("read the checkpoint of slot %d, and said so in the log\n", r.Checkpoint)
	}
	if r.Ghosts > 0 {
		p.printf("deleted again: %s that the store had after they were deleted\n", counted(r.Ghosts, "commit", "commits"))
	}
	if err == nil || r.Deleted.Objects() > 0 {
		p.printf("deleted: %s\n", gcCounts(r.Deleted))
	}
	if r.After != nil {
		gcWaiting(p, r.After)
	}
	return p.err
}

// gcCounts lists objects by kind.
func gcCounts(c gc.Counts) string {
	var parts []string
	for _, kind := range []struct {
		n         int64
		one, many string
	}{
		{c.Commits, "commit", "commits"}, {c.Data, "data object", "data objects"},
		{c.Checkpoints, "checkpoint", "checkpoints"}, {c.Orphans, "orphan", "orphans"},
	} {
		if kind.n > 0 {
			parts = append(parts, counted(kind.n, kind.one, kind.many))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	if c.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%v of data", size(c.Bytes)))
	}
	return strings.Join(parts, ", ")
}

// gcWaiting prints what dead objects wait for.
func gcWaiting(p *printer, r *gc.Report) {
	if !r.NextFrom.IsZero() {
		p.printf("what is dead stays for %v, from %s on for %v\n", time.Duration(r.DeleteDelay), r.NextFrom.Truncate(time.Second).Format(time.RFC3339), time.Duration(r.NextDelay))
	}
	for _, x := range r.Holds {
		p.printf("hold %s: seb restore copies the log as it was at slot %d; brokers delete nothing of that until %s, unless it says that it still copies\n",
			x.ID, x.Slot, x.Until.Truncate(time.Second).Format(time.RFC3339))
	}
	if len(r.Waiting) == 0 && r.PartlyDead == 0 {
		p.printf("nothing else is dead\n")
		return
	}
	p.printf("dead, and waits:\n")
	for _, w := range r.Waiting {
		p.printf("  %s: %s\n", gcCounts(w.Counts), waitReason(r, w))
	}
	if r.PartlyDead > 0 {
		p.printf("  %v in %s: compaction writes a segment again once half of it is dead\n", size(r.DeadBytes), counted(int64(r.PartlyDead), "segment", "segments"))
	}
}

// waitReason says what dead objects wait for, and what to do if somebody has to do something.
func waitReason(r *gc.Report, w gc.Waiting) string {
	until := w.Until.Truncate(time.Second).Format(time.RFC3339)
	switch w.For {
	case state.WaitLevel:
		return fmt.Sprintf("the level of the log is %d, and nothing is deleted below 6. Brokers raise the level by themselves once all that wrote in the last hour, in at least 1,000 commits, can read the next level, and none of them has --hold-format; seb upgrade does it at once", r.Level)
	case state.WaitCompaction:
		return "they have no records that can be read; they are deleted once the records of all earlier commits are in segments, or deleted too"
	case state.WaitSeen:
		return "no checkpoint was read since they died: brokers do that every --checkpoint-commits, and seb gc does it"
	case state.WaitNewer:
		return "a checkpoint was read since they died, but no newer one yet: brokers do that every --checkpoint-commits, and seb gc does it"
	case state.WaitAge:
		return fmt.Sprintf("the checkpoint that shows that they are dead is younger than the delete delay (%v) until %s", time.Duration(r.DeleteDelay), until)
	case state.WaitSight:
		return fmt.Sprintf("no process since the start of this machine has said when it read the checkpoint that shows that they are dead, so for this process the delete delay (%v) counts from now on; a broker that has known the checkpoint since it was read deletes them from %s on", time.Duration(r.DeleteDelay), until)
	case state.WaitHold:
		return fmt.Sprintf("seb restore copies the log as it was at slot %d", r.Held)
	case state.WaitFloor:
		return "no commit refers to them, but their uploads may still be under way: they wait until the data floor has passed them"
	case state.WaitNext:
		return "the next collection deletes them, when a newer checkpoint is old enough"
	}
	return string(w.For)
}
