package explore

// QueueRule is a rule of queues that a [QueueConfig] can leave out.
type QueueRule uint8

// The rules of queues. Each name says what is done without it.
const (
	// EveryQueueRule: all rules are kept.
	EveryQueueRule QueueRule = iota
	// WindowAfter: new records are handed out beyond the durable dispatch limit.
	WindowAfter
	// AttemptAfter: a further attempt is handed out before it is durable.
	AttemptAfter
	// AttemptAhead: a further attempt is made durable although the one before it was
	// not handed out yet.
	AttemptAhead
	// NoAttemptCheck: an answer counts whatever delivery it is of.
	NoAttemptCheck
	// NoUncertainRange: a takeover does not extend the uncertain range.
	NoUncertainRange
	// NoEpoch: no commit of an owner asks for the epoch.
	NoEpoch
	// NoEpochAtDeadLetter: only dead-lettering does not ask for the epoch: any broker may
	// dead-letter a record whose last lease has ended, as far as it knows.
	NoEpochAtDeadLetter
	// SilentRelease: a release does not say which records are out.
	SilentRelease
	// WorkOnAfterRelease: an owner goes on when it has sent its release.
	WorkOnAfterRelease
	// OwnerByName: a broker that restarts takes itself for the owner, since the log
	// says so, without taking the queue over.
	OwnerByName
	// TakeUp: an owner hands out attempts that the previous owner made durable.
	TakeUp
	// ExtendLate: a lease is extended although what follows it is on its way to the log.
	ExtendLate
	// OwnOnly: an owner hands out again only what it has handed out itself.
	OwnOnly
	// NoMost: the number of attempts has no limit.
	NoMost
	// RefuseUnsynced: a broker refuses an answer by what it knows, without a sync.
	RefuseUnsynced
	// DoneAgain: the log takes what a worker commits with its acknowledgement although the
	// record is done already, since it might be a retry.
	DoneAgain
	// CountAnew: a record that is redriven has the numbers again that it had before.
	CountAnew
	// AnswerRedriven: the last worker that had a record before its redrive may still answer,
	// until the record is handed out again.
	AnswerRedriven
	// LimitBelow: an owner moves the dispatch limit back below what it has handed out.
	LimitBelow
	// LimitUnheeded: an owner hands out records beyond a dispatch limit that it has moved back,
	// until it learns that the log has it.
	LimitUnheeded
)

var queueRuleNames = [...]string{
	"none", "dispatch limit durable afterwards", "attempt durable afterwards", "attempt made durable ahead of its turn",
	"attempt not checked", "no uncertain range after a takeover", "epoch not checked", "epoch not checked at dead letters",
	"release that leaves out what is out", "work after the release", "owner by its name", "durable attempts taken up",
	"lease extended too late", "nothing handed out again of others", "attempts without end", "refused without a sync", "done again", "redriven records count anew",
	"redriven records answered", "dispatch limit moved back below what is out", "dispatch limit moved back, and not heeded",
}

func (r QueueRule) String() string { return queueRuleNames[r] }

// QueueConfig sets the bounds of an exploration of a queue.
type QueueConfig struct {
	// Brokers can own the queue. Records is how many are appended, Attempts how often
	// each may be handed out, Takeovers how many owners there are, Redrives how often a
	// dead letter is sent back.
	Brokers, Records, Attempts, Takeovers, Redrives int

	// Late: a broker does not learn at once that its commit is in the log.
	Late bool

	// Leases: owners keep leases, and workers have them extended. Else leases end
	// whenever an operation checks them.
	Leases bool

	// Without is the rule that is left out.
	Without QueueRule
	// Only are the invariants that are checked; empty = all.
	Only []Invariant
	// StatesMax ends an exploration, 0 = never.
	StatesMax int
}

const (
	// recordsMax is how many records a world can have.
	recordsMax = 3
	// numbersMax is the highest number that a delivery can have.
	numbersMax = 7
)

// mustFit panics if a world can't have these bounds.
func (cfg *QueueConfig) mustFit() {
	if cfg.Brokers > brokersMax || cfg.Records > recordsMax || cfg.Attempts*(cfg.Redrives+1) > numbersMax {
		panic("explore: the bounds of a queue are too large for its worlds")
	}
}
