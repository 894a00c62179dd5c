package fault_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// A commit with conditions at one broker is made by the other one, which wrote the last commit. If the conditions don't hold,
// the broker that got the request tells why.
func TestCommitsWithConditionsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		var (
			stores  [2]*storetest.Faulty
			brokers []*seb.Broker
		)
		for i := range stores {
			stores[i] = storetest.NewFaulty(memory)
			opts := immediate()
			opts.Address = string(rune('0' + i))
			brokers = append(brokers, open(t, stores[i], opts))
		}
		connectAll(brokers)
		mustCreateTopic(t, brokers[0], "a", 2)
		mustCreateTopic(t, brokers[0], "reminders", 1)
		for _, b := range brokers { // then they know each other
			mustAppend(t, b, "a", "x")
			synctest.Wait()
		}
		claimed := func(i int) int { return stores[i].Count(objstore.VerbCreate, "log/") }
		hands := -1 // the broker that hands its requests over
		for i := 0; hands < 0; i = 1 - i {
			before := claimed(i)
			mustAppend(t, brokers[i], "a", "x")
			if synctest.Wait(); claimed(i) == before {
				hands = i
			}
		}
		sender, winner, claims := brokers[hands], brokers[1-hands], claimed(hands)
		at := func(b *seb.Broker) seb.Commit {
			cut, err := b.Cut(t.Context(), []string{"a"}, seb.CutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return seb.Commit{Ends: cut.Topics, After: cut.LogTime.Add(-time.Microsecond), Appends: []seb.CommitAppend{appends("reminders", "r")}}
		}
		for range 3 {
			mustCommitAll(t, sender, at(sender))
		}
		if n := claimed(hands) - claims; n != 0 {
			t.Fatalf("the broker that got the requests made %d claims", n)
		}
		wantValues(t, winner, "reminders", "r", "r", "r")

		late := at(sender)
		mustAppend(t, winner, "a", "y")
		_, err := sender.Commit(t.Context(), late)
		wantPart(t, err, seb.CodeEndsConflict, "ends/0")
		wantOutcome(t, err, seb.NotCommitted)
		early := at(sender)
		early.After = early.After.Add(time.Hour)
		_, err = sender.Commit(t.Context(), early)
		wantPart(t, err, seb.CodeTooEarly, "after")
		wantOutcome(t, err, seb.NotCommitted)
		wantValues(t, winner, "reminders", "r", "r", "r")
		mustCommitAll(t, sender, at(sender))
		wantValues(t, sender, "reminders", "r", "r", "r", "r")
	})
}
