package explore

// Rule is a rule of the log that a [Config] can leave out.
type Rule uint8

// The rules. Each name, and its comment, says what happens without the rule.
const (
	// None: all rules are kept.
	None Rule = iota
	// NoLease: the log lease never ends.
	NoLease
	// OffByOne: the lease covers an answer that the store gave at the instant at which the lease ends
	// (<= instead of <).
	OffByOne
	// SendTime: the lease covers the answer to a Create if it covers the time at which the Create was
	// sent, not the time at which the store answered.
	SendTime
	// NoDelay: slots are deleted as soon as a checkpoint covers them.
	NoDelay
	// UploadTime: a checkpoint's age counts from the start of its upload, not from the time at
	// which it became visible.
	UploadTime
	// DeleteNewest: the newest checkpoint may be deleted.
	DeleteNewest
	// LoadOlder: an older checkpoint is loaded although a newer one is listed.
	LoadOlder
	// MoveOn: after a load has ended the claim of a payload, the payload goes to another slot.
	MoveOn
	// NoNonce: a broker that reads its own commit takes it for the commit of another broker.
	NoNonce
	// LateReply: after a load has ended a claim, a late reply to the claim acknowledges the claim if
	// the new lease covers the reply.
	LateReply
	// OwnState: a slot is deleted if the newest state shows that its payload is dead. With the rule, the
	// state of a checkpoint that is D old must show it.
	OwnState
	// AlarmOrder: a 404 counts as a loss even if the broker learned only afterwards that a later slot
	// exists.
	AlarmOrder
	// ClaimEarly: a claim is sent before the store has confirmed its data object.
	ClaimEarly
	// IgnoreFloor: a data object below the floor is not uploaded again.
	IgnoreFloor
	// SweepUnsaid: data objects that the newest state does not know are swept without a floor entry
	// in the log.
	SweepUnsaid
	// BlindStart: log/ is not listed, so that a broker counts as recovered at the last slot that it
	// happens to know.
	BlindStart
	// NoRollback: brokers don't check that the applied slot still exists.
	NoRollback
	// NoPrev: a commit's hash of the previous commit is not checked.
	NoPrev
	// AnyReply: a late reply is taken for a reply to the current claim.
	AnyReply
)

var ruleNames = [...]string{
	"none", "no lease", "<= for <", "lease checked at the time of sending", "no delay before deletion",
	"checkpoint's age from its upload's begin", "newest checkpoint deleted", "older checkpoint loaded",
	"payload moved to another slot after a load", "own nonce ignored", "late reply judged by the new lease",
	"liveness judged by the newest state", "loss concluded from answers in any order",
	"claim before its data", "floor ignored", "sweep without a floor entry",
	"log not listed", "applied slot not checked", "prev not compared", "late reply taken for the current claim's",
}

func (r Rule) String() string { return ruleNames[r] }

// Config sets the bounds of an exploration, and which faults it has.
type Config struct {
	Brokers, Slots, Payloads int

	// Delay is D: a slot may be deleted once a checkpoint that covers it has been visible for D. A log
	// lease lasts D minus Margin. Skew is how far the clocks of the store may differ. Time goes from 1
	// to Times. All are in units of time.
	Delay, Margin, Skew, Times int

	// Keep is how many of the newest checkpoints are not deleted.
	Keep int
	// Aged: a checkpoint is deleted only when a newer one is D old.
	Aged bool
	// Janitor: checkpoints of any prefix of the log appear at any time, as if
	// more brokers ran. If Janitor is false, the brokers of the world send the checkpoints, which
	// may become visible late.
	Janitor bool
	// Live: every commit moves the payload of the previous one, so that the newest payload is
	// always live. A slot or data object from which a payload moved is deleted only if a
	// checkpoint after the move covers it.
	Live bool
	// Data: payloads are in data objects; with Inline, some are in commits.
	Data, Inline bool
	// Sweeps: brokers commit floors, and data objects below them that no commit refers to are swept.
	Sweeps bool
	// Replies: the replies to Creates may come at any later time.
	Replies bool
	// Slow: a Create takes time between its sending and its execution.
	Slow bool
	// Crashes: brokers crash and restart.
	Crashes bool
	// Syncs: readers at the end of the log ask for syncs.
	Syncs bool
	// Renewals: leases are renewed before they end.
	Renewals bool
	// Split: the Lists of checkpoint/ and of log/ are two steps.
	Split bool
	// Relists: readers ask for Lists beyond those that the protocol wants.
	Relists bool
	// Losses is how many objects of the log a store that breaks its promise may lose. If it is not 0,
	// only LossIsLoud and Contiguity can hold.
	Losses int
	// Abandons: callers stop waiting for their commits.
	Abandons bool
	// Undated: an answer may carry no date, or come too late by the local clock.
	Undated bool

	// Without is the rule that is left out; None if all are kept.
	Without Rule
	// Only are the invariants that are checked; if there are none, all are.
	Only []Invariant
	// StatesMax is the number of states after which the exploration ends; 0 means no limit.
	StatesMax int
}
