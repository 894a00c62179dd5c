package explore

import (
	"fmt"
	"strings"
)

// event is something that can happen in an exploration. An exploration in which an event never
// happens shows nothing about that event.
type event uint8

const (
	acks      event = iota
	races           // claims whose slot another broker won
	lost            // Creates without an answer
	loads           // checkpoints loaded
	unknowns        // sent claims that the load of a checkpoint ended
	ghosts          // late Creates that wrote another commit into a deleted slot
	false404s       // 404 for a slot that was written
	crashes
	deletions
	tails
	lateData      // uploads of data objects that executed late
	renewals      // payloads uploaded again, since their data object was below the floor
	sweeps        // orphans deleted
	dataDeletions // deletions of data objects to which a commit refers
	pagesMissed   // pages that a broker did not find
	losses        // objects lost by a store that breaks its promise
	alarms        // brokers that halted after a loss
	heard         // commits that came from other brokers, and that the receiver could apply at once
	beaten        // Creates given up, since another broker said that it has the slot

	uncertains    // records that a lost owner may have handed out
	handOuts      // first deliveries
	staleHandOuts // deliveries by former owners
	againOuts     // second and later deliveries
	deadLetters   // records that owners made dead letters
	fenced        // refused commits of former owners
	ownerlessAcks // answers accepted while the queue had no owner
	refusals      // refused answers
	retries       // acknowledgements of records that were done already
	nacks
	redrives
	extensions
	releases // releases of the queue while workers have records
	ownerLosses

	landed         // PUTs that succeeded
	bundlesLanded  // PUTs with bundles that succeeded
	lostClaims     // claims whose slot has another commit
	taken          // bundles taken by a winner
	seenMarks      // bundles refused, since the winner had seen their marks
	tooOld         // bundles refused, since the winner did not know the marks of all slots above the bundle's After
	withoutBefore  // bundles refused, since the winner did not know the one before
	overtaken      // bundles refused, since a later one of the session was there
	struck         // applied commits with marks of bundles in hand; these bundles were removed
	droppedBundles // applied commits at which bundles in hand were dropped
	droppedInLoads // loads in which bundles in hand were dropped
	givenUp        // loads that made the outcome of bundles unknown
	byWire         // commits applied that came from other brokers
	directCommits  // own commits with requests that were in no bundle
	toldCommitted
	toldRefused
	doubles // brokers that became a copy of another
	copiesFound
	strangers      // bundles refused, since their senders have another log
	strangersTaken // bundles taken whose senders have another log, which the winner could not know yet
	brokersCrashed // brokers that crashed, whose bundles may be on their way

	segmentsUploaded
	segmentsMerged // uploads of segments made of other segments
	segmentsAdded
	segmentsRefused
	segmentGhosts // deleted segments that were written again
	checkpointsSeen
	slotsDeleted
	slotGhosts // deleted commits that were written again
	segmentsDeleted
	checkpointsDeleted
	collections // entries that say what is deleted
	pagesAdded
	pagesRefused
	pagesDied
	pagesDeleted
	events
)

// queueEvents is the first event about queues.
const queueEvents = uncertains

// handoverEvents is the first event about bundles that brokers hand over.
const handoverEvents = landed

// segmentEvents is the first event about segments, and about deletion.
const segmentEvents = segmentsUploaded

// Counts are how often each event happened.
type Counts [events]int

func (c *Counts) add(o Counts) {
	for i, n := range o {
		c[i] += n
	}
}

func (c Counts) String() string {
	names := [events]string{"acknowledged", "lost races", "lost replies", "loads", "unknown outcomes", "ghosts",
		"404 of written slots", "crashes", "deletions", "ends of the log",
		"late uploads", "repeated uploads", "orphans swept", "data objects deleted",
		"pages missed", "losses", "alarms", "commits heard", "Creates given up",
		"uncertain records", "first hand-outs", "hand-outs by former owners", "further hand-outs", "dead letters",
		"commits of lost owners refused", "answers without an owner", "late answers refused", "acknowledgements again",
		"put back", "redriven", "leases extended", "releases with records out", "owners crashed",
		"PUTs succeeded", "PUTs with bundles succeeded", "claims lost", "bundles taken", "marks seen", "bundles too old", "bundles without the one before",
		"bundles overtaken", "strikes", "drops after lost races", "drops after loads", "bundles given up", "commits by wire", "requests committed without a bundle", "told committed", "told refused",
		"copies made", "copies found", "bundles of strangers refused", "bundles of strangers taken", "brokers crashed",
		"segments uploaded", "of segments", "segments added", "segments refused", "segments written again", "checkpoints seen", "commits deleted", "commits written again",
		"segments deleted", "checkpoints deleted", "collections", "pages added", "pages refused", "pages dead", "pages deleted"}
	var list []string
	for i, n := range c {
		if n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, names[i]))
		}
	}
	return strings.Join(list, ", ")
}

// trace counts the events of a world and, if telling is set, writes its story.
type trace struct {
	counts  Counts
	telling bool
	story   []string
}

func (t *trace) count(e event) { t.counts[e]++ }

// tell adds a line to the story if telling is set.
func (t *trace) tell(format string, args ...any) {
	if t.telling {
		t.story = append(t.story, fmt.Sprintf(format, args...))
	}
}
