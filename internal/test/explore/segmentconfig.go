package explore

// SegmentRule is a rule of compaction and deletion that a [SegmentConfig] can leave out.
type SegmentRule uint8

// The rules of compaction and deletion. Each name, and its comment, says what happens without the rule.
const (
	// EverySegmentRule: all rules are kept.
	EverySegmentRule SegmentRule = iota
	// NoAge: a checkpoint counts as old enough as soon as it is seen.
	NoAge
	// NewestIsOld: objects that died before the newest checkpoint may go, once this is old enough.
	NewestIsOld
	// OwnDead: objects may go that are dead for the collector's own state, whatever the checkpoints say.
	OwnDead
	// OwnBottom: commits may go up to the bottom of the collector's own state.
	OwnBottom
	// KeepNothing: all commits below the bottom may go, also those whose batches stay, and those that died later.
	KeepNothing
	// SweepDead: the sweep takes dead objects below the floor for orphans.
	SweepDead
	// FloorUnsaid: the sweep deletes unknown objects below the collector's last slot, although no floor is in the log.
	FloorUnsaid
	// MixedPair: a checkpoint is said to be seen with the bottom of a later state.
	MixedPair
	// SeenUnread: a checkpoint counts as seen when its writer begins to write it.
	SeenUnread
)

var segmentRuleNames = [...]string{
	"none", "age not asked", "newest checkpoint counts", "dead by the own state", "bottom of the own state", "no commits kept",
	"dead objects swept", "floor without its entry", "bottom of a later state", "checkpoints seen before they are read",
}

func (r SegmentRule) String() string { return segmentRuleNames[r] }

// SegmentConfig sets the bounds of an exploration of compaction and deletion.
type SegmentConfig struct {
	// Slots is how many slots the log can have.
	Slots int
	// Partitions is how many partitions the topic has; Appends is how many records are appended, at most, one in each commit.
	Partitions, Appends int
	// Trims is how often records are deleted, Uploads how many segments are uploaded, and Checkpoints how many checkpoints
	// are written, at most.
	Trims, Uploads, Checkpoints int
	// Ticks is how often the time moves on; D is 3 ticks, and the margin 1.
	Ticks int
	// Floors is how often the data floor rises, at most.
	Floors int
	// Keys is how many idempotency keys the log remembers, at most, one in each commit. Uploads are of pages too then. At the tick
	// Forget, the log forgets the keys that it has remembered before any checkpoint was seen.
	Keys, Forget int
	// Stays: a compactor may be unable to read a batch.
	Stays bool
	// Late: an upload may land in the store at any later time, and a commit again after it was deleted.
	Late bool

	// Without is the rule that is left out; EverySegmentRule if all are kept.
	Without SegmentRule
	// Only lists the invariants that are checked; if it is empty, all are checked.
	Only []Invariant
	// StatesMax is the number of states after which the exploration ends; 0 means no limit.
	StatesMax int
}

const (
	segmentSlotsMax = 62 // the bits of a word
	partitionsMax   = 2
	deleteTicks     = 3 // D
	marginTicks     = 1
	tickMicros      = 1_000_000 // microseconds
)

func (cfg *SegmentConfig) mustFit() {
	if cfg.Slots > segmentSlotsMax || cfg.Partitions < 1 || cfg.Partitions > partitionsMax || cfg.Ticks > 200 {
		panic("explore: the bounds of segments are too large for its worlds")
	}
}
