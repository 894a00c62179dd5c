// Package fsck checks a bucket at rest or in use: that every object that the log
// needs exists, has the bytes that were written, and fits the others. It only reads.
//
// It is not a broker: it takes no lease and claims nothing, so its report of
// a bucket in use is about the log as it was when the check began. It follows
// the rules by which brokers delete, so that it does not report as missing what
// they may delete while it runs:
//
//   - One List shows the bucket in the order of its keys: checkpoint/, data/,
//     log/. So the slot of every checkpoint in it was there before log/ was
//     listed, and so was the commit of every data object in it that has one
//     already.
//   - Needed are the objects that the newest sound checkpoint's state points
//     into, and those of the commits after it. Whatever else is absent may have
//     been deleted. Nothing that was dead at a checkpoint comes to life again.
//   - What a commit refers to existed before the commit did. So a data object is
//     missing if a Get says so, whether or not it was in the List.
//   - What is found missing is judged again by checkpoints that came meanwhile.
package fsck

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
)

// ErrNoLog says that there is nothing to check: the store holds no object that
// could be one of a log.
var ErrNoLog = errors.New("the store holds no log")

// Options say how thorough a check is.
type Options struct {
	// Deep reads every byte and verifies every batch; else only heads and
	// checkpoints are read.
	Deep bool
	// Progress is told how far the check is, by one goroutine.
	Progress func(Progress)
}

// Progress is how far a check is.
type Progress struct {
	Objects int64 // checked
	Total   int64 // that a List showed; a few may be added, or be gone
	Bytes   int64 // read
}

// Check checks the log in store. It returns a report even with an error, with
// what was found until then. It fails if the store fails, ctx ends, the bucket
// needs another version of seb, or there is no log (ErrNoLog).
func Check(ctx context.Context, store objstore.Store, opts Options) (*Report, error) {
	c := &checker{
		reader:    newReader(store),
		opts:      opts,
		report:    &Report{Deep: opts.Deep, Findings: []Finding{}},
		state:     state.New(),
		hash:      &format.Hash{},
		gone:      map[format.Seq]bool{},
		unapplied: map[format.Seq]unappliedCommit{},
		data:      map[dataKey]dataUse{},
	}
	err := c.run(ctx)
	c.report.Complete = err == nil
	c.report.Bytes = c.bytes.Load()
	c.report.sort()
	return c.report, err
}

// checker is one check. What the workers share is the reader and the constants;
// everything else belongs to the goroutine that runs it.
type checker struct {
	*reader
	opts    Options
	report  *Report
	cluster format.ClusterID
	inv     inventory

	obstacles []Obstacle

	// The position of the walk. After damage, hash or state are unknown until the
	// next checkpoint.
	pos   format.Seq
	hash  *format.Hash // of the head at pos; nil if unknown
	state *state.State // as of pos; nil if unknown

	covered   format.Seq                     // the newest checkpoint that is sound
	base      *state.State                   // at covered; nil before the first
	needed    []format.Seq                   // absent slots that it points into
	gone      map[format.Seq]bool            // slots that were listed and are not there
	lost      format.Seq                     // the last slot whose commit is not known
	unapplied map[format.Seq]unappliedCommit // read since the state became unknown
	data      map[dataKey]dataUse            // data objects that something refers to
	pruned    []format.Seq                   // checkpoints that were listed and are not there
}

// unappliedCommit identifies a commit that fsck read while it had no state. A later checkpoint
// that lists the commit must have the same tag and size.
type unappliedCommit struct {
	tag  uint64
	size int64
}

// dataUse tells what refers to a data object.
type dataUse struct {
	size    uint32
	commit  format.Seq // that was the first to refer to it; 0 if only a checkpoint tells
	live    bool       // it may not be deleted
	checked bool
	absent  bool
}

func (u dataUse) referrer() string {
	if u.commit == 0 {
		return "a checkpoint refers to it"
	}
	return format.LogKey(u.commit) + " refers to it"
}

func (c *checker) run(ctx context.Context) error {
	var err error
	if c.inv, err = c.list(ctx); err != nil {
		return err
	}
	if c.inv.empty() && len(c.obstacles) == 0 {
		return ErrNoLog
	}
	c.progress()
	c.report.First, c.report.Last = c.inv.slots.first(), c.inv.slots.last()
	for _, k := range c.inv.probes {
		c.found(Leftover, k, "a probe that was not deleted")
	}
	for _, k := range c.inv.strays {
		if slices.ContainsFunc(c.obstacles, func(o Obstacle) bool { return o.Key == k }) {
			continue // reported already
		}
		c.found(Stray, k, "not a name that Seb uses; it is ignored")
	}
	if err := c.identify(ctx); err != nil {
		return err
	}
	if err := c.walk(ctx); err != nil {
		return err
	}
	c.cover()
	if err := c.checkRemainingData(ctx); err != nil {
		return err
	}
	return c.judge(ctx)
}

func (c *checker) found(class Class, key, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{Class: class, Key: key, Detail: fmt.Sprintf(format, args...)})
}

// blame reports what is wrong with an object. It returns errors that are not about
// the object: they end the check.
func (c *checker) blame(key string, err error) error {
	class, ok := classOf(err)
	if !ok {
		return err
	}
	if errors.Is(err, objstore.ErrNotRegular) {
		err = fmt.Errorf("%w: %s", err, remedy)
	}
	c.found(class, key, "%v", err)
	return nil
}

func (c *checker) progress() {
	if c.opts.Progress != nil {
		c.opts.Progress(Progress{Objects: c.objects.Load(), Total: c.inv.count(), Bytes: c.bytes.Load()})
	}
}
