package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/fsck"
	"github.com/simple-event-broker/seb/objstore"
)

// errDamaged means that the check is complete, and that it found damage.
var errDamaged = codedError{errors.New("the log is damaged"), exitDamage}

type fsckCmd struct {
	storeFlag
	outputFlag
	Deep  bool `help:"Read every byte and verify every batch, instead of heads and checkpoints only."`
	Quiet bool `help:"Report only damage, and objects of a newer seb."`
}

// Help shows examples.
func (fsckCmd) Help() string {
	return `Examples:

    seb fsck
    seb fsck --deep --store 's3://bucket/prefix?region=eu-central-1'
    seb fsck --output json --store ./seb-data | jq '.findings[] | select(.class == "missing")'

Checks that the store has every object that the log needs, that each object has the bytes that were written,
and that the objects fit together: the commits, the state that results from them, the checkpoints, and the data
objects. It only reads, and may run while brokers use the bucket. It costs about a GET per object; with --deep it
reads every byte.

With --output json the report names every object. Missing, corrupt and foreign objects are damage. The other classes are
harmless: what brokers left when they died (orphaned, possibly in use, leftover), slots that the log no longer needs
(deleted), and names that Seb does not use (stray).

Exit codes: 0 the log is complete, 3 it is damaged, 4 there is no log; any other: the check did not finish, such as 6 if
the store does not answer.`
}

// Run checks the store and prints what was found.
func (c *fsckCmd) Run(ctx context.Context, std streams) error {
	if c.json() && c.Quiet {
		return usage(errors.New("use --output json or --quiet, not both"))
	}
	if err := c.mustBeThere(); err != nil {
		return err
	}
	store, err := c.openExisting(ctx)
	if err != nil {
		return err
	}
	return c.check(ctx, std, store)
}

func (c *fsckCmd) check(ctx context.Context, std streams, store objstore.Store) error {
	p := newProgress(std.err, 0)
	p.unit, p.counted = "objects", true
	var far fsck.Progress
	r, err := fsck.Check(ctx, store, fsck.Options{Deep: c.Deep, Progress: func(now fsck.Progress) {
		far, p.total = now, now.Total
		p.update(time.Now(), now.Objects, now.Bytes)
	}})
	p.clear()
	noLog := errors.Is(err, fsck.ErrNoLog)
	unread := err != nil && r.Commits == 0 && r.Checkpoints == 0 && r.DataObjects == 0 && len(r.Findings) == 0
	var unwritten error
	if c.json() || !noLog && !unread { // else there is nothing to print
		unwritten = c.print(std, r)
	}
	newer := len(r.Of(fsck.Newer))
	switch {
	case noLog:
		return codedError{hinted(fmt.Errorf("check %s: %w", c.Store, err), "name the store of `seb serve` with --store"), exitRefused}
	case unread:
		return c.advised(fmt.Errorf("check %s: nothing could be read: %w", c.Store, stopped(ctx, err)))
	case err != nil:
		return fmt.Errorf("check %s: stopped after %d of %d objects, %d of them damaged: %w", c.Store, far.Objects, far.Total, r.Damage(), stopped(ctx, err))
	case r.Damage() > 0:
		return hinted(fmt.Errorf("check %s: %w: %s", c.Store, errDamaged, counts(r, fsck.Class.Damage)),
			"docs/trouble.md says what each finding means and what to do")
	case newer > 0:
		return fmt.Errorf("check %s: %s not checked: %w", c.Store, counted(int64(newer), "object was", "objects were"), format.ErrVersion)
	}
	return unwritten
}

// stopped returns errInterrupted if ctx has ended, else err.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (c *fsckCmd) print(std streams, r *fsck.Report) error {
	if c.json() {
		return printJSON(std.out, struct {
			Store string `json:"store"`
			*fsck.Report
		}{c.Store, r})
	}
	p := newPrinter(std.out)
	if !c.Quiet {
		c.header(p, r)
	}
	for _, class := range fsck.Classes {
		if findings := r.Of(class); class.Damage() || class == fsck.Newer {
			for _, f := range findings {
				p.printf("%s %s: %s\n", p.paint(red, fmt.Sprintf("%-9s", class)), names(f), f.Detail)
			}
		} else if !c.Quiet {
			harmless(p, class, findings)
		}
	}
	if r.Complete && !c.Quiet {
		verdict(p, r)
	}
	return p.err
}

func (c *fsckCmd) header(p *printer, r *fsck.Report) {
	p.printf("store %s", c.Store)
	if r.Cluster != "" {
		p.printf(", cluster %s", r.Cluster)
	}
	p.printf("\n")
	if r.Last > 0 {
		p.printf("slots %d to %d: ", r.First, r.Last)
	}
	p.printf("%s, %s and %s are sound", counted(r.Commits, "commit", "commits"), counted(r.Checkpoints, "checkpoint", "checkpoints"), counted(r.DataObjects, "data object", "data objects"))
	if r.Deep {
		p.printf(", %d batches read", r.Batches)
	}
	p.printf(" (%v)\n", size(r.Bytes))
}

// namesShown is how many names of harmless objects are shown.
const namesShown = 3

// harmless prints one line for the findings of a class that is not damage.
func harmless(p *printer, class fsck.Class, findings []fsck.Finding) {
	if len(findings) == 0 {
		return
	}
	var bytes int64
	var objects uint64
	var shown []string
	for i, f := range findings {
		bytes += f.Bytes
		objects += max(f.Count, 1)
		if i < namesShown {
			shown = append(shown, names(f))
		}
	}
	p.printf("%s: %d", class, objects)
	if bytes > 0 {
		p.printf(", %s", size(bytes))
	}
	p.printf(": %s", strings.Join(shown, ", "))
	if more := len(findings) - len(shown); more > 0 {
		p.printf(" and %d more (--output json shows all)", more)
	}
	p.printf("\n")
}

func verdict(p *printer, r *fsck.Report) {
	switch {
	case r.Damage() > 0:
		p.printf("verdict: %s: %s\n", p.paint(red, "DAMAGED"), counts(r, fsck.Class.Damage))
	case len(r.Of(fsck.Newer)) > 0:
		p.printf("verdict: needs another version of seb\n")
	case !r.Deep:
		p.printf("verdict: %s (batches were not read; --deep reads them)\n", p.paint(green, "whole"))
	default:
		p.printf("verdict: %s\n", p.paint(green, "whole"))
	}
}

// counts lists how many findings each class has. It leaves out the classes for which the function of returns
// false.
func counts(r *fsck.Report, of func(fsck.Class) bool) string {
	var parts []string
	for _, class := range fsck.Classes {
		if n := len(r.Of(class)); n > 0 && of(class) {
			parts = append(parts, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(parts, ", ")
}

func names(f fsck.Finding) string {
	if f.Through == "" {
		return f.Key
	}
	return fmt.Sprintf("%s to %s (%d slots)", f.Key, f.Through, f.Count)
}
