package dispatch

import (
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/leases"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/state"
)

// sentClaimKind is the kind of a claim in the bytes between brokers: see change.Decode.
const sentClaimKind = 6

// sentClaim is a [claim] that another broker makes for the owner: what the owner knows of the records is in it.
type sentClaim struct {
	queue   format.QueueID
	epoch   format.Epoch
	records []sentRecord
}

type sentRecord struct {
	last      leases.Delivery
	notBefore int64 // until which time of the log the record waits, by the state of the owner
}

// Encode implements engine.Sendable.
func (x claim) Encode(w *pack.Writer) {
	d := x.d
	w.U16(sentClaimKind)
	w.U64(uint64(d.queue))
	w.U64(uint64(d.epoch))
	d.mu.Lock()
	defer d.mu.Unlock()
	var still []leases.Delivery
	for _, last := range x.last {
		if d.table.Claiming(last) {
			still = append(still, last)
		}
	}
	w.Count(len(still))
	for _, last := range still {
		w.U32(uint32(last.Partition))
		w.I64(int64(last.Offset))
		w.U32(last.Attempt)
		w.I64(d.notBefore(last.Place))
	}
}

// DecodeClaim reads the record claims of another broker, without the kind.
func DecodeClaim(r *pack.Reader) interface {
	Apply(dr *state.Draft) ([]format.Entry, error)
} {
	x := sentClaim{queue: format.QueueID(r.U64()), epoch: format.Epoch(r.U64())}
	for range r.Count(24) {
		at := leases.Place{Partition: format.Partition(r.U32()), Offset: format.Offset(r.I64())}
		one := sentRecord{last: leases.Delivery{Place: at, Attempt: r.U32()}, notBefore: r.I64()}
		if n := len(x.records); at.Partition < 0 || at.Offset < 0 || n > 0 && x.records[n-1].last.Compare(at) >= 0 {
			r.Fail("claims of records are negative or out of order")
		}
		x.records = append(x.records, one)
	}
	return x
}

// Apply implements Change.
func (x sentClaim) Apply(dr *state.Draft) (entries []format.Entry, _ error) {
	if err := CheckOwner(dr, x.queue, x.epoch); err != nil {
		return nil, err
	}
	var of *format.RecordsAttempted
	for _, one := range x.records {
		last, p := one.last, one.last.Partition
		done, a, sure := dr.RecordState(x.queue, p, last.Offset)
		if done || a.DeadLetter || sure && a.Number != last.Attempt || a.NotBefore != one.notBefore {
			continue
		}
		if of == nil || of.Partition != p {
			of = &format.RecordsAttempted{Queue: x.queue, Epoch: x.epoch, Partition: p}
			entries = append(entries, of)
		}
		of.Attempts = append(of.Attempts, format.Attempt{Offset: last.Offset, Number: last.Attempt + 1})
	}
	return entries, nil
}
