package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/commitlog"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

var (
	errCut     = errors.New("the process is dead")
	errRefused = errors.New("refused by the weather")
	errLost    = errors.New("the answer was lost")
)

// bendsMax is how often a process gets bent answers about one key: what it reads
// so five times it takes to be damaged in the store.
const bendsMax = 2

// proofsMax is how many creates may be answered so that a probe proves nothing:
// a broker tries three times, and then takes it for the store's way.
const proofsMax = 8

// link is the way of one process to the store. Requests on it go through the
// weather; when the process dies, it is cut.
type link struct {
	sim  *simulation
	name string // of the process
	skew time.Duration
	cut  chan struct{}

	mu      sync.Mutex
	weather weather
	stopped time.Time     // until when the process is stopped
	changed chan struct{} // closed when stopped changes
	counts  map[string]int
	bent    map[string]int
	sent    int
	crashAt int // the process dies at its so manieth request, 0 = it doesn't
	crash   func()
	isCut   bool
}

// fault is the [storetest.Fault] that all requests of the process go through.
func (l *link) fault(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	l.whileStopped()
	f, dies, err := l.begin(r)
	if err != nil {
		return storetest.Answer{}, err
	}
	if r.Verb == objstore.VerbDelete && !strings.HasPrefix(r.Key, commitlog.ProbePrefix) {
		l.sim.history.violate("FloorSafe", "%s deletes %s", l.name, r.Key)
	}
	// The caller may use its bytes again once it has its answer.
	r.Parts = [][]byte{bytes.Join(r.Parts, nil)}
	type reply struct {
		answer storetest.Answer
		err    error
	}
	replies := make(chan reply, 1)
	l.sim.flights.Go(func() {
		a, err := l.carry(context.WithoutCancel(ctx), r, next, f)
		replies <- reply{a, err}
		if dies {
			l.crash()
		}
	})
	var got *reply
	select {
	case x := <-replies:
		got = &x
	case <-ctx.Done():
	case <-l.cut:
	}
	l.whileStopped()
	select {
	case x := <-replies: // it came while the process was stopped
		got = &x
	default:
	}
	switch {
	case l.dead() || dies:
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errCut)
	case got == nil:
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, ctx.Err())
	}
	return got.answer, got.err
}

// begin draws the fate of a request. dies tells that the process does not live
// to see the answer.
func (l *link) begin(r storetest.Request) (f fate, dies bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return fate{}, false, errCut
	}
	l.sent++
	what := string(r.Verb) + " " + stableKey(r.Key)
	l.counts[what]++
	rng := stream(l.sim.cfg.Seed, l.name, what, l.counts[what])
	f = l.weather.draw(rng, r.Verb, l.sim.plan.delay*3)
	if l.weather.throttles(stream(l.sim.cfg.Seed, "throttle", r.Key), r.Key) {
		f.refused = true
	}
	if f.bend != nil {
		if l.bent[r.Key]++; l.bent[r.Key] > bendsMax {
			f.bend = nil
		}
	}
	if stableKey(r.Key) == commitlog.ProbePrefix {
		f.retried, f.undated = f.retried && l.counts[what] <= proofsMax, false
	}
	if l.sent == l.crashAt {
		if chance(rng, 0.3) {
			f.refused = true // it dies before it has sent it
		}
		return f, true, nil
	}
	return f, false, nil
}

// stableKey leaves out what is random in a key.
func stableKey(key string) string {
	if strings.HasPrefix(key, commitlog.DataPrefix) || strings.HasPrefix(key, commitlog.ProbePrefix) {
		key, _, _ = strings.Cut(key, "-")
	}
	if strings.HasPrefix(key, commitlog.ProbePrefix) {
		return commitlog.ProbePrefix
	}
	return key
}

// carry takes a request to the store and back.
func (l *link) carry(ctx context.Context, r storetest.Request, next storetest.Next, f fate) (storetest.Answer, error) {
	time.Sleep(f.before)
	if f.refused || f.mortal && l.dead() {
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errRefused)
	}
	if f.pages > 0 && (r.Limit <= 0 || r.Limit > f.pages) {
		r.Limit = f.pages
	}
	if f.late > 0 {
		l.later(f.late, func() { _, _ = next(ctx, r) })
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errLost)
	}
	if f.again > 0 {
		l.later(f.again, func() { _, _ = next(ctx, r) })
	}
	if f.bend != nil {
		straight := next
		next = func(ctx context.Context, r storetest.Request) (storetest.Answer, error) {
			return f.bend(ctx, r, straight)
		}
	}
	answer, err := next(ctx, r)
	if f.retried {
		answer, err = next(ctx, r)
	}
	time.Sleep(f.after)
	if f.lost {
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errLost)
	}
	if f.undated {
		answer.Time = time.Time{}
	}
	if !answer.Time.IsZero() {
		answer.Time = answer.Time.Add(l.skew).Truncate(time.Second) // as in a Date header
	}
	return answer, err
}

// later lets something happen at the store when nobody waits for it any more.
func (l *link) later(after time.Duration, do func()) {
	l.sim.flights.Go(func() {
		time.Sleep(after)
		do()
	})
}

// sever makes the process dead to the world.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isCut {
		l.isCut = true
		close(l.cut)
	}
}

func (l *link) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// whileStopped returns when the process is not stopped, or dead.
func (l *link) whileStopped() {
	for {
		l.mu.Lock()
		d, changed := time.Until(l.stopped), l.changed
		l.mu.Unlock()
		if d <= 0 {
			return
		}
		select {
		case <-time.After(d):
		case <-changed:
		case <-l.cut:
			return
		}
	}
}

// stop stops the process for d, as SIGSTOP does: it sends nothing, and what
// comes in waits. 0 lets it go on.
func (l *link) stop(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = time.Now().Add(d)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) setWeather(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather = w
}

// clear ends all that befalls the link.
func (l *link) clear() {
	l.stop(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather, l.crashAt = fair, 0
}

// crashIn lets the process die at its nth request from now.
func (l *link) crashIn(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashAt = l.sent + n
}
