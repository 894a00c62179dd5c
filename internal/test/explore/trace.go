package explore

import (
	"fmt"
	"strings"
)

// event is something that an exploration must have come across: else it would
// show nothing about it.
type event uint8

const (
	acks      event = iota
	races           // claims that lost their slot
	lost            // Creates without an answer
	loads           // checkpoints loaded
	unknowns        // claims that a load ended
	ghosts          // late PUTs in deleted slots
	false404s       // 404 for a slot that was written
	crashes
	deletions
	tails
	lateData      // uploads of data objects that landed late
	renewals      // data objects uploaded again, since the first was below the floor
	sweeps        // orphans swept
	dataDeletions // data objects deleted that a commit had referred to
	losses        // by a store that breaks its promise
	alarms        // brokers that halted after one

	uncertains    // records that a lost owner may have handed out
	handOuts      // for the first time
	staleHandOuts // by former owners
	againOuts     // further attempts
	deadLetters   // by owners
	fenced        // refused commits of former owners
	ownerlessAcks // while the queue had no owner
	refusals      // answers of deliveries that were not the last
	retries       // acknowledgements of what was done already
	nacks
	redrives
	extensions
	releases // with records that are out
	ownerLosses
	events
)

// queueEvents is the first of those of queues.
const queueEvents = uncertains

// Counts are how often things happened.
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

// trace listens to a world.
type trace struct {
	counts  Counts
	telling bool
	story   []string
}

func (t *trace) count(e event) { t.counts[e]++ }

// tell adds a line to the story, if one is told.
func (t *trace) tell(format string, args ...any) {
	if t.telling {
		t.story = append(t.story, fmt.Sprintf(format, args...))
	}
}
