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
	return fmt.Sprintf("brokers have deleted records that were live at that time: the log can be restored as of slot %d, %s, and later", e.Slot, e.Time.Format(time.RFC3339Nano))
}

var (
	// ErrEmpty says that there is nothing to copy.
	ErrEmpty = errors.New("the log had no commit at that time")
	// ErrLate says that the log ends before a slot that was asked for.
	ErrLate = errors.New("the log ends before that slot")
	// ErrOccupied says that the target holds objects.
	ErrOccupied = errors.New("the target holds objects")
)

// MissingError says that the source has no commit that it should have.
type MissingError struct{ Slot format.Seq }

// Error names the commit.
func (e *MissingError) Error() string {
	return fmt.Sprintf("the store has no %s, although the log goes on after it", format.LogKey(e.Slot))
}

// Plan is a copy that is yet to be made.
type Plan struct {
	Slot   format.Seq `json:"slot"` // the last one whose commit is in the copy
	Time   time.Time  `json:"time"` // of that commit
	Topics int        `json:"topics"`
	Bytes  int64      `json:"record_bytes"` // size of the batches to copy
	// Until is when brokers of the source may begin to delete what the copy needs.
	Until time.Time `json:"nothing_deleted_before"`

	opts   Options
	source *offline.Log
	level  uint32     // of the source, now
	first  format.Seq // the first slot of the copy
}

// Prepare reads the log, and returns what is to be copied. It writes nothing.
func Prepare(ctx context.Context, from objstore.Store, opts Options) (*Plan, error) {
	newest, err := offline.Open(ctx, from, nil, offline.Moment{})
	if err != nil {
		return nil, err
	}
	source := newest
	if opts.At != (offline.Moment{}) {
		if opts.At.Slot > newest.State.Seq() {
			return nil, fmt.Errorf("%w: its last slot is %d", ErrLate, newest.State.Seq())
		}
		if source, err = offline.Open(ctx, from, nil, opts.At); err != nil {
			return nil, err
		}
	}
	s := source.State
	if collected := newest.State.Collected().Slot; s.Seq() < collected {
		return nil, tooEarly(ctx, from, collected)
	}
	if source.Ended && s.Seq() < newest.State.Seq() {
		return nil, &MissingError{s.Seq() + 1}
	}
	if s.Seq() == 0 {
		return nil, ErrEmpty
	}
	p := &Plan{
		Slot: s.Seq(), Time: time.UnixMicro(s.Time()).UTC(), Topics: s.TopicCount(),
		opts: opts, source: source, level: newest.State.Level(), first: newest.State.Seq() + slotGap,
	}
	for _, t := range s.Topics() {
		for i := range t.Partitions {
			p.Bytes += t.Partitions[i].Bytes
		}
	}
	p.Until = p.Time
	if s.Seq() == newest.State.Seq() {
		p.Until = source.Now.UTC()
	}
	p.Until = p.Until.Add(time.Duration(source.Cluster.DeleteDelay))
	return p, nil
}

func tooEarly(ctx context.Context, from objstore.Store, slot format.Seq) error {
	first, err := offline.Open(ctx, from, nil, offline.Moment{Slot: slot})
	if err != nil {
		return err
	}
	return &TooEarlyError{Slot: slot, Time: time.UnixMicro(first.State.Time()).UTC()}
}
