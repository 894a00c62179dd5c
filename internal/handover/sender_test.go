package handover

import (
	"slices"
	"testing"
)

func TestBundlesAreNumberedAndNameTheOneBefore(t *testing.T) {
	s := NewSender(a, 7, hashOf(7))
	one, two := seal(t, s), seal(t, s)
	if one.Number != 1 || one.Session != a || one.Before != (Mark{}) {
		t.Errorf("the first bundle is %+v", one)
	}
	if two.Number != 2 || two.Before != one.Mark {
		t.Errorf("the second bundle is %+v", two)
	}
	three := seal(t, s)
	if three.Number != 3 || three.Before != two.Mark {
		t.Errorf("the third bundle is %+v", three)
	}
	s.Applied(commit(8, one, two, three))
	if four := seal(t, s); four.Number != 4 || four.Before != (Mark{}) {
		t.Errorf("after all others are decided, the next bundle is %+v", four)
	}
}

func TestAtMostFourBundlesAreUndecided(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	first := seal(t, s)
	for range undecidedMax - 1 {
		seal(t, s)
	}
	if _, ok := s.Next(); ok {
		t.Fatal("a fifth bundle may be sealed")
	}
	s.Applied(commit(1, first))
	seal(t, s)
}

func TestOnlyTheLogDecides(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	one, two := seal(t, s), seal(t, s)
	if decided, copied := s.Applied(commit(1)); len(decided) > 0 || copied {
		t.Error("a commit without marks decides something")
	}
	if f := frame(t, s, one); f.After != 1 || f.AfterHash != hashOf(1) {
		t.Errorf("after slot 1, the frame is %+v", f)
	}
	decided, _ := s.Applied(commit(2, one))
	if !slices.Equal(decided, []Bundle{one}) || !slices.Equal(s.Undecided(), []Bundle{two}) {
		t.Errorf("slot 2 has decided %v, and %v is left", decided, s.Undecided())
	}
	mustPanic(t, func() { s.Applied(commit(4)) })
}

func TestLoadMakesOutcomesUnknown(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	one := seal(t, s)
	if unknown := s.Loaded(5, hashOf(5)); !slices.Equal(unknown, []Bundle{one}) || len(s.Frames()) > 0 {
		t.Errorf("after the load, %v is unknown, and %v would be sent", unknown, s.Frames())
	}
	if next := seal(t, s); next.Number != 2 || next.Before != (Mark{}) || frame(t, s, next).After != 5 {
		t.Errorf("after the load, the next bundle is %+v", next)
	}
	// The winner may still commit the bundle. That is no sign of a copy.
	if decided, copied := s.Applied(commit(6, one)); len(decided) > 0 || copied {
		t.Errorf("the late mark decides %v, or shows a copy: %v", decided, copied)
	}
	mustPanic(t, func() { s.Loaded(6, hashOf(6)) })
}

func TestCopyTakesANewSession(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	other := s.Clone()
	mine, theirs := seal(t, s), seal(t, other)
	if mine.Number != theirs.Number {
		t.Fatal("a copy goes on with other numbers")
	}
	decided, copied := s.Applied(commit(1, theirs))
	if len(decided) > 0 || !copied {
		t.Fatalf("the mark of the copy decides %v, or is not noticed: %v", decided, copied)
	}
	if _, ok := s.Next(); ok {
		t.Error("the sender seals more under the session that another process has")
	}
	s.Renew(b)
	if next := seal(t, s); next.Session != b || next.Number != 1 || next.Before != mine.Mark {
		t.Errorf("the first bundle of the new session is %+v", next)
	}
	if decided, copied := s.Applied(commit(2, mine)); !slices.Equal(decided, []Bundle{mine}) || copied {
		t.Error("a bundle of the old session is not decided by its mark")
	}
}

func TestMarksOfGivenUpBundlesAreBounded(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	for i := range 2 * givenUpMax {
		seal(t, s)
		s.Loaded(s.Looked()+1, hashOf(s.Looked()+1))
		if len(s.givenUp) > givenUpMax {
			t.Fatalf("after %d loads, the sender remembers %d marks", i+1, len(s.givenUp))
		}
	}
}

func TestNothingIsSealedWhileRequestsAreClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*Sender)
		ends bool
	}{
		"no event":     {func(*Sender) {}, false},
		"slot decided": {func(s *Sender) { s.Applied(commit(1)) }, true},
		"load":         {func(s *Sender) { s.Loaded(3, hashOf(3)) }, true},
		"given up":     {func(s *Sender) { s.Unclaimed() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSender(a, 0, hashOf(0))
			s.Claimed()
			test.end(s)
			if _, ok := s.Next(); ok != test.ends {
				t.Errorf("a bundle may be sealed: %v", ok)
			}
		})
	}
}

func TestRequestsDoNotOvertakeBundles(t *testing.T) {
	want := func(s *Sender, may bool) {
		t.Helper()
		if s.MayClaim() != may {
			t.Errorf("the sender may claim a slot for requests in no bundle: %v", !may)
		}
		if !may {
			mustPanic(t, s.Claimed)
		}
	}
	s := NewSender(a, 0, hashOf(0))
	want(s, true)
	one := seal(t, s)
	want(s, false)
	s.Applied(commit(1, one))
	want(s, true)
	seal(t, s)
	s.Loaded(2, hashOf(2))
	want(s, false)
	s.Loaded(3, hashOf(3))
	s.Applied(commit(4))
	want(s, false)
	three := seal(t, s)
	s.Applied(commit(5, three))
	want(s, true)
	s.Loaded(6, hashOf(6))
	want(s, true)
}

func TestOnlyTheNextBundleIsSealed(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	next, _ := s.Next()
	for name, change := range map[string]func(*Bundle){
		"session": func(b *Bundle) { b.Session = w },
		"number":  func(b *Bundle) { b.Number++ },
		"before":  func(b *Bundle) { b.Before.Number++ },
	} {
		wrong := next
		change(&wrong)
		t.Run(name, func(t *testing.T) { mustPanic(t, func() { s.Sealed(wrong) }) })
	}
}
