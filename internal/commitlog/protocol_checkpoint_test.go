package commitlog

import (
	"github.com/simple-event-broker/seb/internal/format"
	"testing"
	"time"
)

func TestNewerCheckpointIsFollowedUnderTheOldLease(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.now = testDelay / 2
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 5, From: 5, First: 5, Last: 6})
	s.expect(DoGet, 4)
	for seq := range format.Seq(3) {
		s.found(4+seq, after(testSpan-1))
	}
	s.apply(4)
	if s.Covers(after(testSpan)) {
		t.Fatal("the new lease began before its checkpoint was reached")
	}
	s.apply(5)
	if !s.Covers(after(testDelay/2+testSpan-1)) || s.Covers(after(testDelay/2+testSpan)) {
		t.Fatal("the lease does not begin at the List that showed the checkpoint")
	}
	s.apply(6)
}

func TestNewerCheckpointIsLoadedOnceTheOldLeaseEnds(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.now = testDelay / 2
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 6, From: 6})
	s.found(4, after(testSpan-1))
	s.found(5, after(testSpan))
	s.apply(4)
	s.expect(DoLoad, 6)
	s.Loaded(6, slotHash(6))
	if seq, hash := s.Position(); seq != 6 || hash != slotHash(6) {
		t.Fatalf("at slot %d, %v", seq, hash)
	}
	s.expect(DoGet, 7)
}

func TestNewerCheckpointInAListAfterTheLeaseIsLoaded(t *testing.T) {
	s := begin(t, 3)
	s.Sync()
	s.now = testSpan
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 6, From: 6})
	s.expect(DoLoad, 6)
}

func TestMissingSlotOnTheWayToACheckpointIsLoss(t *testing.T) {
	for _, checkpoint := range []format.Seq{4, 6} {
		s := begin(t, 3)
		s.Sync()
		s.now = testDelay / 2
		s.expect(DoList, 3)
		s.list(Listing{Checkpoint: checkpoint, From: checkpoint})
		s.expect(DoGet, 4)
		s.missing404(4, after(testSpan-1))
		s.halted(ErrLoss)
	}
}

func TestAnswersAtOrBelowALoadedCheckpointAreVoid(t *testing.T) {
	s := begin(t, 3)
	s.now = testSpan
	s.Exists(7, after(testSpan)) // so that several slots are read
	for seq := format.Seq(4); seq <= 7; seq++ {
		a := Answer{Seq: seq, Found: true, Hash: format.Hash{byte(seq)}, Prev: format.Hash{byte(seq - 1)}, At: after(testSpan)}
		if seq == 7 {
			a.Prev = slotHash(6)
		}
		s.Answered(a) // the commits in slots 4 to 6 are ghosts
	}
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 6, From: 6, First: 7, Last: 7})
	s.expect(DoLoad, 6)
	s.Loaded(6, slotHash(6))
	if s.Held(4) || s.Held(6) || !s.Held(7) {
		t.Fatalf("holds answers of slot 4: %v, 6: %v, 7: %v", s.Held(4), s.Held(6), s.Held(7))
	}
	s.apply(7)
}

func TestSentClaimEndsUnknownAtALoad(t *testing.T) {
	s := begin(t, 3)
	own := format.Hash{1}
	s.Propose(own)
	s.expect(DoCreate, 4)
	s.now = testSpan
	s.Created(4, own, after(s.now)) // a success in a deleted slot
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 9, From: 9})
	s.expect(DoLoad, 9)
	if ended := s.Loaded(9, slotHash(9)); ended != (Claim{Seq: 4, Hash: own, Sent: true}) {
		t.Fatalf("ended %+v", ended)
	}
	s.expect(Idle, 0)

	s.Created(4, own, after(s.now)) // the same reply again, later
	s.expect(Idle, 0)
	if c := s.Claim(); c.Seq != 0 {
		t.Fatalf("the claim lives on: %+v", c)
	}
}

func TestClaimThatWasNeverSentJustEndsAtALoad(t *testing.T) {
	s := begin(t, 3)
	s.Propose(format.Hash{1})
	s.now = testSpan
	s.expect(DoList, 3)
	s.list(Listing{Checkpoint: 4, From: 4})
	s.expect(DoLoad, 4)
	if ended := s.Loaded(4, slotHash(4)); ended != (Claim{}) {
		t.Fatalf("ended %+v", ended)
	}
	s.Propose(format.Hash{2})
	s.expect(DoCreate, 5)
}

func TestLateSuccessOfAnOldClaimSaysNothingAboutANewOne(t *testing.T) {
	s := begin(t, 3)
	s.Propose(format.Hash{1})
	s.expect(DoCreate, 4)
	s.Exists(4, after(1))
	s.found(4, after(1))
	if s.apply(4) {
		t.Fatal("another's commit counts as own")
	}
	s.Propose(format.Hash{2})
	s.expect(DoCreate, 5)
	s.Created(4, format.Hash{1}, after(2))
	s.Created(5, format.Hash{1}, after(2))
	s.expect(DoCreate, 5)
}

func TestAbandonedClaimIsNeverSentAgain(t *testing.T) {
	s := begin(t, 3)
	s.Propose(format.Hash{1})
	if c := s.Abandon(); c.Sent || c.Seq != 4 {
		t.Fatalf("abandoned %+v", c)
	}
	s.expect(Idle, 0)

	s.Propose(format.Hash{2})
	s.expect(DoCreate, 4)
	if c := s.Abandon(); !c.Sent || c.Hash != (format.Hash{2}) {
		t.Fatalf("abandoned %+v", c)
	}
	s.expect(Idle, 0)
	s.Created(4, format.Hash{2}, after(1))
	s.expect(Idle, 0)
	s.Sync()
	s.expect(DoGet, 4)
	s.Answered(Answer{Seq: 4, Found: true, Hash: format.Hash{2}, Prev: slotHash(3), At: after(2)})
	if s.apply(4) {
		t.Fatal("an abandoned claim is won")
	}
}

func TestOwnCommitIsRecognisedAfterALostReply(t *testing.T) {
	s := begin(t, 3)
	own := slotHash(4)
	s.Propose(own)
	s.expect(DoCreate, 4)
	s.expect(DoCreate, 4) // no reply: send the same again
	s.Exists(4, after(1))
	s.expect(DoGet, 4)
	s.found(4, after(1))
	if !s.apply(4) {
		t.Fatal("the broker's own commit counts as another's")
	}
	if c := s.Claim(); c.Seq != 0 {
		t.Fatalf("the claim lives on: %+v", c)
	}
}

func TestSuccessThatIsNotCoveredCountsAfterAList(t *testing.T) {
	s := begin(t, 3)
	own := slotHash(4)
	s.Propose(own)
	s.expect(DoCreate, 4)
	s.now = testSpan
	s.Created(4, own, after(s.now))
	s.expect(DoList, 3)
	s.list(Listing{From: 3, First: 3, Last: 4})
	if !s.apply(4) {
		t.Fatal("the success does not count")
	}
}

func TestSuccessWithoutADateNeedsAList(t *testing.T) {
	s := begin(t, 3)
	s.Propose(slotHash(4))
	s.expect(DoCreate, 4)
	s.Created(4, slotHash(4), Stamp{Boot: 1})
	s.expect(DoList, 3)
}

func TestRecoveryIsSettledOnceAllThatAWholeListShowedIsApplied(t *testing.T) {
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.expect(DoList, 0)
	s.list(Listing{First: 1, Last: 2, More: true})
	s.Propose(format.Hash{1}) // the claim must wait, and loses slot 1
	for seq := format.Seq(1); seq <= 2; seq++ {
		s.expect(DoGet, seq)
		s.found(seq, after(1))
		s.apply(seq)
	}
	s.expect(DoGet, 3)
	s.missing404(3, after(1))
	s.expect(DoList, 2)
	s.list(Listing{From: 2, First: 2, Last: 3})
	if s.Settled() {
		t.Fatal("settled, although there is one more")
	}
	s.expect(DoGet, 3)
	s.found(3, after(1))
	s.apply(3)
	s.expect(DoGet, 4) // after a lost race, the broker reads the slots that other brokers may have won
	if !s.Settled() {
		t.Fatal("not settled")
	}
}

func TestRecoveryThatFindsAHoleIsLoss(t *testing.T) {
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.expect(DoList, 0)
	s.list(Listing{First: 1, Last: 3})
	s.found(1, after(1))
	s.apply(1)
	s.expect(DoGet, 2)
	s.missing404(2, after(1))
	s.halted(ErrLoss)
}

func TestRecoveryWithoutTheBeginningIsLoss(t *testing.T) {
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.list(Listing{First: 5, Last: 9})
	s.expect(DoGet, 1)
	s.missing404(1, after(1))
	s.halted(ErrLoss)
}

func TestCheckpointWithSlotsAboveItIsNotTheEnd(t *testing.T) {
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.list(Listing{Checkpoint: 5, From: 5, First: 6, Last: 6})
	s.expect(DoLoad, 5)
	s.Loaded(5, slotHash(5))
	if s.Settled() {
		t.Fatal("settled at the checkpoint")
	}
	s.expect(DoGet, 6)
}

func TestCheckpointThatIsGoneIsListedAgain(t *testing.T) {
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.list(Listing{Checkpoint: 5, From: 5})
	s.expect(DoLoad, 5)
	s.LoadMissing()
	s.expect(DoList, 0)
	s.list(Listing{Checkpoint: 9, From: 9})
	s.expect(DoLoad, 9)
	s.Loaded(9, slotHash(9))
	s.expect(Idle, 0)
}

func TestCheckpointThatIsGoneAndHasNoSuccessorIsLoss(t *testing.T) {
	for _, checkpoint := range []format.Seq{1, 5} {
		s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
		s.list(Listing{Checkpoint: checkpoint, From: checkpoint})
		s.expect(DoLoad, checkpoint)
		s.LoadMissing()
		s.expect(DoList, 0)
		s.list(Listing{})
		s.expect(DoGet, 1)
		s.missing404(1, after(1))
		s.halted(ErrLoss)
	}
}

func TestReadAheadIsBounded(t *testing.T) {
	s := begin(t, 3)
	s.Exists(1000, after(1))
	act := s.expect(DoGet, 4)
	if act.To != 3+Window-1 {
		t.Fatalf("reads up to slot %d", act.To)
	}
	s.found(act.To+1, after(1))
	if s.Held(act.To + 1) {
		t.Fatal("holds an answer beyond the window")
	}
	for seq := act.To; seq >= 4; seq-- { // answers may come in any order
		s.found(seq, after(1))
	}
	for seq := format.Seq(4); seq <= act.To; seq++ {
		s.apply(seq)
	}
	s.expect(DoGet, act.To+1)
}

func TestRelistComesFirst(t *testing.T) {
	s := begin(t, 3)
	s.found(4, after(1))
	s.Relist()
	s.expect(DoList, 3)
	s.now = time.Second
	s.list(Listing{From: 3, First: 3, Last: 4})
	s.apply(4)
}

func TestCloneIsIndependent(t *testing.T) {
	s := begin(t, 3)
	s.found(4, after(1))
	c := &scenario{T: t, Protocol: s.Clone()}
	s.apply(4)
	c.apply(4)
	c.Relist()
	s.expect(Idle, 0)
	c.expect(DoList, 4)
}

// A wrong call by the Log is a bug, so the Protocol panics.
func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(s *scenario){
		"two claims":           func(s *scenario) { s.Propose(format.Hash{1}); s.Propose(format.Hash{2}) },
		"apply without answer": func(s *scenario) { s.Applied() },
		"load without a List":  func(s *scenario) { s.Loaded(9, format.Hash{9}) },
		"apply of a 404":       func(s *scenario) { s.missing404(4, after(1)); s.Applied() },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, 3)
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			misuse(s)
		})
	}
}

// recoverOn returns a protocol in recovery. A List with only its first page showed slots 1 and
// 2, which are applied.
func recoverOn(t *testing.T) *scenario {
	t.Helper()
	s := &scenario{T: t, Protocol: NewProtocol(testDelay, testMargin)}
	s.list(Listing{First: 1, Last: 2, More: true})
	for seq := format.Seq(1); seq <= 2; seq++ {
		s.expect(DoGet, seq)
		s.found(seq, after(1))
		s.apply(seq)
	}
	return s
}

func TestRecoveryReadsOnWhereAListWasCutOff(t *testing.T) {
	s := recoverOn(t)
	if act := s.expect(DoGet, 3); act.To != 2+Window-1 {
		t.Fatalf("reads up to slot %d", act.To)
	}
	s.missing404(4, after(1)) // executed before slots 3 and 4 were written
	s.found(3, after(1))
	s.apply(3)
	s.expect(DoList, 3)
	if s.Settled() {
		t.Fatal("settled by a 404")
	}
	s.list(Listing{From: 3, First: 3, Last: 4})
	s.expect(DoGet, 4)
	s.found(4, after(1))
	s.apply(4)
	s.expect(Idle, 0)
	if !s.Settled() {
		t.Fatal("not settled")
	}
}

func TestGapAfterTheFirstPageOfAListIsLoss(t *testing.T) {
	s := recoverOn(t)
	s.expect(DoGet, 3)
	s.missing404(3, after(1))
	s.expect(DoList, 2)
	s.list(Listing{From: 2, First: 2, Last: 9, More: true})
	s.expect(DoGet, 3) // the 404 came before slot 4 was known
	s.missing404(3, after(1))
	s.halted(ErrLoss)
}

func TestHoleThatReadingOnFindsIsLoss(t *testing.T) {
	s := recoverOn(t)
	s.expect(DoGet, 3)
	s.missing404(3, after(1))
	s.found(4, after(1))
	s.expect(DoGet, 3)
	s.missing404(3, after(1))
	s.halted(ErrLoss)
}
