package leases

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb/internal/format"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func numbers(ds []Delivery) string {
	s := make([]string, len(ds))
	for i, d := range ds {
		s[i] = fmt.Sprintf("%d#%d", d.Offset, d.Attempt)
	}
	return fmt.Sprint(s)
}

func want(t *testing.T, got Taken, out, claims string) {
	t.Helper()
	if numbers(got.Out) != out || numbers(got.Claims) != claims {
		t.Fatalf("got %s, to claim %s; want %s, to claim %s", numbers(got.Out), numbers(got.Claims), out, claims)
	}
}

func TestFreshAndRetriedRecordsGetHalfEach(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		table := New(ordered)
		for o := range format.Offset(20) {
			table.Add(Place{0, o}, NoKey)
			table.AddAgain(Delivery{Place{1, o}, 1}, NoKey, at(0))
		}
		want(t, table.Take(at(1), at(9), 4, 4, nil), "[0#1 1#1 2#1 3#1]", "[0#1 1#1]")
		for o := range format.Offset(2) {
			table.Claimed(Delivery{Place{1, o}, 2})
		}
		want(t, table.Take(at(1), at(9), 4, 4, nil), "[0#2 1#2 4#1 5#1]", "[]")
	}
}

func TestOneAtATimeTakesTurns(t *testing.T) {
	table := New(false)
	for o := range format.Offset(4) {
		table.Add(Place{0, o}, NoKey)
		table.AddDelayed(Place{0, 100 + o}, NoKey, at(0))
	}
	var got []Delivery
	for range 8 {
		got = append(got, table.Take(at(1), at(9), 1, 1, nil).Out...)
	}
	if numbers(got) != "[0#1 100#1 1#1 101#1 2#1 102#1 3#1 103#1]" {
		t.Fatal(numbers(got))
	}
}

func TestRecordsOfAKeyGoOutOneByOneInOrder(t *testing.T) {
	table := New(true)
	for o := range format.Offset(6) {
		table.Add(Place{0, o}, uint64(1+o%2))
	}
	want(t, table.Take(at(0), at(9), 9, 9, nil), "[0#1 1#1]", "[]")
	table.Remove(Place{0, 1})
	want(t, table.Take(at(0), at(9), 9, 9, nil), "[3#1]", "[]")
	table.PutBack(Delivery{Place{0, 0}, 1}, at(5))
	want(t, table.Take(at(4), at(9), 9, 9, nil), "[]", "[]") // 2 and 4 wait behind 0
	want(t, table.Take(at(5), at(9), 9, 9, nil), "[]", "[0#1]")
	table.Claimed(Delivery{Place{0, 0}, 2})
	want(t, table.Take(at(5), at(20), 9, 9, nil), "[0#2]", "[]")
	table.Remove(Place{0, 0})
	want(t, table.Take(at(5), at(20), 9, 9, nil), "[2#1]", "[]")
	table.RemoveBelow(0, 6)
	if table.Len() != 0 || table.Blocked() != 0 || len(table.keys) != 0 {
		t.Fatalf("%d known, %d blocked, %d keys", table.Len(), table.Blocked(), len(table.keys))
	}
}

// model is what a table must do, for each record.
type model struct {
	t       *rapid.T
	table   *Table
	ordered bool
	now     int
	keys    map[Place]uint64
	order   []Place            // the known records, in the order in which they were added
	last    map[Place]uint32   // attempt of the last delivery that was handed out or failed
	until   map[Place]int      // end of the lease of the last delivery
	free    map[Place]int      // earliest time of the next delivery
	first   map[Place]bool     // records that may be handed out without a claim
	claims  map[Place]Delivery // claims under way
	covered map[Place]uint32   // attempts that are in the log, and not handed out
	holders map[Place]*Holder  // holders of the last deliveries
	worker  *Holder            // the one holder of this test
}

func (m *model) take() {
	most := rapid.IntRange(1, 5).Draw(m.t, "most")
	var to *Holder
	if rapid.Bool().Draw(m.t, "counts") {
		to = m.worker
	}
	claims := rapid.IntRange(0, 5).Draw(m.t, "claims")
	got := m.table.Take(at(m.now), at(m.now+3), most, claims, to)
	if len(got.Out)+len(got.Claims) > 2*most || len(got.Out) > most || len(got.Claims) > claims {
		m.t.Fatalf("%d of %d, and %d claims", len(got.Out), most, len(got.Claims))
	}
	for _, d := range got.Out {
		m.mayGo(d.Place)
		switch {
		case m.first[d.Place] && d.Attempt == 1:
		case m.covered[d.Place] == d.Attempt:
		default:
			m.t.Fatalf("%v is handed out; first: %v, claimed: %d", d, m.first[d.Place], m.covered[d.Place])
		}
		delete(m.first, d.Place)
		delete(m.covered, d.Place)
		m.last[d.Place], m.until[d.Place], m.holders[d.Place] = d.Attempt, m.now+3, to
	}
	for _, d := range got.Claims {
		m.mayGo(d.Place)
		if m.first[d.Place] || d.Attempt != m.last[d.Place] {
			m.t.Fatalf("%v is to be claimed after %d", d, m.last[d.Place])
		}
		m.claims[d.Place] = d
	}
	out := 0
	for p, until := range m.until {
		if until > m.now && m.holders[p] != nil {
			out++
		}
	}
	if m.worker.Out() != out {
		m.t.Fatalf("the worker is said to have %d, and has %d", m.worker.Out(), out)
	}
}

// mayGo fails unless a record may be handed out now.
func (m *model) mayGo(p Place) {
	key, known := m.keys[p]
	if _, claiming := m.claims[p]; !known || claiming || m.free[p] > m.now || m.until[p] > m.now {
		m.t.Fatalf("%v: known %v, claiming %v, free from %d, leased to %d, now %d", p, known, claiming, m.free[p], m.until[p], m.now)
	}
	for _, o := range m.order {
		if m.ordered && key != NoKey && o != p && m.keys[o] == key {
			m.t.Fatalf("%v goes before %v of its key", p, o)
		}
		if o == p {
			break
		}
	}
}

func (m *model) forget(p Place) {
	for i, o := range m.order {
		if o == p {
			m.order = append(m.order[:i:i], m.order[i+1:]...)
			break
		}
	}
	delete(m.keys, p)
	for _, of := range []map[Place]uint32{m.last, m.covered} {
		delete(of, p)
	}
	delete(m.until, p)
	delete(m.free, p)
	delete(m.first, p)
	delete(m.claims, p)
}

func (m *model) add(offset format.Offset) {
	p := Place{0, offset}
	m.keys[p] = rapid.Uint64Range(0, 2).Draw(m.t, "key")
	m.order = append(m.order, p)
	from := m.now + rapid.IntRange(0, 4).Draw(m.t, "from")
	switch rapid.IntRange(0, 2).Draw(m.t, "kind") {
	case 0:
		m.first[p] = true
		m.table.Add(p, m.keys[p])
	case 1:
		m.first[p], m.free[p] = true, from
		m.table.AddDelayed(p, m.keys[p], at(from))
	case 2:
		m.last[p], m.free[p] = 1, from
		m.table.AddAgain(Delivery{p, 1}, m.keys[p], at(from))
	}
}

func (m *model) step(offset int64) {
	var p Place
	if len(m.order) > 0 {
		p = m.order[rapid.IntRange(0, len(m.order)-1).Draw(m.t, "place")]
	}
	d := Delivery{p, m.last[p]}
	_, claiming := m.claims[p]
	switch rapid.IntRange(0, 8).Draw(m.t, "what") {
	case 0, 1:
		m.add(format.Offset(offset))
	case 2, 3:
		m.take()
	case 4:
		m.now += rapid.IntRange(1, 4).Draw(m.t, "seconds")
	case 5: // the record is done
		m.table.Remove(p)
		m.forget(p)
	case 6: // a delivery fails
		if d.Attempt > 0 && m.covered[p] == 0 && !claiming && !m.first[p] && m.until[p] > 0 {
			m.free[p], m.until[p] = m.now+2, 0
			m.table.PutBack(d, at(m.now+2))
		}
	case 7: // a claim ends
		if claiming {
			delete(m.claims, p)
			if rapid.Bool().Draw(m.t, "durable") {
				m.covered[p] = d.Attempt + 1
				m.table.Claimed(Delivery{p, d.Attempt + 1})
			} else {
				m.free[p] = m.now + 1
				m.table.Unclaimed(p, at(m.now+1), rapid.Bool().Draw(m.t, "may"))
			}
		}
	case 8:
		if m.until[p] > m.now && m.table.Extend(d, at(m.now+5)) {
			m.until[p] = m.now + 5
		} else if m.until[p] > m.now {
			m.t.Fatalf("the lease of %v, to %d, can't be extended at %d", d, m.until[p], m.now)
		}
	}
}

func TestTableHandsOutAsItsModelAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ordered := rapid.Bool().Draw(t, "ordered")
		m := &model{
			t: t, table: New(ordered), ordered: ordered, keys: map[Place]uint64{}, last: map[Place]uint32{}, until: map[Place]int{},
			free: map[Place]int{}, first: map[Place]bool{}, claims: map[Place]Delivery{}, covered: map[Place]uint32{},
			holders: map[Place]*Holder{}, worker: &Holder{Freed: func() {}},
		}
		for offset := range rapid.Int64Range(1, 80).Draw(t, "steps") {
			m.step(offset)
		}
		m.drain()
	})
}

// drain fails unless all known records can be done.
func (m *model) drain() {
	for range 1000 {
		for p := range m.claims {
			delete(m.claims, p)
			m.covered[p] = m.last[p] + 1
			m.table.Claimed(Delivery{p, m.last[p] + 1})
		}
		m.take()
		for _, p := range append([]Place(nil), m.order...) {
			if m.until[p] > m.now {
				m.table.Remove(p)
				m.forget(p)
			}
		}
		if m.now++; len(m.order) == 0 {
			break
		}
	}
	if len(m.order) > 0 || m.table.Len() > 0 || m.table.Blocked() != 0 || m.table.Fresh() != 0 || len(m.table.keys) != 0 {
		m.t.Fatalf("left: %v; %d known, %d blocked, %d fresh, %d keys", m.order, m.table.Len(), m.table.Blocked(), m.table.Fresh(), len(m.table.keys))
	}
}
