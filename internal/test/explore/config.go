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
	// SendTime: the answer to a Create has the time at which the Create was sent, not the time at which
	// the store executed it.
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
	// MoveOn: a broker that loads a checkpoint while a claim is under way does not learn the outcome of
	// the claim. It claims another slot for the same payload.
	MoveOn
	// NoNonce: a broker that reads its own commit takes it for the commit of another broker.
	NoNonce
	// LateReply: a broker loads a checkpoint while a claim is under way, and gets the reply to the Create
	// afterwards. It acknowledges the payload if the new lease covers the reply.
	LateReply
	// OwnState: a slot is deleted if the newest state shows that the slot's payload is dead. With the
	// rule, the state in a checkpoint that is D old must show that the payload is dead.
	OwnState
	// AlarmOrder: a 404 counts as a loss even if the broker learned only after the 404 that a later slot
	// exists.
	AlarmOrder
	// ClaimEarly: a commit is sent before the store has confirmed the commit's data object.
	ClaimEarly
	// IgnoreFloor: a payload whose data object is below the floor is not uploaded again.
	IgnoreFloor
	// SweepUnsaid: data objects to which no commit refers are deleted although the log has no floor
	// entry.
	SweepUnsaid
	// BlindStart: a broker that starts does not list log/. It concludes that the log ends at the last slot
	// that it happens to know.
	BlindStart
	// NoRollback: brokers don't check that the applied slot still exists.
	NoRollback
	// NoPrev: a commit's hash of the previous commit is not checked.
	NoPrev
	// AnyReply: a broker takes the late reply to an earlier Create for the reply to its current claim.
	AnyReply
	// TellEarly: a broker sends its commit to the other brokers before it knows that the commit is in the log.
	TellEarly
)

var ruleNames = [...]string{
	"none", "no lease", "lease covers the instant of its end", "lease checked at the time of sending", "no delay before deletion",
	"checkpoint's age from its upload's begin", "newest checkpoint deleted", "older checkpoint loaded",
	"payload moved to another slot after a load", "own nonce ignored", "late reply judged by the new lease",
	"liveness judged by the newest state", "loss concluded from answers in any order",
	"claim before its data", "floor ignored", "sweep without a floor entry",
	"log not listed", "applied slot not checked", "prev not compared", "late reply taken for the current claim's",
	"commit sent to others before it is decided",
}

func (r Rule) String() string { return ruleNames[r] }

// Config sets the bounds of an exploration, and which faults can happen.
type Config struct {
	Brokers, Slots, Payloads int

	// Delay is D: a slot may be deleted once a checkpoint that covers it has been visible for D. A log
	// lease lasts D minus Margin. Skew is how far the clocks of the store may differ. Time goes from 1
	// to Times. All four count ticks.
	Delay, Margin, Skew, Times int

	// Keep is how many of the newest checkpoints are not deleted.
	Keep int
	// Aged: a checkpoint is deleted only when a newer one is D old.
	Aged bool
	// Pages: each checkpoint refers to a page, which may be deleted once a newer checkpoint is D old.
	Pages bool
	// Janitor: checkpoints of any prefix of the log appear at any time, as if other brokers wrote them. If
	// Janitor is false, the brokers of the world write the checkpoints, which may become visible late.
	Janitor bool
	// Live: every commit moves the payload of the previous commit elsewhere, so only the newest payload is
	// live. The slot or data object that held the moved payload may be deleted once a checkpoint that
	// covers the move is D old. If Live is false, all data objects are live, and no other payload is.
	Live bool
	// Data: payloads are in data objects. If Inline is true too, some payloads are in commits.
	Data, Inline bool
	// Sweeps: brokers commit data floors, and orphans below a floor are deleted.
	Sweeps bool
	// Replies: the replies to Creates may come at any later time.
	Replies bool
	// Slow: a Create takes time between its sending and its execution.
	Slow bool
	// Crashes: brokers crash and restart.
	Crashes bool
	// Syncs: readers at the end of the log ask for syncs.
	Syncs bool
	// Wire: brokers send each other the commits that they write.
	Wire bool
	// Renewals: leases are renewed before they end.
	Renewals bool
	// Split: the Lists of checkpoint/ and of log/ are two steps.
	Split bool
	// Relists: readers ask for Lists, in addition to those that the protocol asks for.
	Relists bool
	// Losses is how many objects of the log a store that breaks its promise may lose. If it is not 0,
	// only LossIsLoud and Contiguity can hold.
	Losses int
	// Abandons: callers stop waiting for their commits.
	Abandons bool
	// Undated: the answer to a Get may carry no date, or come too late by the local clock.
	Undated bool

	// Without is the rule that is left out; None if all are kept.
	Without Rule
	// Only lists the invariants that are checked; if it is empty, all are checked.
	Only []Invariant
	// StatesMax is the number of states after which the exploration ends; 0 means no limit.
	StatesMax int
}
