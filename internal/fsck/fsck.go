// Package fsck checks a bucket, whether brokers use it or not: every object that the log needs
// must exist, have the bytes that were written, and agree with the other objects. It only
// reads.
//
// A check is not a broker: it takes no lease and claims no slot. If brokers use the bucket, the
// report is about the log as it was when the check began. While the check runs, brokers may
// delete objects that the log no longer needs. The check does not report those objects as missing.
//
// The walk is the main part of a check: it goes through the commits in the order of the log, and through the
// checkpoints between them, and applies the commits to a state. The check follows these rules, in which
// "sound" means found without damage:
//
//   - One List shows the bucket in the order of the keys: checkpoint/, data/,
//     log/. So the commits that a listed checkpoint covers (those up to its slot)
//     were written before the List came to log/. The same holds for the commits
//     that already referred to a data object when the List showed that object.
//   - The log needs the objects in which the state of the newest sound checkpoint
//     has batches, or which are its pages, and the objects of later commits. Brokers may have deleted any
//     other object. If an object has no batches in that state, it has none in any
//     later state.
//   - A data object exists before the commit that refers to it. So a data object
//     to which a commit refers is missing if a Get does not find it, even if the
//     List did not show it.
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
	// Progress, if not nil, is called again and again during the check, always by the same
	// goroutine.
	Progress func(Progress)
}

// Progress says how far a check is.
type Progress struct {
	// Objects is the number of objects checked, without seb.json, and without commits and checkpoints that
	// are missing or can't be decoded.
	Objects int64
	Total   int64 // objects that the List showed; the check may find a few more or fewer
	Bytes   int64 // number of bytes read
}

// Check checks the log in store. It returns an error if the store fails, ctx ends, the bucket
// needs another version of seb, or there is no log (ErrNoLog). It always returns a report. If it
// also returns an error, the report has only the findings from before the error.
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

// checker is one check. The goroutine that runs the check starts others, the workers. They may use only
// reader, opts and cluster.
type checker struct {
	*reader
	opts    Options
	report  *Report
	cluster format.ClusterID
	inv     inventory

	obstacles []Obstacle

	// The position of the walk, which goes through the slots in order (see the method walk). After
	// damage, hash is unknown until the next sound commit or checkpoint, and state until the next sound
	// checkpoint.
	pos   format.Seq
	hash  *format.Hash // hash of the head of slot pos; nil if unknown
	state *state.State // state after slot pos; nil if unknown

	covered   format.Seq                     // slot of the newest sound checkpoint
	base      *state.State                   // state of that checkpoint; nil if there is none
	needed    []format.Seq                   // absent slots in which base has batches
	gone      map[format.Seq]bool            // slots that the List showed but a Get did not find
	lost      format.Seq                     // the last slot whose commit could not be read
	unapplied map[format.Seq]unappliedCommit // commits read while the state was unknown
	data      map[dataKey]dataUse            // data objects to which a commit or base refers
	pruned    []format.Seq                   // checkpoints that the List showed but a Get did not find
}

// unappliedCommit identifies a commit that was read while the state was unknown. If the state of a later
// checkpoint has batches in the commit's slot, that state must name the same tag and size for the slot.
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

// blame adds a finding about an object if err is about the object's bytes. Otherwise it returns err, which
// ends the check.
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
