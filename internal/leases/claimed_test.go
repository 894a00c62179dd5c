package leases

import "testing"

// A claim of unknown outcome may get into the log at any time.
func TestClaimThatGetsIntoTheLogLate(t *testing.T) {
	table := New(false)
	last := Delivery{Place{0, 1}, 1}
	table.AddAgain(last, NoKey, at(0))
	want(t, table.Take(at(0), at(9), 1, 1, nil), "[]", "[1#1]")
	table.Unclaimed(last.Place, at(1), true)
	if table.Extend(last, at(9)) {
		t.Error("a worker keeps what the next one may have any time")
	}
	table.Claimed(Delivery{last.Place, 2})
	want(t, table.Take(at(0), at(9), 1, 1, nil), "[1#2]", "[]")
}

// An attempt that is in the log is handed out, even if the previous delivery has a lease.
func TestClaimedRecordIsHandedOutThoughItIsLeased(t *testing.T) {
	table := New(false)
	last := Delivery{Place{0, 1}, 1}
	table.AddAgain(last, NoKey, at(0))
	want(t, table.Take(at(0), at(9), 1, 1, nil), "[]", "[1#1]")
	table.Unclaimed(last.Place, at(1), false)
	if !table.Extend(last, at(9)) {
		t.Error("a worker whose record nobody else can have has lost it")
	}
	table.Claimed(Delivery{last.Place, 2})
	want(t, table.Take(at(0), at(9), 1, 1, nil), "[1#2]", "[]")
	table.Claimed(Delivery{last.Place, 2}) // told a second time
	want(t, table.Take(at(0), at(9), 1, 1, nil), "[]", "[]")
}
