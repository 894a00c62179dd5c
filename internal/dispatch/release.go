package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// Release refuses new takeovers, and waits until the takeovers under way have ended, or ctx has ended. Then
// it writes to the log which records of this broker's queues are with workers, so that the next owners
// know these records. It releases all queues at the same time, so that they share commits: there may be
// many queues and little time.
func (x *Dispatchers) Release(ctx context.Context) {
	x.endTakeovers(ctx)
	var releases sync.WaitGroup
	for _, d := range x.list() {
		releases.Go(func() { d.release(ctx) })
	}
	releases.Wait()
}

func (d *Dispatcher) release(ctx context.Context) {
	out := d.retire()
	err := d.all.b.Commit(ctx, Request{Change: release{d.queue, d.epoch, out}, Synced: true})
	if err != nil && !errors.Is(err, ErrNotOwner) {
		d.all.logger.Warn("could not release a queue: the next owner holds back for one lease the records that workers might have, and counts one attempt too many for those that no worker got",
			"topic", d.names.Topic, "queue", d.names.Queue, "err", err)
	}
}

// retire ends the dispatcher and returns the deliveries that are with workers.
func (d *Dispatcher) retire() (out []leases.Delivery) {
	d.all.drop(d.queue)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table.Delivered(func(x leases.Delivery) { out = append(out, x) })
	slices.SortFunc(out, byPlace)
	return out
}

// release is a change with which the owner gives a queue up.
type release struct {
	queue format.QueueID
	epoch format.Epoch
	out   []leases.Delivery // deliveries that are with workers, sorted
}

// Apply implements Change.
func (x release) Apply(dr *state.Draft) (entries []format.Entry, _ error) {
	if err := CheckOwner(dr, x.queue, x.epoch); err != nil {
		return nil, err
	}
	var of *format.RecordsAttempted
	for _, out := range x.out {
		p := out.Partition
		done, a, sure := dr.RecordState(x.queue, p, out.Offset)
		if done || sure || a.DeadLetter {
			continue // the log already has what the next owner needs
		}
		if of == nil || of.Partition != p {
			of = &format.RecordsAttempted{Queue: x.queue, Epoch: x.epoch, Partition: p}
			entries = append(entries, of)
		}
		of.Attempts = append(of.Attempts, format.Attempt{Offset: out.Offset, Number: out.Attempt})
	}
	return append(entries, &format.QueueReleased{Queue: x.queue, Epoch: x.epoch}), nil
}
