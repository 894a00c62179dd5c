package commitlog

import (
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
)

// tell hands the protocol slot seq of the scenario's log.
func (s *scenario) tell(seq format.Seq, at Stamp) bool {
	s.Helper()
	return s.Told(seq, slotHash(seq), slotHash(seq-1), at)
}

// What another broker says is applied like the answer to a Get, but shows nothing: not that the slot exists, and not what
// time it is.
func TestToldIsNoEvidence(t *testing.T) {
	s := begin(t, 5)
	s.now = time.Hour
	if !s.tell(7, after(s.now)) || s.Known() != 5 {
		t.Fatalf("known is %d", s.Known())
	}
	s.expect(Idle, 0)
	if !s.tell(6, after(s.now)) || !s.CanApply() {
		t.Fatal("slot 6 can't be applied")
	}
	s.expect(DoApply, 6)
	s.Applied()
	s.expect(DoApply, 7)
	s.Applied()
	s.expect(Idle, 0)

	// A wild date does not halt the protocol, and neither do later answers with the right date.
	s.tell(8, Stamp{Store: testEpoch.Add(1000 * time.Hour), Boot: s.now})
	s.expect(Idle, 0)
	s.Sync()
	s.expect(DoGet, 8)
	s.Answered(Answer{Seq: 8, At: after(s.now), Known: 7})
	s.expect(Tail, 7)

	// A wrong hash of the previous commit does not, either.
	s.Told(8, slotHash(8), slotHash(1), after(s.now))
	s.expect(Idle, 0)
	if s.Held(8) || s.CanApply() {
		t.Fatal("the protocol keeps what does not fit")
	}
}

// The store's answer comes before what another broker says, whatever comes first.
func TestToldDoesNotReplaceAnAnswer(t *testing.T) {
	s := begin(t, 5)
	s.Answered(Answer{Seq: 6, Found: true, Hash: slotHash(6), Prev: slotHash(5), At: after(0)})
	if s.Told(6, slotHash(1), slotHash(5), after(0)) {
		t.Fatal("the protocol has taken a second answer")
	}
	s.expect(DoApply, 6)
	s.Applied()
	s.Told(7, slotHash(1), slotHash(6), after(0))
	s.Answered(Answer{Seq: 7, Found: true, Hash: slotHash(7), Prev: slotHash(6), At: after(0)})
	s.expect(DoApply, 7)
	s.Applied()
	if _, tip := s.Position(); tip != slotHash(7) {
		t.Fatalf("tip is %v", tip)
	}
}

// Another broker ends a claim that it has beaten, and never one that it says has won.
func TestToldDecidesOnlyAgainstAClaim(t *testing.T) {
	s := begin(t, 5)
	s.Propose(slotHash(6))
	s.expect(DoCreate, 6)
	if s.tell(6, after(0)) {
		t.Fatal("the protocol believes another broker about its own claim")
	}
	s.expect(DoCreate, 6)
	other := format.Hash{9}
	if !s.Told(6, other, slotHash(5), after(0)) {
		t.Fatal("not taken")
	}
	s.expect(DoApply, 6)
	if s.Applied() || s.Claim().Seq != 0 {
		t.Fatal("the claim is still open, or has won")
	}
	s.expect(Idle, 0) // and not a read of the end: who told this slot tells the next ones
	s.Created(6, slotHash(6), after(0))
	s.expect(Idle, 0)
}

// The next commit says that the claim has won, if it names the claim as the commit before it.
func TestToldConfirmsAClaim(t *testing.T) {
	for _, c := range []struct {
		sent bool
		prev format.Hash
		want bool
	}{{true, slotHash(6), true}, {true, format.Hash{9}, false}, {false, slotHash(6), false}} {
		s := begin(t, 5)
		s.Propose(slotHash(6))
		if c.sent {
			s.expect(DoCreate, 6)
		}
		if !s.Told(7, slotHash(7), c.prev, after(0)) {
			t.Fatal("not taken")
		}
		if !c.want {
			s.expect(DoCreate, 6)
			continue
		}
		s.expect(DoApply, 6)
		if !s.Applied() {
			t.Fatal("the claim has not won")
		}
		s.expect(DoApply, 7)
		s.Created(6, slotHash(6), after(0)) // the answer comes after all
		s.expect(DoApply, 7)
	}
}

// Before the recovery is complete, and after the lease has ended, a broker reads the log from the store alone.
func TestToldNeedsALease(t *testing.T) {
	fresh := NewProtocol(testDelay, testMargin)
	if fresh.Told(1, slotHash(1), slotHash(0), after(0)) {
		t.Fatal("a broker that has read nothing believes another broker")
	}
	s := begin(t, 5)
	s.tell(6, Stamp{Store: testEpoch, Boot: testSpan}) // the local clock says that the lease is over
	s.expect(Idle, 0)
	s.tell(6, Stamp{Store: testEpoch.Add(testSpan)}) // the date does
	s.expect(Idle, 0)
	s.tell(6, after(0))
	s.Relist()
	s.expect(DoList, 5)
	s.list(Listing{From: 5, First: 5, Last: 5})
	s.expect(Idle, 0)
	s.tell(6, after(0))
	s.expect(DoApply, 6)
}

// A read that has found the end of the log has also asked for slots after that end. Others may tell of these slots once they are
// written.
func TestOldAnswersDoNotKeepOthersFromTelling(t *testing.T) {
	s := begin(t, 5)
	s.Sync()
	s.expect(DoGet, 6)
	for seq := format.Seq(6); seq < 9; seq++ {
		s.Answered(Answer{Seq: seq, At: after(0), Known: 5})
	}
	s.expect(Tail, 5)
	for seq := format.Seq(6); seq < 10; seq++ {
		if !s.tell(seq, after(0)) {
			t.Fatalf("slot %d is not taken", seq)
		}
		s.expect(DoApply, seq)
		s.Applied()
	}
}

// A 404 that may show that the store has lost a slot stays, whatever others tell.
func TestToldDoesNotReplaceEvidenceOfLoss(t *testing.T) {
	s := begin(t, 5)
	s.Answered(Answer{Seq: 6, At: after(0), Known: 7})
	if s.tell(6, after(0)) {
		t.Fatal("the protocol has taken what another broker says")
	}
	if act := s.Next(0); act.Do != Halt {
		t.Fatalf("it goes on with %v", act)
	}
}
