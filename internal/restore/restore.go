// Package restore copies a log, as it was at some moment, into another bucket. What was live at that moment is in the source as long
// as the moment is younger than the delete delay of the log.
//
// The copy is a log of its own: it has another cluster id, and its slots lie far above those of the source, so that nobody takes an
// object of one log for an object of the other. All records of the copy are in segments: those of the source, and new ones with
// what no segment had. seb.json is written last, so no broker opens half of a copy.
package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/offline"
	"github.com/simple-event-broker/seb/objstore"
)

// Options say what is copied.
type Options struct {
	At offline.Moment // the zero value is the end of the log
	// KeepPush lets queues go on to push records. Otherwise the push of each queue is stopped in the copy, since the brokers of the
	// source may push the same records to the same URLs.
	KeepPush bool
	// SkipUnreadable copies a log although some of its records are missing or damaged. They are so in the copy.
	SkipUnreadable bool
	Memory         int64 // bytes for objects on their way, at least 16 MiB
	// Boot is the time since this machine was started. Default: the machine's clock.
	Boot func() time.Duration
}

// slotGap is by how much the slots of a copy are above the last one of its source, so that they never meet.
const slotGap = 1 << 32

// TooEarlyError says that a moment is too long ago: what was live then may be deleted.
type TooEarlyError struct {
	Slot format.Seq // the earliest one that can be restored
	Time time.Time  // of its commit
}

// Error names the earliest moment.
func (e *TooEarlyError) Error() string {
	return fmt.Sprintf("the log is not there as it was at that time: it can be restored as of slot %d, %s, and later", e.Slot, e.Time.Format(time.RFC3339Nano))
}

// DeletedError says that brokers have deleted what was live at a moment.
type DeletedError struct{ What string }

// Error names what is deleted.
func (e *DeletedError) Error() string {
	return e.What + " was live at that time, and brokers have deleted it since then"
}

var (
	// ErrEmpty says that there is nothing to copy.
	ErrEmpty = errors.New("the log had no commit at that time")
	// ErrLate says that the log ends before a slot that was asked for.
	ErrLate = errors.New("the log ends before that slot")
	// ErrOccupied says that the target holds objects.
	ErrOccupied = errors.New("the target holds objects")
)

// Plan is a copy that is yet to be made.
type Plan struct {
	Slot   format.Seq `json:"slot"` // the last one whose commit is in the copy
	Time   time.Time  `json:"time"` // of that commit
	Topics int        `json:"topics"`
	Bytes  int64      `json:"record_bytes"` // size of the batches to copy
	// Until is when brokers of the source may begin to delete what the copy needs.
	Until time.Time `json:"nothing_deleted_before"`

	// Damage is why the log can't be read up to its end; nil if it can. What the copy needs is then held by nobody.
	Damage error `json:"-"`

	opts   Options
	source *offline.Log
	keys   map[format.KeyID]bool // the API keys that the log has now; nil if it can't be read
	level  uint32                // of the log now; 0 if it can't be read
	first  format.Seq            // the first slot of the copy
}

// Prepare reads the log, and returns what is to be copied. It writes nothing.
func Prepare(ctx context.Context, from objstore.Store, opts Options) (*Plan, error) {
	p := &Plan{opts: opts}
	keeps, collected, end := time.Duration(0), format.Seq(0), format.Seq(0)
	newest, err := offline.Open(ctx, from, nil, offline.Moment{})
	switch {
	case err == nil:
		s := newest.State
		p.source, p.level, p.keys = newest, s.Level(), map[format.KeyID]bool{}
		for _, k := range s.Keys() {
			p.keys[k.ID] = true
		}
		keeps, collected, end = s.Keeps(newest.Now.UnixMicro()), s.Collected().Slot, s.Seq()
	case offline.Damaged(err) && opts.At != (offline.Moment{}): // perhaps the damage came later
		p.Damage = err
	default:
		return nil, err
	}
	if opts.At != (offline.Moment{}) {
		p.source, err = offline.Open(ctx, from, nil, opts.At)
		if missing, ok := errors.AsType[*offline.MissingError](err); ok && missing.Slot <= collected {
			return nil, tooEarly(ctx, from, newest)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.Damage != nil {
		if end, err = p.lastSlot(ctx); err != nil {
			return nil, err
		}
	}
	p.first = end + slotGap
	s := p.source.State
	if s.Seq() < collected {
		return nil, tooEarly(ctx, from, newest)
	}
	switch {
	case s.Seq() < opts.At.Slot:
		return nil, fmt.Errorf("%w: its last slot is %d", ErrLate, s.Seq())
	case s.Seq() == 0:
		return nil, ErrEmpty
	}
	p.Slot, p.Time, p.Topics = s.Seq(), time.UnixMicro(s.Time()).UTC(), s.TopicCount()
	for _, t := range s.Topics() {
		for i := range t.Partitions {
			p.Bytes += t.Partitions[i].Bytes
		}
	}
	if p.Until = p.Time; s.Seq() == end {
		p.Until = p.source.Now.UTC()
	}
	p.Until = p.Until.Add(max(keeps, time.Duration(p.source.Cluster.DeleteDelay)))
	return p, nil
}

// lastSlot returns the highest slot of which the store has a commit or a checkpoint.
func (p *Plan) lastSlot(ctx context.Context) (last format.Seq, err error) {
	for _, prefix := range []string{format.LogPrefix, format.CheckpointPrefix} {
		err = errors.Join(err, p.source.List(ctx, prefix, func(key string) {
			if s, ok := format.ParseSeqKey(prefix, key); ok {
				last = max(last, s)
			}
		}))
	}
	return last, err
}

// tooEarly returns the error that names the earliest moment: that of the newest collection, or the beginning of a copy.
func tooEarly(ctx context.Context, from objstore.Store, newest *offline.Log) error {
	first, err := offline.Open(ctx, from, nil, offline.Moment{Slot: newest.State.Collected().Slot})
	if offline.Damaged(err) && len(newest.Checkpoints) > 0 { // the log is a copy, and has no commit of that slot
		first, err = offline.Open(ctx, from, nil, offline.Moment{Slot: newest.Checkpoints[0]})
	}
	if err != nil {
		return err
	}
	return &TooEarlyError{Slot: first.State.Seq(), Time: time.UnixMicro(first.State.Time()).UTC()}
}
