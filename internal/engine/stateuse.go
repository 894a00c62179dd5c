package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/state"
)

const (
	// rateMin is the shortest time over which the growth of the state says something about the days to come.
	rateMin = 10 * time.Minute
	// rateKept is how long the newer of two kept measurements serves before it becomes the older one. The growth
	// since the older one is the present growth: that of the last 12 to 24 hours, or, in the first 12 hours of a
	// broker, that since its start.
	rateKept = 12 * time.Hour
	// warnTenths is how many tenths of StateMemory cause the first warning; each further tenth causes another one.
	// warnKeyTenths is that for IdempotencyKeys. It is higher: since keys expire, more than half in use is no problem.
	warnTenths    = 5
	warnKeyTenths = 8
)

// StateUse tells how much of [Options].StateMemory the state takes.
type StateUse struct {
	Used, Limit int64         // bytes; Limit is StateMemory
	Left        time.Duration // until appends are refused, at the present growth without idempotency keys, which expire; 0 if unknown, or if the state does not grow
}

// Warning says in one sentence that the state takes half of its memory, or more; otherwise it is "".
func (u StateUse) Warning() string {
	if u.Limit <= 0 || u.Used*10 < u.Limit*warnTenths {
		return ""
	}
	s := fmt.Sprintf("the state takes %d%% of --state-memory", u.Used*100/u.Limit)
	switch {
	case u.Left > 48*time.Hour:
		return s + fmt.Sprintf("; at the present rate, appends are refused in %d days", u.Left/(24*time.Hour))
	case u.Left > 0:
		return s + fmt.Sprintf("; at the present rate, appends are refused in %v", u.Left.Round(time.Minute))
	}
	return s
}

// growth measures how fast the state grows.
type growth struct {
	mu           sync.Mutex
	older, newer measurement
}

// measurement is the lasting memory of the state at a time: see [state.State.LastingMemory].
type measurement struct {
	at    time.Time
	bytes int64
}

// tenths is a number of tenths of a limit. The method reached keeps in it the number that was last reported.
type tenths int

// reached returns true if used fills as many tenths of limit as the parameter from says, and more than when reached last
// returned true. If the number of tenths has fallen by two or more since then, reached compares with the lower number.
func (told *tenths) reached(used, limit int64, from tenths) bool {
	tenth := tenths(used * 10 / max(limit, 1))
	if tenth < *told-1 { // one tenth less may be due to things that come and go
		*told = tenth
	}
	if tenth < from || tenth <= *told {
		return false
	}
	*told = tenth
	return true
}

// begin takes the first measurement.
func (g *growth) begin(now time.Time, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.older = measurement{now, bytes}
	g.newer = g.older
}

// note takes a measurement if the newest one is old.
func (g *growth) note(now time.Time, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.newer.at) >= rateKept {
		g.older, g.newer = g.newer, measurement{now, bytes}
	}
}

// left returns how long it takes to grow by room bytes; 0 if that is unknown, or if nothing grows. If older is too
// recent (see rateMin), left measures the growth from whole instead: the size when the log was created.
func (g *growth) left(now time.Time, bytes, room int64, whole measurement) time.Duration {
	g.mu.Lock()
	from := g.older
	g.mu.Unlock()
	if now.Sub(from.at) < rateMin {
		from = whole
	}
	passed, grown := now.Sub(from.at), bytes-from.bytes
	if passed < rateMin || grown <= 0 {
		return 0
	}
	const century = 100 * 365 * 24 * time.Hour
	if left := float64(max(room, 1)) / float64(grown) * float64(passed); left < float64(century) {
		return time.Duration(left)
	}
	return century
}

// StateUse returns how much of the memory for the state is in use, and how long the rest lasts.
func (e *Engine) StateUse() StateUse {
	var used, lasting int64
	e.View(func(s *state.State) { used, lasting = s.Memory(), s.LastingMemory() })
	return e.stateUse(used, lasting)
}

func (e *Engine) stateUse(used, lasting int64) StateUse {
	left := e.growth.left(e.opts.Wall(), lasting, e.opts.stateLimit(state.UseRecords)-used, measurement{at: e.cluster.Created})
	return StateUse{Used: used, Limit: e.opts.StateMemory, Left: left}
}

// watchState logs a warning when the state takes half of its memory, or when the log remembers eight tenths of the
// idempotency keys that it may, and at each further tenth. The commit loop calls it after each commit.
func (e *Engine) watchState() {
	s := e.live.State
	e.growth.note(e.opts.Wall(), s.LastingMemory())
	if e.stateTold.reached(s.Memory(), e.opts.StateMemory, warnTenths) {
		use := e.stateUse(s.Memory(), s.LastingMemory())
		attrs := []any{"state_bytes", use.Used, "state_memory_bytes", use.Limit}
		if use.Left > 0 {
			attrs = append(attrs, "days_left", float64(use.Left/time.Hour)/24)
		}
		e.logger.Warn(use.Warning(), append(attrs, "hint", "before appends are refused, raise --state-memory on every broker, delete topics or records, or make fewer commits with a longer --linger")...)
	}
	if keys, most := s.KeyedCount(s.Time()), e.opts.IdempotencyKeys; e.keysTold.reached(int64(keys), int64(most), warnKeyTenths) {
		e.logger.Warn(fmt.Sprintf("the log remembers %d%% of --idempotency-keys-max", keys*100/max(most, 1)), "idempotency_keys", keys, "idempotency_keys_max", most,
			"hint", "before requests with new keys are refused, raise --idempotency-keys-max on every broker, or put more records into each append; a key expires 25 hours after its request")
	}
}
