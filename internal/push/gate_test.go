package push

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// enter lets n requests through, and returns the era of the last.
func enter(t *testing.T, g *gate, n int) (era int) {
	t.Helper()
	g.receiving(func() {})(n)
	for range n {
		var ok bool
		if era, ok = g.enter(t.Context()); !ok {
			t.Fatal("a request may not begin")
		}
	}
	return era
}

func leave(g *gate, era, n int, o Outcome) {
	for range n {
		g.leave(era, answer{outcome: o})
		g.settled()
	}
}

func room(t *testing.T, g *gate) int {
	t.Helper()
	n, err := g.room(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGateClosesLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8)
		for i, least := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 128 * time.Second, 150 * time.Second, 150 * time.Second} {
			leave(g, enter(t, g, 1), 1, Unreachable)
			began := time.Now()
			if n := room(t, g); n != 1 {
				t.Errorf("%d requests may follow closing %d", n, i)
			}
			if took := time.Since(began); took < least || took > min(2*least, closedMax) {
				t.Errorf("closed for %v, want %v and up to as much again", took, least)
			}
		}
		leave(g, enter(t, g, 1), 1, Delivered)
		leave(g, enter(t, g, 1), 1, Slowed)
		if closed := time.Until(g.status().SlowedUntil); closed > closedMin {
			t.Errorf("after a success it is closed for %v", closed)
		}
	})
}

// If 64 requests that are under way together are refused, the gate counts that once.
func TestGateCountsOnceWhatWasSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(64)
		era := enter(t, g, 64)
		leave(g, era, 40, Slowed)
		leave(g, era, 24, Delivered)
		if s := g.status(); s.Limit != 1 || time.Until(s.SlowedUntil) > closedMin || g.closings != 1 {
			t.Errorf("%+v after %d closings", s, g.closings)
		}
		// But of the times that they ask for, the longest counts.
		g = newGate(64)
		era = enter(t, g, 3)
		g.leave(era, answer{outcome: Slowed, after: time.Minute})
		g.leave(era, answer{outcome: Slowed, after: 2 * time.Minute})
		g.leave(era, answer{outcome: Slowed, after: time.Second})
		if closed := time.Until(g.status().SlowedUntil); closed < 2*time.Minute || closed > 2*time.Minute+16*time.Second {
			t.Errorf("closed for %v", closed)
		}
	})
}

func TestGateOpensSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(9)
		leave(g, enter(t, g, 9), 9, Unreachable)
		for _, want := range []int{1, 2, 4, 8, 9, 9} {
			n := room(t, g)
			if n != want {
				t.Errorf("%d requests may be made, want %d", n, want)
			}
			leave(g, enter(t, g, n), n, Delivered)
		}
		leave(g, enter(t, g, 3), 3, TimedOut)
		leave(g, enter(t, g, 2), 2, Refused)
		if n := room(t, g); n != 6 {
			t.Errorf("after three of 9 had no answer %d may be made", n)
		}
		leave(g, enter(t, g, 1), 1, Delivered)
		leave(g, enter(t, g, 6), 6, Broken)
		leave(g, enter(t, g, 1), 1, Broken)
		if n := room(t, g); n != 1 {
			t.Errorf("%d may be made where nothing is answered", n)
		}
	})
}

func TestGateBoundsWhatIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		for range settlingFactor {
			era := enter(t, g, room(t, g))
			g.leave(era, answer{outcome: Delivered})
			g.leave(era, answer{outcome: Delivered})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if n, err := g.room(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("room for %d more, %v", n, err)
		}
		g.settled()
		if n := room(t, g); n != 1 {
			t.Errorf("room for %d", n)
		}
	})
}

// If the gate closes while the pusher waits for messages, the pusher stops receiving.
func TestGateClosesWhileReceiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8)
		era := enter(t, g, 1)
		ctx, giveUp := context.WithCancel(t.Context())
		received := g.receiving(giveUp)
		if ctx.Err() != nil {
			t.Fatal("given up too early")
		}
		leave(g, era, 1, Slowed)
		if ctx.Err() == nil {
			t.Error("not given up")
		}
		received(0)
		ctx, giveUp = context.WithCancel(t.Context())
		g.receiving(giveUp)(0)
		if ctx.Err() == nil {
			t.Error("messages are received from behind a closed gate")
		}
	})
}

// A message that was received before the gate narrowed, or before its pusher ended, may not begin, and
// no longer takes up room.
func TestGateRefusesWhatItHasNoRoomFor(t *testing.T) {
	g := newGate(3)
	era := enter(t, g, 2)
	g.receiving(func() {})(1) // received, not yet entered
	leave(g, era, 1, TimedOut)
	leave(g, enterOne(t, g), 1, TimedOut)
	g.receiving(func() {})(2)
	if _, ok := g.enter(t.Context()); ok {
		t.Error("a second request begins while only one may be under way")
	}
	leave(g, era, 1, Delivered)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := g.enter(ctx); ok {
		t.Error("a request begins after the end")
	}
	if n := room(t, g); n != 2 {
		t.Errorf("room for %d", n)
	}
}

func enterOne(t *testing.T, g *gate) int {
	t.Helper()
	era, ok := g.enter(t.Context())
	if !ok {
		t.Fatal("a request may not begin")
	}
	return era
}

// Status says why, and since when, no request succeeds: until the next success, whatever the failures are.
func TestGateSaysSinceWhenNoRequestSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		began := time.Now()
		for _, x := range []struct {
			outcome Outcome
			why     string // of the status then
			since   time.Duration
		}{
			{Delivered, "", 0}, {Abandoned, "", 0}, {Failed, "failed", 3 * time.Hour}, {Unreachable, "unreachable", 3 * time.Hour},
			{Abandoned, "unreachable", 3 * time.Hour}, {Forbidden, "forbidden", 3 * time.Hour}, {Delivered, "", 0}, {Refused, "refused", 8 * time.Hour},
		} {
			time.Sleep(time.Hour)
			a := answer{outcome: x.outcome}
			if x.outcome != Delivered {
				a.reason = string(x.outcome)
			}
			g.leave(enter(t, g, 1), a)
			s, since := g.status(), time.Time{}
			if x.why != "" {
				since = began.Add(x.since)
			}
			if s.Failing != x.why || !s.FailingSince.Equal(since) {
				t.Errorf("after %s: %q since %v, want %q since %v", x.outcome, s.Failing, s.FailingSince, x.why, since)
			}
		}
	})
}
