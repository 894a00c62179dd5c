package commitlog

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

const none = format.PauseUnknown

// marked returns a commit of the session named by one byte, whose writer wants its next slot after a pause in ms.
func marked(session byte, pause uint16) *format.Commit {
	return &format.Commit{Entries: []format.Entry{&format.WriterMark{Session: format.SessionID{session}, Pause: pause}}}
}

// wins applies the next slots: each is won by the session of that name, and "-" stands for the broker itself. Each
// win takes one answer time. It returns the last slot, and when it was applied.
func (t *turns) wins(sessions string, pause uint16) (last format.Seq, boot time.Duration) {
	last, boot = t.won, t.since
	for _, w := range t.writers {
		last = max(last, w.won)
	}
	for _, session := range []byte(sessions) {
		last, boot = last+1, boot+t.answer
		t.applied(last, marked(session, pause), session == '-', false, boot)
	}
	return last, boot
}

// wantTurn asserts which session has the next slot.
func (t *turns) wantTurn(tb testing.TB, boot time.Duration, want string) {
	tb.Helper()
	got := "-"
	if i := t.next(boot); i >= 0 {
		got = string(t.writers[i].session[:1])
	}
	if got != want {
		tb.Errorf("%v after the start, session %s has the next slot, want %s", boot, got, want)
	}
}

func TestTurnsGoByTheOldestWin(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	_, boot := x.wins("ab", 0)
	x.wantTurn(t, boot, "-") // it has not won yet, so it waits for nobody
	for range 3 {
		_, boot = x.wins("-", 0)
		x.wantTurn(t, boot, "a")
		_, boot = x.wins("a", 0)
		x.wantTurn(t, boot, "b")
		_, boot = x.wins("b", 0)
		x.wantTurn(t, boot, "-")
	}
	_, boot = x.wins("-b", 0) // out of order
	x.wantTurn(t, boot, "a")
}

func TestWriterHasItsTurnWhenItIsDue(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	x.wins("a", 250)
	_, boot := x.wins("-", 250)
	x.wantTurn(t, boot, "-")
	x.wantTurn(t, boot+239*time.Millisecond, "-")
	x.wantTurn(t, boot+240*time.Millisecond, "a") // 250 ms after its own win, which was 10 ms earlier
	x.wins("a", none)
	_, boot = x.wins("-", 250)
	x.wantTurn(t, boot+time.Hour, "-")
}

func TestTurnThatIsNotUsedPasses(t *testing.T) {
	x := turns{answer: 8 * time.Millisecond}
	x.wins("a", 0)
	patience := 48 * time.Millisecond // 6 answer times, then half of that each time
	for range 4 {
		last, boot := x.wins("-", 0)
		x.wantTurn(t, boot, "a")
		x.pass(0, last, boot+patience-1)
		x.wantTurn(t, boot, "a")
		x.pass(0, last, boot+patience)
		x.wantTurn(t, boot, "-")
		patience /= 2
	}
	if _, boot := x.wins("-", 0); len(x.writers) > 0 {
		t.Errorf("%v after the start, a writer that let its turn go by four times still has turns", boot)
	}
	x.wins("a", 0)
	_, boot := x.wins("-", 0)
	x.wantTurn(t, boot, "a") // it has won again, so it has turns again
}

func TestBrokerIsOutsideUntilItWins(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	want := func(last format.Seq, want bool) {
		t.Helper()
		if x.outside(last) != want {
			t.Errorf("as of slot %d, with %d other writers, outside = %v", last, len(x.writers), !want)
		}
	}
	want(0, true)
	last, _ := x.wins("abab", 0)
	want(last, true)
	last, _ = x.wins("-ab", 0)
	want(last, false)
	want(x.won+3*roundsMax, false)
	want(x.won+3*roundsMax+1, true)
}

func TestExpectedBrokerHasTheNextTurn(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	_, boot := x.wins("-a-", 0)
	x.expect(format.SessionID{'b'}, boot)
	x.expect(format.SessionID{'b'}, boot)
	x.expect(format.SessionID{'a'}, boot) // it has turns already
	x.wantTurn(t, boot, "b")
	_, boot = x.wins("b", 0)
	x.wantTurn(t, boot, "a")
	if len(x.writers) != 2 {
		t.Errorf("%d brokers have turns", len(x.writers))
	}
}

func TestGapsAreForBrokersWithoutTurns(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	x.wins("a", 0)
	for range 3 {
		n := 0
		for gap := time.Duration(0); gap == 0; n++ {
			_, boot := x.wins("-", 0)
			gap = x.gap(boot, rand.Float64())
		}
		if n < gapSlots-1 || n > gapSlots { // the first time, the slot of session a counts, too
			t.Errorf("a gap after %d slots", n)
		}
	}
	for _, outsider := range []*format.Commit{marked('a', none), {}} {
		x.applied(x.won+1, outsider, false, false, x.since)
		if gap := x.gap(x.since, rand.Float64()); gap > 0 {
			t.Errorf("a gap of %v after the commit of another broker", gap)
		}
		sum := time.Duration(0)
		for range 100 {
			_, boot := x.wins("-", 0)
			sum += x.gap(boot, rand.Float64())
		}
		if mean := sum / 100; mean < 5*time.Millisecond || mean > 15*time.Millisecond {
			t.Errorf("beside a broker without turns, the mean gap is %v, want one answer time", mean)
		}
		x.since += contendedFor
		if _, boot := x.wins("-", 0); x.gap(boot, rand.Float64()) > 0 {
			t.Error("a gap for a broker that has committed nothing for long")
		}
	}
}

// A broker that has never won a slot gets a gap when it asks, but many questions get one gap in five seconds.
func TestNewBrokersGetGaps(t *testing.T) {
	x := turns{answer: 10 * time.Millisecond}
	gaps := 0
	for range 500 { // slots in 10 s: each takes 10 ms, and the next one begins 10 ms later
		x.wins("-", 0)
		x.since += 10 * time.Millisecond
		for range 10 {
			x.leaveGap(x.since)
		}
		if gap := x.gap(x.since, rand.Float64()); gap == askedGapMin {
			gaps++
		} else if gap != 0 {
			t.Errorf("a gap of %v", gap)
		}
	}
	if gaps != 2 {
		t.Errorf("%d gaps in 10 s, want 2", gaps)
	}
}

// Four brokers that want each slot take turns: once each has won some slots, hardly any race is lost.
func TestBrokersWithTurnsLoseHardlyAnyRace(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const brokers, commits = 4, 50
		var (
			all    [brokers]*broker
			before atomic.Uint64 // races lost in the first half
			wg     sync.WaitGroup
		)
		for i := range all {
			b := r.open()
			b.store.On("", "", storetest.Delay(20*time.Millisecond))
			own := *r
			own.nonces = uint64(i) << 32 // nonces must be unique among all brokers
			b.rig, all[i] = &own, b
			wg.Go(func() {
				for n := range commits {
					if n == commits/2 {
						before.Add(b.Stats().LostRaces.Load())
					}
					build := b.build(fmt.Sprintf("%d/%d", i, n))
					b.AwaitTurn(t.Context())
					_, err := b.Commit(t.Context(), func(x Next) (*format.Commit, [][]byte) {
						c, payload := build(x)
						c.Entries = append(marked(byte(i+1), 0).Entries, c.Entries...)
						return c, payload
					}, func(err error) { t.Error(err) })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		lost := uint64(0)
		for i, b := range all {
			lost += b.Stats().LostRaces.Load()
			b.mustLook()
			b.requireAt(brokers * commits)
			for n := range commits {
				r.requireOnce(fmt.Sprintf("%d/%d", i, n))
			}
		}
		if lost -= before.Load(); lost > commits/10 {
			t.Errorf("%d of %d races were lost after each broker had won %d slots", lost, brokers*commits/2, commits/2)
		}
	})
}
