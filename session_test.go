package seb_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/objstore"
)

// A worker asks two brokers in turn that can't reach each other: both have the same address, such as that of
// a load balancer, or addresses where no broker answers.
func TestQueueIsDrainedThroughBrokersThatDontReachEachOther(t *testing.T) {
	for name, addresses := range map[string][2]string{
		"one address":               {"http://balancer", "http://balancer"},
		"addresses where nobody is": {"http://a", "http://b"},
		"no addresses":              {"", ""},
		"one without an address":    {"http://a", ""},
		"the other one without":     {"", "http://b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const records = 40
				store := objstore.NewMemory()
				var queues [2]*seb.Queue
				for i, address := range addresses {
					opts := immediate()
					opts.Address = address
					b := open(t, store, opts)
					if queues[i] = b.Queue("t", "work"); i == 0 {
						mustCreateTopic(t, b, "t", 1)
						mustSet(t, queues[0], seb.QueueUpdate{Lease: ptr(time.Minute)})
						appendTo(t, b, 0, records)
					}
				}
				began, done := time.Now(), 0
				for turn := 0; done < records && time.Since(began) < 5*time.Minute; turn++ {
					q := queues[turn%2]
					ms, err := q.Receive(t.Context(), seb.ReceiveOptions{Max: 1})
					var e *seb.Error
					if errors.As(err, &e) && e.Code == seb.CodeQueueElsewhere {
						err = nil
						if e.Address != "" { // no broker answers there
							err = q.TakeOver(t.Context(), e.Epoch)
						}
					}
					if err != nil && seb.CodeOf(err) != seb.CodeQueueElsewhere {
						t.Fatal(err)
					}
					if len(ms) > 0 {
						mustAck(t, q, ms...)
						done += len(ms)
					}
					time.Sleep(time.Second)
				}
				if done < records {
					t.Errorf("%d of %d records were done in %v", done, records, time.Since(began))
				}
			})
		})
	}
}

// An unknown session makes the broker sync, but all unknown sessions together only once a second.
func TestStrangersSessionsShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int64
		b := open(t, objstore.Observe(objstore.NewMemory(), func(op objstore.Op) {
			if op.Verb == objstore.VerbGet {
				gets.Add(1)
			}
		}), immediate())
		before, began := gets.Load(), time.Now()
		var strangers sync.WaitGroup
		for i := range 500 {
			strangers.Go(func() {
				for n := range 4 {
					if known, err := b.KnowsSession(t.Context(), seb.SessionKey{1, byte(i), byte(i >> 8), byte(n)}, ""); err != nil || known {
						t.Errorf("a stranger is known: %v, %v", known, err)
					}
				}
			})
		}
		strangers.Wait()
		if sent, most := gets.Load()-before, int64(time.Since(began)/time.Second)+2; sent > most {
			t.Errorf("%d requests were sent in %v", sent, time.Since(began))
		}
	})
}

// A session that the log has named is known to every broker, also to one that starts from a
// checkpoint; one on a copy of the bucket is not.
func TestSessionIsKnownToAllBrokersOfItsLog(t *testing.T) {
	store := objstore.NewMemory()
	one, two := open(t, store, immediate()), open(t, store, immediate())
	wantKnown := func(b *seb.Broker, k seb.SessionKey, want bool) {
		t.Helper()
		if known, err := b.KnowsSession(t.Context(), k, ""); err != nil || known != want {
			t.Errorf("the session is known: %v, want %v; %v", known, want, err)
		}
	}
	wantKnown(two, one.Session(), false)
	for range 2 { // the second time it costs no commit
		if err := one.NameSession(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := one.Status().Applied; n != 1 {
		t.Errorf("%d commits were made", n)
	}
	wantKnown(two, one.Session(), true)
	wantKnown(two, two.Session(), false)
	if err := one.Shutdown(t.Context()); err != nil { // writes a checkpoint
		t.Fatal(err)
	}
	wantKnown(open(t, store, immediate()), one.Session(), true)
	if one.Session() == two.Session() {
		t.Error("two brokers have one session")
	}
}
