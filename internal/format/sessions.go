package format

// The entry about sessions. A session is one start of a broker. The broker makes a key pair when
// it starts, and the private key never leaves the broker's memory. So if a peer proves that it has
// the private key to a public key in the log, the peer is the broker that committed the public key.
//
//	26 session named: public key (32 bytes, Ed25519), queue (uint64), epoch (uint64);
//	   an earlier entry of the commit made the session the owner of that queue, with that epoch;
//	   queue and epoch are both 0 if the entry names no queue
//
// The entry is not critical: older versions of Seb ignore it, and apply the other entries of the commit.
const (
	entrySessionNamed = 26

	sessionNamedSize = 48
)

// SessionKey is the public key of a session's Ed25519 key pair; zero if the key is not known.
type SessionKey [32]byte

// SessionNamed tells all brokers the public key of a session.
type SessionNamed struct {
	Session SessionKey
	Queue   QueueID
	Epoch   Epoch // the epoch with which the session owns Queue; both are 0 if the entry names no queue
}

func (*SessionNamed) kind() uint16 { return entrySessionNamed }
func (*SessionNamed) size() int    { return sessionNamedSize }

func (s *SessionNamed) append(b []byte) []byte {
	b = append(b, s.Session[:]...)
	return le.AppendUint64(le.AppendUint64(b, uint64(s.Queue)), uint64(s.Epoch))
}

// Sound reports whether the fields are valid: Session is not zero, and either both or neither of Queue and
// Epoch are 0.
func (s *SessionNamed) Sound() bool {
	return s.Session != SessionKey{} && (s.Queue == 0) == (s.Epoch == 0)
}

func decodeSessionNamed(b []byte) (*SessionNamed, error) {
	s := &SessionNamed{Session: SessionKey(b[:32]), Queue: QueueID(le.Uint64(b[32:])), Epoch: Epoch(le.Uint64(b[40:]))}
	if !s.Sound() {
		return nil, Corrupt("session %x is invalid, or only one of its queue %d and epoch %d is 0", s.Session, s.Queue, s.Epoch)
	}
	return s, nil
}
