package state

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/simple-event-broker/seb/internal/format"
)

func sessionKey(n int) (k format.SessionKey) {
	k[0] = 0xa5
	binary.BigEndian.PutUint32(k[1:], uint32(n))
	return k
}

func named(n int) *format.SessionNamed { return &format.SessionNamed{Session: sessionKey(n)} }

func ownedBy(n int, queue format.QueueID, epoch format.Epoch) *format.SessionNamed {
	return &format.SessionNamed{Session: sessionKey(n), Queue: queue, Epoch: epoch}
}

// withSessions names sessions; one of them owns a queue of withQueues.
func withSessions(t testing.TB, s *State) {
	q := s.OldestQueues(1)[0]
	mustApply(t, s, commitOf(s, named(1), named(2), owned(q.ID, q.Epoch+1, 5), ownedBy(1, q.ID, q.Epoch+1)))
}

func TestOwnerIsTheSessionThatItsCommitNames(t *testing.T) {
	s := queueState(t)
	mustApply(t, s, commitOf(s, owned(1, 3, 5), ownedBy(7, 1, 3)))
	if q := s.QueueByID(1); q.Session != sessionKey(7) || !s.KnowsSession(sessionKey(7)) || s.KnowsSession(sessionKey(8)) {
		t.Errorf("the owner's session is %x", q.Session)
	}
	mustApply(t, s, commitOf(s, owned(1, 4, 5)))
	if q := s.QueueByID(1); q.Session != (format.SessionKey{}) || !s.KnowsSession(sessionKey(7)) {
		t.Errorf("the next owner, which named none, has session %x", q.Session)
	}
	mustApply(t, s, commitOf(s, owned(1, 5, 5), ownedBy(8, 1, 5), &format.QueueReleased{Queue: 1, Epoch: 5}))
	if q := s.QueueByID(1); q.Session != (format.SessionKey{}) {
		t.Errorf("nobody owns it, with session %x", q.Session)
	}
}

func TestSessionThatOwnsWhatAnotherHasIsNonsense(t *testing.T) {
	s := queueState(t)
	mustApply(t, s, commitOf(s, owned(1, 3, 5)))
	for name, it := range map[string]*format.SessionNamed{
		"no key":           {},
		"another epoch":    ownedBy(1, 1, 2),
		"unknown queue":    ownedBy(1, 99, 1),
		"queue of nobody":  ownedBy(1, 3, 1),
		"epoch of nothing": ownedBy(1, 0, 1),
		"queue, no epoch":  ownedBy(1, 1, 0),
	} {
		if err := s.Apply(commitOf(s, it)); !errors.Is(err, ErrNonsense) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSessionNamedLongestAgoIsForgotten(t *testing.T) {
	s := queueState(t)
	before := s.Memory()
	for n := range SessionsMax {
		mustApply(t, s, commitOf(s, named(n)))
	}
	full := s.Memory()
	mustApply(t, s, commitOf(s, named(0), named(SessionsMax)))
	if !s.KnowsSession(sessionKey(0)) || s.KnowsSession(sessionKey(1)) || !s.KnowsSession(sessionKey(2)) || !s.KnowsSession(sessionKey(SessionsMax)) {
		t.Error("another than that named longest ago is forgotten")
	}
	if s.Memory() != full || full <= before || len(s.sessions) != SessionsMax {
		t.Errorf("%d sessions take %d bytes, and took %d", len(s.sessions), s.Memory()-before, full-before)
	}
	requireSame(t, mustDecode(t, s.Seq(), s.View().Encode()), s)
}

// Old versions of Seb write checkpoints without sessions.
func TestViewIsTheStateWhateverItsSessions(t *testing.T) {
	s := queueState(t)
	without := s.View().Encode()
	old := append([]byte{4}, s.View().withoutSessions()[1:]...)
	mustApply(t, s, commitOf(s, named(1)))
	for name, body := range map[string][]byte{"none": without, "of a version without": old} {
		of := mustDecode(t, s.Seq(), body)
		of.seq, of.time = s.seq, s.time
		if !s.View().Is(of.View().Encode()) {
			t.Errorf("%s: it is another state", name)
		}
	}
}

func TestSnapshotWhoseSessionsContradictThemselvesIsRefused(t *testing.T) {
	s := queueState(t)
	mustApply(t, s, commitOf(s, owned(1, 3, 5), ownedBy(1, 1, 3), named(2)))
	begin := s.View().withoutSessions()
	key := func(n int) []byte { k := sessionKey(n); return k[:] }
	for name, end := range map[string][]byte{
		"session twice":       slices.Concat([]byte{2}, key(1), key(1), []byte{0}),
		"session without key": slices.Concat([]byte{1}, make([]byte, 32), []byte{0}),
		"unknown queue":       slices.Concat([]byte{0, 1, 99}, key(1)),
		"queue of nobody":     slices.Concat([]byte{0, 1, 3}, key(1)),
		"owner twice":         slices.Concat([]byte{0, 2, 1}, key(1), []byte{1}, key(1)),
		"owner without key":   slices.Concat([]byte{0, 1, 1}, make([]byte, 32)),
		"too many":            slices.Concat(binary.AppendUvarint(nil, SessionsMax+1), manyKeys(SessionsMax+1), []byte{0}),
	} {
		if _, err := Decode(s.Seq(), slices.Concat(begin, end)); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	requireSame(t, mustDecode(t, s.Seq(), slices.Concat(begin, []byte{2}, key(1), key(2), []byte{1, 1}, key(1))), s)
}

func manyKeys(n int) (b []byte) {
	for i := range n {
		k := sessionKey(i)
		b = append(b, k[:]...)
	}
	return b
}
