package seb_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/test/kit"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

// The cost of a broker is its store requests: this test counts those of an hour for different work.
func TestRequestsOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		other := open(t, memory, immediate())
		mustAppend(t, other, "t", "v")
		b := open(t, faulty, immediate())
		hour := func(doing string, every time.Duration, do func(), creates, gets, lists int) {
			t.Helper()
			verbs := []objstore.Verb{objstore.VerbCreate, objstore.VerbGet, objstore.VerbList, objstore.VerbDelete}
			before := map[objstore.Verb]int{}
			for _, v := range verbs {
				before[v] = faulty.Count(v, "")
			}
			for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(every) {
				do()
			}
			for i, most := range []int{creates, gets, lists, 0} {
				if n := faulty.Count(verbs[i], "") - before[verbs[i]]; n > most {
					t.Errorf("%s: %d %ss, want at most %d", doing, n, verbs[i], most)
				} else {
					t.Logf("%s: %d %ss", doing, n, verbs[i])
				}
			}
		}
		const segments = 10 // the level of the log is raised, and each segment takes an object and a commit
		hour("idle", time.Minute, func() {}, 0, 0, 0)
		hour("one append a second", time.Second, func() { mustAppend(t, b, "t", "v") }, 3600+5+segments, 1+5, 5)
		hour("one read at the end a second", time.Second, func() { wantAtEnd(t, b) }, 0, 3600+1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for _, err := range b.Follow(ctx, "t", 0, seb.Latest) {
				if err != nil && seb.CodeOf(err) != seb.CodeCanceled {
					t.Error(err)
				}
			}
		}()
		hour("a follower of nothing", time.Minute, func() {}, 0, 360+10, 0)
		hour("a follower of an append a second", time.Second, func() { mustAppend(t, other, "t", "v") }, 0, 5*3600, 0)
		hour("a follower of an append a minute", time.Minute, func() { mustAppend(t, other, "t", "v") }, 0, 60*15, 0)
		cancel()
		time.Sleep(12 * time.Hour)
		hour("an append after a night", time.Hour, func() { mustAppend(t, b, "t", "v") }, 2, 2000, 2+2)
	})
}

// A broker that is far behind reads the log to its end first; it doesn't send its payload to
// slots that other brokers won long ago.
func TestCatchingUpSendsFewCreates(t *testing.T) {
	for _, behind := range []int{10, 100, 1000} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, faulty := newFaulty()
				b := open(t, storetest.Slow(faulty, time.Millisecond), immediate())
				mustCreateTopic(t, b, "t", 1)
				other := open(t, storetest.Slow(memory, time.Millisecond), immediate())
				for i := range behind {
					mustAppend(t, other, "t", fmt.Sprint(i))
				}
				creates, gets := faulty.Count(objstore.VerbCreate, ""), faulty.Count(objstore.VerbGet, "")
				mustAppend(t, b, "t", "last")
				creates, gets = faulty.Count(objstore.VerbCreate, "")-creates, faulty.Count(objstore.VerbGet, "")-gets
				t.Logf("%d behind: %d creates, %d gets", behind, creates, gets)
				if creates > 3 {
					t.Errorf("%d behind: %d creates", behind, creates)
				}
			})
		})
	}
}

// While records are appended, the entries of queues share the commits of the appends: neither
// receives nor acknowledgements cost additional requests. A queue without workers costs no requests.
// A worker on a slow queue costs at most one request per record, in addition to that of the append.
func TestRequestsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		// Appends come every 10 ms. A linger of 55 ms ends no batch at the instant of an append, which
		// could then be in this batch or the next: a batch of six appends takes 60 ms, and
		// acknowledgements come 15 ms after its begin.
		opts := kit.InVirtualTime(seb.Options{Batching: seb.Timed(55*time.Millisecond, 1<<20)})
		b := open(t, storetest.Slow(faulty, 20*time.Millisecond), opts)
		mustCreateTopic(t, b, "t", 1)
		q := b.Queue("t", "work")
		mustSet(t, q, seb.QueueUpdate{})
		// count returns the requests in a minute, with an append at every interval.
		count := func(every time.Duration) (creates, gets int) {
			creates, gets = faulty.Count(objstore.VerbCreate, ""), faulty.Count(objstore.VerbGet, "")
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(every) {
				if _, err := b.AppendAsync(t.Context(), "t", values("v")); err != nil {
					t.Fatal(err)
				}
			}
			return faulty.Count(objstore.VerbCreate, "") - creates, faulty.Count(objstore.VerbGet, "") - gets
		}
		const fast = 10 * time.Millisecond
		without, _ := count(fast)
		stop := workOn(t, &seb.Worker{Source: q, Concurrency: 50, Handle: func(context.Context, seb.Message) error { return nil }})
		time.Sleep(10 * time.Second) // until the backlog is done
		with, gets := count(fast)
		t.Logf("a minute of 100 appends a second: %d creates; of 100 acknowledgements as well: %d creates, %d gets", without, with, gets)
		// A receiver wakes when the records of a commit are in the cache, and reads none from the store.
		if with > without+2 || gets > 5 {
			t.Errorf("acknowledging has requests of its own: %d creates instead of %d, %d gets", with, without, gets)
		}
		slow, gets := count(time.Second)
		t.Logf("a minute of an append and an acknowledgement a second: %d creates, %d gets", slow, gets)
		if slow > 2*60+2 || gets > 15 {
			t.Errorf("60 appends and acknowledgements: %d creates, %d gets", slow, gets)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		creates, gets := faulty.Count(objstore.VerbCreate, ""), faulty.Count(objstore.VerbGet, "")
		time.Sleep(24 * time.Hour)
		if c, g := faulty.Count(objstore.VerbCreate, "")-creates, faulty.Count(objstore.VerbGet, "")-gets; c > 0 || g > 0 {
			t.Errorf("a day of an idle queue: %d creates, %d gets", c, g)
		}
	})
}
