package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb/internal/budget"
)

// job is a call of TakeForJob that may still wait.
type job struct {
	got int64
	err error
	at  time.Duration // when it returned
}

// takeForJob calls TakeForJob in another goroutine; the result is nil until it returns.
func takeForJob(ctx context.Context, b *budget.Budget, want, least int64) **job {
	begun, done := time.Now(), new(*job)
	go func() {
		got, err := b.TakeForJob(ctx, want, least)
		*done = &job{got, err, time.Since(begun)}
	}()
	synctest.Wait()
	return done
}

func TestJobTakesWhatNobodyElseWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rest := newBudget(1600)
		mustTake(t, b, budget.Batches, 1000)
		go func() { mustTake(t, b, budget.Batches, 700) }()
		synctest.Wait()
		x := takeForJob(t.Context(), b, 300, 50)
		time.Sleep(time.Second)
		if *x != nil {
			t.Fatalf("the job got %+v although an append waited", **x)
		}
		b.Give(budget.Batches, 200) // the append gets 700 of 800 free bytes
		synctest.Wait()
		if *x != nil || *rest != 100 {
			t.Fatalf("the job got %+v, %d bytes are left: 2/16 are not for jobs", *x, *rest)
		}
		b.Give(budget.Batches, 400)
		synctest.Wait()
		if *x == nil || **x != (job{300, nil, time.Second}) || *rest != 200 {
			t.Fatalf("the job got %+v, %d bytes are left", *x, *rest)
		}
		mustTake(t, b, budget.Batches, 200) // jobs leave room for appends
		b.Give(budget.Jobs, 300)
		if *rest != 300 {
			t.Errorf("%d bytes are left", *rest)
		}
	})
}

func TestJobGoesOnWithLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBudget(1600)
		mustTake(t, b, budget.Batches, 1100)
		x := takeForJob(t.Context(), b, 500, 50)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if *x == nil || **x != (job{300, nil, 10 * time.Second}) {
			t.Fatalf("the job got %+v", *x)
		}
		if n, err := b.TakeForJob(t.Context(), 1600, 800); err == nil || n == 1200 {
			t.Errorf("a job that needs more than is ever free got %d, %v", n, err)
		}
	})
}

// Although appends leave no room for long, a job gets a 32nd of the budget in the end, before the next append.
func TestStarvedJobComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rest := newBudget(1600)
		ctx, stop := context.WithCancel(t.Context())
		for range 40 { // the budget has room for 16, so others wait even if all give their memory back at once
			go func() {
				for ctx.Err() == nil {
					if b.Take(ctx, budget.Batches, 100) == nil {
						time.Sleep(100 * time.Millisecond)
						b.Give(budget.Batches, 100)
					}
				}
			}()
		}
		synctest.Wait()
		x := takeForJob(t.Context(), b, 500, b.JobLeast())
		large := takeForJob(t.Context(), b, 500, 500)
		time.Sleep(time.Minute)
		synctest.Wait()
		if *x == nil || (*x).err != nil || (*x).got != 50 || (*x).at < 30*time.Second || (*x).at > 31*time.Second {
			t.Errorf("the job got %+v", *x)
		}
		if *large == nil {
			t.Error("a job that needs much waits for ever")
		} else {
			wantFull(t, (*large).err, 1600, "500 bytes")
		}
		stop()
		time.Sleep(time.Second)
		b.Give(budget.Jobs, 50)
		if *rest != 1600 {
			t.Errorf("%d of 1600 bytes are left", *rest)
		}
		mustTake(t, b, budget.Batches, 1600) // nothing is kept free for jobs
	})
}

// A job that is given up while it waits keeps nothing, whatever it waits for.
func TestJobThatIsGivenUpKeepsNothing(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b, rest := newBudget(1600)
			mustTake(t, b, budget.Batches, 1600)
			ctx, stop := context.WithTimeout(t.Context(), after)
			defer stop()
			x := takeForJob(ctx, b, 500, b.JobLeast())
			time.Sleep(after)
			synctest.Wait()
			if *x == nil || !errors.Is((*x).err, context.DeadlineExceeded) {
				t.Fatalf("the job got %+v", *x)
			}
			b.Give(budget.Batches, 1600)
			mustTake(t, b, budget.Batches, 1600)
			if *rest != 0 || b.InUse() != 1600 {
				t.Errorf("%d bytes are left, %d in use", *rest, b.InUse())
			}
		})
	}
}

// While a job has memory, requests of programs get their first buffers as without it.
func TestJobDoesNotCountAsClient(t *testing.T) {
	b, _ := newBudget(1600)
	if n, err := b.TakeForJob(t.Context(), 700, 50); n != 700 || err != nil {
		t.Fatal(n, err)
	}
	mustTake(t, b, budget.Adapters, 800)
	wantNoRoom := func(c budget.Class, n int64) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := b.Take(ctx, c, n); err == nil {
			t.Errorf("class %d got %d bytes", c, n)
		}
	}
	wantNoRoom(budget.More, 1) // a 16th is for batches
	mustTake(t, b, budget.Batches, 100)
}

// Callers that wait for others of their class, or of their share, want nothing of what a job takes: they don't hold it up, however
// many there are.
func TestJobIsNotHeldUpByLimitsOfOthers(t *testing.T) {
	busy := func(b *budget.Budget, c budget.Class) func(ctx context.Context) {
		return func(ctx context.Context) {
			if b.Take(ctx, c, 100) == nil {
				time.Sleep(100 * time.Millisecond)
				b.Give(c, 100)
			}
		}
	}
	for name, others := range map[string]func(b *budget.Budget) func(ctx context.Context){
		"fetches": func(b *budget.Budget) func(context.Context) { return busy(b, budget.Fetches) },
		"clients": func(b *budget.Budget) func(context.Context) { return busy(b, budget.Adapters) },
		"lists":   func(b *budget.Budget) func(context.Context) { return busy(b, budget.Lists) },
		"large requests": func(b *budget.Budget) func(context.Context) {
			return func(ctx context.Context) {
				r := b.Reservation(budget.Bodies, budget.Holder{Key: 1}, nil)
				if r.Grow(ctx, 150) == nil {
					time.Sleep(100 * time.Millisecond)
					r.Shrink(150)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newBudget(1600)
				use := others(b)
				ctx, stop := context.WithCancel(t.Context())
				for range 20 {
					go func() {
						for ctx.Err() == nil {
							use(ctx)
						}
					}()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				x := takeForJob(t.Context(), b, 500, 500)
				time.Sleep(time.Minute)
				synctest.Wait()
				if *x == nil || (*x).err != nil || (*x).got != 500 || (*x).at > time.Second {
					t.Errorf("with %d of 1600 bytes in use, the job got %+v", b.InUse(), *x)
				}
				stop()
				time.Sleep(time.Minute)
			})
		})
	}
}
