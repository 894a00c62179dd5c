package format

// The entry about sessions. A session is one start of a broker. The broker makes its key pair
// when it starts, and the private half never leaves its memory. So a peer that proves to have the
// private half of a public key in the log is that broker.
//
//	26 session named: public key (32 bytes, Ed25519), queue (uint64), epoch (uint64);
//	   the session owns that queue with that epoch, as an entry before it in the commit says;
//	   0 and 0 if it owns none
//
// It is not critical: a Seb that does not know it applies all other entries alike.
const (
	entrySessionNamed = 26

	sessionNamedSize = 48
)

// SessionKey is the public half of a session's Ed25519 key pair; zero where none is known.
type SessionKey [32]byte

// SessionNamed makes a session known to the brokers of the log.
type SessionNamed struct {
	Session      SessionKey
	Queue, Epoch uint64 // what it owns; 0 and 0 for nothing
}

func (*SessionNamed) kind() uint16 { return entrySessionNamed }
func (*SessionNamed) size() int    { return sessionNamedSize }

func (s *SessionNamed) append(b []byte) []byte {
	b = append(b, s.Session[:]...)
	return le.AppendUint64(le.AppendUint64(b, s.Queue), s.Epoch)
}

// Sound reports whether the entry can stand in a commit.
func (s *SessionNamed) Sound() bool {
	return s.Session != SessionKey{} && (s.Queue == 0) == (s.Epoch == 0)
}

func decodeSessionNamed(b []byte) (*SessionNamed, error) {
	s := &SessionNamed{Session: SessionKey(b[:32]), Queue: le.Uint64(b[32:]), Epoch: le.Uint64(b[40:])}
	if !s.Sound() {
		return nil, Corrupt("session %x owns queue %d with epoch %d", s.Session, s.Queue, s.Epoch)
	}
	return s, nil
}
