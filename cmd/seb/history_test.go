package main

import (
	"sync"
	"testing"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/client"
)

// stored is a record as a client read it.
type stored struct {
	name string
	sum  uint64
}

// history has the record at each offset that any client has read, through any broker at any time.
type history struct {
	mu  sync.Mutex
	log [loadPartitions][]stored
}

func (h *history) end(partition int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.log[partition])
}

// saw notes the records of an answer, which must be those that other clients read at these offsets. It
// returns their number.
func (h *history) saw(t *testing.T, partition int, f client.Encoded) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at, value := range f.Each() {
		offset := int(at)
		r := stored{recordName(value), checksum(value)}
		log := h.log[partition]
		switch {
		case offset == len(log):
			h.log[partition] = append(log, r)
		case offset > len(log):
			t.Errorf("DenseOffsets: partition %d: offset %d comes after %d", partition, offset, len(log)-1)
		case log[offset] != r:
			t.Errorf("SlotAgreement: partition %d: offset %d holds %v; it held %v before, or through another broker",
				partition, offset, r, log[offset])
		}
	}
	return int(f.Next - f.First)
}

// index finds the records of one partition's log by name.
type index struct {
	partition int
	log       []stored
	at        map[string]int
	claimed   []bool // whether an appender knows the record
}

func newIndex(t *testing.T, partition int, log []stored) *index {
	x := &index{partition, log, make(map[string]int, len(log)), make([]bool, len(log))}
	for offset, r := range log {
		if before, ok := x.at[r.name]; ok {
			t.Errorf("AtMostOnce: partition %d: %s is at offsets %d and %d", partition, r.name, before, offset)
		}
		x.at[r.name] = offset
	}
	return x
}

// check compares the log with what an appender knows.
func (x *index) check(t *testing.T, a *appender, sum *tally) {
	last := -1
	for _, c := range a.calls {
		first, ok := x.at[c.names[0]]
		switch {
		case c.fate == seb.NotCommitted:
			sum.refused += len(c.names)
			x.absent(t, c, "NoPhantom: it was refused as not committed")
			continue
		case c.fate == seb.Unknown && !ok:
			sum.unknown += len(c.names)
			x.absent(t, c, "the first record of its append is not there")
			continue
		case c.fate == seb.Unknown:
			sum.unknown += len(c.names)
			sum.landed += len(c.names)
		case !ok || first != c.offset:
			t.Errorf("AckDurable: partition %d: %s was acknowledged at %d; it is at %d (found: %v)",
				x.partition, c.names[0], c.offset, first, ok)
			continue
		default:
			sum.acknowledged += len(c.names)
		}
		x.whole(t, c, first)
		if c.fate == seb.Unknown && a.loose {
			continue
		}
		if first <= last {
			t.Errorf("Order: partition %d: %s is at %d, though its appender's record before it is at %d",
				x.partition, c.names[0], first, last)
		}
		last = first
	}
}

// whole expects the records of a call one after the other, unchanged.
func (x *index) whole(t *testing.T, c call, first int) {
	for i, name := range c.names {
		offset := first + i
		if offset >= len(x.log) || x.log[offset] != (stored{name, c.sums[i]}) {
			t.Errorf("AckDurable: partition %d: %s is not at offset %d as it was sent (fate %q)", x.partition, name, offset, c.fate)
			continue
		}
		x.claimed[offset] = true
	}
}

func (x *index) absent(t *testing.T, c call, why string) {
	for _, name := range c.names {
		if offset, ok := x.at[name]; ok {
			t.Errorf("partition %d: %s is at offset %d: %s", x.partition, name, offset, why)
			x.claimed[offset] = true
		}
	}
}

// noPhantoms expects that an appender sent each record.
func (x *index) noPhantoms(t *testing.T) {
	for offset, r := range x.log {
		if !x.claimed[offset] {
			t.Errorf("NoPhantom: partition %d: nobody appended %v, which is at offset %d", x.partition, r, offset)
		}
	}
}
