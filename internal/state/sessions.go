package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/simple-event-broker/seb/internal/format"
)

// SessionsMax is how many sessions the state keeps. A broker names its session in an entry of
// the log. When the list is full, a new session replaces the session that was named longest
// ago. A broker whose session was replaced names its session again.
const SessionsMax = 256

const sessionMemory = 2 * int64(unsafe.Sizeof(format.SessionKey{})) // at worst, half of the list's memory is unused

// sessions has the sessions that the log has named last, the one named longest ago first.
type sessions []format.SessionKey

// KnowsSession reports whether a session is among the last [SessionsMax] that the log has named.
func (s *State) KnowsSession(k format.SessionKey) bool { return slices.Contains(s.sessions, k) }

// takeSession takes an entry that names the session of a broker. If the entry also names a
// queue, the entry's epoch must be that of the queue's owner.
func (d *Draft) takeSession(x *format.SessionNamed) error {
	if !x.Sound() {
		return fmt.Errorf("%w: session %x can't own queue %d with epoch %d", ErrNonsense, x.Session, x.Queue, x.Epoch)
	}
	if x.Queue == 0 {
		return nil
	}
	_, err := d.ownedQueue(x.Queue, x.Epoch)
	return err
}

func (s *State) nameSession(x *format.SessionNamed) {
	if at := slices.Index(s.sessions, x.Session); at >= 0 {
		s.sessions = slices.Delete(s.sessions, at, at+1)
	} else if len(s.sessions) == SessionsMax {
		s.sessions = slices.Delete(s.sessions, 0, 1)
	} else {
		s.memory += sessionMemory
	}
	s.sessions = append(s.sessions, x.Session)
	if q := s.queues.byID[x.Queue]; q != nil {
		q.Session = x.Session
	}
}

func appendSessions(b []byte, known sessions, queues []Queue) []byte {
	b = binary.AppendUvarint(b, uint64(len(known)))
	for _, k := range known {
		b = append(b, k[:]...)
	}
	owners := 0
	for i := range queues {
		if queues[i].Session != (format.SessionKey{}) {
			owners++
		}
	}
	b = binary.AppendUvarint(b, uint64(owners))
	for i := range queues {
		if k := queues[i].Session; k != (format.SessionKey{}) {
			b = append(binary.AppendUvarint(b, uint64(queues[i].ID)), k[:]...)
		}
	}
	return b
}

func (s *State) decodeSessions(r *reader) {
	n := r.count(len(format.SessionKey{}))
	if n > SessionsMax {
		r.fail("%d sessions are too many; at most %d are allowed", n, SessionsMax)
	}
	for i := 0; i < n && r.err == nil; i++ {
		k := r.sessionKey()
		if s.KnowsSession(k) {
			r.fail("session %x is listed twice", k)
		}
		s.sessions = append(s.sessions, k)
		s.memory += sessionMemory
	}
	var last format.QueueID
	for range r.count(1 + len(format.SessionKey{})) {
		id, k := format.QueueID(r.uvarint()), r.sessionKey()
		q := s.queues.byID[id]
		if r.err == nil && (id <= last || q == nil || !q.Owned) {
			r.fail("session %x can't own queue %d", k, id)
		}
		if r.err != nil {
			return
		}
		last, q.Session = id, k
	}
}

func (r *reader) sessionKey() (k format.SessionKey) {
	copy(k[:], r.bytes(len(k)))
	if r.err == nil && k == (format.SessionKey{}) {
		r.fail("the key of a session is all zeros")
	}
	return k
}
