package explore

import "fmt"

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
	events
)

// Counts are how often things happened.
type Counts [events]int

func (c Counts) String() string {
	names := [...]string{"acknowledged", "lost races", "lost replies", "loads", "unknown outcomes", "ghosts",
		"404 of written slots", "crashes", "deletions", "ends of the log"}
	var out string
	for i, n := range c {
		out += fmt.Sprintf(", %d %s", n, names[i])
	}
	return out[2:]
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
