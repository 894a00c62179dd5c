package engine_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A connected broker sends its commits, so a wait for one causes no request to the store. If the connection breaks, the engine
// syncs for a while.
func TestAwaitLaterLearnsOfCommitsOfAConnectedBroker(t *testing.T) {
	inPair(t, func(p *pair) {
		await := func() <-chan error {
			done := make(chan error, 1)
			us := p.engines[1].Time()
			go func() { done <- p.engines[1].AwaitLater(p.Context(), us) }()
			synctest.Wait()
			return done
		}
		time.Sleep(2 * time.Hour) // until the jobs of a log that has just become idle are done
		before := p.stores[1].Count("", "")
		for range 3 {
			done := await()
			time.Sleep(time.Minute)
			if err := p.append(0, "a").Wait(p.Context()); err != nil {
				p.Fatal(err)
			}
			begun := time.Now()
			if err := <-done; err != nil || time.Since(begun) > time.Second {
				p.Errorf("after %v: %v", time.Since(begun), err)
			}
		}
		if n := p.stores[1].Count("", "") - before; n != 0 {
			p.Errorf("%d requests to the store", n)
		}
		done := await()
		p.near.Close()
		p.far.Close()
		time.Sleep(time.Minute)
		if err := p.append(0, "b").Wait(p.Context()); err != nil {
			p.Fatal(err)
		}
		begun := time.Now()
		if err := <-done; err != nil || time.Since(begun) > 10*time.Second {
			p.Errorf("without a connection, after %v: %v", time.Since(begun), err)
		}
	})
}
