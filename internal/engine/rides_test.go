package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
	"github.com/simple-event-broker/seb/internal/engine"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// hitching returns a request that rides and appends values.
func hitching(topic format.TopicID, vs ...string) *engine.Request {
	return &engine.Request{Rides: true, Appends: []*engine.Append{appending(topic, vs...)}}
}

func waits(t *testing.T, ticket *engine.Ticket) {
	t.Helper()
	synctest.Wait()
	select {
	case <-ticket.Done():
		t.Fatalf("the request is done: %v", ticket.Wait(t.Context()))
	default:
	}
}

func alone(t *testing.T, test func(t *testing.T, store *storetest.Faulty, e *engine.Engine, topic format.TopicID)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		e := open(t, store)
		topic := create(t, e, "t")
		time.Sleep(2 * time.Hour) // until the jobs of a log that has just become idle are done
		test(t, store, e, topic)
	})
}

// On an idle log, a request that rides waits, however long, and causes no request to the store.
func TestRideWaitsForACommit(t *testing.T) {
	alone(t, func(t *testing.T, store *storetest.Faulty, e *engine.Engine, topic format.TopicID) {
		before := store.Count("", "")
		ride, gone := submit(t, e, hitching(topic, "r")), submit(t, e, hitching(topic, "gone"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := gone.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after its context: %v", err)
		}
		synctest.Wait()
		<-gone.Done() // it no longer takes memory
		time.Sleep(3 * time.Hour)
		waits(t, ride)
		if n := store.Count("", "") - before; n != 0 {
			t.Errorf("%d requests to the store", n)
		}
		commits := e.Applied()
		if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := ride.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := e.Applied() - commits; n != 1 {
			t.Errorf("%d commits", n)
		}
		if got := ride.Ranges(0); got[0].Offset != 1 {
			t.Errorf("the request that rides is at %v", got)
		}
		if got := readAll(t, store, topic, 0); got != "ar" {
			t.Errorf("the log has %q", got)
		}
	})
}

// A request that rides makes no commit necessary: not even if all other requests are refused or withdrawn when the commit is built.
func TestRideCausesNoCommit(t *testing.T) {
	alone(t, func(t *testing.T, store *storetest.Faulty, e *engine.Engine, topic format.TopicID) {
		ride, commits := submit(t, e, hitching(topic, "r")), e.Applied()
		conflict := appending(topic, "c")
		conflict.IfEnd = 7
		_, refused := errors.AsType[*engine.EndConflictError](e.Commit(t.Context(), &engine.Request{Appends: []*engine.Append{conflict}}))
		if !refused {
			t.Error("the append was not refused")
		}
		ctx, cancel := context.WithCancel(t.Context())
		withdrawn := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "w")}})
		cancel()
		if err := withdrawn.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("withdrawn: %v", err)
		}
		time.Sleep(time.Minute)
		waits(t, ride)
		if e.Applied() != commits {
			t.Errorf("%d commits", e.Applied()-commits)
		}
		if err := submit(t, e, &engine.Request{Change: createTopic("u"), Synced: true}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := ride.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, store, topic, 0); got != "r" {
			t.Errorf("the log has %q", got)
		}
	})
}

// Each is refused by itself, in a commit with the others.
func TestRefusedRideLeavesTheOthers(t *testing.T) {
	alone(t, func(t *testing.T, store *storetest.Faulty, e *engine.Engine, topic format.TopicID) {
		good, exists, conflict := submit(t, e, hitching(topic, "r")), hitching(topic, "x"), hitching(topic, "y")
		exists.Change, conflict.Appends[0].IfEnd = createTopic("t"), 7
		revoked := hitching(topic, "z")
		revoked.Callers = []engine.Caller{nobody{}}
		tickets := []*engine.Ticket{submit(t, e, exists), submit(t, e, conflict), submit(t, e, revoked)}
		before := store.Count(objstore.VerbCreate, format.LogPrefix)
		if err := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := good.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := tickets[0].Wait(t.Context()); !errors.Is(err, errExists) {
			t.Errorf("a change: %v", err)
		}
		if _, ok := errors.AsType[*engine.EndConflictError](tickets[1].Wait(t.Context())); !ok {
			t.Errorf("a condition: %v", tickets[1].Wait(t.Context()))
		}
		if err := tickets[2].Wait(t.Context()); !errors.Is(err, errRevoked) {
			t.Errorf("a caller without a key: %v", err)
		}
		if n := store.Count(objstore.VerbCreate, format.LogPrefix) - before; n != 1 {
			t.Errorf("%d commits", n)
		}
		if got := readAll(t, store, topic, 0); got != "ar" {
			t.Errorf("the log has %q", got)
		}
	})
}

// A shutdown does not wait for requests that ride, and they are in no commit.
func TestShutdownRefusesRides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		e := engine.New(store, options(t))
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		topic := create(t, e, "t")
		ride, other := submit(t, e, hitching(topic, "r")), submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}})
		if err := e.Shutdown(nil); err != nil {
			t.Fatal(err)
		}
		if err := ride.Wait(t.Context()); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("the request that rides: %v", err)
		}
		if err := other.Wait(t.Context()); err != nil {
			t.Errorf("the other: %v", err)
		}
		if _, err := e.Submit(t.Context(), hitching(topic, "late")); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("after the shutdown: %v", err)
		}
		if got := readAll(t, store, topic, 0); got != "a" {
			t.Errorf("the log has %q", got)
		}
	})
}

// What rides has little memory, which those that are gone give back.
func TestRidesAreBounded(t *testing.T) {
	alone(t, func(t *testing.T, _ *storetest.Faulty, e *engine.Engine, topic format.TopicID) {
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			var tickets []*engine.Ticket
			for {
				ticket, err := e.Submit(t.Context(), hitching(topic, "r"))
				if full, ok := errors.AsType[*budget.FullError](err); ok && full.Limit == 64<<10 {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				tickets = append(tickets, ticket)
			}
			if len(tickets) != 51 { // a request of 1 KiB and what it takes beside
				t.Errorf("%d requests ride", len(tickets))
			}
			cancel()
			for _, ticket := range tickets {
				if err := ticket.Wait(ctx); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
	})
}

// Once it is in a commit under way, it has the outcome of that commit, which may be unknown when its context ends.
func TestRideInACommitUnderWay(t *testing.T) {
	alone(t, func(t *testing.T, store *storetest.Faulty, e *engine.Engine, topic format.TopicID) {
		ride, gone := submit(t, e, hitching(topic, "r")), submit(t, e, hitching(topic, "s"))
		heal := store.On(objstore.VerbCreate, format.LogPrefix, storetest.Fail)
		other := submit(t, e, &engine.Request{Appends: []*engine.Append{appending(topic, "a")}})
		if err := other.Wait(t.Context()); err == nil {
			t.Error("the append has succeeded")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, unknown := errors.AsType[*engine.UnknownError](gone.Wait(ctx)); !unknown {
			t.Errorf("the one whose context ended: %v", gone.Wait(ctx))
		}
		heal()
		if err := ride.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, store, topic, 0); got != "ars" {
			t.Errorf("the log has %q", got)
		}
	})
}

// The broker that commits calls for what rides on others, and only then.
func TestRideIsHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		time.Sleep(2 * time.Hour)
		before := [2]int{p.stores[0].Count("", ""), p.stores[1].Count("", "")}
		ride := submit(p.T, p.engines[1], hitching(p.topic, "r"))
		withChange := hitching(p.topic, "u")
		withChange.Change = sentTopic("u")
		change := submit(p.T, p.engines[1], withChange)
		time.Sleep(3 * time.Hour)
		waits(p.T, ride)
		if after := [2]int{p.stores[0].Count("", ""), p.stores[1].Count("", "")}; after != before {
			p.Errorf("requests to the stores: %v, then %v", before, after)
		}
		p.claims()
		if err := p.append(0, "a").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		for _, ticket := range []*engine.Ticket{ride, change} {
			if err := ticket.Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
		}
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		if one, two := p.read(0), p.read(1); one != two || len(one) != 3 {
			p.Errorf("they read %q and %q", one, two)
		}
		// A second one, with requests of both that don't ride.
		again := submit(p.T, p.engines[1], hitching(p.topic, "s"))
		if err := p.append(1, "b").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if err := again.Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
	})
}

// If the broker that commits refuses a request that rides, the broker that got the request tells why, without a commit or a turn. The
// others are committed.
func TestRefusedRideIsHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		exists, conflict := hitching(p.topic, "x"), hitching(p.topic, "y")
		exists.Change, conflict.Appends[0].IfEnd = sentTopic("t"), 7
		good := submit(p.T, p.engines[1], hitching(p.topic, "r"))
		refused := []*engine.Ticket{submit(p.T, p.engines[1], exists), submit(p.T, p.engines[1], conflict)}
		synctest.Wait()
		if err := p.append(0, "a").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if err := good.Wait(p.Context()); err != nil {
			p.Error(err)
		}
		if err := refused[0].Wait(p.Context()); !errors.Is(err, errExists) {
			p.Errorf("a change: %v", err)
		}
		if _, ok := errors.AsType[*engine.EndConflictError](refused[1].Wait(p.Context())); !ok {
			p.Errorf("a condition: %v", refused[1].Wait(p.Context()))
		}
		time.Sleep(time.Minute)
		if got := p.claims(); got != [2]int{1, 0} {
			p.Errorf("claims: %v", got)
		}
		if one, two := p.read(0), p.read(1); one != two || len(one) != 2 || strings.ContainsAny(one, "xy") {
			p.Errorf("they read %q and %q", one, two)
		}
	})
}

// What can't be handed over rides in a commit of its own broker.
func TestRideThatCantBeHandedOver(t *testing.T) {
	inPair(t, func(p *pair) {
		r := hitching(p.topic, "r")
		r.Change = createTopic("u")
		ride := submit(p.T, p.engines[1], r)
		for range 3 {
			if err := p.append(0, "a").Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
			if err := p.append(1, "b").Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
			waits(p.T, ride)
		}
		p.near.Close()
		p.far.Close()
		if err := p.append(1, "c").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if err := ride.Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if got := p.read(0); len(got) != 8 || !strings.Contains(got[6:], "r") {
			p.Errorf("it reads %q", got)
		}
	})
}

// The broker that commits is lost. What rides on the other one goes on waiting, and rides in its commit.
func TestRideOutlivesTheWinner(t *testing.T) {
	inPair(t, func(p *pair) {
		ride := submit(p.T, p.engines[1], hitching(p.topic, "r"))
		synctest.Wait()
		p.engines[0].End()
		p.near.Close()
		p.far.Close()
		time.Sleep(time.Minute)
		waits(p.T, ride)
		if err := p.append(1, "b").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if err := ride.Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		if got := p.claims(); got != [2]int{0, 1} {
			p.Errorf("claims: %v", got)
		}
	})
}
