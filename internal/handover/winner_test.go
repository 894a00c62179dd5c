package handover

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func wantTurn(t *testing.T, got, want Turn) {
	t.Helper()
	if got != want {
		t.Errorf("the turn is %+v, want %+v", got, want)
	}
}

func TestBrokerOffersToTheWriterOfTheNewestCommit(t *testing.T) {
	x := &Winner{}
	wantTurn(t, x.Turn(0, false, 0, 0), Turn{Do: Claim}) // no winner is known
	x.Applied(commit(1), 10*ms)
	wantTurn(t, x.Turn(20*ms, true, 0, 0), Turn{Do: Offer, To: w, Until: 320 * ms})
	x.Applied(own(2), 30*ms)
	wantTurn(t, x.Turn(40*ms, true, 0, 0), Turn{Do: Claim}) // this broker is the winner
	x.Applied(Commit{Seq: 3}, 50*ms)
	wantTurn(t, x.Turn(60*ms, true, 0, 0), Turn{Do: Claim}) // an older broker is
}

func TestNamedBrokerGoesOn(t *testing.T) {
	x := &Winner{}
	x.Applied(commit(1), 0)
	x.Named(b, a, 0) // not by the winner
	x.Named(w, w, 0)
	if x.Session() != w {
		t.Fatalf("the winner is %v", x.Session())
	}
	x.Named(w, a, 100*ms)
	wantTurn(t, x.Turn(100*ms, true, 0, 0), Turn{Do: Offer, To: a, Until: 400 * ms})
	x.Named(a, Session{}, 200*ms) // this broker is named
	wantTurn(t, x.Turn(200*ms, true, 0, 0), Turn{Do: Claim})
}

func TestSilenceEndsTheWait(t *testing.T) {
	x := &Winner{}
	x.Applied(commit(1), 0)
	// Nothing was to be said before the broker had requests.
	wantTurn(t, x.Turn(time.Hour, true, 100*ms, 0), Turn{Do: Offer, To: w, Until: time.Hour + 400*ms})
	x.Heard(a, time.Hour+300*ms)
	x.Heard(w, time.Hour+200*ms)
	wantTurn(t, x.Turn(time.Hour+599*ms, true, 100*ms, 0), Turn{Do: Offer, To: w, Until: time.Hour + 600*ms})
	wantTurn(t, x.Turn(time.Hour+600*ms, true, 100*ms, 7*ms), Turn{Do: Wait, Until: time.Hour + 607*ms})
	wantTurn(t, x.Turn(time.Hour+606*ms, true, 100*ms, 9*ms), Turn{Do: Wait, Until: time.Hour + 607*ms})
	wantTurn(t, x.Turn(time.Hour+607*ms, true, 100*ms, 9*ms), Turn{Do: Claim})
	// The winner goes on in spite of that.
	x.Applied(commit(2), time.Hour+610*ms)
	wantTurn(t, x.Turn(time.Hour+610*ms, true, 0, 0), Turn{Do: Offer, To: w, Until: time.Hour + 910*ms})
}

func TestRestingBrokerWaitsForNothing(t *testing.T) {
	x := &Winner{}
	x.Applied(commit(1), 0)
	x.Turn(0, true, 0, 0)
	x.Rest()
	wantTurn(t, x.Turn(time.Minute, true, 0, 0), Turn{Do: Offer, To: w, Until: time.Minute + silenceMin})
}

func TestUnlinkedWinnerCountsForFiveSeconds(t *testing.T) {
	x := &Winner{}
	x.Applied(commit(1), 0)
	wantTurn(t, x.Turn(4900*ms, false, 0, 0), Turn{Do: Offer, To: w, Until: 5 * time.Second})
	wantTurn(t, x.Turn(5*time.Second, false, 0, 0), Turn{Do: Claim})
	wantTurn(t, x.Turn(5*time.Second, true, 0, 0), Turn{Do: Offer, To: w, Until: 5200 * ms})
}

func TestLeftWinnerIsNotWaitedFor(t *testing.T) {
	x := &Winner{}
	x.Applied(commit(1), 0)
	x.Leave(a, 0, 5*ms) // not the winner
	x.Leave(w, 0, 10*ms)
	x.Leave(w, 5*ms, 100*ms) // left already: the pause does not begin again
	wantTurn(t, x.Turn(9*ms, true, 0, 0), Turn{Do: Wait, Until: 10 * ms})
	wantTurn(t, x.Turn(10*ms, true, 0, 0), Turn{Do: Claim})
}

func TestWinnerGetsWhatItLacks(t *testing.T) {
	s := NewSender(a, 0, hashOf(0))
	one, two, three := seal(t, s), seal(t, s), seal(t, s)
	x := &Winner{}
	x.Applied(commit(1), 0)
	want := func(to Session, bundles ...Bundle) {
		t.Helper()
		var got []Bundle
		for _, f := range x.Send(to, s.Frames()) {
			got = append(got, f.Bundle)
		}
		if !slices.Equal(got, bundles) {
			t.Errorf("sent is %v, want %v", got, bundles)
		}
	}
	want(w, one, two) // two at a time
	want(b)
	x.Have(b, one.Mark)
	x.Have(w, one.Mark)
	x.Have(w, one.Mark)
	want(w, two)
	s.Applied(commit(1, one))
	x.Applied(commit(1, one), 0)
	want(w, two, three)
	x.Leave(w, 0, 0)
	x.Have(w, two.Mark)
	want(w)
	x.Applied(commit(2), 0)
	want(w, two, three) // what it has is not known any longer
}
