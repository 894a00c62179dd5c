package fault_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestSaturatedBrokersShareTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		mustCreateTopic(t, open(t, memory, immediate()), "t", 1)
		bs := []*seb.Broker{
			open(t, storetest.Slow(memory, 5*time.Millisecond), immediate()),
			open(t, storetest.Slow(memory, 5*time.Millisecond), immediate()),
		}
		const callers = 4
		var (
			wg  sync.WaitGroup
			mu  sync.Mutex
			won [2]map[seb.Offset]bool // offsets of the records that each broker committed
			end = time.Now().Add(20 * time.Second)
		)
		for i, b := range bs {
			won[i] = map[seb.Offset]bool{}
			for range callers {
				wg.Go(func() {
					for time.Now().Before(end) {
						a, err := b.Append(t.Context(), "t", values("v"))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						won[i][a.Ranges[0].Offset] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		slots := len(keys(t, memory, format.LogPrefix))
		// All callers of a broker share its commits, so its share of the records is its share of the
		// slots.
		total := len(won[0]) + len(won[1])
		for i := range won {
			if share := float64(len(won[i])) / float64(total); share < 0.25 {
				t.Errorf("broker %d won %.0f %% of %d slots", i, 100*share, slots)
			}
		}
		t.Logf("%d slots in 20 s, records %d to %d", slots, len(won[0]), len(won[1]))
	})
}

// A broker comes late to a log that another broker extends as fast as the store allows. It must still
// find the end, and win slots.
func TestNewcomerToABusyLogIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		busy := open(t, storetest.Slow(memory, 5*time.Millisecond), immediate())
		mustCreateTopic(t, busy, "t", 1)
		end := time.Now().Add(10 * time.Second)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for time.Now().Before(end) {
					if _, err := busy.Append(t.Context(), "t", values("v")); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(2 * time.Second)
		begun := time.Now()
		within := func(what string, most time.Duration) {
			t.Helper()
			if took := time.Since(begun); took > most {
				t.Errorf("%s took %v", what, took)
			}
			begun = time.Now()
		}
		newcomer := open(t, storetest.Slow(memory, 5*time.Millisecond), immediate())
		within("recovery", time.Second)
		time.Sleep(2 * time.Second) // the newcomer falls behind
		begun = time.Now()
		_, err := newcomer.Topic(t.Context(), "unknown")
		wantCode(t, err, seb.CodeTopicNotFound)
		within("finding that there is no such topic", time.Second)
		mustAppend(t, newcomer, "new", "v")
		within("an append to a new topic", 4*time.Second) // it needs two slots, and chance decides who wins each
		mustAppend(t, newcomer, "new", "v")
		within("the next append", time.Second)
		wg.Wait()
	})
}
