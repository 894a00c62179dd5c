package engine_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// told returns what brokers have said to have spent in all months.
func told(e *engine.Engine) (sum format.StoreUse) {
	e.View(func(s *state.State) {
		for _, month := range s.Spending() {
			sum = sum.Plus(month.Sum())
		}
	})
	return sum
}

// sent returns all that engines have asked of their stores, less what they have not told yet.
func sent(engines ...*engine.Engine) (sum format.StoreUse) {
	for _, e := range engines {
		u := e.StoreUse()
		for _, c := range e.Untold() {
			u = u.Minus(c.StoreUse)
		}
		sum = sum.Plus(u)
	}
	return sum
}

// tells counts the commits in which somebody tells of requests, and those that have nothing else.
func tells(t *testing.T, store objstore.Store, to format.Seq) (n, alone int) {
	t.Helper()
	for seq := format.Seq(1); seq <= to; seq++ {
		object, err := objstore.GetWhole(t.Context(), store, format.LogKey(seq), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		c, err := format.DecodeCommit(object.Body)
		if err != nil {
			t.Fatal(err)
		}
		has, other := false, false
		for _, entry := range c.Entries {
			switch entry.(type) {
			case *format.Spent:
				has = true
			case *format.WriterMark, *format.BundleMark, *format.CheckpointSeen:
			default:
				other = true
			}
		}
		if has {
			n++
		}
		if has && !other {
			alone++
		}
	}
	return n, alone
}

func TestBrokersTellWhatTheySpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := open(t, store)
		topic := create(t, e, "t")
		const minutes = 30
		for range 6 * minutes {
			if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if got, want := told(e), sent(e); got != want || got.Creates < 5*minutes {
			t.Errorf("the log has %+v, the engine has told %+v", got, want)
		}
		commits, alone := tells(t, store, e.Applied())
		if commits < minutes*9/10 || commits > minutes+1 || alone > 0 {
			t.Errorf("in %d minutes, %d commits tell of requests, %d of them of nothing else", minutes, commits, alone)
		}
		before := e.Applied()
		time.Sleep(time.Hour)
		if after := e.Applied(); after != before {
			t.Errorf("an idle engine made %d commits", after-before)
		}

		// Another process adds to that. It has asked for more than the first one when it opens the log, which is told, too.
		other := openAs(t, format.SessionID{2}, store)
		if err := submit(t, other, &engine.Request{Appends: []*engine.Append{appending(topic, "b")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := told(e), sent(e, other); got != want || told(other) != want {
			t.Errorf("the log has %+v, the engines have told %+v", got, want)
		}
	})
}

// Whatever becomes of commits and of the store's answers, the log has each request at most once, and all but the last ones.
func TestWhatBrokersSpendIsToldOnce(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			memory := objstore.NewMemory()
			var engines []*engine.Engine
			var heal []func()
			for i := range 2 {
				store := storetest.NewFaulty(memory)
				engines = append(engines, openAs(t, format.SessionID{byte(i + 1)}, store))
				heal = append(heal,
					store.On(objstore.VerbCreate, "", storetest.Sometimes(rng, 0.2, storetest.LoseReply)),
					store.On("", "", storetest.Sometimes(rng, 0.2, storetest.Fail)))
			}
			if seed%2 == 1 {
				connect(t, engines[0], engines[1])
			}
			topic := create(t, engines[0], "t")
			for range 60 {
				e := engines[rng.IntN(2)]
				if ticket, err := e.Submit(t.Context(), &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}); err == nil {
					_ = ticket.Wait(t.Context()) // its outcome may be unknown
				}
				time.Sleep(time.Duration(rng.IntN(60)) * time.Second)
			}
			for _, f := range heal {
				f()
			}
			time.Sleep(2 * time.Minute)
			for _, e := range engines {
				if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "last")}}).Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range engines {
				if err := e.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := told(engines[0]), sent(engines...); got != want || got != told(engines[1]) {
				t.Errorf("seed %d: the logs have %+v and %+v, the engines have told %+v", seed, got, told(engines[1]), want)
			}
			for _, e := range engines {
				for _, c := range e.Untold() {
					if c.Creates > 3 {
						t.Errorf("seed %d: %d creates are not told", seed, c.Creates)
					}
				}
			}
		})
	}
}

// A broker that hands all its requests over makes no commits, but the log has what it spends.
func TestBrokerThatHandsOverTellsWhatItSpends(t *testing.T) {
	inPair(t, func(p *pair) {
		for range 30 {
			if err := p.append(1, "b").Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if claims := p.claims(); claims[1] != 0 {
			p.Fatalf("it made %d claims", claims[1])
		}
		synctest.Wait()
		if got, want := told(p.engines[0]), sent(p.engines[0], p.engines[1]); got != want {
			p.Errorf("the log has %+v, the engines have told %+v", got, want)
		}
		if sent(p.engines[1]).Gets == 0 {
			p.Error("it has told of nothing")
		}
		for _, c := range p.engines[1].Untold() {
			if c.Cause == format.CauseStart {
				p.Errorf("it has not told of its start: %+v", c)
			}
		}
		if _, alone := tells(p.T, p.memory, p.engines[0].Applied()); alone > 0 {
			p.Errorf("%d commits have nothing else", alone)
		}
	})
}

// A bundle that tells of requests is in the hand of a broker that does not commit it. The broker that sealed it commits it itself, and
// does not tell of the same requests a second time in that commit.
func TestBundleThatComesBackTellsOnce(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"its store hangs": storetest.Delay(time.Hour), "its store fails": storetest.Fail} {
		t.Run(name, func(t *testing.T) {
			inPair(t, func(p *pair) {
				defer p.stores[0].On(objstore.VerbCreate, format.LogPrefix, fault)()
				p.mustBeAt(p.append(1, "b"), 0)
				if claims := p.claims(); claims[1] == 0 {
					p.Fatal("it has not committed its bundle")
				}
				if got, want := told(p.engines[1]), sent(p.engines[0], p.engines[1]); got != want || sent(p.engines[1]).Gets == 0 {
					p.Errorf("the log has %+v, the engines have told %+v", got, want)
				}
			})
		})
	}
}
