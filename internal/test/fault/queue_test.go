package fault_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// plant is a queue, brokers that start and end, and workers that fail, stall, and answer late and
// twice.
type plant struct {
	t     *testing.T
	store objstore.Store
	flaky *flaky
	opts  seb.Options
	rules queueRules
	// addresses is how many addresses the brokers use in turn; 0 means that they have none.
	addresses, opened int

	mu      sync.Mutex
	brokers []*seb.Broker
}

// queueRules is what the workers of a queue have seen, and checks it against the rules.
type queueRules struct {
	mu       sync.Mutex
	most     int
	handed   map[string]time.Time // time of each delivery, by token
	last     map[seb.Offset]int   // attempt of the latest delivery
	done     map[seb.Offset]string
	ending   map[seb.Offset]bool       // may be done or a dead letter, whatever the worker was told
	doubtful map[seb.Offset]bool       // may be done, since the outcome of an acknowledgement is unknown
	passed   map[seb.Offset]seb.Offset // a later record of the same key that was handed out: this one must be a dead letter
	keys     map[string][]seb.Offset   // offsets of each key in order, if the queue keeps order by key
	twice    int
	lost     int
	failures []string
}

func (r *queueRules) failf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// handedOut notes a delivery.
func (r *queueRules) handedOut(m seb.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.handed[m.Token]; again {
		r.failf("delivery %s was made twice", m.Token)
	}
	if m.Attempt > r.most {
		r.failf("offset %d was handed out %d times", m.Offset, m.Attempt)
	}
	if t := r.done[m.Offset]; t != "" {
		r.failf("offset %d is handed out as %s after %s did it", m.Offset, m.Token, t)
	}
	for _, o := range r.keys[string(m.Key)] {
		if o < m.Offset && !r.ending[o] {
			r.passed[o] = m.Offset
		}
		if o > m.Offset {
			r.failf("offset %d is handed out after the later offset %d of the same key", m.Offset, o)
		}
	}
	if r.keys != nil && !slices.Contains(r.keys[string(m.Key)], m.Offset) {
		r.keys[string(m.Key)] = append(r.keys[string(m.Key)], m.Offset)
	}
	r.ending[m.Offset] = r.ending[m.Offset] || m.Attempt == r.most
	r.handed[m.Token] = time.Now()
	r.last[m.Offset] = max(r.last[m.Offset], m.Attempt)
	if m.Attempt > 1 {
		r.twice++
	}
}

// acknowledged notes that a worker was told that its work counts.
func (r *queueRules) acknowledged(m seb.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.done[m.Offset]; t != "" && t != m.Token {
		r.failf("offset %d was done by %s and by %s", m.Offset, t, m.Token)
	}
	r.done[m.Offset] = m.Token
}

func (p *plant) broker(rng *rand.Rand) *seb.Broker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.brokers[rng.IntN(len(p.brokers))]
}

func (p *plant) open() *seb.Broker {
	for {
		opts := p.opts
		if p.addresses > 0 {
			p.opened++
			opts.Address = fmt.Sprintf("http://broker-%d", p.opened%p.addresses)
		}
		b, err := seb.Open(context.Background(), p.store, opts)
		if err == nil {
			return b
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// restart replaces brokers again and again; it kills or closes them.
func (p *plant) restart(rng *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		p.mu.Lock()
		i := rng.IntN(len(p.brokers))
		old := p.brokers[i]
		p.mu.Unlock()
		if rng.IntN(2) == 0 {
			_ = kit.End(old) // while requests are under way
		} else {
			_ = old.Close()
		}
		b := p.open()
		p.mu.Lock()
		p.brokers[i] = b
		p.mu.Unlock()
	}
}

// work receives and answers until the time is over.
func (p *plant) work(rng *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		q := p.broker(rng).Queue("t", "work")
		ms, err := q.Receive(p.t.Context(), seb.ReceiveOptions{Max: 1 + rng.IntN(8), Wait: time.Duration(rng.IntN(3000)) * time.Millisecond})
		var e *seb.Error
		if errors.As(err, &e) && e.Code == seb.CodeQueueElsewhere && rng.IntN(10) == 0 {
			_ = q.TakeOver(p.t.Context(), e.Epoch) // as if the owner did not answer
		}
		if err != nil {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			continue
		}
		for _, m := range ms {
			p.rules.handedOut(m)
			go p.answer(rand.New(rand.NewPCG(rng.Uint64(), 1)), m)
		}
	}
}

// answer handles one record, like a worker.
func (p *plant) answer(rng *rand.Rand, m seb.Message) {
	time.Sleep(time.Duration(rng.ExpFloat64() * float64(4*time.Second)))
	switch what := rng.IntN(20); {
	case what == 0: // the worker crashes
		return
	case what <= 2:
		delay := time.Duration(rng.IntN(3000)) * time.Millisecond
		_ = p.broker(rng).Queue("t", "work").Nack(p.t.Context(), seb.NackOptions{Delay: &delay}, m.Token)
		return
	case what == 3:
		if _, err := p.broker(rng).Queue("t", "work").Extend(p.t.Context(), 20*time.Second, m.Token); err == nil {
			time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
		}
	}
	p.rules.mu.Lock()
	p.rules.ending[m.Offset] = true
	p.rules.mu.Unlock()
	for range 1 + rng.IntN(2) { // answers perhaps twice
		err := p.broker(rng).Queue("t", "work").Ack(p.t.Context(), m.Token)
		var e *seb.Error
		switch {
		case err == nil:
			p.rules.acknowledged(m)
		case seb.CodeOf(err) == seb.CodeLeaseLost:
			p.rules.mu.Lock()
			p.rules.lost++
			p.rules.mu.Unlock()
		case !errors.As(err, &e) || e.Outcome != seb.NotCommitted:
			p.rules.mu.Lock()
			p.rules.doubtful[m.Offset] = true
			p.rules.mu.Unlock()
		}
	}
}

// check fails unless each record is done or a dead letter.
func (p *plant) check(records int) {
	q := p.brokers[0].Queue("t", "work")
	info, err := q.Describe(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	dead, _, _, err := q.Dead(p.t.Context(), seb.DeadOptions{Limit: 1000})
	if err != nil {
		p.t.Fatal(err)
	}
	r := &p.rules
	parked := map[seb.Offset]bool{}
	for _, m := range dead {
		parked[m.Offset] = true
		if t := r.done[m.Offset]; t != "" {
			r.failf("offset %d is parked, and was done by %s", m.Offset, t)
		}
	}
	if info.Ready+info.Held+info.Delayed > 0 || len(r.done)+len(dead) > records {
		r.failf("%d done and %d parked of %d: %+v", len(r.done), len(dead), records, info)
	}
	for o, by := range r.passed {
		if !parked[o] {
			r.failf("offset %d is handed out before offset %d, which has the same key, is done", by, o)
		}
	}
	for o := range seb.Offset(records) {
		if r.done[o] == "" && !parked[o] && !r.doubtful[o] {
			r.failf("offset %d is neither done nor parked; it was handed out %d times", o, r.last[o])
		}
	}
	for _, f := range r.failures {
		p.t.Error(f)
	}
	p.t.Logf("%d handed out, %d of them again, %d known to be done, %d parked, %d answers too late", len(r.handed), r.twice, len(r.done), len(dead), r.lost)
}

// Every record is done once or becomes a dead letter, no delivery is made twice, no answer counts
// after a later delivery's, and each key keeps its order.
func TestWorkersAndBrokersThatComeAndGo(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if testing.Short() && seed != 1 && seed != 6 {
				t.Skip("it takes a while") // two seeds differ in everything that a seed chooses
			}
			synctest.Test(t, func(t *testing.T) { runPlant(t, seed) })
		})
	}
}

func runPlant(t *testing.T, seed uint64) {
	const records, keys = 120, 7
	_, faulty := newFaulty()
	p := &plant{
		t: t, store: storetest.Slow(faulty, 5*time.Millisecond), flaky: &flaky{rng: rand.New(rand.NewPCG(seed, 0))},
		opts: kit.InVirtualTime(immediate()),
		rules: queueRules{
			most: []int{8, 3, 2, 5}[seed/2%4], handed: map[string]time.Time{}, last: map[seb.Offset]int{}, done: map[seb.Offset]string{},
			ending: map[seb.Offset]bool{}, doubtful: map[seb.Offset]bool{}, passed: map[seb.Offset]seb.Offset{},
		},
	}
	p.opts.CheckpointCommits = 20
	p.addresses = []int{0, 1, 2, 100}[seed%4]
	for range 2 {
		p.brokers = append(p.brokers, p.open())
	}
	mustCreateTopic(t, p.brokers[0], "t", 1)
	order := seb.OrderNone
	if seed%8 < 4 {
		order, p.rules.keys = seb.OrderKey, map[string][]seb.Offset{}
	}
	mustSet(t, p.brokers[0].Queue("t", "work"), seb.QueueUpdate{Lease: ptr(10 * time.Second), MaxAttempts: &p.rules.most, Order: &order})
	faulty.On("", "", p.flaky.fault)
	p.flaky.setRate(0.02)
	until := time.Now().Add(15 * time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() { p.restart(rand.New(rand.NewPCG(seed, 1)), until.Add(-5*time.Minute)) })
	for i := range uint64(5) {
		wg.Go(func() { p.work(rand.New(rand.NewPCG(seed, 10+i)), until) })
	}
	p.produce(rand.New(rand.NewPCG(seed, 2)), records, keys)
	wg.Wait()
	p.flaky.setRate(0)
	p.flaky.late.Release()
	time.Sleep(2 * time.Minute)
	p.check(records)
	for _, b := range p.brokers {
		kill(t, b)
	}
}

// produce appends each record once.
func (p *plant) produce(rng *rand.Rand, records, keys int) {
	for n := range records {
		record := seb.Record{Key: fmt.Appendf(nil, "%d", rng.IntN(keys)), Value: fmt.Appendf(nil, "%d", n)}
		for {
			_, err := p.broker(rng).Append(p.t.Context(), "t", []seb.Record{record}, seb.IdempotencyKey(fmt.Sprint(n)))
			if err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
	}
}
