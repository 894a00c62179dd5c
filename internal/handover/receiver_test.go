package handover

import (
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

func TestOnlyAWinnerTakesBundles(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), NewReceiver(DefaultLimits(1<<20), 0, hashOf(0))
	one := seal(t, s)
	f := frame(t, s, one)
	wantTaken(t, r, f, NotWinner)
	r.Applied(commit(1))
	wantTaken(t, r, f, NotWinner)
	r.Named(a, 1) // not the writer of slot 1
	wantTaken(t, r, f, NotWinner)
	r.Named(a, 99)
	r.Named(w, 2) // not yet
	r.Named(w, 0) // too late
	wantTaken(t, r, f, NotWinner)
	r.Applied(commit(2))
	wantTaken(t, r, f, Have)
	if dropped := r.Applied(own(3)); len(dropped) > 0 || r.Hand() != 1 {
		t.Error("a winner that wins again drops a bundle")
	}
	if dropped := r.Applied(commit(4)); len(dropped) != 1 || dropped[0].Mark != one.Mark || r.Hand() > 0 {
		t.Errorf("after a lost race, %v is dropped, and %d bundles are in hand", dropped, r.Hand())
	}
	wantTaken(t, r, f, NotWinner)
	r.Named(w, 4)
	wantTaken(t, r, f, Have)
}

func TestBundleIsTakenOnce(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), winner(DefaultLimits(1<<20))
	one := seal(t, s)
	f := frame(t, s, one)
	wantTaken(t, r, f, Have)
	wantTaken(t, r, f, Have)
	if r.Hand() != 1 {
		t.Errorf("%d bundles are in hand, want 1", r.Hand())
	}
	wantBuilt(t, r, nil, one)
	r.Applied(own(2, one))
	wantBuilt(t, r, nil)
	wantTaken(t, r, f, Seen)
	f.After, f.AfterHash = 1, hashOf(1)
	wantTaken(t, r, f, Seen)
	f.After, f.AfterHash = 2, hashOf(2)
	wantTaken(t, r, f, Have) // only the forger of such a frame has the damage
}

func TestMarksAreForgottenWithAHorizon(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	old := frame(t, s, seal(t, s))
	s.Applied(commit(1))
	s.Applied(commit(2))
	now := frame(t, s, s.Undecided()[0])
	for name, change := range map[string]func(*Limits){
		"slots": func(l *Limits) { l.Slots = 1 },
		"marks": func(l *Limits) { l.Marks = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			l := DefaultLimits(1 << 20)
			change(&l)
			other := NewSender(b, 0, hashOf(0))
			r := NewReceiver(l, 0, hashOf(0))
			r.Applied(own(1, seal(t, other)))
			r.Applied(own(2, seal(t, other)))
			if r.Horizon() != 1 {
				t.Fatalf("the horizon is %d", r.Horizon())
			}
			wantTaken(t, r, old, TooOld)
			wantTaken(t, r, now, Have)
		})
	}
	t.Run("a commit with more marks than the limit", func(t *testing.T) {
		l := DefaultLimits(1 << 20)
		l.Marks = 1
		other := NewSender(b, 0, hashOf(0))
		r := NewReceiver(l, 0, hashOf(0))
		r.Applied(own(1, seal(t, other), seal(t, other)))
		if r.Horizon() != 1 || r.Position() != 1 {
			t.Errorf("the horizon is %d, the position %d", r.Horizon(), r.Position())
		}
	})
}

func TestLoadDropsWhatMayBeInTheLog(t *testing.T) {
	early, late := NewSender(a, 4, hashOf(4)), NewSender(b, 5, hashOf(5))
	r := winner(DefaultLimits(1 << 20))
	one, two := seal(t, early), seal(t, late)
	wantTaken(t, r, frame(t, early, one), Have)
	wantTaken(t, r, frame(t, late, two), Have)
	dropped := r.Loaded(5, hashOf(5))
	if len(dropped) != 1 || dropped[0].Mark != one.Mark {
		t.Fatalf("the load drops %v", dropped)
	}
	wantBuilt(t, r, nil, two)
	wantTaken(t, r, frame(t, early, one), NotWinner)
	r.Applied(own(6))
	wantTaken(t, r, frame(t, early, one), TooOld)
	mustPanic(t, func() { r.Loaded(6, hashOf(6)) })
	mustPanic(t, func() { r.Applied(own(8)) })
}

func TestLoadDropsWhatComesAfterADroppedBundle(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), winner(DefaultLimits(1<<20))
	one := seal(t, s)
	wantTaken(t, r, frame(t, s, one), Have)
	s.Applied(commit(1))
	s.Applied(commit(2))
	wantTaken(t, r, frame(t, s, seal(t, s)), Have)
	if dropped := r.Loaded(2, hashOf(2)); len(dropped) != 2 {
		t.Errorf("the load drops %v", dropped)
	}
}

func TestOtherLogIsNoticed(t *testing.T) {
	s, r := NewSender(a, 1, format.Hash{99}), winner(DefaultLimits(1<<20))
	one := seal(t, s)
	wantTaken(t, r, frame(t, s, one), OtherLog)

	ahead := NewSender(a, 2, format.Hash{99}) // the receiver does not know slot 2 yet
	two := seal(t, ahead)
	wantTaken(t, r, frame(t, ahead, two), Have)
	wantBuilt(t, r, nil)
	if dropped := r.Applied(own(2)); len(dropped) != 1 {
		t.Error("a bundle of another log stays in hand")
	}
	three := seal(t, ahead)
	wantTaken(t, r, Frame{Bundle: three, After: 3, AfterHash: format.Hash{99}}, NoPredecessor)
	three.Before = Mark{}
	wantTaken(t, r, Frame{Bundle: three, After: 3, AfterHash: format.Hash{99}}, Have)
	if dropped := r.Loaded(3, hashOf(3)); len(dropped) != 1 {
		t.Error("after a load, a bundle of another log stays in hand")
	}
}

func TestBundleWaitsUntilAfterIsApplied(t *testing.T) {
	s, r := NewSender(a, 3, hashOf(3)), winner(DefaultLimits(1<<20))
	one, two := seal(t, s), seal(t, s)
	wantTaken(t, r, frame(t, s, one), Have)
	wantTaken(t, r, Frame{Bundle: two, After: 1, AfterHash: hashOf(1)}, Have) // an earlier frame that comes late
	wantBuilt(t, r, nil)
	r.Applied(own(2))
	wantBuilt(t, r, nil)
	r.Applied(own(3))
	wantBuilt(t, r, nil, one, two)
}

func TestBundleNeedsTheOneBefore(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), winner(DefaultLimits(1<<20))
	one, two, three := seal(t, s), seal(t, s), seal(t, s)
	wantTaken(t, r, frame(t, s, two), NoPredecessor)
	wantTaken(t, r, frame(t, s, one), Have)
	wantTaken(t, r, frame(t, s, two), Have)
	wantBuilt(t, r, nil, one, two)
	r.Applied(own(2, one, two))
	s.Applied(commit(1))
	s.Applied(commit(2, one, two))
	wantTaken(t, r, frame(t, s, three), Have) // the log has the one before
}

func TestLateBundleOfASessionIsRefused(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	one := seal(t, s)
	late := frame(t, s, one)
	s.Loaded(1, hashOf(1)) // the sender gives the bundle up, and goes on
	two := seal(t, s)
	l := DefaultLimits(1 << 20)

	r := winner(l)
	wantTaken(t, r, frame(t, s, two), Have)
	wantTaken(t, r, late, Overtaken) // the later one is in hand
	r.Applied(own(2, two))
	wantTaken(t, r, late, Overtaken) // the later one is in the log

	r = winner(l)
	wantTaken(t, r, late, Have)
	if dropped := r.Applied(own(2, two)); len(dropped) != 1 || dropped[0].Mark != one.Mark {
		t.Errorf("the commit of the later bundle drops %v", dropped)
	}
}

func TestHandHasLimits(t *testing.T) {
	senders := []*Sender{NewSender(a, 0, hashOf(0)), NewSender(b, 0, hashOf(0)), NewSender(w, 0, hashOf(0))}
	for name, test := range map[string]struct {
		change func(*Limits)
		ofOne  int // how many bundles of one session are taken
		ofAll  int // how many bundles of three sessions are taken
	}{
		"default":             {func(*Limits) {}, 2, 6},
		"all bundles":         {func(l *Limits) { l.Hand = 3 }, 2, 3},
		"bytes of a session":  {func(l *Limits) { l.BytesOfSession = 19 }, 1, 3},
		"bytes of all":        {func(l *Limits) { l.Bytes = 39 }, 2, 3},
		"bundles, of session": {func(l *Limits) { l.HandOfSession = 1 }, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := DefaultLimits(1 << 20)
			test.change(&l)
			r := winner(l)
			for i, s := range senders {
				s := s.Clone()
				for range 3 {
					seal(t, s)
				}
				for _, f := range s.Frames() {
					if a := r.Take(f); a != Have && a != NoRoom && a != NoPredecessor {
						t.Fatalf("the receiver answers %v", a)
					}
				}
				if i == 0 && r.Hand() != test.ofOne {
					t.Errorf("%d bundles of one session are in hand, want %d", r.Hand(), test.ofOne)
				}
			}
			if r.Hand() != test.ofAll {
				t.Errorf("%d bundles are in hand, want %d", r.Hand(), test.ofAll)
			}
		})
	}
}

func TestOwnBundlesComeFirstAndOnce(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	mine := seal(t, s)
	theirCopy := s.Clone() // a copy of this broker, which hands over what both have
	r := winner(DefaultLimits(1 << 20))
	other := NewSender(b, 0, hashOf(0))
	theirs := seal(t, other)
	wantTaken(t, r, frame(t, other, theirs), Have)
	wantTaken(t, r, frame(t, theirCopy, mine), Have)
	next := seal(t, theirCopy)
	wantTaken(t, r, frame(t, theirCopy, next), Have)
	wantBuilt(t, r, s.Undecided(), mine, theirs, next)
}

func TestBundlesOfASessionAreDropped(t *testing.T) {
	s, other := NewSender(a, 0, hashOf(0)), NewSender(b, 0, hashOf(0))
	r := winner(DefaultLimits(1 << 20))
	theirs := seal(t, other)
	seal(t, s)
	s.Renew(w)
	seal(t, s) // this one must come after the one of the old session
	for _, f := range slices.Concat(s.Frames(), other.Frames()) {
		wantTaken(t, r, f, Have)
	}
	if dropped := r.Drop(a); len(dropped) != 2 {
		t.Errorf("%d bundles are dropped, want 2", len(dropped))
	}
	wantBuilt(t, r, nil, theirs)
}

func TestAnswersHaveNames(t *testing.T) {
	for a := Have; a <= NoRoom; a++ {
		if a.String() == "" {
			t.Errorf("answer %d has no name", a)
		}
	}
}
