package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/httpapi"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/internal/restore"
	"github.com/simple-event-broker/seb/objstore"
)

type restoreCmd struct {
	storeFlag
	outputFlag
	To             string `required:"" placeholder:"DIR|URL" help:"Where the copy goes: a directory, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME, without any object."`
	At             string `placeholder:"TIME|slot:N" help:"Copy the log as it was at a time: 2026-01-31T12:00:00Z, a day such as 2026-01-31 (its beginning, UTC), or 1h for an hour ago; or after a slot, such as slot:4711 (default: now)."`
	DryRun         bool   `help:"Only tell what would be copied; writes nothing."`
	KeepPush       bool   `help:"Let queues go on to push records. By default, push is stopped in the copy: brokers of the log may push the same records."`
	NoHold         bool   `help:"Write nothing to the log's own store. By default, seb tells the brokers of the log to delete nothing that is still to be copied."`
	SkipUnreadable bool   `help:"Go on if records are missing or damaged; they are so in the copy."`
	Memory         size   `default:"128MiB" help:"Memory for objects on their way; at least 16MiB (default ${default})."`
}

// Help shows examples.
func (restoreCmd) Help() string {
	return `Examples:

    seb restore --store ./seb-data --to ./copy
    seb restore --store 's3://bucket/prod' --at 2026-01-31T12:00:00Z --to 's3://bucket/before-the-mistake'
    seb restore --store 's3://bucket/prod' --at 2h --to ./copy --dry-run

Copies a log, as it was at some moment, to another place: topics, records with their offsets, consumers, queues, API keys.
Brokers may use the log meanwhile. To use the copy, start brokers with --store set to it. The command changes no record of the log
itself: to go back, use the copy in its place.

Brokers keep what they no longer need for the log's delete delay (--delete-delay of the first seb serve; by default 24h on S3, 4h
in a directory), or
--keep-deleted if that is longer, so the log can be restored as of any moment since then. While the copy is made, the log says that
nothing of it may be deleted; that needs the permission to write to --store. Without it (--no-hold), seb only reads, and a
copy fails if brokers delete something before it is copied.

The copy is a log of its own, with a new cluster id. Queues that push records are stopped there: seb queue push resume lets
one go on. The copy has the API keys that the log had then; those that were revoked since then are revoked. All records are read and
verified, written, and read back. --to must hold no object: if a copy fails, delete what it has written before you try again.

Exit codes: 0 the copy is complete, or --dry-run has found nothing that prevents it; 2 the credentials are wrong, or --at is
invalid; 3 records are missing or damaged: --skip-unreadable copies all others; 4 there is no log, --to holds objects, or --at is
too long ago; 6 a store does not answer.`
}

const restoreMemoryMin = 16 << 20

// Run copies the log.
func (c *restoreCmd) Run(ctx context.Context, std streams) error {
	opts := restore.Options{KeepPush: c.KeepPush, SkipUnreadable: c.SkipUnreadable, Memory: int64(c.Memory)}
	var err error
	if opts.At, err = parseMoment(c.At, time.Now()); err != nil {
		return err
	}
	switch {
	case c.Memory < restoreMemoryMin:
		return usage(fmt.Errorf("invalid --memory %v: it must be at least %v", c.Memory, size(restoreMemoryMin)))
	case c.Store == "memory:" || c.To == "memory:":
		return usage(errors.New("a log in memory (memory:) is gone when this command ends; name a directory or s3://BUCKET/PREFIX"))
	case within(c.Store, c.To) || within(c.To, c.Store):
		return usage(fmt.Errorf("--to %s and --store %s are the same, or one is inside of the other", c.To, c.Store))
	}
	if err := c.mustBeThere(); err != nil {
		return err
	}
	from, err := c.openExisting(ctx)
	if err != nil {
		return err
	}
	plan, err := restore.Prepare(ctx, from, opts)
	if err != nil {
		return c.failed(ctx, c.storeFlag, err)
	}
	if plan.Damage != nil {
		note(std.err, "seb: the log is damaged after that moment: %v\n     seb fsck names all damage\n", plan.Damage)
	}
	if c.DryRun {
		return c.print(std, plan, nil)
	}
	target := storeFlag{Store: c.To, flag: "--to"}
	to, _, err := target.open(ctx)
	if err != nil {
		return err
	}
	if err := restore.CheckTarget(ctx, to); err != nil {
		return c.failed(ctx, target, err)
	}
	if !c.NoHold {
		if end, err := c.hold(ctx, std, plan); err != nil {
			note(std.err, "seb: could not tell the brokers of the log to delete nothing that is still to be copied: %v\n     %s\n", err, keeps(plan))
		} else {
			defer end()
		}
	}
	return c.copy(ctx, std, plan, to)
}

// hold lets the brokers of the log delete nothing that is to be copied.
func (c *restoreCmd) hold(ctx context.Context, std streams, plan *restore.Plan) (end func(), err error) {
	store, _, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return plan.Hold(ctx, store, std.err)
}

func (c *restoreCmd) copy(ctx context.Context, std streams, plan *restore.Plan, to objstore.Store) error {
	shown := newProgress(std.err, plan.Bytes)
	shown.unit = "segments copied"
	r, err := plan.Run(ctx, to, func(segments int, bytes int64) { shown.update(time.Now(), int64(segments), bytes) })
	shown.clear()
	if err != nil {
		return c.failed(ctx, storeFlag{Store: c.To, flag: "--to"}, err)
	}
	if err := c.print(std, plan, r); err != nil {
		return err
	}
	if n := len(r.Unreadable); n > 0 {
		return codedError{fmt.Errorf("the copy in %s is complete but for what can't be read in %s: %s", c.To, c.Store, counted(int64(n), "object or batch", "objects or batches")), exitDamage}
	}
	return nil
}

// parseMoment reads --at.
func parseMoment(at string, now time.Time) (offline.Moment, error) {
	if at == "" {
		return offline.Moment{}, nil
	}
	if number, ok := strings.CutPrefix(at, "slot:"); ok {
		if slot, err := strconv.ParseUint(number, 10, 64); err == nil && slot > 0 {
			return offline.Moment{Slot: format.Seq(slot)}, nil
		}
	}
	when, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		when, err = time.Parse(time.DateOnly, at)
	}
	if ago, bad := httpapi.ParseDuration(at); err != nil && bad == nil && ago > 0 {
		when, err = now.Add(-ago), nil
	}
	switch {
	case err != nil || when.UnixMicro() <= 0:
		return offline.Moment{}, usageError{hinted(fmt.Errorf("invalid --at %q", at), "use a time with its zone such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, 1h for an hour ago, 2d, or a slot such as slot:4711")}
	case when.After(now):
		return offline.Moment{}, usage(fmt.Errorf("--at %s is in the future", at))
	}
	return offline.Moment{Time: when.UnixMicro()}, nil
}

// failed returns an error with the exit code that belongs to it. at is the store that the command was about to read or write.
func (c *restoreCmd) failed(ctx context.Context, at storeFlag, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("restore %s: %w", c.Store, errInterrupted)
	}
	_, unreadable := errors.AsType[*restore.UnreadableError](err)
	_, early := errors.AsType[*restore.TooEarlyError](err)
	_, deleted := errors.AsType[*restore.DeletedError](err)
	err = fmt.Errorf("restore %s: %w", c.Store, err)
	switch {
	case errors.Is(err, offline.ErrNoLog):
		return codedError{hinted(err, "name the store of `seb serve` with --store"), exitRefused}
	case errors.Is(err, restore.ErrOccupied):
		return codedError{hinted(err, "name another directory or prefix with --to, or delete what an interrupted copy has left there"), exitRefused}
	case early, deleted, errors.Is(err, restore.ErrEmpty):
		return codedError{hinted(err, "choose a later --at"), exitRefused}
	case errors.Is(err, restore.ErrLate):
		return codedError{err, exitRefused}
	case unreadable:
		return codedError{hinted(err, "seb fsck names all damage; --skip-unreadable copies all other records"), exitDamage}
	case offline.Damaged(err):
		return codedError{hinted(err, "seb fsck names all damage; with --at, the log can be copied as it was before"), exitDamage}
	}
	return at.advised(err)
}

// keeps says how long what is to be copied stays in the store.
func keeps(plan *restore.Plan) string {
	if time.Now().After(plan.Until) {
		return "brokers may delete some of it at any time"
	}
	return "brokers delete nothing of it before " + plan.Until.Truncate(time.Second).Format(time.RFC3339)
}

// within tells whether a store is another one, or inside of it.
func within(outer, inner string) bool {
	if isDirectory(outer) != isDirectory(inner) {
		return false
	}
	if !isDirectory(outer) {
		outer, _, _ = strings.Cut(outer, "?")
		inner, _, _ = strings.Cut(inner, "?")
		return strings.HasPrefix(strings.TrimSuffix(inner, "/")+"/", strings.TrimSuffix(outer, "/")+"/")
	}
	in, err := filepath.Rel(real(outer), real(inner))
	return err == nil && filepath.IsLocal(in)
}

// real returns the path of a directory without symbolic links; its last elements need not exist.
func real(path string) string {
	path, _ = filepath.Abs(path)
	for end := ""; ; {
		if found, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(found, end)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return filepath.Join(path, end)
		}
		path, end = parent, filepath.Join(filepath.Base(path), end)
	}
}

// print says what is copied; r is nil if nothing was.
func (c *restoreCmd) print(std streams, plan *restore.Plan, r *restore.Result) error {
	if c.json() {
		return printJSON(std.out, struct {
			Store  string `json:"store"`
			To     string `json:"to"`
			DryRun bool   `json:"dry_run"`
			*restore.Plan
			*restore.Result
		}{c.Store, c.To, r == nil, plan, r})
	}
	p := newPrinter(std.out)
	p.printf("log as of slot %d, %s: %s, %v of records\n", plan.Slot, plan.Time.Format(time.RFC3339Nano), counted(int64(plan.Topics), "topic", "topics"), size(plan.Bytes))
	if r == nil {
		p.printf("%s\n", keeps(plan))
		return p.err
	}
	p.printf("copied to %s: %s, %v\n", c.To, counted(int64(r.Segments), "segment", "segments"), size(r.Bytes))
	p.printf("cluster %v, next slot %d\n", r.Cluster, r.Next)
	for _, name := range r.Stopped {
		p.printf("push is stopped: queue %s\n", name)
	}
	for _, name := range r.Revoked {
		p.printf("revoked, as in the log since then: API key %s\n", name)
	}
	for _, what := range r.Unreadable {
		p.printf("not copied: %s\n", p.paint(red, what))
	}
	return p.err
}
