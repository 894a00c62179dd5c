package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
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
	sim   *simulation
	name  string // of the process
	skew  time.Duration
	crash func()
	cut   chan struct{}
	store *storetest.Faulty // as the process sees it
	front *front            // nil if requests go straight to the bucket

	mu      sync.Mutex
	weather weather
	stopped time.Time     // until when the process is stopped
	changed chan struct{} // closed when stopped changes
	counts  map[string]int
	bent    map[string]int
	sent    int
	crashAt int // the process dies at its so manieth request, 0 = it doesn't
	isCut   bool
}

// newLink returns the way of a new process to the bucket.
func newLink(s *simulation, name string, w weather, skew time.Duration, crash func()) *link {
	l := &link{
		sim: s, name: name, weather: w, skew: skew, crash: crash,
		cut: make(chan struct{}), changed: make(chan struct{}), counts: map[string]int{}, bent: map[string]int{},
	}
	reached := storetest.NewFaulty(s.bucket)
	reached.On("", "", l.travel)
	l.store = storetest.NewFaulty(reached)
	if s.plan.s3 {
		l.front = newFront(l, reached)
		l.store = storetest.NewFaulty(l.front.client())
	}
	l.store.On("", "", l.process)
	if l.front != nil {
		l.store.On("", "", l.front.audit)
	}
	return l
}

// travel is the [storetest.Fault] between a request that was sent and the
// bucket. It goes on when the sender has stopped to wait.
func (l *link) travel(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	f, dies, err := l.begin(r)
	if err != nil {
		return storetest.Answer{}, err
	}
	if r.Verb == objstore.VerbDelete && !strings.HasPrefix(r.Key, format.ProbePrefix) {
		l.sim.history.violate("FloorSafe", "%s deletes %s", l.name, r.Key)
	}
	answer, err := l.carry(context.WithoutCancel(ctx), r, next, f)
	if dies {
		l.crash()
	}
	return answer, err
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
	rng := l.drawLocked(what)
	f = l.weather.draw(rng, r.Verb, l.sim.plan.delay*3)
	if l.weather.throttles(stream(l.sim.cfg.Seed, "throttle", r.Key), r.Key) {
		f.refused = true
	}
	if f.bend != nil {
		if l.bent[r.Key]++; l.bent[r.Key] > bendsMax {
			f.bend = nil
		}
	}
	if stableKey(r.Key) == format.ProbePrefix {
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

// drawLocked returns the random numbers of what happens on the link, which
// depend on how often it has happened before.
func (l *link) drawLocked(what string) *rand.Rand {
	l.counts[what]++
	return stream(l.sim.cfg.Seed, l.name, what, l.counts[what])
}

// draw is [link.drawLocked] for what happens outside of the lock.
func (l *link) draw(what string) *rand.Rand {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drawLocked(what)
}

// stableKey leaves out what is random in a key.
func stableKey(key string) string {
	if strings.HasPrefix(key, format.DataPrefix) || strings.HasPrefix(key, format.ProbePrefix) {
		key, _, _ = strings.Cut(key, "-")
	}
	if strings.HasPrefix(key, format.ProbePrefix) {
		return format.ProbePrefix
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
	bent := next
	if f.bend != nil {
		bent = func(ctx context.Context, r storetest.Request) (storetest.Answer, error) { return f.bend(ctx, r, next) }
	}
	answer, err := bent(ctx, r)
	if f.retried {
		answer, err = bent(ctx, r)
	}
	time.Sleep(f.after)
	if f.lost {
		return storetest.Answer{}, fmt.Errorf("%s %s: %w", r.Verb, r.Key, errLost)
	}
	if f.undated {
		answer.Time = time.Time{}
	}
	if !answer.Time.IsZero() {
		answer.Time = answer.Time.Add(l.skew + time.Duration(f.swing*float64(l.sim.plan.swing))).Truncate(time.Second) // as in a Date header
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
	if l.front != nil {
		l.front.listen.hangUp() // the connections of fair weather don't break
	}
}

// brittleness returns after how many bytes a new connection breaks, 0 = never.
func (l *link) brittleness() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	rng := l.drawLocked("dial")
	if !chance(rng, l.weather.refuse) {
		return 0
	}
	return 1 + rng.IntN(pick(rng, 1500, 20_000))
}
