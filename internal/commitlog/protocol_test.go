package commitlog

import (
	"encoding/binary"
	"errors"
	"github.com/simple-event-broker/seb/internal/format"
	"testing"
	"time"
)

const (
	testDelay  = 24 * time.Hour // D
	testMargin = time.Hour
	testSpan   = testDelay - testMargin // how long a lease lasts
)

var testEpoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// after is the stamp of an answer that long after testEpoch, by both clocks.
func after(d time.Duration) Stamp { return Stamp{Store: testEpoch.Add(d), Boot: d} }

// slotHash is the hash of slot s in the log of the scenarios.
func slotHash(s format.Seq) (h format.Hash) {
	if s != 0 {
		binary.LittleEndian.PutUint64(h[:], uint64(s))
		h[31] = 1
	}
	return h
}

// scenario is a Protocol and the time of the next answers.
type scenario struct {
	*testing.T
	Protocol
	now time.Duration
}

// begin returns the protocol of a broker that has recovered slots 1 to applied, from a
// checkpoint unless applied is 0. Its lease begins at testEpoch.
func begin(t *testing.T, applied format.Seq) *scenario {
	t.Helper()
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.expect(DoList, 0)
	s.list(Listing{Checkpoint: applied, From: applied})
	if applied > 0 {
		s.expect(DoLoad, applied)
		s.Loaded(applied, slotHash(applied))
	}
	s.expect(Idle, 0)
	if !s.Settled() {
		t.Fatal("recovery found the end of the log, and the protocol is not settled")
	}
	return s
}

// expect asserts the next step, without To of a Get.
func (s *scenario) expect(do Do, seq format.Seq) Action {
	s.Helper()
	got := s.Next(s.now)
	if got.Do != do || got.Seq != seq {
		s.Fatalf("wants %+v, not {Do:%d Seq:%d}; err: %v", got, do, seq, s.Err())
	}
	return got
}

// halted asserts that the protocol has halted, and why.
func (s *scenario) halted(want error) {
	s.Helper()
	for range 2 {
		s.expect(Halt, 0)
	}
	if !errors.Is(s.Err(), want) {
		s.Fatalf("halted because of %v, not %v", s.Err(), want)
	}
}

// list answers a List at s.now; it sets stamps that are zero.
func (s *scenario) list(l Listing) {
	if l.At == (Stamp{}) {
		l.At = after(s.now)
	}
	if l.LogAt == (Stamp{}) {
		l.LogAt = l.At
	}
	s.Listed(l)
}

func (s *scenario) found(seq format.Seq, at Stamp) {
	s.Answered(Answer{Seq: seq, Found: true, Hash: slotHash(seq), Prev: slotHash(seq - 1), At: at, Known: s.Known()})
}

func (s *scenario) missing404(seq format.Seq, at Stamp) {
	s.Answered(Answer{Seq: seq, At: at, Known: s.Known()})
}

// apply expects DoApply for a slot, and says that it was applied.
func (s *scenario) apply(seq format.Seq) (own bool) {
	s.Helper()
	s.expect(DoApply, seq)
	return s.Applied()
}

func TestLeaseCoversStrictlyLess(t *testing.T) {
	const never = -1
	for _, c := range []struct {
		name  string
		store time.Duration // store time of the answer, counted from that of the List
		boot  time.Duration
		want  bool
	}{
		{"just before its end", testSpan - 1, testSpan - 1, true},
		{"at its end by the store's clock", testSpan, testSpan - 1, false},
		{"at its end by the local clock", testSpan - 1, testSpan, false},
		{"at its end by both", testSpan, testSpan, false},
		{"a little before the List, as another front end says", -testMargin / 4, 0, true},
		{"more than a quarter of the margin before the List", -testMargin/4 - 1, 0, false},
		{"without a date", never, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t, 3)
			at := Stamp{Store: testEpoch.Add(c.store), Boot: c.boot}
			if c.store == never {
				at.Store = time.Time{}
			}
			if got := s.Covers(at); got != c.want {
				t.Fatalf("covers: %v", got)
			}
			s.found(4, at)
			if c.want {
				s.expect(DoApply, 4)
			} else {
				s.expect(DoList, 3)
			}
		})
	}
}

func TestNothingIsCoveredBeforeTheFirstList(t *testing.T) {
	p := NewProtocol(testDelay, testMargin)
	if p.Covers(after(0)) {
		t.Fatal("covers without a List")
	}
}

func TestAnswerThatIsNotCoveredIsUsedAfterAList(t *testing.T) {
	for _, dateless := range []bool{false, true} {
		s := begin(t, 3)
		s.now = testSpan
		at := after(s.now)
		if dateless {
			at.Store = time.Time{}
		}
		s.found(4, at)
		s.expect(DoList, 3)
		s.list(Listing{From: 3, First: 3, Last: 4})
		s.apply(4)
	}
}

func TestListWithoutADateChangesNothing(t *testing.T) {
	s := begin(t, 3)
	s.now = testSpan
	s.found(4, after(s.now))
	s.expect(DoList, 3)
	s.Listed(Listing{At: Stamp{Boot: s.now}, From: 3, First: 3, Last: 4})
	s.expect(DoList, 3)
}

// If the store's time fell by more than a quarter of the margin, an answer counts only after a
// List.
func TestClockThatFellByMoreThanAQuarterOfTheMarginEndsTheLease(t *testing.T) {
	s := begin(t, 3)
	s.found(4, after(5*time.Hour))
	s.apply(4)
	s.found(5, after(5*time.Hour-testMargin/4))
	s.apply(5)
	s.found(6, after(5*time.Hour-testMargin/4-1))
	s.expect(DoList, 5)
	s.list(Listing{At: after(4 * time.Hour), From: 5, First: 5, Last: 6})
	s.apply(6)
	s.found(7, after(4*time.Hour)) // covered by the lease of the new List
	s.apply(7)
}

func TestClockThatFellByMoreThanTheMarginHalts(t *testing.T) {
	fell := after(5*time.Hour - testMargin - 1)
	for name, answer := range map[string]func(s *scenario){
		"Get found": func(s *scenario) { s.found(5, fell) },
		"Get 404":   func(s *scenario) { s.missing404(5, fell) },
		"Exists":    func(s *scenario) { s.Exists(5, fell) },
		"Created":   func(s *scenario) { s.Created(5, slotHash(99), fell) },
		"List":      func(s *scenario) { s.list(Listing{At: fell, From: 4, First: 4, Last: 4}) },
		"second List": func(s *scenario) {
			s.list(Listing{At: after(5 * time.Hour), From: 4, First: 4, Last: 4, LogAt: fell})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, 3)
			s.found(4, after(5*time.Hour))
			s.apply(4)
			answer(s)
			s.halted(ErrClock)
		})
	}
	s := begin(t, 3)
	s.found(4, after(5*time.Hour))
	s.apply(4)
	s.Exists(5, after(5*time.Hour-testMargin)) // a fall by exactly the margin
	s.expect(DoGet, 5)
}

func TestSyncEndsAtACovered404(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.expect(DoGet, 4)
	s.missing404(4, after(testSpan-1))
	s.expect(Tail, 3)
	s.expect(Idle, 0)
}

func Test404IsTheEndOnlyUnderTheLease(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.now = testDelay/2 - 1
	s.expect(DoGet, 4)
	s.now = testSpan
	s.missing404(4, after(s.now))
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 9, From: 9})
	s.expect(DoLoad, 9) // slot 4 existed and was deleted, so the 404 is no loss
	s.Loaded(9, slotHash(9))
	s.expect(DoGet, 10)
	s.missing404(10, after(s.now))
	s.expect(Tail, 9)
}

func Test404FromBeforeTheEvidenceIsAskedAgain(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.expect(DoGet, 4)
	early := Answer{Seq: 4, At: after(1), Known: s.Known()}
	s.found(5, after(1)) // both slots were written after the store had answered the Get of slot 4
	s.Answered(early)
	s.expect(DoGet, 4)
	s.found(4, after(2))
	s.apply(4)
	s.apply(5)
}

func Test404AfterTheEvidenceIsLoss(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.found(5, after(1))
	s.expect(DoGet, 4)
	s.missing404(4, after(2))
	s.halted(ErrLoss)
}

func Test404AfterTheEvidenceIsNoLossWithoutTheLease(t *testing.T) {
	s := begin(t, 3)
	s.Exists(5, after(1))
	s.expect(DoGet, 4)
	s.missing404(4, after(testSpan))
	s.expect(DoList, 3)
	s.list(Listing{At: after(testSpan), Checkpoint: 5, From: 5})
	s.expect(DoLoad, 5)
	s.Loaded(5, slotHash(5))
	s.expect(Idle, 0)

	s = begin(t, 3) // but if the List shows no checkpoint, it is a loss
	s.Exists(5, after(1))
	s.missing404(4, after(testSpan))
	s.expect(DoList, 3)
	s.list(Listing{At: after(testSpan), From: 3, First: 3, Last: 5})
	s.halted(ErrLoss)
}

func Test404AheadOfTheNextSlotIsAskedAgain(t *testing.T) {
	s := begin(t, 3)
	s.Exists(5, after(1))
	s.missing404(5, after(1))
	s.found(4, after(1))
	s.apply(4)
	s.expect(DoGet, 5)
	s.found(5, after(2))
	s.apply(5)
}

func Test404AfterExistsDecidesNothing(t *testing.T) {
	s := begin(t, 3)
	own := format.Hash{1}
	s.Propose(own)
	s.expect(DoCreate, 4)
	s.Exists(4, after(1))
	s.expect(DoGet, 4)
	s.missing404(4, after(1))
	s.expect(Tail, 3)
	s.expect(DoCreate, 4)
	if c := s.Claim(); c != (Claim{Seq: 4, Hash: own, Sent: true}) {
		t.Fatalf("the claim is %+v", c)
	}
	s.Created(4, own, after(2))
	if !s.apply(4) {
		t.Fatal("the claim's success is not its own")
	}
}

func TestForkIsDeclaredOnlyUnderTheLease(t *testing.T) {
	other := Answer{Seq: 4, Found: true, Hash: format.Hash{7}, Prev: format.Hash{9}}

	s := begin(t, 3)
	other.At = after(testSpan - 1)
	s.Answered(other)
	s.halted(ErrFork)

	s = begin(t, 3)
	other.At = after(testSpan)
	s.Answered(other)
	s.expect(DoList, 3)
	s.list(Listing{At: after(testSpan), Checkpoint: 8, From: 8})
	s.expect(DoLoad, 8) // the answer was a ghost in a deleted slot
	s.Loaded(8, slotHash(8))
	s.expect(Idle, 0)

	s = begin(t, 3)
	s.Answered(other)
	s.expect(DoList, 3)
	s.list(Listing{At: after(testSpan), From: 3, First: 3, Last: 4})
	s.halted(ErrFork)
}

func TestForkAgainstACheckpointsHash(t *testing.T) {
	s := begin(t, 3)
	s.Answered(Answer{Seq: 4, Found: true, Hash: slotHash(4), Prev: slotHash(2), At: after(1)})
	s.halted(ErrFork)
}

func TestBucketThatWasRolledBackHalts(t *testing.T) {
	for _, c := range []struct {
		name string
		l    Listing
		want bool
	}{
		{"nothing left", Listing{From: 4}, true},
		{"only later slots left", Listing{From: 4, First: 5, Last: 6}, true},
		{"the applied slot is there", Listing{From: 4, First: 4, Last: 4}, false},
		{"a checkpoint stands for it", Listing{From: 4, Checkpoint: 4}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t, 3)
			s.found(4, after(1))
			s.apply(4)
			s.Relist()
			s.expect(DoList, 4)
			s.now = time.Minute
			s.list(c.l)
			if c.want {
				s.halted(ErrRolledBack)
			} else {
				s.expect(Idle, 0)
			}
		})
	}
}

func TestTwoListsTooFarApartAreNotHeldTogether(t *testing.T) {
	for name, logAt := range map[string]Stamp{
		"by the store's clock":       {Store: testEpoch.Add(testSpan), Boot: 1},
		"by the local clock":         {Store: testEpoch.Add(1), Boot: testSpan},
		"without a date, who knows":  {Boot: 1},
		"in time, but said too late": after(testSpan),
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, 3)
			s.found(4, after(1))
			s.apply(4)
			s.Relist()
			s.Listed(Listing{At: after(0), From: 4, LogAt: logAt}) // the Lists are too far apart to show a rollback
			s.expect(DoList, 4)
			s.list(Listing{At: after(testSpan), From: 4, First: 4, Last: 4})
			s.expect(Idle, 0)
		})
	}
}

func TestClaimRenewsTheLeaseAtHalfOfTheDelay(t *testing.T) {
	for _, look := range []bool{false, true} {
		s := begin(t, 3)
		if look {
			s.Sync()
		} else {
			s.Propose(format.Hash{1})
		}
		s.now = testDelay / 2
		s.expect(DoList, 3)
		if s.Claim().Sent {
			t.Fatal("the claim counts as sent before its Create")
		}
		s.list(Listing{From: 3, First: 3, Last: 3})
		if look {
			s.expect(DoGet, 4)
		} else {
			s.expect(DoCreate, 4)
		}
	}
	s := begin(t, 3)
	s.Propose(format.Hash{1})
	s.now = testDelay/2 - 1
	s.expect(DoCreate, 4)
	s = begin(t, 3)
	s.now = 100 * testDelay
	s.expect(Idle, 0) // an idle broker sends nothing
}
