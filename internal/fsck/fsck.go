// Package fsck checks a bucket, whether brokers use it or not: every object that the log needs
// must exist, have the bytes that were written, and agree with the other objects. It only
// reads.
//
// A check is not a broker: it takes no lease and claims no slot, so its report on a bucket in
// use is about the log as it was when the check began. It knows the rules by which brokers
// delete objects, and does not report as missing what brokers may delete while it runs:
//
//   - One List shows the bucket in the order of its keys: checkpoint/, data/,
//     log/. So when the List comes to log/, the slot of every listed checkpoint
//     exists, and so does the commit of every listed data object that had a
//     commit when it was listed.
//   - The log needs the objects in which the state of the newest sound checkpoint
//     has batches, and the objects of later commits. Brokers may have deleted any
//     other object. An object without batches in that state never gets batches
//     again.
//   - A data object exists before the commit that refers to it. So it is missing
//     if a Get does not find it, whether or not the List showed it.
//   - If objects are missing, the check looks for a checkpoint that was written
//     during the check, and then applies these rules to that checkpoint.
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

// ErrNoLog says that there is nothing to check: the store has no object that could belong to a
// log.
var ErrNoLog = errors.New("the store holds no log: it has no object under a key of a log")

// Options say how thorough a check is.
type Options struct {
	// Deep reads every byte and verifies every batch. Without it a check reads only heads and
	// checkpoints.
	Deep bool
	// Progress, if not nil, is called with how far the check is, always by the same goroutine.
	Progress func(Progress)
}

// Progress says how far a check is.
type Progress struct {
	Objects int64 // number of objects checked
	Total   int64 // objects that the List showed; the check may find a few more or fewer
	Bytes   int64 // number of bytes read
}

// Check checks the log in store. It returns an error if the store fails, ctx ends, the bucket
// needs another version of seb, or there is no log (ErrNoLog). It always returns a report;
// after an error, the report has what was found until then.
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

// checker is one check. Workers may use only the reader, opts and cluster; all other fields
// belong to the goroutine that runs the check.
type checker struct {
	*reader
	opts    Options
	report  *Report
	cluster format.ClusterID
	inv     inventory

	obstacles []Obstacle

	// The position of the walk over the log. After damage, hash or state are unknown until the
	// next sound checkpoint.
	pos   format.Seq
	hash  *format.Hash // hash of the head of slot pos; nil if unknown
	state *state.State // state after slot pos; nil if unknown

	covered   format.Seq                     // slot of the newest sound checkpoint
	base      *state.State                   // state of that checkpoint; nil if there is none
	needed    []format.Seq                   // absent slots in which base has batches
	gone      map[format.Seq]bool            // slots that were listed and that a Get did not find
	lost      format.Seq                     // the last slot whose commit could not be read
	unapplied map[format.Seq]unappliedCommit // commits read while the state was unknown
	data      map[dataKey]dataUse            // data objects to which a commit or base refers
	pruned    []format.Seq                   // checkpoints that were listed and that a Get did not find
}

// unappliedCommit identifies a commit that was read while the state was unknown. A later
// checkpoint that knows the commit must have the same tag and size.
type unappliedCommit struct {
	tag  uint64
	size int64
}

// dataUse says what refers to a data object.
type dataUse struct {
	size    uint32
	commit  format.Seq // the commit that was the first to refer to it; 0 if only a checkpoint refers to it
	live    bool       // brokers must not delete it
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
			continue // already reported
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

// blame adds a finding about an object. If err is not about the object, blame returns err, to end
// the check.
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
