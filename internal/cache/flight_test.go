package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

type keyOf string

func keysOf(names ...string) (keys []any) {
	for _, name := range names {
		keys = append(keys, keyOf(name))
	}
	return keys
}

var errFetch = errors.New("fetch")

func TestFlightIsSharedByConcurrentCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		calls, release, got := 0, make(chan struct{}), make(chan error, 10)
		for range 10 {
			go func() {
				got <- c.Flight(t.Context(), keysOf("k"), func(context.Context) error {
					calls++
					<-release
					return errFetch
				})
			}()
		}
		synctest.Wait()
		close(release)
		for range 10 {
			if err := <-got; !errors.Is(err, errFetch) {
				t.Fatal(err)
			}
		}
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
		// After a flight has ended, the next caller starts a new one.
		if err := c.Flight(t.Context(), keysOf("k"), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFlightsOfOtherKeysDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		release, got := make(chan struct{}), make(chan error)
		go func() {
			got <- c.Flight(t.Context(), keysOf("slow"), func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait()
		if err := c.Flight(t.Context(), keysOf("fast"), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		close(release)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}

func TestACallerThatLeavesDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		release := make(chan struct{})
		first, leaveFirst := context.WithCancel(t.Context())
		gotFirst, gotSecond := make(chan error, 1), make(chan error, 1)
		go func() {
			gotFirst <- c.Flight(first, keysOf("k"), func(ctx context.Context) error {
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		synctest.Wait()
		go func() {
			gotSecond <- c.Flight(t.Context(), keysOf("k"), func(context.Context) error {
				t.Error("a second flight of the same key")
				return nil
			})
		}()
		synctest.Wait()
		leaveFirst()
		if err := <-gotFirst; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		synctest.Wait()
		close(release)
		if err := <-gotSecond; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFlightEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		ctx, leave := context.WithCancel(t.Context())
		got, ended, finish := make(chan error, 2), make(chan struct{}), make(chan struct{})
		for range 2 {
			go func() {
				got <- c.Flight(ctx, keysOf("k"), func(ctx context.Context) error {
					<-ctx.Done()
					close(ended)
					<-finish
					return ctx.Err()
				})
			}()
		}
		synctest.Wait()
		leave()
		for range 2 {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		<-ended
		// While the old flight is still ending, the next caller starts a new one.
		if err := c.Flight(t.Context(), keysOf("k"), func(ctx context.Context) error { return ctx.Err() }); err != nil {
			t.Fatalf("joined a flight that nobody waits for: %v", err)
		}
		close(finish)
	})
}

func TestFlightContext(t *testing.T) {
	type valueKey struct{}
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), 1e9)
		defer cancel()
		err := c.Flight(ctx, keysOf("k"), func(ctx context.Context) error {
			if _, ok := ctx.Deadline(); ok || ctx.Value(valueKey{}) != "v" {
				t.Error("fn's context has the caller's deadline, or not its values")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		err = c.Flight(ctx, keysOf("k"), func(context.Context) error { t.Error("began for a caller that is gone"); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestCloseWaitsForFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		ctx, leave := context.WithCancel(t.Context())
		release, closed := make(chan struct{}), make(chan struct{})
		got := make(chan error, 1)
		go func() {
			got <- c.Flight(ctx, keysOf("k"), func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait()
		leave()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		go func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close returned with a flight under way")
		default:
		}
		close(release)
		<-closed
		if err := c.Flight(t.Context(), keysOf("k"), func(context.Context) error { return nil }); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	})
}

// A caller waits for a running call that has one of its keys, and for no other.
func TestFlightsShareKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options{})
		release, got := make(chan struct{}), make(chan error, 2)
		go func() {
			got <- c.Flight(t.Context(), keysOf("a", "b"), func(context.Context) error { <-release; return errFetch })
		}()
		synctest.Wait()
		go func() {
			got <- c.Flight(t.Context(), keysOf("b", "c"), func(context.Context) error { t.Error("b was fetched twice"); return nil })
		}()
		synctest.Wait()
		if err := c.Flight(t.Context(), keysOf("c", "d"), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := c.Flight(t.Context(), nil, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		close(release)
		for range 2 {
			if err := <-got; !errors.Is(err, errFetch) {
				t.Error(err)
			}
		}
		if err := c.Flight(t.Context(), keysOf("a", "b", "c"), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// When Begin has returned, others with one of its keys wait for it.
func TestBegunFlightIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, release := open(t, Options{}), make(chan struct{})
		wait := c.Begin(t.Context(), keysOf("a", "b"), func(context.Context) error {
			<-release
			return errFetch
		})
		got := make(chan error, 1)
		go func() {
			got <- c.Flight(t.Context(), keysOf("b"), func(context.Context) error { return nil })
		}()
		synctest.Wait()
		close(release)
		if err := wait(); !errors.Is(err, errFetch) {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, errFetch) {
			t.Errorf("the second caller did not wait for the first: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Begin(ended, keysOf("a"), func(context.Context) error { return nil })(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
