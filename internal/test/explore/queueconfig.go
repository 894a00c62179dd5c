package explore

// QueueRule is a rule of queues that a [QueueConfig] can leave out.
type QueueRule uint8

// The rules of queues. Each name, and its comment, says what happens without the rule.
const (
	// EveryQueueRule: all rules are kept.
	EveryQueueRule QueueRule = iota
	// WindowAfter: an owner hands out records for the first time beyond the dispatch limit in the log.
	WindowAfter
	// AttemptAfter: an owner hands out a record again before the log has the record's next attempt.
	AttemptAfter
	// AttemptAhead: an owner commits a record's next attempt although it has not handed out the record for
	// the previous attempt yet.
	AttemptAhead
	// NoAttemptCheck: a worker's answer is accepted, whichever delivery of the record it is for.
	NoAttemptCheck
	// NoUncertainRange: a takeover does not extend the uncertain range.
	NoUncertainRange
	// NoEpoch: the commits of an owner are not checked against the queue's epoch.
	NoEpoch
	// NoEpochAtDeadLetter: the commits that make records dead letters are not checked against the
	// queue's epoch. So a lost owner may make a dead letter of a record if it believes that the record's
	// last lease has ended.
	NoEpochAtDeadLetter
	// SilentRelease: a release does not say which records are with workers.
	SilentRelease
	// WorkOnAfterRelease: an owner keeps handing out records after it has sent its release.
	WorkOnAfterRelease
	// OwnerByName: a broker that restarts acts as the owner without taking the queue over, because
	// the log names it as the owner.
	OwnerByName
	// TakeUp: an owner hands out the deliveries whose attempts the previous owner committed, although the
	// previous owner may have handed them out too.
	TakeUp
	// ExtendLate: a lease is extended although the record claim for the next attempt is on its way to
	// the log.
	ExtendLate
	// OwnOnly: an owner hands out again only records that it has handed out itself, so never those of an
	// earlier owner.
	OwnOnly
	// NoMost: the number of attempts has no limit.
	NoMost
	// RefuseUnsynced: a broker refuses a worker's answer by the state that the broker knows, without a sync.
	RefuseUnsynced
	// DoneAgain: a worker commits results together with the acknowledgement of a record. The log accepts
	// this commit although the record is already done.
	DoneAgain
	// CountAnew: after a redrive, the numbers of a record's deliveries begin at 1 again.
	CountAnew
	// AnswerRedriven: after a redrive, the worker that last had the record may still answer, until the
	// record is handed out again.
	AnswerRedriven
	// LimitBelow: an owner moves the dispatch limit back below a record that it has handed out.
	LimitBelow
	// LimitUnheeded: an owner that has sent a lower dispatch limit to the log still hands out records
	// beyond that limit, until it learns that the log has the lower limit.
	LimitUnheeded
)

var queueRuleNames = [...]string{
	"none", "dispatch limit durable afterwards", "attempt durable afterwards", "attempt made durable ahead of its turn",
	"attempt not checked", "no uncertain range after a takeover", "epoch not checked", "epoch not checked at dead letters",
	"release without the records of workers", "handing out after the release", "owner by name, without a takeover", "durable attempts taken up",
	"lease extended too late", "only own deliveries handed out again", "attempts without a limit", "refused without a sync", "second commit of a done record accepted", "delivery numbers reused after a redrive",
	"answers from before a redrive accepted", "dispatch limit moved back below deliveries", "dispatch limit moved back, but ignored",
}

func (r QueueRule) String() string { return queueRuleNames[r] }

// QueueConfig sets the bounds of an exploration of a queue.
type QueueConfig struct {
	// Brokers is how many brokers can own the queue. Records is how many records are appended, at most;
	// Attempts how often each record may be handed out; Takeovers how often a broker takes the queue
	// over, at most; and Redrives how often a dead letter is sent back to work, at most.
	Brokers, Records, Attempts, Takeovers, Redrives int

	// Late: a broker may learn only later that its commit is in the log.
	Late bool

	// Leases: the model knows which leases have not ended. Each lease ends in a separate step, and
	// workers may extend it. If Leases is false, every lease counts as ended.
	Leases bool

	// Without is the rule that is left out; EveryQueueRule if all are kept.
	Without QueueRule
	// Only lists the invariants that are checked; if it is empty, all are checked.
	Only []Invariant
	// StatesMax is the number of states after which the exploration ends; 0 means no limit.
	StatesMax int
}

const (
	// recordsMax is how many records a world can have.
	recordsMax = 3
	// numbersMax is the highest number that a delivery can have.
	numbersMax = 7
)

// mustFit panics if the bounds are too large for a world.
func (cfg *QueueConfig) mustFit() {
	if cfg.Brokers > brokersMax || cfg.Records > recordsMax || cfg.Attempts*(cfg.Redrives+1) > numbersMax {
		panic("explore: the bounds of a queue are too large for its worlds")
	}
}
