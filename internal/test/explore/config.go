package explore

// Rule is a rule of the log that a [Config] can leave out.
type Rule uint8

// The rules. Each name says what is done without it.
const (
	// None: all rules are kept.
	None Rule = iota
	// NoLease: the lease on the past never ends.
	NoLease
	// OffByOne: the lease covers an answer given just as it ends: <= for <.
	OffByOne
	// SendTime: the lease is compared with the time at which a Create was sent.
	SendTime
	// NoDelay: slots are deleted as soon as a checkpoint covers them.
	NoDelay
	// UploadTime: a checkpoint's age counts from the begin of its upload.
	UploadTime
	// DeleteNewest: the newest checkpoint may be deleted.
	DeleteNewest
	// LoadOlder: an older checkpoint is loaded although a newer one is listed.
	LoadOlder
	// MoveOn: a payload whose claim a load has ended goes to another slot.
	MoveOn
	// NoNonce: a broker that reads its own commit takes it for another's.
	NoNonce
	// LateReply: a late reply to a claim that a load has ended acknowledges it,
	// judged by the new lease.
	LateReply
	// OwnState: that nothing live points into a slot is judged by the newest
	// state, not by that of the checkpoint.
	OwnState
	// AlarmOrder: a 404 is a loss although what is known to exist above it was
	// seen only afterwards.
	AlarmOrder
	// ClaimEarly: a claim is sent before its data object was answered.
	ClaimEarly
	// IgnoreFloor: a data object below the floor is not uploaded again.
	IgnoreFloor
	// SweepUnsaid: data objects that the newest state does not know are swept
	// without an entry that says so.
	SweepUnsaid
	// BlindStart: log/ is not listed, so that a broker counts as recovered
	// wherever the slots it knows of end.
	BlindStart
	// NoRollback: brokers don't check that the applied slot is still there.
	NoRollback
	// NoPrev: what a commit was built on is not compared.
	NoPrev
	// AnyReply: a late reply is taken for one to the present claim.
	AnyReply
)

var ruleNames = [...]string{
	"none", "no lease", "<= for <", "lease checked when sent", "no delay before deletion",
	"checkpoint's age from its upload's begin", "newest checkpoint deleted", "older checkpoint loaded",
	"payload moved on over a load", "own nonce ignored", "late reply judged by the new lease",
	"nothing live, judged by the own state", "loss alarm in the wrong order",
	"claim before its data", "floor ignored", "sweep without its entry",
	"log not listed", "applied slot not looked for", "prev not compared", "late reply taken for another",
}

func (r Rule) String() string { return ruleNames[r] }

// Config sets the bounds of an exploration and the faults beyond the usual.
type Config struct {
	Brokers, Slots, Payloads int

	// Delay is D, Margin the lease's margin, Skew by how much the store's
	// clocks disagree, and Times the last time; all in units of time. Time
	// begins at 1.
	Delay, Margin, Skew, Times int

	// Keep is how many of the newest checkpoints stay.
	Keep int
	// Aged: a checkpoint goes only when a newer one is D old.
	Aged bool
	// Janitor: checkpoints of any decided prefix appear at any time, as if
	// more brokers ran. Otherwise the brokers send them, and they land late.
	Janitor bool
	// Live: every commit moves the payload of the one before, so that the newest
	// one is always live; where one was goes only if a later one is covered.
	Live bool
	// Data: payloads are in data objects, and with Inline in commits as well.
	Data, Inline bool
	// Sweeps: brokers commit floors, and orphans below them are swept.
	Sweeps bool
	// Replies: the replies to Creates may come at any later time.
	Replies bool
	// Slow: a Create takes time between its sending and its execution.
	Slow bool
	// Crashes: brokers crash and restart.
	Crashes bool
	// Syncs: readers wait at the end of the log.
	Syncs bool
	// Renewals: leases are renewed before they end.
	Renewals bool
	// Split: the Lists of checkpoint/ and of log/ are two steps.
	Split bool
	// Relists: readers ask for Lists beyond those that the protocol wants.
	Relists bool
	// Losses: how many objects of the log a store that breaks its promise loses.
	// Then only LossIsLoud and Contiguity can hold.
	Losses int
	// Abandons: callers go away.
	Abandons bool
	// Undated: an answer may carry no date, or come too late by the local clock.
	Undated bool

	// Without is the rule that is left out.
	Without Rule
	// Only are the invariants that are checked; empty = all.
	Only []Invariant
	// StatesMax ends an exploration, 0 = never.
	StatesMax int
}
