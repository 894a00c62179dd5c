package leases

import "slices"

// NoKey is the key hash of records that need no order: records without a key, and all records of a queue
// without order.
const NoKey = 0

// enter adds a record to the list of records with the same key. It returns true unless an earlier
// record of that list is still in the table: then the record is blocked. Records without a key are in
// no list.
func (t *Table) enter(e *entry) bool {
	if e.key == NoKey {
		return true
	}
	t.keys[e.key] = append(t.keys[e.key], e.Place)
	return len(t.keys[e.key]) == 1
}

// exit removes a record from the list of records with the same key. If the record was the first in the
// list, exit unblocks the next one.
func (t *Table) exit(e *entry) {
	places := t.keys[e.key]
	switch i := slices.Index(places, e.Place); {
	case i < 0: // the record has no key, or was not in the list
		return
	case len(places) == 1:
		delete(t.keys, e.key)
		return
	case i == 0:
		t.keys[e.key] = places[1:]
		t.blocked--
		t.enqueue(t.entries[places[1]])
	default:
		t.keys[e.key] = slices.Delete(places, i, i+1)
	}
}
