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
	errRefused = errors.New("refused by the network")
	errLost    = errors.New("the answer was lost")
)

// damagedMax is how many damaged answers about one key a process gets at most. A process that reads damaged
// bytes five times concludes that the object in the store is damaged.
const damagedMax = 2

// proofsMax limits how often the network executes a create of a broker's probe twice. The probe creates one
// object several times at once, to test that the store does not overwrite objects. If the store executes a
// create twice, the second answer proves nothing. After three probes that prove nothing, the broker refuses the
// store. So only the first proofsMax creates of a link may be executed twice.
const proofsMax = 8

// link carries the requests of one process to the store. The link's network injects faults into these
// requests. When the process dies, the link is cut.
type link struct {
	sim   *simulation
	name  string        // name of the process
	skew  time.Duration // how far the link's clock, which dates the store's answers, is ahead of the true time
	crash func()
	cut   chan struct{}
	store *storetest.Faulty // the store as the process sees it
	front *front            // nil if requests go straight to the bucket

	mu      sync.Mutex
	network network
	stopped time.Time     // the process is stopped until this time
	changed chan struct{} // closed when stopped changes
	counts  map[string]int
	damaged map[string]int
	sent    int
	crashAt int // number of the request, from 1, at which the process dies; 0 if it does not die
	isCut   bool
}

// newLink returns the link of a new process to the bucket.
func newLink(s *simulation, name string, w network, skew time.Duration, crash func()) *link {
	l := &link{
		sim: s, name: name, network: w, skew: skew, crash: crash,
		cut: make(chan struct{}), changed: make(chan struct{}), counts: map[string]int{}, damaged: map[string]int{},
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

// travel is the [storetest.Fault] between a process and the bucket. A request that was sent continues
// after its sender has stopped waiting.
func (l *link) travel(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	f, dies, err := l.begin(r)
	if err != nil {
		return storetest.Answer{}, err
	}
	if r.Verb == objstore.VerbDelete && !strings.HasPrefix(r.Key, format.ProbePrefix) {
		l.sim.checkDelete(l.name, r.Key)
	}
	answer, err := l.carry(context.WithoutCancel(ctx), r, next, f)
	if dies {
		l.crash()
	}
	return answer, err
}

// begin draws the outcome of a request. dies reports whether the process dies before it gets the
// answer.
func (l *link) begin(r storetest.Request) (f outcome, dies bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		return outcome{}, false, errCut
	}
	l.sent++
	what := string(r.Verb) + " " + stableKey(r.Key)
	rng := l.drawLocked(what)
	f = l.network.draw(rng, r.Verb, l.sim.plan.delay*3)
	if l.network.throttles(stream(l.sim.cfg.Seed, "throttle", r.Key), r.Key) {
		f.refused = true
	}
	if f.damage != nil {
		if l.damaged[r.Key]++; l.damaged[r.Key] > damagedMax {
			f.damage = nil
		}
	}
	if stableKey(r.Key) == format.ProbePrefix {
		f.retried, f.undated = f.retried && l.counts[what] <= proofsMax, false
	}
	if l.sent == l.crashAt {
		if chance(rng, 0.3) {
			f.refused = true // the process dies before it has sent the request
		}
		return f, true, nil
	}
	return f, false, nil
}

// drawLocked returns the random numbers for a kind of event on the link. The numbers depend on how often the
// event has happened before.
func (l *link) drawLocked(what string) *rand.Rand {
	l.counts[what]++
	return stream(l.sim.cfg.Seed, l.name, what, l.counts[what])
}

// draw is [link.drawLocked] for callers that do not hold the lock.
func (l *link) draw(what string) *rand.Rand {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drawLocked(what)
}

// stableKey returns a key without its random part.
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
func (l *link) carry(ctx context.Context, r storetest.Request, next storetest.Next, f outcome) (storetest.Answer, error) {
	time.Sleep(f.before)
	if f.full && r.Verb == objstore.VerbCreate {
		return storetest.Full(ctx, r, next)
	}
	if f.refused || f.diesWithSender && l.dead() {
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
	if f.damage != nil {
		bent = func(ctx context.Context, r storetest.Request) (storetest.Answer, error) {
			return f.damage(ctx, r, next)
		}
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
		answer.Time = answer.Time.Add(l.skew + time.Duration(f.dateJitter*float64(l.sim.plan.dateJitter))).Truncate(time.Second) // whole seconds, as in a Date header
	}
	return answer, err
}

// later executes a request after a delay, when the sender may have stopped waiting.
func (l *link) later(after time.Duration, do func()) {
	l.sim.flights.Go(func() {
		time.Sleep(after)
		do()
	})
}

func (l *link) setNetwork(w network) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.network = w
}

// clear ends all faults of the link.
func (l *link) clear() {
	l.stop(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.network, l.crashAt = healthy, 0
	if l.front != nil {
		l.front.listen.hangUp() // closes the connections that would break later; new connections don't break
	}
}

// brittleness returns after how many bytes a new connection breaks; 0 means never.
func (l *link) brittleness() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	rng := l.drawLocked("dial")
	if !chance(rng, l.network.refuse) {
		return 0
	}
	return 1 + rng.IntN(pick(rng, 1500, 20_000))
}
