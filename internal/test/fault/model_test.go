package fault_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// model is what the log should contain: the records of each topic. Records whose append ended
// "unknown" may be missing.
type model struct {
	t      *rapid.T
	outer  *testing.T
	memory *objstore.Memory
	faulty *storetest.Faulty
	flaky  *flaky
	opts   seb.Options

	brokers []*seb.Broker
	topics  map[string]*modelTopic
	serial  int
	maybe   map[string]bool // topics whose creation or deletion ended "unknown"
}

type modelTopic struct {
	acked   map[seb.Offset]string
	unknown map[string]bool
}

// flaky makes requests fail, lose their answers, execute late and return damaged bytes, at random.
type flaky struct {
	mu   sync.Mutex
	rng  *rand.Rand
	rate float64
	late storetest.Late
}

func (f *flaky) fault(ctx context.Context, r storetest.Request, next storetest.Next) (storetest.Answer, error) {
	f.mu.Lock()
	hit, which := f.rng.Float64() < f.rate, f.rng.IntN(5)
	f.mu.Unlock()
	if !hit {
		return next(ctx, r)
	}
	switch which {
	case 0:
		return storetest.Fail(ctx, r, next)
	case 1:
		return storetest.LoseReply(ctx, r, next)
	case 2:
		return storetest.Delay(3*time.Second)(ctx, r, next)
	case 3:
		if r.Verb == objstore.VerbCreate {
			return f.late.Fault(ctx, r, next)
		}
		return storetest.FlipByte(40)(ctx, r, next)
	default:
		return storetest.Truncate(50)(ctx, r, next)
	}
}

func (f *flaky) setRate(rate float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate = rate
}

// modelFailure is the value with which failf panics.
type modelFailure string

func failf(format string, args ...any) { panic(modelFailure(fmt.Sprintf(format, args...))) }

func (m *model) broker() *seb.Broker {
	return m.brokers[rapid.IntRange(0, len(m.brokers)-1).Draw(m.t, "broker")]
}

func (m *model) topic() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "topic") }

// open opens a broker on a store without faults.
func (m *model) open() *seb.Broker {
	rate := m.flaky.rate
	m.flaky.setRate(0)
	defer m.flaky.setRate(rate)
	b, err := seb.Open(context.Background(), m.faulty, m.opts)
	if err != nil {
		failf("open: %v", err)
	}
	return b
}

// Append appends to one topic through several callers at the same time.
func (m *model) Append(t *rapid.T) {
	m.t = t
	name := m.topic()
	topic := m.topics[name]
	if topic == nil || m.maybe[name] {
		return
	}
	callers := rapid.IntRange(1, 4).Draw(t, "callers")
	size := rapid.SampledFrom([]int{1, 1, 1, 100, 70_000, 5 << 20}).Draw(t, "size")
	patience := rapid.SampledFrom([]time.Duration{time.Hour, time.Second, 30 * time.Millisecond}).Draw(t, "patience")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	keyed := rapid.Bool().Draw(t, "keyed")
	for range callers {
		b, next := m.broker(), m.broker()
		m.serial++
		vs := []string{large(fmt.Sprintf("%d.0 ", m.serial), size), fmt.Sprintf("%d.1 ", m.serial)}
		var opts []seb.AppendOption
		if keyed {
			opts = append(opts, seb.IdempotencyKey(fmt.Sprint(m.serial)))
		}
		wg.Go(func() {
			a, err := b.Append(ctx, name, values(vs...), opts...)
			if keyed {
				a, err = m.again(next, name, vs, opts, a, err)
			}
			mu.Lock()
			defer mu.Unlock()
			switch seb.OutcomeOf(err) {
			case seb.NotCommitted: // so it must never appear in the log
			case "":
				for i, v := range vs {
					topic.acked[a.Ranges[0].Offset+seb.Offset(i)] = v
				}
			case seb.Unknown:
				for _, v := range vs {
					topic.unknown[v] = true
				}
			}
		})
	}
	wg.Wait()
}

// again repeats an append with an idempotency key, and returns the result of both tries: the second
// answer must be the first one, if there was one.
func (m *model) again(b *seb.Broker, topic string, vs []string, opts []seb.AppendOption, first seb.Appended, was error) (seb.Appended, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	second, err := b.Append(ctx, topic, values(vs...), opts...)
	switch {
	case was == nil && err == nil:
		if !second.Replayed || !slices.Equal(first.Ranges, second.Ranges) {
			m.outer.Errorf("%s: the first try was answered %+v, the second %+v", topic, first, second)
		}
		return first, nil
	case was == nil:
		return first, nil
	case err != nil && seb.OutcomeOf(was) == seb.Unknown:
		return seb.Appended{}, was
	}
	return second, err
}

// Create creates a topic.
func (m *model) Create(t *rapid.T) {
	m.t = t
	name := m.topic()
	if m.maybe[name] {
		return
	}
	_, created, err := m.broker().CreateTopic(context.Background(), name, seb.TopicOptions{})
	switch {
	case err == nil && created != (m.topics[name] == nil):
		failf("create %s: created is %v", name, created)
	case err == nil && created:
		m.topics[name] = &modelTopic{acked: map[seb.Offset]string{}, unknown: map[string]bool{}}
	case seb.OutcomeOf(err) == seb.Unknown:
		m.maybe[name] = true
	}
}

// Delete deletes a topic.
func (m *model) Delete(t *rapid.T) {
	m.t = t
	name := m.topic()
	if m.maybe[name] || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		return
	}
	err := m.broker().DeleteTopic(context.Background(), name)
	switch {
	case err == nil && m.topics[name] == nil:
		failf("deleted %s, which does not exist", name)
	case err == nil:
		delete(m.topics, name)
	case seb.CodeOf(err) == seb.CodeTopicNotFound && m.topics[name] != nil:
		failf("delete %s: %v", name, err)
	case seb.OutcomeOf(err) == seb.Unknown:
		m.maybe[name] = true
	}
}

// Reopen kills or closes a broker, and opens it again.
func (m *model) Reopen(t *rapid.T) {
	m.t = t
	i := rapid.IntRange(0, len(m.brokers)-1).Draw(t, "broker")
	if rapid.Bool().Draw(t, "kill") {
		kill(m.outer, m.brokers[i])
	} else {
		// With faults, the final checkpoint may fail; nothing is lost by that.
		_ = m.brokers[i].Close()
	}
	m.brokers[i] = m.open()
}

// Faults sets how often requests fail.
func (m *model) Faults(t *rapid.T) {
	m.flaky.setRate(rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "rate"))
}

// Land makes PUTs execute whose senders gave up long ago.
func (m *model) Land(*rapid.T) { m.flaky.late.Release() }

// Sleep lets time pass, at most until leases end.
func (m *model) Sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 13 * time.Hour, 30 * time.Hour}).Draw(t, "time"))
}

// Fetch reads a part of a topic through any broker.
func (m *model) Fetch(t *rapid.T) {
	m.t = t
	name := m.topic()
	topic := m.topics[name]
	if topic == nil || m.maybe[name] {
		return
	}
	at := seb.Offset(rapid.IntRange(0, 8).Draw(t, "offset"))
	f, err := m.broker().Fetch(context.Background(), name, 0, seb.At(at), seb.FetchOptions{Limit: 5})
	if err != nil {
		return // other tests check reads with faults
	}
	for i, r := range f.Records {
		want, known := topic.acked[r.Offset]
		if r.Offset != at+seb.Offset(i) || known && want != string(r.Value) || !known && !topic.unknown[string(r.Value)] {
			failf("%s/%d holds %.20q, want %.20q", name, r.Offset, r.Value, want)
		}
	}
}

// check compares the whole log, as every broker and a new one see it, with the model.
func (m *model) check() {
	m.flaky.setRate(0)
	m.flaky.late.Release()
	time.Sleep(time.Minute) // no broker has synced recently, and none waits before a retry
	fresh := m.open()
	defer kill(m.outer, fresh)
	for i, b := range append(slices.Clone(m.brokers), fresh) {
		for name, topic := range m.topics {
			if !m.maybe[name] {
				m.checkTopic(i, b, name, topic)
			}
		}
	}
	for _, b := range append(m.brokers, fresh) {
		if err := b.Close(); err != nil {
			failf("close: %v", err)
		}
		if used := kit.MemoryInUse(b); used != 0 {
			failf("%d bytes are still taken", used)
		}
	}
}

func (m *model) checkTopic(i int, b *seb.Broker, name string, topic *modelTopic) {
	seen := map[string]bool{}
	n := 0
	for r, err := range b.Read(context.Background(), name, 0, seb.Earliest) {
		if err != nil {
			failf("broker %d: %s/%d: %v", i, name, n, err)
		}
		v := string(r.Value)
		want, known := topic.acked[r.Offset]
		switch {
		case int(r.Offset) != n:
			failf("broker %d: %s/%d where %d should be", i, name, r.Offset, n)
		case seen[v]:
			failf("broker %d: %s holds %.20q twice", i, name, v)
		case known && v != want, !known && !topic.unknown[v]:
			failf("broker %d: %s/%d holds %.20q, acknowledged was %.20q", i, name, n, v, want)
		}
		seen[v] = true
		n++
	}
	for at, v := range topic.acked {
		if int(at) >= n {
			failf("broker %d: %s ends at %d, and %.20q was acknowledged at %d", i, name, n, v, at)
		}
	}
}

// TestBrokersAgainstAModel runs random operations through one to three brokers on one bucket, while
// requests fail in all the ways in which a network and a store can fail.
func TestBrokersAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		count := rapid.IntRange(1, 3).Draw(rt, "brokers")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"append", "append", "append", "create", "delete", "reopen", "faults", "land", "sleep", "fetch"}), 5, 40).Draw(rt, "steps")
		var failure any // a panic does not leave the bubble by itself
		defer func() {
			switch f := failure.(type) {
			case nil:
			case modelFailure:
				rt.Fatal(string(f))
			default:
				panic(f) // a panic of rapid itself
			}
		}()
		synctest.Test(t, func(outer *testing.T) {
			memory, faulty := newFaulty()
			onlyProbesAreDeleted(outer, faulty)
			m := &model{
				t: rt, outer: outer, memory: memory, faulty: faulty,
				flaky:  &flaky{rng: rand.New(rand.NewPCG(seed, 0))},
				opts:   immediate(),
				topics: map[string]*modelTopic{}, maybe: map[string]bool{},
			}
			m.opts.CheckpointCommits = 5
			m.opts.StaleMax = time.Nanosecond
			m.faulty.On("", "", m.flaky.fault)
			defer func() {
				failure = recover()
				for _, b := range m.brokers {
					kill(outer, b)
				}
			}()
			for range count {
				m.brokers = append(m.brokers, m.open())
			}
			do := map[string]func(*rapid.T){"append": m.Append, "create": m.Create, "delete": m.Delete, "reopen": m.Reopen,
				"faults": m.Faults, "land": m.Land, "sleep": m.Sleep, "fetch": m.Fetch}
			for _, s := range steps {
				do[s](rt)
			}
			m.check()
		})
	})
}
