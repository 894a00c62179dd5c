package change

import (
	"slices"

	"github.com/simple-event-broker/seb/internal/dispatch"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/state"
)

// DeadLetter turns a record whose last attempt failed into a dead letter.
type DeadLetter struct {
	QueueName
	QueueID format.QueueID
	Last    leases.Delivery
	Reason  string
	// Epoch is not 0 if the worker did not answer: then only the queue's owner with that epoch may
	// commit the change. Epoch is 0 if the worker put the record back: then any broker may commit the
	// change.
	Epoch format.Epoch
}

// Apply implements engine.Change. The error is dispatch.ErrNotOwner, or a refusal.
func (x DeadLetter) Apply(d *state.Draft) ([]format.Entry, error) {
	if x.Epoch > 0 {
		if err := dispatch.CheckOwner(d, x.QueueID, x.Epoch); err != nil {
			return nil, err
		}
	}
	if !d.QueueExists(x.QueueID) {
		return nil, QueueNotFound(x.Topic, x.Queue)
	}
	if !d.IsLast(x.QueueID, x.Last.Partition, x.Last.Offset, x.Last.Attempt) {
		return nil, refused(CodeLeaseLost, "", "delivery %d of offset %d is no longer the last delivery", x.Last.Attempt, x.Last.Offset)
	}
	return []format.Entry{&format.RecordPutBack{
		Queue: x.QueueID, Partition: x.Last.Partition, Attempt: format.Attempt{Offset: x.Last.Offset, Number: x.Last.Attempt},
		NotBefore: d.Time(), DeadLetter: true, Reason: x.Reason,
	}}, nil
}

// Redrive makes dead letters of a queue ready to be handed out again.
type Redrive struct {
	QueueName
	Places []leases.Place // the dead letters to redrive; if empty, all dead letters of the queue, up to Limit
	Limit  int
}

// Apply implements engine.Change.
func (x Redrive) Apply(d *state.Draft) (entries []format.Entry, _ error) {
	_, id, err := x.find(d)
	if err != nil {
		return nil, err
	}
	var in *format.RecordsRedriven
	for _, at := range x.deadLetters(d, id) {
		if in == nil || in.Partition != at.Partition {
			in = &format.RecordsRedriven{Queue: id, Partition: at.Partition}
			entries = append(entries, in)
		}
		in.Offsets = append(in.Offsets, at.Offset)
	}
	return entries, nil
}

// deadLetters returns the places of the dead letters to redrive, sorted.
func (x Redrive) deadLetters(d *state.Draft, id format.QueueID) (list []leases.Place) {
	if len(x.Places) == 0 {
		for _, at := range d.DeadLetters(id, x.Limit) {
			list = append(list, leases.Place{Partition: at.Partition, Offset: at.Offset})
		}
		return list
	}
	for _, at := range x.Places {
		if at.Partition < 0 || at.Offset < 0 {
			continue
		}
		if done, a, _ := d.RecordState(id, at.Partition, at.Offset); !done && a.DeadLetter {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, leases.Place.Compare)
	return slices.Compact(list)
}
