package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
)

// queueItem shows an entry about a queue.
func (d *dumper) queueItem(i int, item format.Entry) {
	switch x := item.(type) {
	case *format.QueueSet:
		d.line("item", "%d: queue %d of topic %d set: %q, %s", i, x.ID, x.Topic, x.Name, queueConfig(x.Config))
	case *format.QueueDeleted:
		d.line("item", "%d: queue %d deleted", i, x.ID)
	case *format.QueueOwned:
		d.line("item", "%d: queue %d is owned by %q from here on, epoch %d", i, x.Queue, x.Address, x.Epoch)
		for n, window := range x.Windows {
			d.line("", "partition %d: fresh records below %d may be handed out", n, window)
		}
	case *format.QueueReleased:
		d.line("item", "%d: queue %d has no owner from here on, the last was of epoch %d", i, x.Queue, x.Epoch)
	case *format.WindowMoved:
		d.line("item", "%d: queue %d, epoch %d, partition %d: fresh records below %d may be handed out", i, x.Queue, x.Epoch, x.Partition, x.Window)
	case *format.RecordsAttempted:
		d.line("item", "%d: queue %d, epoch %d, partition %d: records are handed out again", i, x.Queue, x.Epoch, x.Partition)
		for _, a := range x.Attempts {
			d.line("", "offset %d: attempt %d", a.Offset, a.Number)
		}
	case *format.RecordsDone:
		d.line("item", "%d: queue %d, partition %d: records are done", i, x.Queue, x.Partition)
		for _, r := range x.Runs {
			d.line("", "offsets %d to %d by attempt %d", r.Offset, r.End()-1, r.Number)
		}
	case *format.RecordPutBack:
		d.line("item", "%d: queue %d, partition %d: attempt %d of offset %d was put back, %s", i, x.Queue, x.Partition, x.Number, x.Offset, putBack(x.NotBefore, x.DeadLetter, x.Reason))
	case *format.RecordsRedriven:
		d.line("item", "%d: queue %d, partition %d: parked records (dead letters) are redriven", i, x.Queue, x.Partition)
		for _, offset := range x.Offsets {
			d.line("", "offset %d", offset)
		}
	case *format.QueuePurged:
		d.line("item", "%d: queue %d, partition %d: no work is left before %d", i, x.Queue, x.Partition, x.Before)
	case *format.RecordsDelayed:
		d.line("item", "%d: partition %d of topic %d: queues hand out offsets %d to %d from %v on", i, x.Partition, x.Topic, x.Offset, x.End()-1, micros(x.Due))
	case *format.QueuePushSet:
		d.line("item", "%d: queue %d is pushed %s", i, x.Queue, pushedTo(x.Push))
	default:
		d.line("item", "%d: %T", i, x)
	}
}

// sessionItem shows an entry about a session. The output has the session's public key, which is no secret.
func (d *dumper) sessionItem(i int, x *format.SessionNamed) {
	if x.Queue == 0 {
		d.line("item", "%d: session %x is one of this log", i, x.Session)
		return
	}
	d.line("item", "%d: session %x is the owner of queue %d, epoch %d", i, x.Session, x.Queue, x.Epoch)
}

// writerOf shows what a mark says about the writer beside its session.
func writerOf(x *format.WriterMark) (s string) {
	if x.Address != "" {
		s = fmt.Sprintf(" at %q", x.Address)
	}
	if x.Pause != format.PauseUnknown {
		s += fmt.Sprintf(", which will probably write again after %d ms", x.Pause)
	}
	return s
}

// leftOut shows what a bundle's mark says about requests that are not in the commit.
func leftOut(x *format.BundleMark) (s string) {
	if len(x.Verdicts) > 0 {
		s = fmt.Sprintf(", not in this commit: %d", len(x.Verdicts))
	}
	return s
}

func queueConfig(c format.QueueConfig) string {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	s := fmt.Sprintf("lease %v, at most %d attempts, backoff %v to %v", ms(c.LeaseMS), c.Attempts, ms(c.BackoffMinMS), ms(c.BackoffMaxMS))
	if c.DeadLetterTopic != "" {
		s += fmt.Sprintf(", dead letters to %q", c.DeadLetterTopic)
	}
	if c.Ordered {
		s += ", ordered by key"
	}
	if c.Paused {
		s += ", paused"
	}
	return s
}

// pushedTo describes a push without the parts that may be secret: people may show the output to others who
// can't read the bucket.
func pushedTo(p *format.QueuePush) string {
	if p == nil {
		return "nowhere"
	}
	url, _, query := strings.Cut(p.URL, "?")
	if query {
		url += "?..."
	}
	s := fmt.Sprintf("to %q, at most %d at a time, %v each, %d secrets", url, p.InFlight, time.Duration(p.TimeoutMS)*time.Millisecond, len(strings.Fields(p.Secret)))
	for _, h := range p.Headers {
		s += fmt.Sprintf(", header %q", h.Name)
	}
	if p.Stopped != "" {
		s += fmt.Sprintf(", stopped: %q", p.Stopped)
	}
	return s
}

func putBack(notBefore int64, parked bool, reason string) string {
	s := "not to go out before " + micros(notBefore)
	if parked {
		s = "parked"
	}
	return fmt.Sprintf("%s: %q", s, reason)
}

// queue shows a queue of a checkpoint's state.
func (d *dumper) queue(t *state.Topic, q *state.Queue) {
	d.line("queue", "%d: %q, created %v, %s", q.ID, q.Name, micros(q.Created), queueConfig(q.Config))
	switch {
	case q.Owned:
		d.line("", "owned by %q, epoch %d, last heard of %v", q.Address, q.Epoch, micros(q.Seen))
	case q.Epoch > 0:
		d.line("", "without an owner, the last was of epoch %d", q.Epoch)
	default:
		d.line("", "never owned")
	}
	if q.Push != nil {
		d.line("", "pushed %s", pushedTo(q.Push))
	}
	for i, p := range t.Partitions {
		n := int32(i)
		c := q.Count(format.Partition(n), p.Start, p.End, 0)
		d.line("", "partition %d: %d records left, %d of them parked; the first is %d; fresh ones below %d may be handed out, below %d may have been",
			i, c.Left, c.DeadLetters, c.First, q.DispatchLimit(format.Partition(n)), q.UncertainEnd(format.Partition(n)))
		for _, a := range listed(q, n) {
			d.line("", "partition %d: attempt %d of offset %d, %d of these since it was appended or redriven, %s", i, a.Number, a.offset, a.Used(), putBack(a.NotBefore, a.DeadLetter, a.Reason))
		}
	}
}

// listedAttempt is an attempt that a state stores, with the offset of its record.
type listedAttempt struct {
	offset seb.Offset
	state.Attempt
}

// listed returns the stored attempts of a partition, sorted by offset.
func listed(q *state.Queue, partition int32) (list []listedAttempt) {
	q.EachAttempt(format.Partition(partition), func(offset seb.Offset, a state.Attempt) { list = append(list, listedAttempt{offset, a}) })
	slices.SortFunc(list, func(a, b listedAttempt) int { return cmp.Compare(a.offset, b.offset) })
	return list
}
