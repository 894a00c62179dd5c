package budget_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
)

// newBudget returns a budget, and the rest that the budget has last reported.
func newBudget(limit int64) (b *budget.Budget, rest *int64) {
	rest = &limit
	return budget.New(limit, func(n int64) { *rest = n }), rest
}

func mustTake(t *testing.T, b *budget.Budget, c budget.Class, n int64) {
	t.Helper()
	if err := b.Take(t.Context(), c, n); err != nil {
		t.Fatalf("take %d bytes: %v", n, err)
	}
}

// wantFull checks that err is a FullError with that limit, whose text contains all words.
func wantFull(t *testing.T, err error, limit int64, words ...string) {
	t.Helper()
	full, ok := errors.AsType[*budget.FullError](err)
	if !ok {
		t.Fatalf("got error %v, want a FullError", err)
	}
	if full.Limit != limit || full.Error() != full.Detail {
		t.Errorf("got limit %d and text %q of %+v, want limit %d", full.Limit, full.Error(), full, limit)
	}
	for _, w := range words {
		if !strings.Contains(full.Detail, w) {
			t.Errorf("%q does not contain %q", full.Detail, w)
		}
	}
}

func TestCallersOfAClassAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rest := newBudget(1600)
		mustTake(t, b, budget.Batches, 1200)
		var served []int64
		for _, n := range []int64{800, 100, 700} {
			go func() {
				if err := b.Take(t.Context(), budget.Batches, n); err != nil {
					t.Errorf("take %d bytes: %v", n, err)
				}
				served = append(served, n)
			}()
			synctest.Wait()
		}
		for _, step := range []struct {
			give int64
			want []int64
			rest int64
		}{
			{200, nil, 600}, // there is room for the second waiter, but the first one comes before
			{200, []int64{800}, 0},
			{200, []int64{800, 100}, 100},
			{600, []int64{800, 100, 700}, 0},
		} {
			b.Give(budget.Batches, step.give)
			synctest.Wait()
			if !slices.Equal(served, step.want) || *rest != step.rest || b.InUse() != b.Limit()-step.rest {
				t.Errorf("after %d bytes were given back: served %v, %d left, %d in use; want %v and %d left", step.give, served, *rest, b.InUse(), step.want, step.rest)
			}
		}
	})
}

func TestCallerThatLeavesFreesTheQueueForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(1600)
		mustTake(t, b, budget.Batches, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		left, served := make(chan error, 1), make(chan error, 1)
		go func() { left <- b.Take(ctx, budget.Batches, 1600) }()
		synctest.Wait()
		go func() { served <- b.Take(t.Context(), budget.Batches, 600) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller got %v", err)
		}
		if err := <-served; err != nil || time.Since(began) > 0 {
			t.Errorf("the second caller got %v after %v", err, time.Since(began))
		}
		if n := b.InUse(); n != 1600 {
			t.Errorf("%d bytes in use", n)
		}
	})
}

func TestFullBudgetSaysHowMuchItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(1600)
		for class, most := range map[budget.Class]int64{budget.Batches: 1600, budget.Fetches: 1600, budget.More: 1500, budget.Pushed: 1200, budget.Adapters: 800} {
			began := time.Now()
			wantFull(t, b.Take(t.Context(), class, most+1), 1600, fmt.Sprintf("no room for %d bytes", most+1), fmt.Sprintf("%d of 1600 bytes", most))
			if waited := time.Since(began); waited > 0 {
				t.Errorf("class %d waited %v for more than it may have", class, waited)
			}
			mustTake(t, b, class, most)
			wantFull(t, b.Take(t.Context(), class, 1), 1600, "no room for 1 bytes")
			if waited := time.Since(began); waited != 5*time.Second {
				t.Errorf("class %d waited %v for room", class, waited)
			}
			b.Give(class, most)
			mustTake(t, b, class, most)
			b.Give(class, most)
		}
	})
}

func TestShareIsDividedAmongItsHolders(t *testing.T) {
	b, rest := newBudget(16 << 10)
	_, limit := b.ShareBytes(budget.Bodies)
	one, two := budget.Holder{Key: 1}, budget.Holder{Key: 2}
	first := b.Reservation(budget.Bodies, one, nil)
	more := b.Reservation(budget.Bodies, one, nil)
	other := b.Reservation(budget.Bodies, two, nil)
	grow := func(what string, r *budget.Reservation, most, want int64) {
		t.Helper()
		if n := r.GrowNow(1, most); n != want {
			t.Errorf("%s got %d bytes, want %d", what, n, want)
		}
	}
	grow("the first", first, limit/2, limit/2)
	grow("another of that holder, which is alone,", more, limit, b.ShareAlone(budget.Bodies)-limit/2)
	grow("another holder", other, limit, limit-b.ShareAlone(budget.Bodies))
	grow("another holder of a full share", other, 1, 0)
	first.Shrink(limit / 2)
	grow("another holder of two", other, limit, limit/3-limit/4)
	grow("a holder that has its part", other, 1, 0)
	if used, _ := b.ShareBytes(budget.Bodies); used != limit/4+limit/3 || b.InUse() != used || *rest != b.Limit()-used {
		t.Errorf("%d bytes of %d are used, %d of the budget, %d are left", used, limit, b.InUse(), *rest)
	}
}

func TestMemoryIsTakenBackForAnotherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(16 << 10)
		_, limit := b.ShareBytes(budget.Bodies)
		var requests [2]*budget.Reservation // of one holder, which has the whole share
		var revoked []int
		for i := range requests {
			requests[i] = b.Reservation(budget.Bodies, budget.Holder{Key: 1}, func() {
				revoked = append(revoked, i)
				go requests[i].Shrink(limit / 2)
			})
			if err := requests[i].Grow(t.Context(), limit/2); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // virtual time
		}

		began := time.Now()
		other := b.Reservation(budget.Bodies, budget.Holder{Key: 2}, func() { t.Error("the other holder's request was ended") })
		wantFull(t, other.GrowSoon(t.Context(), limit/4, 0), limit, `"bodies"`, fmt.Sprintf("no room for %d bytes", limit/4), fmt.Sprintf("of which %d are taken", limit))
		if err := other.Grow(t.Context(), limit/4); err != nil || time.Since(began) != time.Second {
			t.Errorf("the other holder got %v after %v", err, time.Since(began))
		}
		if !slices.Equal(revoked, []int{1}) || requests[0].Ended() != nil {
			t.Errorf("the requests %v were ended, want only the one that began last", revoked)
		}
		wantFull(t, requests[1].Ended(), limit, fmt.Sprintf("%d of %d bytes", limit, limit))
		wantFull(t, requests[1].Grow(t.Context(), 1), limit)

		again := b.Reservation(budget.Bodies, budget.Holder{Key: 1}, func() {})
		if n := again.GrowNow(1, limit); n != 0 {
			t.Errorf("a holder that memory was taken from got %d bytes of %d in addition to its part", n, limit)
		}
		time.Sleep(time.Minute) // virtual time
		if n := again.GrowNow(1, limit); n != limit/4 {
			t.Errorf("a minute later it got %d bytes, want the rest of %d", n, limit)
		}
	})
}

// Responses whose clients are slow give way to those of others within a fraction of a second, and after that
// leave room for others at once. Responses whose clients are fast enough don't give way.
func TestResponsesOfSlowClientsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(128 << 20)
		_, limit := b.ShareBytes(budget.Answers)
		const slow, each = 7, 4 << 20
		ended := 0
		open := func(key uint64) {
			var r *budget.Reservation
			r = b.Reservation(budget.Answers, budget.Holder{Key: key}, func() {
				ended++
				go r.Shrink(each)
			})
			if err := r.GrowSoon(t.Context(), each, 0); err == nil {
				r.Sent(0)
			}
		}
		fast := b.Reservation(budget.Answers, budget.Holder{Key: 98}, func() { t.Error("the response of the fast client was ended") })
		if err := fast.Grow(t.Context(), each); err != nil {
			t.Fatal(err)
		}
		fast.Sent(0)
		for key := range uint64(slow) {
			open(key + 1)
		}
		time.Sleep(1500 * time.Millisecond) // virtual time
		fast.Sent(3 << 20)

		for round := range 100 {
			other := b.Reservation(budget.Answers, budget.Holder{Key: 99}, func() { t.Error("the other holder's response was ended") })
			began := time.Now()
			if err := other.Grow(t.Context(), each); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			switch waited := time.Since(began); {
			case round == 0 && waited == 0:
				t.Error("the slow clients have not filled the share")
			case waited > 100*time.Millisecond, round >= 2 && waited > 0: // a slow client that found no room in round 0 finds it in round 1
				t.Errorf("round %d: the other holder waited %v", round, waited)
			}
			other.Shrink(each)
			for key := range uint64(slow) {
				open(key + 1) // those that were ended come again
			}
			fast.Sent(1 << 20)
			time.Sleep(500 * time.Millisecond) // virtual time
		}
		if used, _ := b.ShareBytes(budget.Answers); ended == 0 || ended == slow || used < limit/2 {
			t.Errorf("%d of %d responses were ended, and %d of %d bytes are used", ended, slow, used, limit)
		}
	})
}

// A holder whose slow response was ended gets memory for its next responses, although slow responses of others
// fill the share: these give way to it, too.
func TestConfinedHolderFindsRoomAmongSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(128 << 20)
		_, limit := b.ShareBytes(budget.Answers)
		const each = 4 << 20
		open := func(key uint64) {
			var r *budget.Reservation
			r = b.Reservation(budget.Answers, budget.Holder{Key: key}, func() { go r.Shrink(each) })
			if err := r.GrowSoon(t.Context(), each, 0); err == nil {
				r.Sent(0)
			}
		}
		const confined = 1
		open(confined) // the slowest
		time.Sleep(time.Millisecond)
		for key := uint64(2); key < 12; key++ {
			open(key)
		}
		time.Sleep(3 * time.Second) // virtual time
		other := b.Reservation(budget.Answers, budget.Holder{Key: 99}, func() {})
		if err := other.Grow(t.Context(), each); err != nil {
			t.Fatal(err)
		}
		other.Shrink(each)
		for key := uint64(12); key < 20; key++ {
			open(key) // slow clients that have no mark yet take what was freed
		}
		if used, _ := b.ShareBytes(budget.Answers); used <= limit/2 {
			t.Fatalf("slow clients hold only %d of %d bytes", used, limit)
		}
		time.Sleep(3 * time.Second)

		again := b.Reservation(budget.Answers, budget.Holder{Key: confined}, func() {})
		began := time.Now()
		if err := again.Grow(t.Context(), each); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("the confined holder got %v after %v", err, time.Since(began))
		}
	})
}

// Small responses whose clients are slow give way, too. Those of fast clients, and those that are not sent yet, don't.
func TestSmallResponsesOfSlowClientsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(128 << 20)
		_, limit := b.ShareBytes(budget.Small)
		const each = 64 << 10
		ended := 0
		fill := func() { // each key fills its part of what is free
			for key := range uint64(20) {
				for {
					var r *budget.Reservation
					r = b.Reservation(budget.Small, budget.Holder{Key: key + 1}, func() {
						ended++
						go r.Shrink(each)
					}).ForResponse()
					if r.GrowNow(each, each) == 0 {
						break
					}
					r.Sent(0)
				}
			}
		}
		fast := b.Reservation(budget.Small, budget.Holder{Key: 98}, func() { t.Error("the response of the fast client was ended") }).ForResponse()
		notSent := b.Reservation(budget.Small, budget.Holder{Key: 97}, func() { t.Error("the response that is not sent was ended") }).ForResponse()
		for _, r := range []*budget.Reservation{fast, notSent} {
			if err := r.Grow(t.Context(), each); err != nil {
				t.Fatal(err)
			}
		}
		fast.Sent(0)
		fast.Sent(each)
		fill()
		if used, _ := b.ShareBytes(budget.Small); used <= limit-each {
			t.Fatalf("slow clients hold only %d of %d bytes", used, limit)
		}
		time.Sleep(1500 * time.Millisecond) // virtual time
		for range 100 {
			other := b.Reservation(budget.Small, budget.Holder{Key: 99}, func() { t.Error("the other holder's request was ended") })
			began := time.Now()
			if err := other.Grow(t.Context(), each); err != nil || time.Since(began) > 100*time.Millisecond {
				t.Fatalf("the other holder got %v after %v", err, time.Since(began))
			}
			other.Shrink(each)
			fill()
			time.Sleep(50 * time.Millisecond) // virtual time
		}
		if ended == 0 {
			t.Error("no response was ended")
		}
	})
}

// Memory of a response that the broker has not begun to send is not taken back, however long the store takes.
func TestResponseThatIsNotSentYetDoesNotGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(16 << 10)
		_, limit := b.ShareBytes(budget.Answers)
		first := b.Reservation(budget.Answers, budget.Holder{Key: 1}, func() { t.Error("the response was ended") })
		if err := first.Grow(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
		other := b.Reservation(budget.Answers, budget.Holder{Key: 2}, func() {})
		began := time.Now()
		wantFull(t, other.Grow(t.Context(), limit/4), limit, `"answers"`)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("the other holder waited %v, want 5s", waited)
		}
	})
}

// Holders that fill the share of small requests again and again give way within a fraction of a second, and
// after a while leave room for others at once.
func TestSmallRequestsOfOthersFindRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(16 << 10)
		_, limit := b.ShareBytes(budget.Small)
		const hostile, each = 4, 16
		fill := func() {
			for refused := 0; refused < hostile; {
				refused = 0
				for key := range uint64(hostile) {
					var r *budget.Reservation
					r = b.Reservation(budget.Small, budget.Holder{Key: key + 1}, func() { go r.Shrink(each) })
					if r.GrowNow(each, each) == 0 {
						refused++
					}
				}
			}
		}
		other := b.Reservation(budget.Small, budget.Holder{Key: 99}, func() { t.Error("the other holder's request was ended") })
		for round := range hostile + 1 {
			fill()
			began := time.Now()
			if err := other.Grow(t.Context(), each); err != nil {
				t.Fatal(err)
			}
			switch waited := time.Since(began); {
			case waited > 100*time.Millisecond:
				t.Errorf("round %d: the other holder waited %v", round, waited)
			case round == hostile && waited > 0:
				t.Errorf("the other holder still waited %v after memory was taken from all hostile ones", waited)
			}
			other.Shrink(each)
			synctest.Wait()
		}
		if used, _ := b.ShareBytes(budget.Small); used < limit/2 {
			t.Errorf("the hostile holders have only %d of %d bytes", used, limit)
		}
	})
}

// BenchmarkGrowWithManyHolders has 200 holders that take and give back an eighth of the share for large responses.
// One of them is confined.
func BenchmarkGrowWithManyHolders(b *testing.B) {
	const holders, size = 200, 128 << 20
	all, _ := newBudget(size)
	_, share := all.ShareBytes(budget.Answers)
	var slow *budget.Reservation
	slow = all.Reservation(budget.Answers, budget.Holder{Key: 1}, func() { go slow.Shrink(share / 2) })
	if err := slow.Grow(b.Context(), share/2); err != nil {
		b.Fatal(err)
	}
	slow.Sent(0)
	time.Sleep(1100 * time.Millisecond) // the client is slow from now on
	other := all.Reservation(budget.Answers, budget.Holder{Key: holders + 1}, func() {})
	if err := other.Grow(b.Context(), share/4*3); err != nil || slow.Ended() == nil {
		b.Fatalf("the slow response was not ended (%v)", err)
	}
	other.Shrink(share / 4 * 3)

	b.ResetTimer()
	var key atomic.Uint64
	b.SetParallelism(holders / runtime.GOMAXPROCS(0))
	b.RunParallel(func(p *testing.PB) {
		holder := budget.Holder{Key: key.Add(1)}
		for p.Next() {
			r := all.Reservation(budget.Answers, holder, func() {})
			if err := r.Grow(context.Background(), share/8); err != nil {
				b.Error(err)
				return
			}
			r.Shrink(share / 8)
		}
	})
}

// Clients that hold the memory of large responses, end their connections just before they count as slow, and ask
// again, are confined as slow clients are: others then find room at once.
func TestClientsThatLeaveBeforeTheyCountAsSlowAreConfined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(128 << 20)
		_, limit := b.ShareBytes(budget.Answers)
		hold := func() (end func()) {
			var held []func()
			for key := range uint64(8) {
				r := b.Reservation(budget.Answers, budget.Holder{Key: key + 1}, func() { t.Error("a response was ended") })
				if n := r.GrowNow(1, limit/4); n > 0 {
					r.Sent(0)
					r.Sent(n / 3) // into the kernel's buffers
					held = append(held, func() {
						r.Broken()
						r.Shrink(n)
					})
				}
			}
			return func() {
				for _, end := range held {
					end()
				}
			}
		}
		room := func() int64 {
			r := b.Reservation(budget.Answers, budget.Holder{Key: 99}, nil)
			n := r.GrowNow(1, limit/4)
			r.Shrink(n)
			return n
		}
		for range 4 {
			end := hold()
			time.Sleep(900 * time.Millisecond) // virtual time
			end()
		}
		defer hold()()
		if n := room(); n != limit/4 {
			t.Errorf("another holder found room for %d of %d bytes", n, limit/4)
		}
	})
}
