// Package handover decides how brokers hand over requests to the broker that commits for all of them: the
// winner. RFC 0005 describes the protocol. The package decides
//
//   - for the sender of a bundle: which bundles are undecided, what the broker sends to the winner, and
//     what it claims itself ([Sender]);
//   - for the winner: which bundles of other brokers it takes, and which of them go into its next commit
//     ([Receiver]);
//   - when a sender stops waiting for the winner, and claims the next slot itself ([Winner]).
//
// Exactly-once depends on the Sender and the Receiver: no bundle is in two commits of the log. It does not
// depend on the Winner, which may be wrong about everything: that costs time, and no more.
//
// The package has no I/O, no goroutines and no clock: inputs are frames of peers, applied commits and times,
// and outputs are what the caller must send, claim or tell. The caller encodes and checks the bytes of
// bundles, builds the commits, and writes them. A broker has one Sender, one Receiver and one Winner. It
// passes them every commit that it applies, in order, and every checkpoint that it loads. The types are not
// safe for concurrent use.
package handover

import "github.com/simple-event-broker/seb/internal/format"

// Session identifies a session: the first 16 bytes of the SHA-256 of its public key. The zero value
// identifies no session.
type Session [16]byte

// Mark identifies a sealed bundle in the log. Two marks are of the same bundle only if all four fields are
// equal, since a copy of a broker's memory has the same session and goes on with the same numbers (rule
// Whole mark). The zero value marks no bundle.
type Mark struct {
	Session Session
	// Number is the number of the bundle in its session; the first bundle has 1.
	Number uint64
	// Draw is random, and is drawn when the bundle is sealed.
	Draw [16]byte
	// Seal is the SHA-256 of the sealed bytes.
	Seal format.Hash
}

// isOvertakenBy reports whether o is the mark of a later bundle of the same session. Bundles of a session are committed
// in order. So if o is in the log and m is not, either the sender has given m up, since it has loaded a checkpoint and
// told the callers that the outcome is unknown; or a copy of the sender has sealed one of the two bundles.
func (m Mark) isOvertakenBy(o Mark) bool { return m.Session == o.Session && m.Number < o.Number }

func (m Mark) is(o Mark) bool { return m == o }

// Bundle is what a sender would put into a commit of its own. Once it is sealed, it never changes.
type Bundle struct {
	Mark
	// Before is the mark of the bundle that the sender had sealed just before this one, if that one was
	// undecided at the sealing. Otherwise it is zero.
	Before Mark
	// Size is how many bytes of memory the bundle takes.
	Size int64
	// Payload belongs to the caller. The package does not read it.
	Payload any
}

// Frame is a bundle on its way to a winner.
type Frame struct {
	Bundle
	// After is the last slot in which the sender has looked for the bundle's mark, in vain. AfterHash is the
	// hash of that slot's head.
	After     format.Seq
	AfterHash format.Hash
}

// Commit is what the package needs to know about a commit that its broker has applied.
type Commit struct {
	Seq  format.Seq
	Hash format.Hash
	// Writer is the session in the writer's mark; zero if the commit has no such mark.
	Writer Session
	// Own says that this broker's claim wrote the commit. The session does not show that: a copy of this
	// broker's memory has the same session.
	Own bool
	// Marks are the marks of the commit's bundles, in order. The caller does not change the slice afterwards.
	Marks []Mark
}

// Limits are the limits of a broker. Each field must be positive.
type Limits struct {
	// Slots and Marks are how many slots and marks a Receiver remembers.
	Slots, Marks int
	// Hand is how many bundles of other brokers a Receiver has in hand, and HandOfSession how many of one
	// session.
	Hand, HandOfSession int
	// Bytes is how many bytes the bundles in hand take, and BytesOfSession how many those of one session.
	Bytes, BytesOfSession int64
}

// DefaultLimits returns the limits of a broker that has the given memory, in bytes.
func DefaultLimits(memory int64) Limits {
	return Limits{
		Slots: 4096, Marks: 65536, // the marks take 4.5 MiB
		Hand: 512, HandOfSession: 2, // two of each of 256 peers: one in the commit under way, one for the next
		Bytes: memory / 4, BytesOfSession: memory / 16,
	}
}
