package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/state"
	"github.com/simple-event-broker/seb/internal/test/meshtest"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// pair has two connected engines on one bucket. The first one has written the last commit, which created a topic.
type pair struct {
	*testing.T
	memory      *objstore.Memory
	stores      [2]*storetest.Faulty
	engines     [2]*engine.Engine
	near, far   *meshtest.Pipe
	topic       format.TopicID
	claimsSoFar [2]int
}

func inPair(t *testing.T, test func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{T: t, memory: objstore.NewMemory()}
		for i := range p.stores {
			p.stores[i] = storetest.NewFaulty(p.memory)
			p.engines[i] = openAs(t, format.SessionID{byte(i + 1)}, p.stores[i])
		}
		p.near, p.far = connect(t, p.engines[0], p.engines[1])
		p.topic = create(t, p.engines[0], "t")
		synctest.Wait()
		p.claims()
		test(p)
	})
}

// slowStores makes each request to the store take that long.
func (p *pair) slowStores(d time.Duration) {
	for _, store := range p.stores {
		for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
			store.On(verb, "", storetest.Delay(d))
		}
	}
}

// claims returns how often each engine has tried to create a commit since the last call.
func (p *pair) claims() (n [2]int) {
	for i, s := range p.stores {
		all := s.Count(objstore.VerbCreate, format.LogPrefix)
		n[i], p.claimsSoFar[i] = all-p.claimsSoFar[i], all
	}
	return n
}

func (p *pair) append(i int, vs ...string) *engine.Ticket {
	p.Helper()
	return submit(p.T, p.engines[i], &engine.Request{Appends: []*engine.Append{appending(p.topic, vs...)}})
}

func (p *pair) mustBeAt(ticket *engine.Ticket, offset format.Offset) {
	p.Helper()
	if err := ticket.Wait(p.Context()); err != nil {
		p.Fatal(err)
	}
	if got := ticket.Ranges(0); len(got) != 1 || got[0].Offset != offset {
		p.Fatalf("the append is at %v, want offset %d", got, offset)
	}
}

// read returns all records that an engine reads, after a sync.
func (p *pair) read(i int) string {
	p.Helper()
	if err := p.engines[i].Sync(p.Context()); err != nil {
		p.Fatal(err)
	}
	var got sink
	cursor := p.engines[i].NewCursor("t", p.topic, 0, 0)
	for {
		_, end, err := cursor.Bounds()
		if err != nil {
			p.Fatal(err)
		}
		from, next, err := cursor.Next(p.Context(), all, &got)
		if err != nil {
			p.Fatal(err)
		}
		if next >= end || from == next {
			return got.text
		}
	}
}

// The broker that wrote the last commit commits the requests of both.
func TestRequestsAreHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		requests := p.stores[1].Count("", "")
		begin := time.Now()
		b := p.append(1, "b")
		a := p.append(0, "a")
		for _, ticket := range []*engine.Ticket{a, b} { // in a random order in the commit
			if err := ticket.Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 10*time.Millisecond { // what a batch waits
			p.Errorf("it took %v", took)
		}
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		p.mustBeAt(p.append(1, "c"), 2)
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		if n := p.stores[1].Count("", "") - requests; n != 0 {
			p.Errorf("the broker that handed its requests over sent %d requests to the store", n)
		}
		for i := range 2 {
			if got := p.read(i); got != "abc" && got != "bac" {
				p.Errorf("engine %d reads %q", i, got)
			}
		}
	})
}

// Many requests of both, one after the other and side by side: each is in the log once, in the order of its caller.
func TestManyRequestsAreHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		var callers sync.WaitGroup
		for c := range 8 {
			callers.Go(func() {
				for n := range 20 {
					if err := p.append(c%2, fmt.Sprintf("%d:%d ", c, n)).Wait(p.Context()); err != nil {
						p.Error(err)
					}
				}
			})
		}
		callers.Wait()
		got := strings.Fields(p.read(0))
		if len(got) != 160 || p.read(1) != p.read(0) {
			p.Errorf("%d records, want 160", len(got))
		}
		for c := range 8 {
			var of, want []string
			for _, s := range got {
				if strings.HasPrefix(s, fmt.Sprint(c, ":")) {
					of = append(of, s)
				}
			}
			for n := range 20 {
				want = append(want, fmt.Sprintf("%d:%d", c, n))
			}
			if !slices.Equal(of, want) {
				p.Errorf("caller %d: %v", c, of)
			}
		}
		if got := p.claims(); got[1] != 0 || got[0] > 22 {
			p.Errorf("claims: %v", got)
		}
	})
}

// Requests that the log can't have get the same refusals as at the broker that commits.
func TestHandedOverRequestsAreRefused(t *testing.T) {
	inPair(t, func(p *pair) {
		p.mustBeAt(p.append(0, "a"), 0)
		keyed := func(key, print byte) *engine.Request {
			return &engine.Request{
				Appends: []*engine.Append{appending(p.topic, "k")},
				Key:     &engine.Key{Hashes: []format.Digest{{key}}, Print: format.Digest{print}, Topic: p.topic},
			}
		}
		conflict, right := appending(p.topic, "c"), appending(p.topic, "r")
		conflict.IfEnd, conflict.Part, right.IfEnd = 7, "appends/0", 1
		gone := appending(99, "g")
		tickets := map[string]*engine.Ticket{}
		for name, r := range map[string]*engine.Request{
			"conflict": {Appends: []*engine.Append{conflict}},
			"right":    {Appends: []*engine.Append{right}},
			"gone":     {Appends: []*engine.Append{gone}},
			"keyed":    keyed(1, 1),
			"caller":   {Appends: []*engine.Append{appending(p.topic, "n")}, Callers: []engine.Caller{nobody{}}},
			"plain":    {Appends: []*engine.Append{appending(p.topic, "p")}},
		} {
			tickets[name] = submit(p.T, p.engines[1], r)
		}
		wait := func(name string) error { return tickets[name].Wait(p.Context()) }
		if x, ok := errors.AsType[*engine.EndConflictError](wait("conflict")); !ok || x.Part != "appends/0" || x.Want != 7 || x.Topic != "t" {
			p.Errorf("conflict: %v", wait("conflict"))
		}
		if x, ok := errors.AsType[*engine.TopicDeletedError](wait("gone")); !ok || x.Topic != "t" {
			p.Errorf("gone: %v", wait("gone"))
		}
		if err := wait("caller"); !errors.Is(err, errRevoked) {
			p.Errorf("caller: %v", err)
		}
		for _, name := range []string{"keyed", "plain"} {
			if err := wait(name); err != nil {
				p.Errorf("%s: %v", name, err)
			}
		}
		again := submit(p.T, p.engines[1], keyed(1, 1))
		if err := again.Wait(p.Context()); err != nil || !again.Replayed() || again.Ranges(0)[0] != tickets["keyed"].Ranges(0)[0] {
			p.Errorf("again: %v, %v", again.Replayed(), err)
		}
		if err := submit(p.T, p.engines[1], keyed(1, 2)).Wait(p.Context()); !errors.Is(err, engine.ErrKeyReused) {
			p.Errorf("key reused: %v", err)
		}
		if got := p.claims(); got[1] != 0 {
			p.Errorf("claims: %v", got)
		}
		_ = wait("right") // which of the requests comes first is not fixed, so it may conflict
		if one, two := p.read(0), p.read(1); one != two || strings.Count(one, "k") != 1 || strings.ContainsAny(one, "cgn") {
			p.Errorf("the log has %q, and at the other engine %q", one, two)
		}
	})
}

// The same key comes to both brokers at the same time. The log has its request once, and both callers get the same answer.
func TestKeyAtBothBrokersIsCommittedOnce(t *testing.T) {
	inPair(t, func(p *pair) {
		var tickets []*engine.Ticket
		for i := range 2 {
			tickets = append(tickets, submit(p.T, p.engines[i], &engine.Request{
				Appends: []*engine.Append{appending(p.topic, "k")},
				Key:     &engine.Key{Hashes: []format.Digest{{1}}, Print: format.Digest{1}, Topic: p.topic},
			}))
		}
		plain := p.append(1, "p") // in the same batch as the second one
		p.mustBeAt(tickets[0], 0)
		p.mustBeAt(tickets[1], 0)
		p.mustBeAt(plain, 1)
		if !tickets[1].Replayed() {
			p.Error("the second one is not replayed")
		}
		if got := p.read(0); got != "kp" {
			p.Errorf("the log has %q", got)
		}
	})
}

// Large requests go into data objects of the broker that got them.
func TestLargeRequestsAreHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		large := strings.Repeat("x", 400_000)
		r := appending(p.topic, large)
		r.Bytes = 500_000
		ticket := submit(p.T, p.engines[1], &engine.Request{Appends: []*engine.Append{r}})
		p.mustBeAt(ticket, 0)
		if n := p.stores[1].Count(objstore.VerbCreate, format.DataPrefix); n != 1 {
			p.Errorf("%d data objects", n)
		}
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		for i := range 2 {
			if got := p.read(i); got != large {
				p.Errorf("engine %d reads %d bytes", i, len(got))
			}
		}
	})
}

// sentTopic is createTopic as a change that another broker can make.
type sentTopic string

func (x sentTopic) Apply(d *state.Draft) ([]format.Entry, error) { return createTopic(x).Apply(d) }
func (x sentTopic) Encode(w *pack.Writer)                        { w.Text(string(x)) }

// newerTopic is the name in a change that only the broker which got the request knows: the others run an older version.
const newerTopic = "newer"

func decodeTopic(r *pack.Reader) engine.Change {
	name := r.Text()
	if name == newerTopic {
		r.FailWith(fmt.Errorf("%w: a change of kind 999", pack.ErrUnknown))
		return nil
	}
	return sentTopic(name)
}

// A broker of an older version leaves a bundle with a change that it does not know to the broker that has sent it.
func TestSenderCommitsWhatTheOtherBrokerDoesNotKnow(t *testing.T) {
	inPair(t, func(p *pair) {
		newer := submit(p.T, p.engines[1], &engine.Request{Change: sentTopic(newerTopic), Appends: []*engine.Append{appending(p.topic, "a")}})
		p.mustBeAt(newer, 0)
		if got := p.claims(); got != [2]int{0, 1} {
			p.Errorf("claims: %v", got)
		}
		p.mustBeAt(p.append(0, "b"), 1)
		if got := p.read(0); got != "ab" {
			p.Errorf("it reads %q", got)
		}
	})
}

// The broker that commits also makes changes for others. If it would refuse one, the broker that got the request decides.
func TestChangesAreHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		ticket := submit(p.T, p.engines[1], &engine.Request{Change: sentTopic("u")})
		if err := ticket.Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if x, ok := ticket.Entries()[0].(*format.TopicCreated); !ok || x.Name != "u" {
			p.Errorf("the change has made %v", ticket.Entries())
		}
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		both := submit(p.T, p.engines[1], &engine.Request{Change: sentTopic("v"), Appends: []*engine.Append{appending(p.topic, "a")}})
		p.mustBeAt(both, 0)
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		begin := time.Now()
		if err := p.engines[1].Commit(p.Context(), &engine.Request{Change: sentTopic("u")}); !errors.Is(err, errExists) {
			p.Errorf("a topic that exists: %v", err)
		}
		revoked := &engine.Request{Change: sentTopic("w"), Callers: []engine.Caller{nobody{}}}
		if err := p.engines[1].Commit(p.Context(), revoked); !errors.Is(err, errRevoked) {
			p.Errorf("a revoked caller: %v", err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			p.Errorf("the refusals took %v", took)
		}
		p.mustBeAt(p.append(0, "b"), 1)
	})
}

// A request of a bundle is not committed, so that those that share its batches go into a later one. What comes after them
// does not overtake them.
func TestLaterRequestsDoNotOvertake(t *testing.T) {
	inPair(t, func(p *pair) {
		keyed := func() *engine.Request {
			return &engine.Request{
				Appends: []*engine.Append{appending(p.topic, "k")},
				Key:     &engine.Key{Hashes: []format.Digest{{1}}, Print: format.Digest{1}, Topic: p.topic},
			}
		}
		p.mustBeAt(submit(p.T, p.engines[0], keyed()), 0)
		first := p.append(1, "1")
		again := submit(p.T, p.engines[1], keyed())
		whole := submit(p.T, p.engines[1], &engine.Request{Appends: []*engine.Append{appending(p.topic, "2"), appending(p.topic, "3")}})
		p.mustBeAt(first, 1)
		p.mustBeAt(whole, 2)
		p.mustBeAt(again, 0)
		if got := p.read(1); got != "k123" {
			p.Errorf("the log has %q", got)
		}
	})
}

// The sender's store has no room for a data object. Its request is refused, and later ones go on.
func TestSendersStoreIsFull(t *testing.T) {
	inPair(t, func(p *pair) {
		defer p.stores[1].On(objstore.VerbCreate, format.DataPrefix, storetest.Full)()
		r := appending(p.topic, strings.Repeat("x", 400_000))
		r.Bytes = 500_000
		begin := time.Now()
		err := p.engines[1].Commit(p.Context(), &engine.Request{Appends: []*engine.Append{r}})
		if !errors.Is(err, objstore.ErrFull) || time.Since(begin) > time.Second {
			p.Errorf("after %v: %v", time.Since(begin), err)
		}
		p.mustBeAt(p.append(1, "a"), 0)
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
	})
}

// A broker without its store hands over what it can, also large requests. What it can't hand over is refused, and holds up nothing.
func TestWithoutItsStoreABrokerRefusesWhatNeedsIt(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"fails": storetest.Fail, "hangs": storetest.Delay(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			inPair(t, func(p *pair) {
				p.mustBeAt(p.append(1, "a"), 0)
				for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
					defer p.stores[1].On(verb, "", fault)()
				}
				refused := func(err error) bool {
					_, refused := errors.AsType[*engine.StoreError](err)
					_, unknown := errors.AsType[*engine.UnknownError](err)
					return refused && !unknown
				}
				submitLarge := func() *engine.Ticket {
					r := appending(p.topic, strings.Repeat("x", 300_000))
					r.Bytes = 400_000
					return submit(p.T, p.engines[1], &engine.Request{Appends: []*engine.Append{r}})
				}
				begin := time.Now()
				unfit := submit(p.T, p.engines[1], &engine.Request{Change: createTopic("u"), Synced: true})
				with := p.append(1, "b")
				if err := unfit.Wait(p.Context()); !refused(err) {
					p.Error(err)
				}
				if err := with.Wait(p.Context()); err != nil {
					p.Error(err)
				}
				if name == "hangs" {
					return // the broker notices that it can't store a data object when its request ends, after some 40 s
				}
				if err := submitLarge().Wait(p.Context()); err != nil && !refused(err) { // this broker has perhaps begun an upload
					p.Error(err)
				}
				if err := p.append(1, "c").Wait(p.Context()); err != nil {
					p.Error(err)
				}
				if err := submitLarge().Wait(p.Context()); err != nil {
					p.Error(err)
				}
				if took := time.Since(begin); took > 20*time.Second {
					p.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A broker whose store hangs hands over, also while its readers want to know where the log ends.
func TestReadersOfABrokerWithoutItsStoreHoldUpLittle(t *testing.T) {
	inPair(t, func(p *pair) {
		p.mustBeAt(p.append(0, "a"), 0) // so it commits for both
		for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
			defer p.stores[0].On(verb, "", storetest.Delay(time.Hour))()
		}
		stop := p.engines[0].Follow()
		defer stop()
		time.Sleep(time.Second) // it is reading the log now
		for begin := time.Now(); time.Since(begin) < time.Minute; {
			p.append(1, "x") // the other one commits for both
			sent := time.Now()
			if err := p.append(0, "b").Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
			if took := time.Since(sent); took > 5*time.Second {
				p.Fatalf("an append took %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Of two appends with the same condition, each broker's has the same chance.
func TestConditionsOfBothBrokersHaveTheSameChance(t *testing.T) {
	inPair(t, func(p *pair) {
		const rounds = 200
		var won [2]int
		for end := range rounds {
			var tickets [2]*engine.Ticket
			for i := range tickets {
				a := appending(p.topic, "x")
				a.IfEnd = format.Offset(end)
				tickets[i] = submit(p.T, p.engines[i], &engine.Request{Appends: []*engine.Append{a}})
			}
			for i, ticket := range tickets {
				err := ticket.Wait(p.Context())
				if _, lost := errors.AsType[*engine.EndConflictError](err); err != nil && !lost {
					p.Fatal(err)
				}
				if err == nil {
					won[i]++
				}
			}
		}
		if won[0]+won[1] != rounds || min(won[0], won[1]) < rounds/4 {
			p.Errorf("the brokers won %v of %d", won, rounds)
		}
	})
}

// Requests that can't be handed over ask for the next slot.
func TestChangesAskForTheNextSlot(t *testing.T) {
	inPair(t, func(p *pair) {
		begin := time.Now()
		create(p.T, p.engines[1], "u")
		if took := time.Since(begin); took > 30*time.Millisecond {
			p.Errorf("it took %v", took)
		}
		if got := p.claims(); got != [2]int{0, 1} {
			p.Errorf("claims: %v", got)
		}
		p.mustBeAt(p.append(0, "a"), 0) // now the other one commits
		if got := p.claims(); got != [2]int{0, 1} {
			p.Errorf("claims: %v", got)
		}
	})
}

// A broker that has missed a commit reads it from the store when it gets the next slot.
func TestTurnAfterAMissedCommit(t *testing.T) {
	inPair(t, func(p *pair) {
		p.near.Mute(true)
		p.mustBeAt(p.append(0, "a"), 0)
		synctest.Wait()
		p.near.Mute(false)
		p.claims()
		begin := time.Now()
		create(p.T, p.engines[1], "u")
		if took := time.Since(begin); took > 100*time.Millisecond {
			p.Errorf("it took %v", took)
		}
		if got := p.claims(); got != [2]int{0, 1} {
			p.Errorf("claims: %v", got)
		}
	})
}

// A broker to which messages take long needs the slot for longer.
func TestTurnOverASlowConnection(t *testing.T) {
	inPair(t, func(p *pair) {
		p.slowStores(20 * time.Millisecond)
		p.near.Delay(140 * time.Millisecond)
		p.far.Delay(140 * time.Millisecond)
		for i := range 3 {
			time.Sleep(time.Second)
			p.append(0, "a")
			time.Sleep(time.Second)
			p.claims()
			begin := time.Now()
			create(p.T, p.engines[1], fmt.Sprint("u", i))
			took, unused := time.Since(begin), p.claims()[0]
			if most := 700 * time.Millisecond; took > most || unused > 1 || i > 0 && unused > 0 {
				p.Errorf("topic %d took %v, at most %v is expected; %d slots that were left to the broker were not used", i, took, most, unused)
			}
		}
	})
}

// A broker that never uses the slots that are left to it costs the other one only a few commits.
func TestUnusedTurnsEnd(t *testing.T) {
	inPair(t, func(p *pair) {
		restore := p.stores[1].On(objstore.VerbCreate, format.LogPrefix, storetest.Delay(24*time.Hour))
		ticket := submit(p.T, p.engines[1], &engine.Request{Change: createTopic("u")})
		time.Sleep(time.Minute)
		if got := p.claims(); got[0] > 3 {
			p.Errorf("%d commits in a minute for a broker that commits nothing", got[0])
		}
		p.mustBeAt(p.append(0, "a"), 0)
		restore()
		_ = ticket.Wait(p.Context()) // it may have been refused meanwhile
		time.Sleep(20 * time.Second) // until the broker notices that its store is back
		create(p.T, p.engines[1], "v")
		p.mustBeAt(p.append(0, "b"), 1)
		p.mustBeAt(p.append(1, "c"), 2)
	})
}

// The broker that commits stops without a word, or its store does, or the connection breaks. The other one commits its
// requests itself.
func TestSenderGoesOnAlone(t *testing.T) {
	for name, fault := range map[string]func(p *pair) (restore func()){
		"its store hangs": func(p *pair) func() {
			return p.stores[0].On(objstore.VerbCreate, format.LogPrefix, storetest.Delay(time.Hour))
		},
		"its store fails":       func(p *pair) func() { return p.stores[0].On(objstore.VerbCreate, format.LogPrefix, storetest.Fail) },
		"the connection breaks": func(p *pair) func() { p.near.Close(); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			inPair(t, func(p *pair) {
				defer fault(p)()
				begin := time.Now()
				p.mustBeAt(p.append(1, "b"), 0)
				if took := time.Since(begin); took > 2*time.Second {
					p.Errorf("it took %v", took)
				}
				p.mustBeAt(p.append(1, "c"), 1)
				if got := p.read(1); got != "bc" {
					p.Errorf("the log has %q", got)
				}
			})
		})
	}
}

// The network loses all messages between two brokers that append all the time. Both go on.
func TestBothGoOnWhenMessagesAreLost(t *testing.T) {
	inPair(t, func(p *pair) {
		p.slowStores(30 * time.Millisecond)
		var appenders sync.WaitGroup
		begin := time.Now()
		for i := range p.engines {
			appenders.Go(func() {
				for last := begin; time.Since(begin) < 20*time.Second; last = time.Now() {
					if err := p.append(i, "x").Wait(p.Context()); err != nil {
						p.Error(err)
						return
					}
					if took := time.Since(last); took > 1200*time.Millisecond {
						p.Errorf("%v after the start, an append at engine %d took %v", time.Since(begin), i, took)
					}
				}
			})
		}
		for lost := true; time.Since(begin) < 20*time.Second; lost = !lost {
			time.Sleep(5 * time.Second)
			p.near.Mute(lost)
			p.far.Mute(lost)
		}
		appenders.Wait()
	})
}

// The store fails both brokers. What has not left its broker can be withdrawn, so its caller learns that it is not committed.
func TestNothingIsHandedOverWhileTheStoreFailsTheOther(t *testing.T) {
	inPair(t, func(p *pair) {
		p.mustBeAt(p.append(1, "a"), 0)
		for _, store := range p.stores {
			for _, verb := range []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList} {
				defer store.On(verb, "", storetest.Fail)()
			}
		}
		p.append(0, "b")
		p.append(1, "c")
		time.Sleep(5 * time.Second) // now both know that their stores fail
		ctx, cancel := context.WithTimeout(p.Context(), time.Second)
		defer cancel()
		err := p.append(1, "d").Wait(ctx)
		if _, unknown := errors.AsType[*engine.UnknownError](err); err == nil || unknown {
			p.Error(err)
		}
	})
}

// A commit with a bundle lands, but the one that wrote it does not learn that, and the other one claims the same bundle. The log has
// it once.
func TestBundleOfALostAnswerIsCommittedOnce(t *testing.T) {
	inPair(t, func(p *pair) {
		defer p.stores[0].On(objstore.VerbCreate, format.LogPrefix, storetest.LoseReply)()
		defer p.stores[0].On(objstore.VerbGet, format.LogPrefix, storetest.Fail)()
		p.mustBeAt(p.append(1, "b"), 0)
		p.mustBeAt(p.append(1, "c"), 1)
		if got := p.read(1); got != "bc" {
			p.Errorf("the log has %q", got)
		}
	})
}

// The marks of a commit name the bundles, and the entries of each follow its mark.
func TestCommitsHaveMarksOfBundles(t *testing.T) {
	inPair(t, func(p *pair) {
		for _, ticket := range []*engine.Ticket{p.append(1, "b"), p.append(0, "a")} {
			if err := ticket.Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
		}
		object, err := objstore.GetWhole(p.Context(), p.memory, format.LogKey(p.engines[0].Applied()), 1<<20)
		if err != nil {
			p.Fatal(err)
		}
		c, err := format.DecodeCommit(object.Body)
		if err != nil {
			p.Fatal(err)
		}
		var kinds []string
		c.Entries = slices.DeleteFunc(c.Entries, func(entry format.Entry) bool { _, tells := entry.(*format.Spent); return tells })
		for _, entry := range c.Entries {
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", entry), "*format."))
		}
		own, ofOther := []string{"WriterMark", "Batch"}, []string{"BundleMark", "Batch"} // in a random order
		at := 2
		if !slices.Equal(kinds, slices.Concat(own, ofOther)) {
			at = 1
			if want := slices.Concat(own[:1], ofOther, []string{"WriterMark", "Batch"}); !slices.Equal(kinds, want) {
				p.Fatalf("the commit has %v, want %v", kinds, want)
			}
		}
		if m := c.Entries[at].(*format.BundleMark); m.Session != (format.SessionID{2}) || m.Number != 1 || m.Requests != 2 || // the append, and what the sender has spent
			len(m.Verdicts) != 0 {
			p.Errorf("the mark is %+v", m)
		}
	})
}

// A sender whose state is full says so, although the broker that commits has room.
func TestSendersLimitsGoWithItsBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		e := open(t, memory)
		opts := options(t)
		opts.Session, opts.IdempotencyKeys = format.SessionID{2}, 1
		other := engine.New(memory, opts)
		if err := other.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := other.Shutdown(nil); err != nil {
				t.Error(err)
			}
		}()
		connect(t, e, other)
		topic := create(t, e, "t")
		synctest.Wait()
		keyed := func(key byte) error {
			return submit(t, other, &engine.Request{
				Appends: []*engine.Append{appending(topic, "k")},
				Key:     &engine.Key{Hashes: []format.Digest{{key}}, Print: format.Digest{1}, Topic: topic},
			}).Wait(t.Context())
		}
		if err := keyed(1); err != nil {
			t.Error(err)
		}
		if full, ok := errors.AsType[*engine.KeysFullError](keyed(2)); !ok || full.Limit != 1 {
			t.Errorf("got %v, want that there is no room for a second key", keyed(2))
		}
	})
}

// A broker loses its store while it writes a commit. The other one commits for both then, also if the commit has landed.
func TestBrokerWithoutItsStoreHandsOver(t *testing.T) {
	for name, create := range map[string]func(release <-chan struct{}) storetest.Fault{
		"the commit has landed":     storetest.HoldReply,
		"the commit has not landed": storetest.Hold,
	} {
		t.Run(name, func(t *testing.T) {
			inPair(t, func(p *pair) {
				release := make(chan struct{})
				defer close(release)
				defer p.stores[0].On(objstore.VerbCreate, format.LogPrefix, create(release))()
				for _, verb := range []objstore.Verb{objstore.VerbGet, objstore.VerbList} {
					defer p.stores[0].On(verb, "", storetest.Delay(time.Hour))()
				}
				first := p.append(0, "a")
				for i, who := range []int{1, 1, 0, 0, 1, 0} {
					begin := time.Now()
					if err := p.append(who, "b").Wait(p.Context()); err != nil {
						p.Fatal(err)
					}
					if took := time.Since(begin); took > 2*time.Second {
						p.Errorf("append %d took %v", i, took)
					}
				}
				if err := first.Wait(p.Context()); err != nil {
					p.Fatal(err)
				}
				if got := p.read(1); strings.Count(got, "a") != 1 || strings.Count(got, "b") != 6 {
					p.Errorf("the log has %q", got)
				}
			})
		})
	}
}
