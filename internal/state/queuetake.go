package state

import (
	"fmt"

	"github.com/simple-event-broker/seb/internal/format"
)

// takeQueueEntry takes an entry about a queue; ok is false for any other entry. It repeats
// checks of the decoder, because a broker that builds a commit takes entries that were never
// decoded.
func (d *Draft) takeQueueEntry(it format.Entry) (ok bool, err error) {
	switch x := it.(type) {
	case *format.QueueSet:
		err = d.takeQueue(x)
	case *format.QueueDeleted:
		err = d.takeQueueDeletion(x)
	case *format.QueueOwned:
		err = d.takeOwner(x)
	case *format.QueueReleased:
		err = d.takeRelease(x)
	case *format.WindowMoved:
		err = d.takeDispatchLimit(x)
	case *format.RecordsAttempted:
		err = d.takeAttempts(x)
	case *format.RecordsDone:
		err = d.takeDone(x)
	case *format.RecordPutBack:
		err = d.takePutBack(x)
	case *format.RecordsRedriven:
		err = d.takeRedriven(x)
	case *format.QueuePurged:
		err = d.takePurge(x)
	case *format.RecordsDelayed:
		err = d.takeDelay(x)
	case *format.QueuePushSet:
		err = d.takePush(x)
	default:
		return false, nil
	}
	return true, err
}

func soundQueue(x *format.QueueSet) bool {
	c := x.Config
	return x.Name != "" && len(x.Name) <= QueueNameBytesMax && len(c.DeadLetterTopic) <= QueueNameBytesMax &&
		c.LeaseMS > 0 && c.LeaseMS <= QueueMSMax && c.Attempts > 0 &&
		c.BackoffMinMS >= 0 && c.BackoffMaxMS >= c.BackoffMinMS && c.BackoffMaxMS <= QueueMSMax
}

func (d *Draft) takeQueue(x *format.QueueSet) error {
	if !soundQueue(x) {
		return fmt.Errorf("%w: queue %q of topic %d can't have the config %+v", ErrNonsense, x.Name, x.Topic, x.Config)
	}
	if q := d.queue(x.ID); q != nil {
		if q.topic != x.Topic || q.name != x.Name {
			return fmt.Errorf("%w: queue %d is %q of topic %d, not %q of topic %d", ErrNonsense, x.ID, q.name, q.topic, x.Name, x.Topic)
		}
		q.config = x.Config
		return nil
	}
	if d.topic(x.Topic) == nil {
		return fmt.Errorf("%w: there is no topic %d for queue %q", ErrNonsense, x.Topic, x.Name)
	}
	return d.queues.create(x.ID, scopedName{x.Topic, x.Name}, &draftQueue{topic: x.Topic, name: x.Name, config: x.Config})
}

func (d *Draft) takeQueueDeletion(x *format.QueueDeleted) error {
	if d.queue(x.ID) == nil {
		return fmt.Errorf("%w: queue %d can't be deleted, since it does not exist", ErrNonsense, x.ID)
	}
	d.queues.drop(x.ID)
	return nil
}

func (d *Draft) takeOwner(x *format.QueueOwned) error {
	q := d.queue(x.Queue)
	if q == nil || x.Epoch == 0 || x.Epoch-1 != q.epoch || len(x.Windows) > int(d.topic(q.topic).partitions) || len(x.Address) > AddressBytesMax {
		return fmt.Errorf("%w: queue %d can't be owned with epoch %d", ErrNonsense, x.Queue, x.Epoch)
	}
	for _, window := range x.Windows {
		if window < 0 {
			return fmt.Errorf("%w: queue %d can't have a dispatch limit of %d", ErrNonsense, x.Queue, window)
		}
	}
	for n := range format.Partition(d.topic(q.topic).partitions) {
		p := d.queuePartition(q, n)
		end, _ := d.End(q.topic, n)
		p.uncertainEnd, p.dispatchLimit = max(p.uncertainEnd, min(p.dispatchLimit, end)), 0
		if int(n) < len(x.Windows) {
			p.dispatchLimit = x.Windows[n]
		}
	}
	q.epoch, q.owned = x.Epoch, true
	return nil
}

func (d *Draft) takeRelease(x *format.QueueReleased) error {
	q, err := d.ownedQueue(x.Queue, x.Epoch)
	if err != nil {
		return err
	}
	for n := range format.Partition(d.topic(q.topic).partitions) {
		d.queuePartition(q, n).dispatchLimit = 0
	}
	q.owned = false
	return nil
}

func (d *Draft) takeDispatchLimit(x *format.WindowMoved) error {
	if _, err := d.ownedQueue(x.Queue, x.Epoch); err != nil {
		return err
	}
	p, _, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	if x.Window < 0 {
		return fmt.Errorf("%w: queue %d can't have a dispatch limit of %d", ErrNonsense, x.Queue, x.Window)
	}
	p.dispatchLimit = x.Window
	return nil
}

func (d *Draft) takeAttempts(x *format.RecordsAttempted) error {
	if _, err := d.ownedQueue(x.Queue, x.Epoch); err != nil {
		return err
	}
	p, end, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	last := format.Offset(-1)
	for _, a := range x.Attempts {
		before, sure := p.attempt(a.Offset)
		if a.Offset <= last || a.Offset >= end || p.isDone(a.Offset) || !isNext(before, sure, a.Number) {
			return fmt.Errorf("%w: attempt %d of offset %d in queue %d, partition %d, can't be the next attempt", ErrNonsense, a.Number, a.Offset, x.Queue, x.Partition)
		}
		p.set(a.Offset, Attempt{Number: a.Number, Redriven: before.Redriven})
		last = a.Offset
	}
	return someOf(len(x.Attempts), x.Queue)
}

// someOf refuses an entry whose list is empty.
func someOf(n int, queue format.QueueID) error {
	if n == 0 {
		return fmt.Errorf("%w: an entry for queue %d names no records", ErrNonsense, queue)
	}
	return nil
}

func (d *Draft) takeDone(x *format.RecordsDone) error {
	p, end, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	var last format.Offset
	for _, r := range x.Runs {
		if r.Offset < last || r.Count == 0 || int64(r.Count) > int64(end-r.Offset) {
			return fmt.Errorf("%w: queue %d can't mark %d records from offset %d on as done: their offsets must be at least %d and below %d", ErrNonsense, x.Queue, r.Count, r.Offset, last, end)
		}
		for last = r.Offset; last < r.End(); last++ {
			if a, sure := p.attempt(last); p.isDone(last) || !isLast(a, sure, r.Number) {
				return fmt.Errorf("%w: attempt %d of offset %d in queue %d is not the latest attempt, or the record is done or a dead letter", ErrNonsense, r.Number, last, x.Queue)
			}
			p.didBy(last, r.Number)
		}
		p.done.add(r.Offset, r.End())
	}
	return someOf(len(x.Runs), x.Queue)
}

func (d *Draft) takePutBack(x *format.RecordPutBack) error {
	p, end, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	a, sure := p.attempt(x.Offset)
	if x.Offset < 0 || x.Offset >= end || p.isDone(x.Offset) || !isLast(a, sure, x.Number) || x.NotBefore < 0 || len(x.Reason) > ReasonBytesMax {
		return fmt.Errorf("%w: queue %d can't put back the record at offset %d of partition %d after attempt %d: there is no such record, it is done, or that attempt is not its latest one",
			ErrNonsense, x.Queue, x.Offset, x.Partition, x.Number)
	}
	p.set(x.Offset, a.putBack(x))
	return nil
}

func (d *Draft) takeRedriven(x *format.RecordsRedriven) error {
	p, _, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	last := format.Offset(-1)
	for _, o := range x.Offsets {
		a, _ := p.attempt(o)
		if o <= last || p.isDone(o) || !a.DeadLetter {
			return fmt.Errorf("%w: offset %d in queue %d is not a dead letter", ErrNonsense, o, x.Queue)
		}
		p.set(o, a.redriven())
		last = o
	}
	return someOf(len(x.Offsets), x.Queue)
}

func (d *Draft) takePurge(x *format.QueuePurged) error {
	p, end, err := d.workedOn(x.Queue, x.Partition)
	if err != nil {
		return err
	}
	if x.Before < 0 || x.Before > end {
		return fmt.Errorf("%w: the purge of queue %d removes the records below offset %d, but the partition ends at %d", ErrNonsense, x.Queue, x.Before, end)
	}
	p.done.raise(x.Before)
	return nil
}
