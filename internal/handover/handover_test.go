package handover

import (
	"bytes"
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

// a and b are sessions of two senders, and w is that of a winner.
var a, b, w = Session{1}, Session{2}, Session{3}

func hashOf(s format.Seq) format.Hash { return format.Hash{byte(s)} }

// draws makes each bundle of a test differ from all others.
var draws byte

// seal makes a sender seal a bundle of 10 bytes.
func seal(t *testing.T, s *Sender) Bundle {
	t.Helper()
	next, ok := s.Next()
	if !ok {
		t.Fatal("the sender can't seal a bundle")
	}
	draws++
	next.Draw, next.Seal, next.Size = [16]byte{draws}, format.Hash{draws}, 10
	s.Sealed(next)
	return next
}

// frame returns an undecided bundle of a sender as the sender sends it now.
func frame(t *testing.T, s *Sender, of Bundle) Frame {
	t.Helper()
	for _, f := range s.Frames() {
		if f.Mark == of.Mark {
			return f
		}
	}
	t.Fatal("the bundle is not undecided")
	return Frame{}
}

// commit returns the commit of a slot, by another broker, with the marks of bundles.
func commit(seq format.Seq, bundles ...Bundle) Commit {
	c := Commit{Seq: seq, Hash: hashOf(seq), Writer: w}
	for _, b := range bundles {
		c.Marks = append(c.Marks, b.Mark)
	}
	return c
}

// own returns the commit of a slot by this broker.
func own(seq format.Seq, bundles ...Bundle) Commit {
	c := commit(seq, bundles...)
	c.Own = true
	return c
}

// winner returns the receiver of a broker that has won slot 1.
func winner(l Limits) *Receiver {
	r := NewReceiver(l, 0, hashOf(0))
	r.Applied(own(1))
	return r
}

func wantTaken(t *testing.T, r *Receiver, f Frame, want Answer) {
	t.Helper()
	if got := r.Take(f); got != want {
		t.Errorf("the receiver answers %v, want %v", got, want)
	}
}

func wantBuilt(t *testing.T, r *Receiver, mine []Bundle, want ...Bundle) {
	t.Helper()
	if got := r.Build(mine); !slices.Equal(got, want) {
		t.Errorf("the commit has %v, want %v", got, want)
	}
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

func TestKeysAreWhole(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), winner(DefaultLimits(1<<20))
	one, two := seal(t, s), seal(t, s)
	r.Take(frame(t, s, one))
	r.Take(frame(t, s, two))
	r.Applied(own(2, one))
	s.Loaded(1, hashOf(1))
	seal(t, s)
	known := append([]Bundle{one, two}, s.Undecided()...)
	n := Names{
		Name: func(m Mark) byte { return byte(slices.IndexFunc(known, func(b Bundle) bool { return b.Mark == m })) },
		Frame: func(name byte, after format.Seq) Frame {
			return Frame{Bundle: known[name], After: after, AfterHash: hashOf(after)}
		},
		Hash: hashOf,
	}
	key := r.AppendKey(s.AppendKey(nil, n), n)
	s2, rest := SenderFromKey(key, a, n)
	r2, rest := ReceiverFromKey(rest, DefaultLimits(1<<20), n)
	if len(rest) > 0 || !bytes.Equal(key, r2.AppendKey(s2.AppendKey(nil, n), n)) {
		t.Error("what was made from a key has another key")
	}
	if !slices.Equal(s2.Frames(), s.Frames()) || !slices.Equal(r2.Build(nil), r.Build(nil)) {
		t.Error("what was made from a key decides otherwise")
	}
}

func TestClonesAreIndependent(t *testing.T) {
	s, r := NewSender(a, 0, hashOf(0)), winner(DefaultLimits(1<<20))
	one := seal(t, s)
	r.Take(frame(t, s, one))
	s2, r2 := s.Clone(), r.Clone()
	s2.Applied(commit(1, one))
	r2.Applied(own(2, one))
	if len(s.Undecided()) != 1 || r.Hand() != 1 || r.Position() != 1 {
		t.Error("a step of a clone has changed the original")
	}
}
