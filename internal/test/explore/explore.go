package explore

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
)

// Result is what an exploration has found.
type Result struct {
	// States is the number of states, Steps the number of steps between them, and Depth the largest
	// number of steps from the start to a state.
	States, Steps, Depth int
	// Complete says that all states within the bounds were reached.
	Complete bool
	Counts   Counts
	// Violated is the invariant that does not hold; 0 if all hold. Story tells how the violation came
	// about, one line per step.
	Violated Invariant
	Story    []string
}

func (r Result) String() string {
	how := "bounded"
	if r.Complete {
		how = "exhaustive"
	}
	s := fmt.Sprintf("%s: %d states, %d steps, depth %d; %v", how, r.States, r.Steps, r.Depth, r.Counts)
	if r.Violated != 0 {
		s += fmt.Sprintf("\n%v is violated:\n  %s", r.Violated, strings.Join(r.Story, "\n  "))
	}
	return s
}

// explorer goes breadth-first through the states that a world can reach.
type explorer[W any, P living[W]] struct {
	model model[W]
	trace trace
	seen  table
	// frontier has the keys of the states at the current depth. The field after has the keys of the states
	// that are one step deeper.
	frontier, after [][]byte
	result          Result
}

// Explore visits every state within the bounds. It begins with the states that the fewest steps reach, and
// ends at the first violation of an invariant. So the story of the violation has the fewest steps possible.
func Explore(cfg Config) Result {
	return explore[world](&keys{cfg: &cfg}, cfg.StatesMax)
}

func explore[W any, P living[W]](m model[W], statesMax int) Result {
	e := &explorer[W, P]{model: m, seen: newTable()}
	w := m.begin()
	P(w).here().trace = &e.trace
	key := m.of(w)
	e.seen.add(key, 0, 0)
	e.frontier = append(e.frontier, append([]byte(nil), key...))
	for base := 0; len(e.frontier) > 0; {
		count := len(e.frontier)
		for i, key := range e.frontier {
			if wrong := e.expand(key, base+i); wrong != nil {
				return e.end()
			}
			if statesMax > 0 && e.seen.len() >= statesMax {
				return e.end()
			}
		}
		base += count
		e.frontier, e.after = e.after, nil
		if len(e.frontier) > 0 {
			e.result.Depth++
		}
	}
	e.result.Complete = true
	return e.end()
}

func (e *explorer[W, P]) end() Result {
	e.result.States, e.result.Counts = e.seen.len(), e.trace.counts
	return e.result
}

// expand takes all steps from a state. If one of them leads to a violation, it returns the violation
// and puts the story into the result.
func (e *explorer[W, P]) expand(key []byte, index int) *violation {
	var (
		c choices
		w W
	)
	from := e.model.worldOf(key, &c, &e.trace)
	now := P(&w).here()
	for n := 0; ; n++ {
		if n == 0 || !now.untouched {
			w = *from
		}
		now.undo, now.untouched = false, false
		P(&w).step()
		if !now.undo {
			e.result.Steps++
			if wrong := e.visit(&w, index, n); wrong != nil {
				return wrong
			}
		}
		if !c.next() {
			return nil
		}
	}
}

func (e *explorer[W, P]) visit(w P, from, n int) *violation {
	now := w.here()
	if now.wrong == nil {
		key := e.model.of(w)
		if !e.seen.add(key, from, n) {
			return nil
		}
		w.check()
		if now.wrong == nil {
			e.after = append(e.after, append([]byte(nil), key...))
			return nil
		}
	}
	e.result.Depth++
	e.result.Violated = now.wrong.invariant
	e.result.Story = e.story(append(e.seen.path(from), uint16(n)))
	return now.wrong
}

// story replays the choices that lead to a violation, and returns what happens in each step. A broker
// keeps its name in the story, although the order of the brokers may change after each step.
func (e *explorer[W, P]) story(path []uint16) []string {
	w := P(e.model.begin())
	e.model.of(w)
	t := &trace{telling: true}
	for _, n := range path {
		var (
			c    choices
			next W
		)
		w.here().choices = &c
		for i := uint16(0); ; i++ {
			w.here().trace = &trace{}
			if i == n {
				w.here().trace = t
			}
			next = *w
			P(&next).step()
			if i == n {
				break
			}
			c.next()
		}
		if P(&next).here().wrong == nil {
			e.model.of(&next)
		}
		*w = next
	}
	if w.here().wrong == nil {
		w.check()
	}
	return append(t.story, w.here().wrong.detail)
}

// Walk tries the given number of random steps, drops impossible ones, and checks the invariants after each step.
func Walk(cfg Config, seed uint64, steps int) Result {
	return walk[world](&keys{cfg: &cfg}, seed, steps)
}

func walk[W any, P living[W]](m model[W], seed uint64, steps int) Result {
	t := &trace{telling: true}
	from := P(m.begin())
	from.here().choices = &choices{rand: rand.New(rand.NewPCG(seed, 1))}
	from.here().trace = t
	var result Result
	for range steps {
		next := *from
		w := P(&next)
		w.step()
		now := w.here()
		if now.undo {
			continue
		}
		result.Steps++
		if now.wrong == nil {
			w.check()
		}
		if now.wrong != nil {
			result.Violated = now.wrong.invariant
			result.Story = append(t.story, now.wrong.detail)
			break
		}
		*from = next
	}
	result.States, result.Depth, result.Counts = result.Steps, result.Steps, t.counts
	return result
}

// table is the set of the states that were seen. For each state it has the 128-bit hash of the key, and
// the step by which the state was first reached: from which state, and with which choice.
type table struct {
	seeds  [2]maphash.Seed
	index  []uint32 // a hash table, whose entries are 0, or 1 + the number of a state
	hashes [][2]uint64
	from   []uint32
	choice []uint16
}

func newTable() table {
	return table{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, index: make([]uint32, 1<<12)}
}

func (t *table) len() int { return len(t.hashes) }

// add adds a key, and returns whether it is new.
func (t *table) add(key []byte, from, choice int) bool {
	h := [2]uint64{maphash.Bytes(t.seeds[0], key), maphash.Bytes(t.seeds[1], key)}
	i, found := t.find(h)
	if found {
		return false
	}
	t.hashes = append(t.hashes, h)
	t.from = append(t.from, uint32(from))
	t.choice = append(t.choice, uint16(choice))
	t.index[i] = uint32(len(t.hashes))
	if 2*len(t.hashes) > len(t.index) {
		t.grow()
	}
	return true
}

func (t *table) find(h [2]uint64) (i int, found bool) {
	mask := len(t.index) - 1
	for i = int(h[0]) & mask; t.index[i] != 0; i = (i + 1) & mask {
		if t.hashes[t.index[i]-1] == h {
			return i, true
		}
	}
	return i, false
}

func (t *table) grow() {
	t.index = make([]uint32, 2*len(t.index))
	for n, h := range t.hashes {
		i, _ := t.find(h)
		t.index[i] = uint32(n + 1)
	}
}

// path returns the choices that lead to a state.
func (t *table) path(n int) []uint16 {
	var path []uint16
	for ; n != 0; n = int(t.from[n]) {
		path = append(path, t.choice[n])
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}
