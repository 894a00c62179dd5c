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
	losses        // objects lost by a store that breaks its promise
	alarms        // brokers that halted after a loss

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
	events
)

// queueEvents is the first event about queues.
const queueEvents = uncertains

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
		"losses", "alarms",
		"uncertain records", "first hand-outs", "hand-outs by former owners", "further hand-outs", "dead letters",
		"commits of lost owners refused", "answers without an owner", "late answers refused", "acknowledgements again",
		"put back", "redriven", "leases extended", "releases with records out", "owners crashed"}
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
