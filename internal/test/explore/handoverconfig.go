package explore

import "github.com/simple-event-broker/seb/internal/handover"

// HandoverRule is a rule of docs/rfcs/0005 that a [HandoverConfig] can leave out.
type HandoverRule uint8

// The rules of handing over. Each comment says what happens without the rule. To leave out a rule that package
// handover enforces, the model gives the package false inputs, which make it act as if it did not have the rule.
const (
	// EveryHandoverRule: all rules are kept.
	EveryHandoverRule HandoverRule = iota
	// NoLook: a sender does not look for its marks in a slot, but raises the field After of its bundles all the same.
	NoLook
	// NoCompare: a winner takes a bundle although it has seen the bundle's mark in a slot above the bundle's After.
	NoCompare
	// NoHorizon: a winner takes a bundle although it does not know the marks of all slots above the bundle's After.
	NoHorizon
	// NoStrike: a bundle stays in hand when another broker's commit has its mark.
	NoStrike
	// NoOrder: a winner takes a bundle, or keeps it, although a later bundle of the same session is in hand or
	// in the log.
	NoOrder
	// NewNumber: a sender seals the requests of an undecided bundle again, as another bundle.
	NewNumber
	// NoIsFinal: the answer "no" is final: after it, the sender tells the caller that the request is not committed.
	NoIsFinal
	// NoVerdict: a broker refuses a request of a sealed bundle, and writes no mark with that verdict into the log.
	NoVerdict
	// HandKept: a winner that loads a checkpoint keeps the bundles that may be in the slots below.
	HandKept
	// SuccessorKept: a winner that drops a bundle in a load keeps the bundles that must come after it.
	SuccessorKept
	// LoadUnheeded: a sender that loads a checkpoint goes on as if it had looked at the slots below.
	LoadUnheeded
	// NoPredecessor: a winner takes a bundle although the bundle before it is not known.
	NoPredecessor
	// PredecessorByNumber: a bundle names the one before it by session and number only.
	PredecessorByNumber
	// MarkByNumber: a sender takes a mark for its own if session and number are equal.
	MarkByNumber
	// AnyHash: a winner does not compare a bundle's AfterHash with the hash that it knows of the bundle's slot After.
	AnyHash
	// NotAwaited: a winner commits a bundle although it has not applied the bundle's slot After.
	NotAwaited
	// SentUndecided: a winner sends its commit to other brokers before the slot is decided.
	SentUndecided
	// WordIsEvidence: a broker takes a peer's commit for evidence of what is in the store.
	WordIsEvidence
	// SealClaimed: while a broker claims a slot for requests in no bundle, the broker seals these or later requests.
	SealClaimed
	// ClaimAfterLoad: a broker that gave up bundles claims for requests in no bundle before the log has a later bundle.
	ClaimAfterLoad
	// OwnTwice: a commit has a bundle of its writer twice, since a copy of the writer has handed over the same bundle.
	OwnTwice
)

var handoverRuleNames = [...]string{
	"none", "marks not looked for", "after not compared", "marks forgotten without a horizon", "struck only in own commits",
	"late bundle of a session taken", "new number for a retry", "no is final", "refusal without a mark",
	"hand kept over a load", "bundle kept when the one before it is dropped", "sender's load ignored",
	"taken without the predecessor", "predecessor named by its number", "mark without draw and seal",
	"hash of after not compared", "slot after not awaited",
	"commit sent before it is decided", "a peer's word is evidence", "sealed while claimed", "claimed without a bundle after a load", "own bundle also taken from hand",
}

func (r HandoverRule) String() string { return handoverRuleNames[r] }

// HandoverConfig sets the bounds of an exploration of brokers that hand over bundles.
type HandoverConfig struct {
	// Bundles is how many bundles are sealed, at most, together with the requests that are in no bundle at first.
	Brokers, Slots, Bundles int

	// Crashes is how often brokers crash and restart, at most.
	Crashes int
	// Loads: brokers load checkpoints of any prefix of the log.
	Loads bool
	// Direct: brokers also claim slots for requests that are in no bundle.
	Direct bool
	// Abandons: brokers give up claims whose PUT may still succeed.
	Abandons bool
	// Double: once, one broker becomes a copy of another, with its memory, as if a machine was restored from a
	// snapshot, or ran twice.
	Double bool
	// Conditions: bundles may have a condition, which depends on what the log has before them.
	Conditions bool
	// Wire: brokers apply commits that other brokers have sent to them, too.
	Wire bool
	// Strangers: peers that have another log send bundles and commits.
	Strangers bool
	// AnyWinner leaves out the rule "Winner only": every broker takes bundles at any time. If AnyWinner is false, a
	// broker takes bundles after its own commits, and after another broker has named it as its successor.
	AnyWinner bool
	// Remembered is how many slots a winner remembers; 0 means all.
	Remembered int

	// Without is the rule that is left out; EveryHandoverRule if all are kept.
	Without HandoverRule
	// Only lists the invariants that are checked; if it is empty, all are checked.
	Only []Invariant
	// StatesMax is the number of states after which the exploration ends; 0 means no limit.
	StatesMax int
}

const (
	// bundlesMax is how many bundles a world can have, and entriesMax how many marks a commit can have.
	bundlesMax, entriesMax = 5, 6
	// handoverSlotsMax is how many slots a world can have.
	handoverSlotsMax = 5
)

func (cfg *HandoverConfig) mustFit() {
	if cfg.Brokers > brokersMax || cfg.Slots > handoverSlotsMax || cfg.Bundles > bundlesMax {
		panic("explore: the bounds of handing over are too large for its worlds")
	}
}

func (cfg *HandoverConfig) limits() handover.Limits {
	l := handover.Limits{Slots: handoverSlotsMax, Marks: 100, Hand: 100, HandOfSession: 100, Bytes: 1, BytesOfSession: 1}
	if cfg.Remembered > 0 {
		l.Slots = cfg.Remembered
	}
	return l
}
