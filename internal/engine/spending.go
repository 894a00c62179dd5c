package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/state"
)

// Brokers say in the log what they have asked of the store, so that each of them knows what all have spent. A broker adds that to a
// commit that it makes anyway, or to a bundle that it hands over. It counts as told what an applied commit has, not what the broker
// has sent. So nothing is missing if a commit failed, and nothing is there twice if the store's answer was lost: the broker applies
// its own commit, or another one, before it builds for the next slot. There are two exceptions. A broker that loads a checkpoint
// does not see what it has told in the commits below it, and may tell it again. What a process has sent since its last commit is
// lost when the process ends.

// tellPause is the shortest time between two commits in which a broker tells what it has asked of the store.
const tellPause = time.Minute

// spending is what an Engine knows about the requests that all brokers have sent.
type spending struct {
	seen atomic.Pointer[spendingSeen]

	mu   sync.Mutex
	told map[format.Cause]format.StoreUse // the part of this engine's own requests that the log has

	// Owned by the commit loop.
	last   time.Time // when a commit with such a part was applied
	handed *Request  // the last request in a bundle that tells of some
}

// spendingSeen is what the log said when its last commit was applied.
type spendingSeen struct {
	at     time.Time // when it was applied
	time   int64     // of the commit
	puts   int64     // creates for commits and their data objects since the engine was opened, whoever made them
	months []state.Spending
}

// Untold returns the requests that the log does not have yet, by cause.
func (e *Engine) Untold() (causes []format.CauseUse) {
	e.spending.mu.Lock()
	defer e.spending.mu.Unlock()
	for _, cause := range Causes {
		use, told := e.use[cause].load(), e.spending.told[cause]
		if use != told && use.Covers(told) { // else another process uses the same session
			causes = append(causes, format.CauseUse{Cause: cause, StoreUse: use.Minus(told)})
		}
	}
	return causes
}

// tell returns the entry that tells of the requests that the log does not have yet; nil if it is not time for it. The commit loop
// calls it.
func (e *Engine) tell() *format.Spent {
	s := &e.spending
	if e.live.State.Level() < format.LevelSegments || !s.last.IsZero() && time.Since(s.last) < tellPause || s.handed != nil && !s.handed.decided() {
		return nil
	}
	causes := e.Untold()
	if len(causes) == 0 {
		return nil
	}
	return &format.Spent{Causes: causes}
}

// decided reports whether the outcome of a request is known.
func (r *Request) decided() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// tellInBundle adds a request to a bundle that is about to be sealed, if it is time to tell.
func (e *Engine) tellInBundle(x *bundle) {
	told := e.tell()
	if told == nil {
		return
	}
	r := &Request{Change: tellSpent{told}, Synced: true, came: e.Now(), holders: 1, sealed: true, done: make(chan struct{})}
	set := x.sets[len(x.sets)-1]
	set.requests, x.requests = append(set.requests, r), append(x.requests, r)
	e.spending.handed = r
}

// appliedSpending is called when a commit was applied, before others see the new state.
func (e *Engine) appliedSpending(c *format.Commit) {
	s, now := &e.spending, time.Now()
	seen := &spendingSeen{at: now, time: c.Time, puts: 1 + int64(len(c.Data))}
	if before := s.seen.Load(); before != nil {
		seen.puts, seen.months = seen.puts+before.puts, before.months
	}
	var by format.SessionID
	for _, entry := range c.Entries {
		switch x := entry.(type) {
		case *format.WriterMark:
			by = x.Session
		case *format.BundleMark:
			by = x.Session
		case *format.Spent:
			seen.months = e.live.State.CloneSpending()
			if e.recovered && by == e.opts.Session {
				s.noteTold(x, now)
			}
		}
	}
	s.seen.Store(seen)
}

func (s *spending) noteTold(x *format.Spent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[format.Cause]format.StoreUse{}
	}
	for _, c := range x.Causes {
		s.told[c.Cause] = s.told[c.Cause].Plus(c.StoreUse)
	}
	s.last = now
}

// loadedSpending is called when the state has come from a checkpoint.
func (e *Engine) loadedSpending(st *state.State) {
	seen := &spendingSeen{at: time.Now(), time: st.Time(), months: st.CloneSpending()}
	if before := e.spending.seen.Load(); before != nil {
		seen.puts = before.puts
	}
	e.spending.seen.Store(seen)
}

// fill returns how full a batch set is, and what the log has cost.
func (s *spending) fill(set *batchSet, now time.Time) Fill {
	f := Fill{Requests: len(set.requests), Bytes: set.bytes, Age: now.Sub(set.began)}
	if seen := s.seen.Load(); seen != nil {
		f.Now, f.Puts = time.UnixMicro(seen.time).Add(now.Sub(seen.at)), seen.puts
		month := state.MonthOf(f.Now.UnixMicro())
		for i := range seen.months {
			if seen.months[i].Month == month {
				f.Spent = seen.months[i].Sum()
			}
		}
	}
	return f
}

// sentSpent is the kind of tellSpent in a bundle. Package change has no such kind.
const sentSpent = 1<<15 | 1

// tellSpent is a change that tells of requests to the store.
type tellSpent struct{ spent *format.Spent }

// errToldLater is the outcome of a tellSpent that was not committed at once. The next bundle or commit tells more.
var errToldLater = errors.New("told later")

// Apply implements Change.
func (x tellSpent) Apply(*state.Draft) ([]format.Entry, error) { return []format.Entry{x.spent}, nil }

// Encode implements Sendable.
func (x tellSpent) Encode(w *pack.Writer) {
	w.U16(sentSpent)
	w.Raw(x.spent.Bytes())
}
